"""Gradients of weights compiled for this machine, at every level that it runs, against float64 NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from aicf.backends.common.record import read_integer, read_text
from aicf.dialects.json_values import attribute_of
from aicf.errors import PlanError
from aicf.frontends.builder import Graph
from tests.backends.cpu.harness import NUMPY
from tests.backends.cpu.strided_kernel import Lies, StridedKernel
from tests.backends.cpu.test_conv import LEVELS_HERE

Array = NDArray[Any]
Shape = tuple[int, ...]

CASES: dict[str, tuple[Shape, Shape, dict[str, Any]]] = {
    "windows": ((3, 5, 9, 17), (3, 20, 9, 17), {"sizes": [3, 3], "low": [1, 1]}),
    "steps": ((2, 3, 20, 19), (2, 18, 10, 10), {"sizes": [7, 7], "low": [3, 3], "strides": [2, 2]}),
    "far apart": ((2, 4, 12, 11), (2, 17, 8, 5), {"sizes": [3, 2], "strides": [1, 2], "dilations": [2, 3]}),
    "nothing around": ((1, 6, 8, 30), (1, 33, 6, 14), {"sizes": [3, 3], "strides": [1, 2]}),
    "beyond the end": ((2, 4, 5, 6), (2, 9, 6, 9), {"sizes": [2, 3], "low": [0, 2]}),
    "rows that no window reaches": ((2, 4, 9, 9), (2, 8, 3, 4), {"sizes": [2, 2], "strides": [2, 2]}),
    "groups": ((3, 12, 7, 8), (3, 18, 7, 8), {"sizes": [3, 3], "low": [1, 1], "groups": 3}),
    "one dimension": ((4, 6, 40), (4, 19, 20), {"sizes": [5], "low": [2], "strides": [2]}),
    "large windows": ((2, 3, 18, 17), (2, 5, 3, 4), {"sizes": [16, 14]}),
    "blocks of rows": ((40, 2, 62, 60), (40, 16, 60, 60), {"sizes": [3, 4], "low": [0, 1]}),
}


def graph_of(case: str, dtype: str) -> Graph:
    x, grad, attributes = CASES[case]
    g = Graph("weight_grad")
    g.output(g.conv_weight_grad(g.input("x", x, dtype), g.input("grad", grad, dtype), **attributes), "y")
    return g


def arrays(case: str, dtype: str) -> list[Array]:
    random = np.random.default_rng(len(case))
    return [random.normal(size=shape).astype(NUMPY[dtype]) for shape in CASES[case][:2]]


def wanted(case: str, x: Array, grad: Array) -> Array:
    """Tap by tap, in float64."""
    attributes, rank = CASES[case][2], x.ndim - 2
    sizes, groups = attributes["sizes"], attributes.get("groups", 1)
    strides, dilations, low = (
        attributes.get(n, [d] * rank) for n, d in (("strides", 1), ("dilations", 1), ("low", 0))
    )
    counts = grad.shape[2:]
    spans = [
        (o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(counts, strides, sizes, dilations, strict=True)
    ]
    padded = np.zeros(
        (*x.shape[:2], *(max(n + lo, span) for n, lo, span in zip(x.shape[2:], low, spans, strict=True)))
    )
    padded[(..., *(slice(lo, lo + n) for lo, n in zip(low, x.shape[2:], strict=True)))] = x
    outputs, inputs = grad.shape[1] // groups, x.shape[1] // groups
    result = np.zeros((grad.shape[1], inputs, *sizes))
    rows = grad.astype(np.float64).reshape(len(x), grad.shape[1], -1)
    for tap in np.ndindex(*sizes):
        steps = [
            slice(k * d, k * d + (o - 1) * s + 1, s)
            for k, d, o, s in zip(tap, dilations, counts, strides, strict=True)
        ]
        seen = padded[(..., *steps)].reshape(len(x), x.shape[1], -1)
        for group in range(groups):
            m, c = slice(group * outputs, (group + 1) * outputs), slice(group * inputs, (group + 1) * inputs)
            result[(m, slice(None), *tap)] = np.einsum("nmo,nco->mc", rows[:, m], seen[:, c])
    return result


def check(case: str, found: Array, given: list[Array], dtype: str) -> None:
    exact = wanted(case, *given)
    unit = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}[dtype]
    times = 1 if dtype in ("f16", "bf16") else 128
    np.testing.assert_allclose(
        found.astype(np.float64), exact, rtol=0, atol=times * unit * np.abs(exact).max()
    )


@pytest.mark.parametrize("level", LEVELS_HERE)
@pytest.mark.parametrize("case", CASES)
def test_same_answer(case: str, level: str) -> None:
    dtype = "f64" if level == "x86-64-v3" else "f32"
    given = arrays(case, dtype)
    exe = aicf.compile(graph_of(case, dtype).module(), target=f"cpu:{level}")
    assert exe.ir("emit").count("emit.resolved") == 1 and 'kernel("cpu.weight_grad_' in exe.ir("emit")
    check(case, np.asarray(exe(*given)), given, dtype)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("case", ["windows", "steps", "groups", "one dimension"])
def test_halves_are_summed_in_f32(case: str, dtype: str) -> None:
    given = arrays(case, dtype)
    check(case, np.asarray(aicf.compile(graph_of(case, dtype).module(), target="cpu")(*given)), given, dtype)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("lies", [("channels", "planes"), ("planes", "channels"), ("channels", "channels")])
@pytest.mark.parametrize("case", ["windows", "steps", "groups", "beyond the end"])
def test_operands_may_lie_channels_last(case: str, lies: tuple[Lies, Lies], threads: int) -> None:
    kernel = StridedKernel(graph_of(case, "f32"), "cpu.weight_grad", lies, "planes", threads=threads)
    given = arrays(case, "f32")
    check(case, kernel(given), given, "f32")


def test_threads_share_panels_of_output_channels() -> None:
    kernel = StridedKernel(
        graph_of("blocks of rows", "f32"), "cpu.weight_grad", ("planes", "planes"), "planes"
    )
    assert read_integer(kernel.record, "threads") == 1
    assert read_text(kernel.record, "algorithm") == "direct"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"algorithm": "depthwise"}, "depthwise is of one channel a group"),
        ({"algorithm": "gemm"}, "its 'algorithm' is gemm, legal: one for windows of several elements"),
        ({"tile_vectors": 0}, "its 'tile_vectors' is 0, legal: 1 to 8"),
        ({"prepared": True}, "its 'prepared' is True, legal: False"),
        ({"copies": False}, "zeros around the input are in a copy of it"),
    ],
)
def test_a_record_that_contradicts_itself(entries: dict[str, object], message: str) -> None:
    kernel = StridedKernel(graph_of("windows", "f32"), "cpu.weight_grad", ("planes", "planes"), "planes")
    record = {**kernel.record, **{name: attribute_of(value) for name, value in entries.items()}}
    with pytest.raises(PlanError, match=message):
        kernel.kernel.read(kernel.work, record, kernel.target)


@pytest.mark.parametrize(
    ("x", "grad", "attributes", "reason"),
    [
        ((2, 4, 8, 8), (2, 6, 8, 8), {"sizes": [1, 1]}, "with windows of one element it is a product"),
        ((2, 4, 9, 9), (2, 4, 7, 7), {"sizes": [3, 3], "groups": 4}, "it has one input channel a group"),
        ((2, 4, 5, 5, 5), (2, 3, 3, 3, 3), {"sizes": [3, 3, 3]}, "its windows have one or two dimensions"),
        ((2, 4, 4, 4), (2, 16, 2, 2), {"sizes": [3, 3]}, "it has fewer windows than output channels"),
    ],
)
def test_what_is_expanded(x: Shape, grad: Shape, attributes: dict[str, Any], reason: str) -> None:
    g = Graph("weight_grad")
    g.output(g.conv_weight_grad(g.input("x", x), g.input("grad", grad), **attributes, name="d"), "y")
    exe = aicf.compile(g, target="cpu")
    assert 'kernel("cpu.weight_grad_' not in exe.ir("emit")
    (decision,) = (each for each in exe.record.decisions if each.made_by == "legalize-for-target")
    assert decision.choice == "as a product with windows" and reason in decision.because
