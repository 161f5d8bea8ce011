"""Rows of counters and of what follows from them: one number each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from aicf.dialects import logical
from aicf.dialects.types import element_named
from tests.support.op_rows.row import Array, Draw, OperandsAndAttrs, Row

RESULTS = ("f64", "f32")


def _number(draw: Draw, least: int = 1, most: int = 10**6) -> Array:
    return np.array(draw(st.one_of(st.integers(least, 30), st.integers(least, most))), np.int64)


def _step(draw: Draw, dtype: str) -> OperandsAndAttrs:
    return [_number(draw, 0, 10**6).astype(element_named(dtype).dtype)], {}


def _bias_corr(draw: Draw, dtype: str) -> OperandsAndAttrs:
    return [_number(draw)], {"beta": draw(st.sampled_from([0.0, 0.5, 0.9, 0.999])), "element": dtype}


def _corrected(step: Array, beta: float, element: str) -> float:
    return -math.expm1(int(step) * math.log(beta)) if beta else 1.0


def _learning_rate(draw: Draw, dtype: str) -> OperandsAndAttrs:
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


def _step_rate(draw: Draw, dtype: str) -> OperandsAndAttrs:
    attributes: dict[str, Any] = {"base": 0.5, "factor": draw(st.sampled_from([0.1, 0.5, 1.0, 1.25]))}
    attributes |= {"warmup": draw(st.sampled_from([0, 1, 5])), "element": dtype}
    if draw(st.booleans()):
        return [_number(draw, most=100)], {**attributes, "period": draw(st.integers(1, 30))}
    milestones = sorted(draw(st.lists(st.integers(0, 40), min_size=1, max_size=5)))
    return [_number(draw)], {**attributes, "milestones": milestones}


def _stepped(
    step: Array,
    base: float,
    factor: float,
    warmup: int,
    element: str,
    period: int = 0,
    milestones: Sequence[int] = (),
) -> float:
    if step <= warmup:
        return base * int(step) / warmup
    rate = base
    for done in range(1, min(int(step) - warmup, 200)):
        rate *= factor if done in milestones or (period and done % period == 0) else 1
        rate *= factor ** (milestones.count(done) - 1) if done in milestones else 1
    return rate * factor ** list(milestones).count(0)


def _one_cycle(draw: Draw, dtype: str) -> OperandsAndAttrs:
    total = draw(st.integers(3, 60))
    attributes: dict[str, Any] = {
        "anneal": draw(st.sampled_from(logical.ANNEALS)),
        "base": 0.125,
        "peak": 1.0,
        "final": draw(st.sampled_from([0.0, 0.25])),
        "rise": draw(st.floats(0.05, 0.95)) * (total - 1),
        "total": total,
    }
    return [_number(draw)], {**attributes, "element": dtype}


def _cycled(
    step: Array, anneal: str, base: float, peak: float, final: float, rise: float, total: int, element: str
) -> float:
    part = float(np.interp(int(step) - 1, [0, rise, total - 1], [0, 1, 2]))
    low, share = (base, part) if part <= 1 else (final, 2 - part)
    return low + (peak - low) * (share if anneal == "linear" else math.sin(math.pi / 2 * share) ** 2)


ROWS = (
    Row(logical.StepIncOp, _step, lambda step: step + 1, ("i64",)),
    Row(logical.BiasCorrOp, _bias_corr, _corrected, RESULTS),
    Row(logical.LearningRateOp, _learning_rate, _rate, RESULTS),
    Row(logical.StepRateOp, _step_rate, _stepped, RESULTS),
    Row(logical.OneCycleRateOp, _one_cycle, _cycled, RESULTS),
)
