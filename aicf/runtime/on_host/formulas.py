"""What the executable computes of meta scalars: a function for each formula that a plan may name.

Counters and rates as the program itself would compute them: in f64, with the operations in the order of the program's
formulas, and rounded to the type of the meta; i64 wraps. Their text form is `dialects/host_formulas.py`.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Number: TypeAlias = int | float

_WRAP = 1 << 64
_HALF = 1 << 63


def _mod(a: int, b: int) -> int:
    """What is left, with the sign of b; a by 0 is a. Of integers only."""
    return a % b if b else a


def _and(a: int, b: int) -> int:
    return a & b


def _step_inc(step: Number) -> Number:
    return step + 1


def _bias_corr(step: Number, *, beta: float) -> float:
    """1 - beta ** step, without cancellation."""
    return -math.expm1(step * math.log(beta)) if beta else 1.0


def _learning_rate(
    step: Number, *, schedule: str, base: float, warmup: int, total: int, final: float
) -> float:
    """Up by a line, then by the schedule; see `logical.learning_rate`."""
    if warmup and step <= warmup:
        return step * (base / warmup)
    if schedule == "constant":
        return base
    progress = min((step - (warmup + 1.0)) / float(total - warmup), 1.0)
    return _between(schedule, progress, base, final)


def _between(shape: str, progress: float, start: float, end: float) -> float:
    """From start to end as progress goes from 0 to 1."""
    if shape == "linear":
        return progress * (end - start) + start
    return math.cos(progress * math.pi) * ((start - end) / 2) + (start + end) / 2


def _step_rate(
    step: Number, *, base: float, factor: float, warmup: int, period: int, milestones: Sequence[int]
) -> float:
    """Up by a line, then down by steps; see `logical.step_rate`."""
    if warmup and step <= warmup:
        return step * (base / warmup)
    done = step - (warmup + 1)
    if period:
        return math.exp(math.floor(done / period) * math.log(factor)) * base
    return base * factor ** sum(milestone <= done for milestone in milestones)


def _one_cycle_rate(
    step: Number, *, anneal: str, base: float, peak: float, final: float, rise: float, total: int
) -> float:
    """Up to the peak, then down; see `logical.one_cycle_rate`."""
    done = step - 1.0
    if done <= rise:
        return _between(anneal, done / rise, base, peak)
    return _between(anneal, min((done - rise) / (total - 1 - rise), 1.0), peak, final)


@dataclass(frozen=True)
class Formula:
    """How to compute a number: operands by position, attributes of these types by name; lists are of integers."""

    compute: Callable[..., Number]
    operands: int
    numbers: Mapping[str, type] = field(default_factory=dict[str, type])


_RATE = {"schedule": str, "base": float, "warmup": int, "total": int, "final": float}
_STEPS = {"base": float, "factor": float, "warmup": int, "period": int, "milestones": list}
_CYCLE = {"anneal": str, "base": float, "peak": float, "final": float, "rise": float, "total": int}

FORMULAS: Mapping[str, Formula] = {
    "add": Formula(operator.add, 2),
    "sub": Formula(operator.sub, 2),
    "mul": Formula(operator.mul, 2),
    "mod": Formula(_mod, 2),
    "and": Formula(_and, 2),
    "step_inc": Formula(_step_inc, 1),
    "bias_corr": Formula(_bias_corr, 1, {"beta": float}),
    "learning_rate": Formula(_learning_rate, 1, _RATE),
    "step_rate": Formula(_step_rate, 1, _STEPS),
    "one_cycle_rate": Formula(_one_cycle_rate, 1, _CYCLE),
}
"""The formulas by name."""


def _i64(value: Number) -> int:
    return (int(value) + _HALF) % _WRAP - _HALF


_F32 = struct.Struct("f")


def _f32(value: Number) -> float:
    try:
        return _F32.unpack(_F32.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


ROUND: Mapping[str, Callable[[Any], Number]] = {"i64": _i64, "f32": _f32, "f64": float}
"""A number as an element type holds it."""
