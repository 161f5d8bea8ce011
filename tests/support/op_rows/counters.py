"""Rows of counters and of what follows from them: one number each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from aicf.dialects import logical
from aicf.dialects.types import element_named
from tests.support.op_rows.row import Array, Draw, Drawn, Row

RESULTS = ("f64", "f32")


def _number(draw: Draw, least: int = 1, most: int = 10**6) -> Array:
    return np.array(draw(st.one_of(st.integers(least, 30), st.integers(least, most))), np.int64)


def _step(draw: Draw, dtype: str) -> Drawn:
    return [_number(draw, 0, 10**6).astype(element_named(dtype).dtype)], {}


def _bias_corr(draw: Draw, dtype: str) -> Drawn:
    return [_number(draw)], {"beta": draw(st.sampled_from([0.0, 0.5, 0.9, 0.999])), "element": dtype}


def _corrected(step: Array, beta: float, element: str) -> float:
    return -math.expm1(int(step) * math.log(beta)) if beta else 1.0


def _learning_rate(draw: Draw, dtype: str) -> Drawn:
    warmup = draw(st.sampled_from([0, 1, 5]))
    schedule = draw(st.sampled_from(logical.SCHEDULES))
    attributes: dict[str, Any] = {"schedule": schedule, "base": 0.5, "warmup": warmup, "element": dtype}
    if schedule != "constant":
        attributes |= {
            "total": warmup + draw(st.integers(1, 30)),
            "final": draw(st.sampled_from([0.0, 0.125])),
        }
    return [_number(draw)], attributes


def _rate(
    step: Array, schedule: str, base: float, warmup: int, element: str, total: int = 0, final: float = 0.0
) -> float:
    if step <= warmup:
        return base * int(step) / warmup
    if schedule == "constant":
        return base
    left = max(1 - (int(step) - 1 - warmup) / (total - warmup), 0.0)
    return final + (base - final) * (left if schedule == "linear" else math.sin(math.pi / 2 * left) ** 2)


ROWS = (
    Row(logical.StepIncOp, _step, lambda step: step + 1, ("i64",)),
    Row(logical.BiasCorrOp, _bias_corr, _corrected, RESULTS),
    Row(logical.LearningRateOp, _learning_rate, _rate, RESULTS),
)
