"""What the expansions of `legalize-for-target` compute, against NumPy: in float64, and in integers exactly."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

import aicf
from aicf.backends.registry import get_kernels
from aicf.compilation.compiled import CompiledModel
from aicf.dialects import logical
from aicf.dialects.types import element_of
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.legalize.expansions import EXPANSIONS, register
from aicf.passes.legalize.legalize_for_target import LegalizeForTargetPass
from aicf.passes.legalize.lower_logical import LowerLogicalPass
from aicf.passes.logical.apply_policy import ApplyPolicyPass
from aicf.passes.logical.assign_ids import AssignIdsPass
from aicf.passes.logical.set_target import SetTargetPass
from tests.support.op_rows.recurrent import ROWS as RECURRENT
from tests.support.random_graphs import run_program

Array = NDArray[Any]


def choices(exe: CompiledModel) -> list[str]:
    return [each.choice for each in exe.decisions if each.made_by == "legalize-for-target"]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("turned", ["", "x", "first", "x first"])
@pytest.mark.parametrize("forbid", [(), ("cpu.lstm",)])
def test_recurrent_layers(forbid: tuple[str, ...], turned: str, reverse: bool) -> None:
    """One instruction after copies of what it cannot read as it lies, or the steps; the answer is the same."""
    steps, batch, hidden = 3, 4, 5
    rng = np.random.default_rng(hidden)
    shapes = {"x": (steps, batch, 4 * hidden), "w": (4 * hidden, hidden), "first": (2, batch, hidden)}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    given = {name: array.swapaxes(1, 2) if name in turned else array for name, array in arrays.items()}
    given = {name: np.ascontiguousarray(array) for name, array in given.items()}
    graph = Graph("layer")
    values = [graph.input(name, array.shape) for name, array in given.items()]
    x, w, first = (
        graph.transpose(value, [0, 2, 1]) if name in turned else value
        for name, value in zip(given, values, strict=True)
    )
    graph.output(graph.lstm(x, w, first, reverse=reverse), "y")
    exe = aicf.compile(graph.module(), target="cpu", policy={"forbid": list(forbid)})
    wanted = RECURRENT[0].oracle(*(array.astype(np.float64) for array in arrays.values()), reverse=reverse)
    np.testing.assert_allclose(exe.run(given)["y"], wanted, rtol=0, atol=1e-5)
    assert choices(exe) == (["step by step"] if forbid else ["copy"] * len(turned.split()))


def test_what_an_expansion_writes_is_expanded_in_turn() -> None:
    """A convolution of short integers becomes a product of short integers, and that a product of i32."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((2, 3, 6, 7), (5, 3, 2, 3)))
    graph = Graph("convolution")
    operands = graph.input("x", x.shape, "i8"), graph.input("w", w.shape, "i8")
    graph.output(graph.conv(*operands, widening=True, name="c"), "y")
    module = graph.module()
    kernels = get_kernels("cpu").values()
    policy = {"forbid": [each.id for each in kernels if not each.kinds.isdisjoint({"conv", "gemm"})]}
    passes = (
        ApplyPolicyPass(json.dumps(policy)),
        AssignIdsPass(),
        LowerLogicalPass(),
        LegalizeForTargetPass(),
    )
    for each in (SetTargetPass("cpu:x86-64-v3"), *passes):
        each.apply(make_context(), module)
    products = [op for op in module.walk() if isinstance(op, logical.MatmulOp)]
    assert [element_of(op.lhs.type).name for op in products] == ["i32"]
    windows = sliding_window_view(x.astype(np.int32), (2, 3), (2, 3))
    wanted = np.einsum("nchwij,mcij->nmhw", windows, w.astype(np.int32))
    np.testing.assert_array_equal(run_program(module, {"x": x, "w": w})["y"], wanted)


@pytest.mark.parametrize(
    ("target", "policy", "rows", "count", "is_expanded"),
    [
        ("cuda:sm_90a", {}, 3, 900, True),
        ("cuda:sm_90a", {}, 3, 700, False),  # short lists
        ("cuda:sm_90a", {}, 9, 9000, False),  # many rows
        ("cpu:x86-64-v3", {}, 3, 900, False),
        ("cpu:x86-64-v3", {"forbid": ["cpu.scatter"]}, 3, 900, True),
    ],
)
def test_updates_of_few_rows(
    target: str, policy: dict[str, Any], rows: int, count: int, is_expanded: bool
) -> None:
    """Sums under a mask: negative indices count from the end, others out of range drop their update, NaN as well."""
    rng = np.random.default_rng(rows)
    x, updates = rng.standard_normal((rows, 4, 5)), rng.standard_normal((count, 4, 5))
    indices = rng.integers(-rows - 2, rows + 2, count)
    updates[np.flatnonzero(indices == rows)[0]] = np.nan
    graph = Graph("scatter")
    operands = graph.input("x", x.shape, "f64"), graph.input("i", indices.shape, "i64")
    graph.output(graph.scatter(*operands, graph.input("u", updates.shape, "f64"), mode="add"), "y")
    module = graph.module()
    for each in (
        SetTargetPass(target),
        ApplyPolicyPass(json.dumps(policy)),
        AssignIdsPass(),
        LowerLogicalPass(),
        LegalizeForTargetPass(),
    ):
        each.apply(make_context(), module)
    scatters = [op for op in module.walk() if isinstance(op, logical.ScatterCombineOp)]
    assert (not scatters) == is_expanded
    wanted = x.copy()
    is_inside = (indices >= -rows) & (indices < rows)
    np.add.at(wanted, indices[is_inside], updates[is_inside])
    found = run_program(module, {"x": x, "i": indices, "u": updates})["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_an_op_has_one_expansion() -> None:
    with pytest.raises(ValueError, match="logical.conv has an expansion already"):
        register(EXPANSIONS[logical.ConvOp])
