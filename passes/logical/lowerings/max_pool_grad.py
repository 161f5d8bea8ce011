"""Gradients of poolings that take the largest element of each window.

Each element of the operand gathers from the windows that it is in, phase by phase (`logical/phases.py`): these windows
lie side by side, so what is gathered are slices, and no window is written to memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.dialects.types import tensor_info
from aicf.passes.logical.lowerings.base import Formulas, Lowering
from aicf.passes.logical.overlap_add import zero, zeros_around
from aicf.passes.logical.phases import Phase, interleaved, phases


def _max_pool_grad(lower: Lowering, op: logical.MaxPoolGradOp) -> SSAValue:
    """At each element the gradients of the windows that it is in and whose largest element it is.

    All that is written to memory is as short as it may be: an 8-bit number for each window, and phases in the element
    type of the result.
    """
    windows, whole = tensor_info(op.taps.type).shape[2:], int_values(op.whole)
    strides = int_values(op.strides)
    counts = [-(-size // stride) for size, stride in zip(whole, strides, strict=True)]
    every = list(product(*_phases(op, windows)))
    reaching = [own for own in every if _reaches(own, windows)]
    if not reaching:
        return lower.broadcast(zero(lower, op.grad), [], op.info.sizes, "zeros")
    borders = _borders(reaching)
    taps, grad = (_bordered(lower, value, borders) for value in (op.taps, op.grad))
    parts: list[SSAValue | None] = []
    for own in every:
        if not _reaches(own, windows):
            parts.append(None)
            continue
        shifted = [low - phase.low for phase, (low, _) in zip(own, borders, strict=True)]
        found: list[SSAValue] = []
        for at in product(*(range(phase.count) for phase in own)):
            tap, part = (_windows_at(lower, value, own, at, counts, shifted) for value in (taps, grad))
            number = lower.splat(_tap_at(op, own, at), tap, "tap")
            is_largest = lower.add(logical.CompareOp("eq", tap, number), "eq")
            wide = lower.widen(part)
            found.append(lower.apply(logical.SelectOp, is_largest, wide, lower.splat(0, wide, "number")))
        total = reduce(lambda total, part: lower.apply(logical.AddOp, total, part, name="sum"), found)
        parts.append(lower.cast(total, op.info.element, "phase"))
    return interleaved(lower, parts, strides, whole)


def _phases(op: logical.MaxPoolGradOp, windows: Sequence[int]) -> list[list[Phase]]:
    """The phases along each dimension."""
    lists = zip(
        *(int_values(op.properties[name]) for name in ("sizes", "strides", "dilations", "low", "whole")),
        windows,
        strict=True,
    )
    return [
        phases(taps=taps, windows=count, stride=stride, dilation=dilation, low=low, size=size)
        for taps, stride, dilation, low, size, count in lists
    ]


def _reaches(own: Sequence[Phase], counts: Sequence[int]) -> bool:
    """Whether one of so many windows reaches an element of a phase."""
    return all(
        phase.count and count > max(-phase.low, 0) + max(-phase.high, 0)
        for phase, count in zip(own, counts, strict=True)
    )


def _borders(every: Sequence[Sequence[Phase]]) -> list[tuple[int, int]]:
    """Windows that are missing before and after those there are, along each dimension, for all phases at once."""
    return [
        (max(0, *(phase.low for phase in along)), max(0, *(phase.high for phase in along)))
        for along in zip(*every, strict=True)
    ]


def _bordered(lower: Lowering, value: SSAValue, borders: Sequence[tuple[int, int]]) -> SSAValue:
    """What windows hold with zeros in the place of those that are missing."""
    low, high = zip(*borders, strict=True)
    return zeros_around(lower, value, [0, 0, *low], [0, 0, *high])


def _tap_at(op: logical.MaxPoolGradOp, own: Sequence[Phase], at: Sequence[int]) -> int:
    """Which element of a window, in row-major order, an element of a phase is for the windows `at` which it is."""
    number = 0
    for size, phase, place in zip(int_values(op.sizes), own, at, strict=True):
        number = number * size + phase.taps[phase.count - 1 - place]
    return number


def _windows_at(
    lower: Lowering,
    value: SSAValue,
    own: Sequence[Phase],
    at: Sequence[int],
    counts: Sequence[int],
    shifted: Sequence[int],
) -> SSAValue:
    """For each element of a phase one of the windows that reach it, which have borders of zeros already: by `shifted`
    windows more than the phase needs before the first."""
    places = zip(own, at, shifted, strict=True)
    starts = [0, 0, *(phase.spread * number + before for phase, number, before in places)]
    sizes = [*tensor_info(value.type).shape[:2], *counts]
    if tensor_info(value.type).shape == tuple(sizes):
        return value
    return lower.add(logical.SliceOp(value, starts, sizes), "windows")


FORMULAS: Formulas = {logical.MaxPoolGradOp: _max_pool_grad}
