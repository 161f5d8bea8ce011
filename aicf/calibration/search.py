"""Which ops stay f32 so that no more accuracy is lost than was asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from aicf.calibration.report import OpAccuracy

Lost: TypeAlias = Callable[[frozenset[str]], float]
"""The loss of a model whose ops of these ids are rounded."""


def ranked(ops: Sequence[OpAccuracy]) -> list[str]:
    """The ids, the costliest rounding first: by error for each predicted microsecond that it saves, and by error alone
    where no time is known of any. An op that saves nothing costs the most.
    """
    known = any(each.saved_us is not None for each in ops)

    def cost(op: OpAccuracy) -> tuple[float, float]:
        if not known:
            return op.relative_error, 0.0
        if not op.saved_us:
            return (math.inf if op.relative_error else 0.0), op.relative_error
        return op.relative_error / op.saved_us, op.relative_error

    return [each.op for each in sorted(ops, key=cost, reverse=True)]


def kept_in_f32(order: Sequence[str], lost: Lost, most: float) -> list[str]:
    """The ops that stay f32, in order.

    Bisects for the fewest of the first ones without which the loss is within `most`, and then lowers each of these
    again, the cheapest first, where the loss stays within. The loss of none rounded counts as 0.

    Args:
        order: Ids of all ops, the costliest first.
        lost: Is called about `log2(n) + k` times, for n ops of which k would stay.
    """
    if not order or lost(frozenset(order)) <= most:
        return []
    low, high = 0, len(order)  # the first `low` are too few, the first `high` enough
    while high - low > 1:
        middle = (low + high) // 2
        if lost(frozenset(order[middle:])) <= most:
            high = middle
        else:
            low = middle
    kept = list(order[:high])
    for op in reversed(order[: high - 1]):
        rest = [each for each in kept if each != op]
        if lost(frozenset(order) - frozenset(rest)) <= most:
            kept = rest
    return kept
