"""Windows along one dimension that reach beyond the operand, and those that do not. Imports no code generator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stretch:
    """Results from `start` up to `stop`: all of their windows lie inside the operand, or any may reach out."""

    start: int
    stop: int
    is_inside: bool


def stretches(*, count: int, stride: int, low: int, reach: int, whole: int) -> list[Stretch]:
    """The results along a dimension, in order.

    Args:
        count: How many there are.
        stride: Elements from one window to the next.
        low: Elements by which the first window starts before the operand.
        reach: Elements from the first of a window to past its last.
        whole: Elements of the operand.
    """
    first = min(-(-low // stride), count)
    last = max(first, min(count, (whole - reach + low) // stride + 1))
    found = [Stretch(0, first, False), Stretch(first, last, True), Stretch(last, count, False)]
    if first == last:
        found = [Stretch(0, count, False)]
    return [stretch for stretch in found if stretch.start < stretch.stop]
