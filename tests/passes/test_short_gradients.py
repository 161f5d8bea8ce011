"""Gradients of halves: what is kept and moved is as short as they are, and what comes of it is that of float64."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from aicf.dialects import logical
from aicf.dialects.types import byte_count, element_of
from aicf.frontends.builder import Graph
from aicf.passes.legalize.lower_logical import LowerLogicalPass
from aicf.passes.logical.assign_ids import AssignIdsPass
from aicf.passes.training.differentiate import DifferentiatePass
from tests.support.random_graphs import run_program

Array = NDArray[np.float64]
UNIT = 2.0**-8
"""Half a unit in the last place of 1 in bf16."""


def differentiated(g: Graph) -> ModuleOp:
    module = g.module()
    for each in (AssignIdsPass(), DifferentiatePass()):
        each.apply(Context(), module)
    return module


POOLS = {
    "overlapping": ((2, 3, 9, 8), (3, 3), (2, 2), (1, 1), (1, 1)),
    "apart": ((1, 2, 11, 7), (2, 1), (3, 2), (1, 1), (0, 0)),
    "spread": ((2, 2, 10, 9), (3, 2), (1, 2), (2, 3), (2, 1)),
    "narrow": ((1, 2, 6, 1), (2, 1), (1, 1), (1, 1), (1, 0)),
    "one dimension": ((2, 3, 17), (4,), (3,), (1,), (2,)),
}
"""Shape, then sizes, strides, dilations and padding of windows."""


def maxima_pass_back(x: Array, grad: Array, windows: tuple[tuple[int, ...], ...]) -> Array:
    """Window by window: to the first of the largest elements."""
    sizes, strides, dilations, low = windows
    result = np.zeros(x.shape)
    for index in np.ndindex(*grad.shape):
        lead, place = index[:2], index[2:]
        starts = [o * step - before for o, step, before in zip(place, strides, low, strict=True)]
        inside = [
            [start + k * apart for k in range(size) if 0 <= start + k * apart < whole]
            for start, size, apart, whole in zip(starts, sizes, dilations, x.shape[2:], strict=True)
        ]
        best = max(product(*inside), key=lambda at: x[(*lead, *at)])
        result[(*lead, *best)] += grad[index]
    return result


@pytest.mark.parametrize("case", POOLS)
def test_maxima_pass_back_in_short_types(case: str) -> None:
    """Equal elements among them: values are few."""
    shape, *windows = POOLS[case]
    sizes, strides, dilations, low = windows
    g = Graph("pool")
    x = g.param("x", shape, "bf16")
    y = g.max_pool(x, sizes, strides=strides, dilations=dilations, low=low, high=low)
    weights = g.input("weights", y.shape, "bf16")
    loss = g.reduce_sum(g.cast(y * weights, "f32"), list(range(len(shape))))
    g.output(g.gradient(loss, x), "dx")
    module = differentiated(g)
    random = np.random.default_rng(len(case))
    given = {
        "x": random.integers(-3, 4, shape).astype(ml_dtypes.bfloat16),
        "weights": random.normal(size=y.shape).astype(ml_dtypes.bfloat16),
    }
    exact = maxima_pass_back(*(given[name].astype(np.float64) for name in ("x", "weights")), tuple(windows))
    found = run_program(module, given, "typed")["dx"].astype(np.float64)
    np.testing.assert_allclose(found, exact, rtol=UNIT, atol=UNIT * 1e-3)
    LowerLogicalPass().apply(Context(), module)
    lowered = run_program(module, given, "typed")["dx"].astype(np.float64)
    np.testing.assert_allclose(lowered, exact, rtol=UNIT, atol=UNIT * 1e-3)
    moving = (op for op in module.walk() if isinstance(op, logical.PadOp | logical.ConcatOp))
    moved = {element_of(op.result.type).name for op in moving}
    assert moved == {"bf16", "i8"} if case == "overlapping" else moved <= {"bf16", "i8"}


def test_what_is_centered_is_not_kept() -> None:
    """The variance of a batch keeps its operand in bf16, and the mean. It passes back 2 (x - mean) / N times its own
    gradient, whether or not anything passes back to the mean."""
    g = Graph("variance")
    x = g.param("x", (6, 5, 7), "bf16")
    h = x * g.input("scale", (6, 5, 7), "bf16")
    wide = g.cast(h, "f32")
    mean = g.reduce_mean(wide, [0, 2], keepdims=True)
    centered = wide - g.detach(mean)
    variance = g.reduce_mean(centered * centered, [0, 2])
    weights = g.input("weights", (5,), "f32")
    g.output(g.gradient(g.reduce_sum(variance * weights, [0]), x), "dx")
    module = differentiated(g)
    random = np.random.default_rng(7)
    given = {
        "x": random.normal(size=(6, 5, 7)).astype(ml_dtypes.bfloat16),
        "scale": random.normal(size=(6, 5, 7)).astype(ml_dtypes.bfloat16),
        "weights": random.normal(size=5).astype(np.float32),
    }
    values, scale, weights_of = (given[name].astype(np.float64) for name in ("x", "scale", "weights"))
    product_of = (values * scale).astype(ml_dtypes.bfloat16).astype(np.float64)
    away = product_of - product_of.mean((0, 2), keepdims=True)
    exact = 2 * away / 42 * weights_of[:, None] * scale
    found = run_program(module, given, "typed")["dx"].astype(np.float64)
    np.testing.assert_allclose(found, exact, rtol=3 * UNIT, atol=UNIT * np.abs(exact).max())
    saved = [op.operand.type for op in module.walk() if isinstance(op, logical.SaveOp)]
    assert {element_of(each).name for each in saved if byte_count(each) > 20} == {"bf16"}
