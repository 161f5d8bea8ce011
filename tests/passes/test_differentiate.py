"""Gradients against central differences in float64, for every op and random shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from aicf.dialects import logical
from aicf.frontends.builder import Graph
from aicf.frontends.text import verify_module
from aicf.passes.logical.assign_ids import AssignIdsPass
from aicf.passes.training.differentiate import DifferentiatePass, Unreachable
from aicf.passes.training.gradients import GRADIENTS
from tests.support.elementwise_ops import OPS
from tests.support.gradient_programs import SMOOTH_OPS, SMOOTH_ROWS, smooth, with_loss
from tests.support.op_coverage import assert_holds_every_op
from tests.support.op_rows.row import FLOATS, Row, program
from tests.support.random_graphs import run_program

Array = NDArray[Any]


def _slope(loss: Callable[[float], float], step: float = 1e-4) -> float:
    """The derivative at 0 by central differences of fourth order and a step of Richardson's extrapolation."""

    def central(h: float) -> float:
        return (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h)

    return (16 * central(step / 2) - central(step)) / 15


def _check(module: ModuleOp, inputs: Mapping[str, Array], random: np.random.Generator) -> None:
    baseline = module.clone()
    result = run_program(baseline, inputs)
    (name,) = result
    if not np.all(np.isfinite(result[name])):
        reject()
    weights = random.normal(size=result[name].shape)
    training, by = with_loss(module, weights)
    DifferentiatePass().apply(Context(), training)
    verify_module(training)
    found = run_program(training, {**inputs, "weights": weights})
    for name_by in by:
        direction = random.uniform(-1, 1, inputs[name_by].shape)

        def loss(t: float, name_by: str = name_by, direction: Array = direction) -> float:
            moved = {**inputs, name_by: inputs[name_by] + t * direction}
            return float(np.sum(run_program(baseline, moved)[name] * weights))

        wanted = _slope(loss)
        if abs(wanted - _slope(loss, 3e-5)) > 1e-8 * max(1.0, abs(wanted)):
            reject()  # there is a kink between
        slope = float(np.sum(found[f"d{name_by}"] * direction))
        scale = max(1.0, float(np.sum(np.abs(found[f"d{name_by}"] * direction))))
        assert abs(slope - wanted) <= 1e-8 * scale, f"{name_by}: {slope}, wanted {wanted}"


@pytest.mark.parametrize("row", SMOOTH_ROWS, ids=lambda row: row.name)
@settings(max_examples=15)
@given(data=st.data())
def test_same_slope(row: Row, data: st.DataObject) -> None:
    use = data.draw(row.uses("f64").filter(lambda use: use.attributes.get("element", "f64") in FLOATS))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    module, inputs = program([use])
    try:
        _check(module, smooth(inputs, random, positive=row.name == "batch_norm"), random)
    except Unreachable:
        if row.name != "max_pool_grad":
            raise
        reject()  # all windows lie in the padding


@pytest.mark.parametrize("name", SMOOTH_OPS)
def test_same_slope_elementwise(name: str) -> None:
    op = OPS[name]
    random = np.random.default_rng(0)
    module = op.program((5, 7), "f64")
    positive = name in ("log", "sqrt", "rsqrt", "pow", "log1p", "acosh")
    inputs = {f"x{number}": np.zeros((5, 7)) for number in range(op.operands)}
    inputs = smooth(inputs, random, positive=positive)
    if name == "acosh":
        inputs["x0"] += 1
    if name in ("asin", "acos", "atanh", "tan"):
        inputs["x0"] /= 3
    _check(module, inputs, random)


WINDOWS = {
    "all of it": [((0, 0), (2, 3)), ((0, 3), (2, 3)), ((0, 6), (2, 3))],
    "not in order": [((0, 6), (2, 3)), ((0, 0), (2, 3)), ((0, 3), (2, 3))],
    "zeros around": [((1, 1), (2, 3)), ((1, 4), (2, 3))],
    "a gap": [((0, 0), (2, 3)), ((0, 5), (2, 3))],
    "meeting": [((0, 0), (2, 3)), ((0, 2), (2, 3))],
    "twice the same": [((0, 2), (2, 3)), ((0, 2), (2, 3)), ((0, 5), (2, 3))],
    "at a corner": [((0, 0), (2, 3)), ((2, 3), (2, 3))],
    "along the first": [((0, 4), (2, 3)), ((2, 4), (2, 3))],
}


@pytest.mark.parametrize("windows", WINDOWS.values(), ids=WINDOWS)
def test_slices_of_one_value(windows: list[tuple[tuple[int, int], tuple[int, int]]]) -> None:
    """What slices of one value pass back, joined or added, against NumPy: the loss is a weighted sum of each."""
    random, graph = np.random.default_rng(0), Graph("slices")
    x = graph.param("x", (4, 9), "f64")
    weights = [random.normal(size=size) for _, size in windows]
    parts = [
        graph.slice(x, start, size) * graph.constant(weight, size, "f64")
        for (start, size), weight in zip(windows, weights, strict=True)
    ]
    loss = graph.reduce_sum(graph.concat(parts, 0), [0, 1])
    graph.output(graph.gradient(loss, x), "dx")
    module = graph.module()
    AssignIdsPass().apply(Context(), module)
    DifferentiatePass().apply(Context(), module)
    verify_module(module)
    wanted = np.zeros((4, 9))
    for ((row, column), (rows, columns)), weight in zip(windows, weights, strict=True):
        wanted[row : row + rows, column : column + columns] += weight
    np.testing.assert_array_equal(run_program(module, {"x": random.normal(size=(4, 9))})["dx"], wanted)


@pytest.mark.new_op
def test_every_op_says_what_it_passes_back() -> None:
    """All but steps of optimizers, after which nothing is learned."""
    optimizers = [op for op in logical.Logical.operations if issubclass(op, logical.OptimizerOp)]
    assert_holds_every_op(GRADIENTS, "passes/training/gradients/", besides=optimizers)
