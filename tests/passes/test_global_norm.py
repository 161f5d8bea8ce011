"""The norm of many tensors: a sum for each element type and not for each tensor, of the narrow values, in one order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import aicf
from aicf.dialects.emit import PREPARE, ProgramOp
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_training import AicfTrainingPass

Array = np.ndarray
SIZES = {
    "odd": [(1,), (7,), (129,), (50257,), (3, 5, 7)],
    "even": [(64, 128), (128,), (10, 64), (16, 16)],
    "one": [(33, 3)],
    "numbers": [(), (2, 2), ()],
}


def norm_of(arrays: Mapping[str, Array]) -> float:
    return float(np.sqrt(sum(float(np.square(each.astype(np.float64)).sum()) for each in arrays.values())))


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v3", "reference"])
@pytest.mark.parametrize("dtypes", [("f32",), ("bf16", "f32"), ("f16", "bf16", "f32")])
@pytest.mark.parametrize("name", SIZES)
def test_the_norm_of_all_elements(name: str, dtypes: tuple[str, ...], target: str) -> None:
    """Of computed values, which are written side by side, and of inputs, which lie anywhere."""
    random, graph = np.random.default_rng(len(name)), Graph("norms")
    arrays, parts, wide = dict[str, Array](), [], dict[str, Array]()
    for number, shape in enumerate(SIZES[name]):
        dtype = dtypes[number % len(dtypes)]
        value = np.asarray(random.standard_normal(shape)).astype(
            {"bf16": ml_dtypes.bfloat16, "f16": np.float16}.get(dtype, np.float32)
        )
        x = graph.input(f"x{number}", shape, dtype)
        arrays[f"x{number}"], computed = value, number % 2 == 0
        part = x + x if computed else x
        wide[f"x{number}"] = (value + value if computed else value).astype(np.float64)
        parts.append(part if dtype == "f32" else graph.cast(part, "f32"))
    graph.output(graph.global_norm(parts), "norm")
    found = aicf.compile(graph, {}, target)(**arrays)
    np.testing.assert_allclose(np.asarray(found), norm_of(wide), 3e-6)


def test_a_value_that_is_given_twice_counts_twice() -> None:
    """Whole, or as slices that are all of another value."""
    x = np.random.default_rng(5).standard_normal((6, 5)).astype(np.float32)
    g = Graph("twice")
    value = g.exp(g.input("x", x.shape))
    half = g.slice(value, [0, 0], [3, 5])
    g.output(g.global_norm([value, value]), "both")
    g.output(g.global_norm([half, half, g.slice(value, [3, 0], [3, 5])]), "more")
    both, more = aicf.compile(g, {}, "cpu")(x=x)
    wide = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(both, np.sqrt(2 * np.square(wide).sum()), 3e-6)
    np.testing.assert_allclose(more, np.sqrt(np.square(wide).sum() + np.square(wide[:3]).sum()), 3e-6)


def test_symbolic_sizes_have_a_sum_each() -> None:
    g = Graph("symbolic")
    x, y = g.input("x", ("N", 3)), g.input("y", (4,))
    g.output(g.global_norm([x, y]), "norm")
    feeds = {"x": np.full((5, 3), 2.0, np.float32), "y": np.ones(4, np.float32)}
    found = aicf.compile(g, {}, "cpu", dims={"N": [5]})(**feeds)
    np.testing.assert_allclose(np.asarray(found), 8.0)


def instructions(module: ModuleOp, target: str = "cuda:sm_90a") -> list[str]:
    """The names of the instructions of a training step."""
    AicfTrainingPass(target=target).apply(make_context(), module)
    return [
        each.id.data if hasattr(each, "id") else str(each)
        for program in module.body.block.ops
        if isinstance(program, ProgramOp) and program.sym_name.data != PREPARE
        for each in program.instructions
    ]


def clipped(layers: int, clip: bool, dtype: str = "bf16") -> ModuleOp:
    """A step of a network in mixed precision, its gradients clipped or not."""
    g: Any = Graph("clipped")
    x, y = g.input("x", (256, 256), dtype), g.input("y", (256, 256), "f32")
    weights = [g.param(f"w{number}", (256, 256), "f32") for number in range(layers)]
    biases = [g.param(f"b{number}", (256,), "f32") for number in range(layers)]
    h = x
    for w, b in zip(weights, biases, strict=True):
        h = g.relu(g.linear(h, g.cast(w, dtype), g.cast(b, dtype)))
    loss = g.mse_loss(g.cast(h, "f32"), y)
    g.output(loss, "loss")
    gradients = [g.gradient(loss, each) for each in (*weights, *biases)]
    if clip:
        factor = g.clip_factor(g.global_norm(gradients), 1.0)
        gradients = [each * factor for each in gradients]
    rate = g.constant(0.1)
    for each, gradient in zip((*weights, *biases), gradients, strict=True):
        g.update(each, each - gradient * rate)
    return g.module()


@pytest.mark.parametrize("target", ["cuda:sm_90a", "cpu:x86-64-v3"])
def test_clipping_adds_one_instruction_however_many_tensors_there_are(target: str) -> None:
    """The gradients are the narrow ones that the products give, and the factor is part of the update."""
    added = [
        len(instructions(clipped(layers, True), target)) - len(instructions(clipped(layers, False), target))
        for layers in (2, 6)
    ]
    assert added == [1, 1]


def test_slices_that_are_all_of_a_value_are_read_as_that() -> None:
    """As the gradients of merged products are; slices that leave a part out, or meet, are read as they are."""
    random = np.random.default_rng(2)
    x = random.standard_normal((9, 40)).astype(np.float32)
    for starts, sizes in (((0, 3, 6), (3, 3, 3)), ((6, 0, 3), (3, 3, 3)), ((0, 4), (3, 5)), ((0, 2), (3, 7))):
        g = Graph("slices")
        whole = g.exp(g.input("x", x.shape))
        parts = [g.slice(whole, [start, 0], [size, 40]) for start, size in zip(starts, sizes, strict=True)]
        g.output(g.global_norm(parts), "norm")
        exe = aicf.compile(g, {}, "cpu")
        wide = np.exp(x.astype(np.float64))
        rows = {
            str(n): wide[start : start + size]
            for n, (start, size) in enumerate(zip(starts, sizes, strict=True))
        }
        np.testing.assert_allclose(np.asarray(exe(x=x)), norm_of(rows), 3e-6)
        tiled = sum(sizes) == 9 and len(starts) == 3
        assert ("concat" in exe.ir("lowered")) != tiled
