"""cuDNN's convolutions without a GPU: which work is legal, and that a record is the call that does it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.compiler.launches import LibraryCall
from aicf.backends.cuda.families.conv.cudnn.codegen import emit
from aicf.backends.cuda.families.conv.cudnn.kernel import ConvCudnnKernel
from aicf.backends.cuda.families.conv.cudnn.problem import ACTIVATIONS
from aicf.backends.cuda.runtime.cudnn import values
from aicf.compilation.record import Options
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.json_values import attribute_of, json_value
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.bodies.workload import workload_of
from aicf.tuning.candidates import grouped
from tests.backends.cuda import cudnn_model
from tests.backends.cuda.gemm_launches import launch_of
from tests.gpu.convolutions import Convolution, convolutions, drawn, image_layer
from tests.support.record_checks import record_reason

TARGET = TargetAttr("cuda", "sm_90a")
KERNEL = ConvCudnnKernel()
LAYER = image_layer(2, 16, 24, 9)

_MODULES: list[ModuleOp] = []
"""Works hold parts of them, and go with them."""


def work_in(graph: Graph, **policy: object) -> Workload:
    """What kernels are asked to run: the group that holds the convolution."""
    options = Options("cuda:sm_90a", json.dumps(policy), "", 1)
    module = grouped(graph.module(), options, make_context(), lambda _: None)
    _MODULES.append(module)
    works = [workload_of(op).work for op in module.walk() if isinstance(op, GroupOp)]
    (found,) = (work for work in works if work.kind == "conv")
    return found


def work_of(made: Convolution, dtype: str = "f16", **policy: object) -> Workload:
    lies = {"*": "channels_last" if made.result_last else "row_major"}
    return work_in(convolutions(dtype, [made]), **{"layouts": lies, **policy})


def call_of(work: Workload) -> LibraryCall:
    """The call of a work whose operands are table entries 0, 1, ... in order, results last."""
    record = {**KERNEL.record(work, TARGET), **KERNEL.device_fields}
    (call,) = emit(launch_of(work, KERNEL.id, record))
    return call


def operands_of(work: Workload, call: LibraryCall, seed: int) -> dict[str, np.ndarray]:
    """Random values of the operands, by what the call names them."""
    rng = np.random.default_rng(seed)
    names = [str(each) for each in call.call["operands"]]  # type: ignore[union-attr]
    places = {name: address.base for name, address in zip(names, call.operands, strict=True)}
    return {
        name: rng.standard_normal(work.operands[place].shape)
        for name, place in places.items()
        if place < len(work.operands)
    }


def convolved(made: Convolution, at: Mapping[str, np.ndarray]) -> np.ndarray:
    """The convolution and what follows it, from its description: a sum over windows."""
    rank = len(made.sizes)
    padded = np.pad(at["x"], [(0, 0), (0, 0), *zip(made.low, made.high, strict=True)])
    reach = [(k - 1) * apart + 1 for k, apart in zip(made.taps, made.dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=tuple(range(2, 2 + rank)))
    windows = windows[(slice(None), slice(None), *(slice(None, None, step) for step in made.strides))]
    windows = windows[(..., *(slice(None, None, apart) for apart in made.dilations))]
    each = made.outputs // made.groups
    parts = [
        np.tensordot(
            windows[:, group * at["weight"].shape[1] : (group + 1) * at["weight"].shape[1]],
            at["weight"][group * each : (group + 1) * each],
            axes=([1, *range(2 + rank, 2 + 2 * rank)], list(range(1, 2 + rank))),
        )
        for group in range(made.groups)
    ]
    y = np.moveaxis(np.concatenate(parts, axis=-1), -1, 1)
    if "bias" in at:
        y = y + at["bias"].reshape(-1, *(1,) * rank)
    if "residual" in at:
        y = y + at["residual"]
    name = {"relu": "relu", "residual": "relu", "gelu": "gelu", "silu": "silu"}.get(made.after, "none")
    return cudnn_model.ACTIVATIONS[name](y)


@pytest.mark.parametrize("seed", range(60))
def test_a_record_is_the_call_that_does_the_work(seed: int) -> None:
    """For any sizes, strides, padding, groups and places in memory: by cuDNN's rules, on random data."""
    made = drawn(random.Random(seed), 1 << 16)
    work = work_of(made, "f32")
    assert KERNEL.legal(work, TARGET) is None
    call = call_of(work)
    at = operands_of(work, call, seed)
    result = cudnn_model.run(cudnn_model.node_of(call), at)
    np.testing.assert_allclose(result, convolved(made, at), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name != "none"])
def test_activations_are_told_from_the_program(name: str) -> None:
    """Each is found in what `lower-logical` makes of it, and is one that a graph of cuDNN has."""
    graph = Graph("activation")
    x, w = graph.input("x", (1, 4, 5, 5), "f32"), graph.param("w", (6, 4, 3, 3), "f32")
    op, approximate = ("gelu", {"approximate": "tanh"}) if name == "gelu_tanh" else (name, {})
    graph.output(getattr(graph, op)(graph.conv(x, w), **approximate), "y")
    work = work_in(graph)
    assert KERNEL.legal(work, TARGET) is None
    assert KERNEL.record(work, TARGET)["activation"] == attribute_of(name)
    assert values.ACTIVATIONS[name] is not None


def _wider(work: Workload) -> Workload:
    return replace(work, results=(replace(work.results[0], dtype="f32"),))


def _turned(work: Workload) -> Workload:
    x, *others = work.operands
    images, channels, *pixels = x.strides
    return replace(
        work, operands=(replace(x, strides=(images, channels, *(-step for step in pixels))), *others)
    )


def _shifted(work: Workload) -> Workload:
    x, *others = work.operands
    return replace(work, operands=(replace(x, offset=3), *others))


def _residual_elsewhere(work: Workload) -> Workload:
    *others, residual = work.operands
    images, _, rows, columns = residual.shape
    strides = (images * rows * columns, rows * columns, columns, 1)
    return replace(work, operands=(*others, replace(residual, strides=strides)))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_wider, "all operands alike; here are f16, f32"),
        (_turned, "cudnn reads forwards, every element once; the strides of x are [1296, 1, -144, -16]"),
        (_shifted, "tensors that start at multiples of 16 bytes"),
        (_residual_elsewhere, "a residual that lies as the result does"),
        (lambda work: replace(work, rounding="strict"), "rounds once after its epilogue"),
    ],
)
def test_what_cudnn_is_not_given_has_a_reason(change: Any, reason: str) -> None:
    work = work_of(LAYER)
    assert KERNEL.legal(work, TARGET) is None
    assert reason in str(KERNEL.legal(change(work), TARGET))


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (lambda g, y: g.hard_swish(y), "no such epilogue"),
        (lambda g, y: g.max(y, _given(g, "r")), "no such epilogue"),
        (lambda g, y: g.mul(y, y), "no such epilogue"),
        (
            lambda g, y: g.add(g.add(y, _given(g, "r")), _given(g, "s")),
            "cudnn adds one residual, here are two",
        ),
    ],
)
def test_what_follows_is_an_epilogue_of_cudnn_or_another_kernels(after: Any, reason: str) -> None:
    graph = Graph("epilogue")
    x, w = graph.input("x", (1, 16, 8, 8), "f16"), graph.param("w", (24, 16, 3, 3), "f16")
    graph.output(after(graph, graph.conv(x, w, low=(1, 1), high=(1, 1))), "y")
    assert reason in str(KERNEL.legal(work_in(graph), TARGET))


def _given(graph: Graph, name: str) -> Any:
    return graph.input(name, (1, 24, 8, 8), "f16")


# Records


def test_only_tf32_lets_f32_through_tensor_cores() -> None:
    """And no plan may differ between runs, whatever the type."""
    work = work_of(LAYER, "f32")
    exact, rounded = (
        json_value(KERNEL.record(each, TARGET)["barred_notes"]) for each in (work, replace(work, tf32=True))
    )
    assert isinstance(exact, list) and isinstance(rounded, list)
    assert set(exact) - set(rounded) == {"TENSOR_CORE"}  # type: ignore[arg-type]
    halves = json_value(KERNEL.record(work_of(LAYER), TARGET)["barred_notes"])
    assert halves == rounded and "NONDETERMINISTIC" in rounded
    assert KERNEL.cost_us(replace(work, tf32=True), TARGET) <= KERNEL.cost_us(work, TARGET)


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("activation", "none"),
        ("barred_notes", []),
        ("high", [0, 0]),
        ("bias", []),
        ("workspace_bytes", 1 << 40),
    ],
)
def test_an_edited_call_is_refused(entry: str, value: object) -> None:
    """Another epilogue or padding than the body's, or a plan that may differ between runs, is no call of it."""
    work = work_of(LAYER)
    record = {**KERNEL.record(work, TARGET), **KERNEL.device_fields}
    assert record_reason(KERNEL, work, record, TARGET) is None
    said = str(record_reason(KERNEL, work, {**record, entry: attribute_of(value)}, TARGET))
    assert f"its '{entry}' is {value}" in said


def test_all_addresses_are_fixed_and_a_parameter_is_packed() -> None:
    """A weight that is given at every run lies where it does."""
    record = KERNEL.record(work_of(LAYER), TARGET)
    assert json_value(record["fixed_addresses"]) == [0, 1, 2, 3, 4]
    assert json_value(record["weight"]) == {"sizes": [24, 16, 3, 3], "strides": [144, 1, 48, 16]}
    assert "layouts" in record
    given = KERNEL.record(work_of(replace(LAYER, is_param=False)), TARGET)
    assert json_value(given["weight"]) == {"sizes": [24, 16, 3, 3], "strides": [144, 9, 3, 1]}
    assert "layouts" not in given


def test_what_is_not_channels_last_is_predicted_to_be_copied() -> None:
    last, rows = (work_of(replace(LAYER, operand_last=last, result_last=last)) for last in (True, False))
    assert KERNEL.cost_us(last, TARGET) + 6 < KERNEL.cost_us(rows, TARGET)
