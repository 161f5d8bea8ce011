"""What poolings pass back: the maximum to the element that it is, means and norms to all elements of the window.

Each element of the operand gathers from the windows that it is in, phase by phase (`logical/phases.py`): these windows
lie side by side, so what is gathered are slices, and no window is written to memory. Means of windows one element apart
and of windows that do not overlap have shorter ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import product
from math import prod

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import PoolWindow, int_values
from aicf.dialects.types import tensor_info
from aicf.dialects.window_counts import found_by_all
from aicf.passes.logical.lowerings.pooling import found_by_windows
from aicf.passes.logical.overlap_add import overlap_add
from aicf.passes.logical.phases import ALONE, MOST_PHASES, Phase, interleaved, padded, phases
from aicf.passes.support.writing import static_size
from aicf.passes.training.gradients.base import BY_FORMULA, STEPS, Adjoint, Gradients

_MOST_TERMS = 64
"""Elements of a window, or of a row of one, that are gathered term by term."""


def _max_pool(adjoint: Adjoint, op: logical.MaxPoolOp) -> SSAValue:
    """Sums at the first of the largest elements of each window.

    Of short windows it is known which element that is, in an 8-bit number; other windows add at an index.
    """
    windows = op.windows
    is_short = prod(window.size for window in windows) <= _MOST_TERMS
    if is_short and prod(window.stride for window in windows) <= MOST_PHASES:
        return _gathered(adjoint, op)
    return _scattered(adjoint, op)


def _gathered(adjoint: Adjoint, op: logical.MaxPoolOp) -> SSAValue:
    """At each element the gradients of the windows that it is in and whose largest element it is."""
    of_both = tuple(int_values(op.properties[name]) for name in ("sizes", "strides", "dilations", "low"))
    high, ceil_mode = int_values(op.high), op.ceil_mode is not None
    taps = logical.MaxPoolTapsOp(adjoint.stored(op.operand), *of_both, high=high, ceil_mode=ceil_mode)
    whole = [window.whole for window in op.windows]
    grad = logical.MaxPoolGradOp(adjoint.add(taps, "taps"), adjoint.passed, whole, *of_both)
    return adjoint.add(grad, "operand")


def _scattered(adjoint: Adjoint, op: logical.MaxPoolOp) -> SSAValue:
    """The gradient of each window, added at its index."""
    indices = adjoint.add(
        logical.MaxPoolIndicesOp(
            adjoint.stored(op.operand),
            sizes=int_values(op.sizes),
            strides=int_values(op.strides),
            dilations=int_values(op.dilations),
            low=int_values(op.low),
            high=int_values(op.high),
            ceil_mode=op.ceil_mode is not None,
        ),
        "places",
    )
    info = tensor_info(op.operand.type)
    planes = prod(static_size(op, size) for size in info.sizes[:2])
    counts = [planes, prod(op.info.shape[2:])]
    zeros = adjoint.zeros([planes, prod(info.shape[2:])])
    rows, parts = (
        adjoint.add(logical.ReshapeOp(value, counts), "planes") for value in (indices, adjoint.grad)
    )
    summed = adjoint.add(logical.ScatterElementsOp(zeros, rows, parts, 1, "add"), "scatter")
    return adjoint.add(logical.ReshapeOp(summed, info.sizes), "reshape")


def _avg_pool(adjoint: Adjoint, op: logical.AvgPoolOp) -> SSAValue:
    """Each window's share at all of its elements.

    Windows one element apart reach an element as a window of its own would: the gradient is a mean again, one kernel
    where the target pools. Windows side by side repeat their shares, which is a copy. Others are added up, one
    dimension after the other.
    """
    windows = op.windows
    if all(_is_mirrored(window) for window in windows):
        return adjoint.add(_mirrored(_rescaled(adjoint, op), windows), "means")
    share = _shares(adjoint, op)
    if all(_is_side_by_side(window) for window in windows):
        # Rounded to the operand's type before it is repeated: what is written is as short as it may be.
        narrow = adjoint.cast(share, tensor_info(op.operand.type).element, "narrow")
        return _repeated(adjoint, narrow, [window.size for window in windows])
    if any(window.size > _MOST_TERMS or window.stride > MOST_PHASES for window in windows):
        return _overlapped(adjoint, op, share)
    for dim, window in enumerate(windows):
        sizes = [*(each.whole for each in windows[: dim + 1]), *(each.count for each in windows[dim + 1 :])]
        strides = [window.stride if other == dim else 1 for other in range(len(windows))]
        counts = [-(-size // stride) for size, stride in zip(sizes, strides, strict=True)]
        parts: list[SSAValue | None] = []
        for phase in _phases(window):
            own = [phase if other == dim else ALONE for other in range(len(windows))]
            value = padded(adjoint, share, own)
            parts.append(None if value is None else _added(adjoint, value, own, counts))
        share = _together(adjoint, op, parts, strides, sizes)
    return share


def _shares(adjoint: Adjoint, op: logical.AvgPoolOp) -> SSAValue:
    """What each window passes to each of its elements."""
    return adjoint.add(logical.DivOp(adjoint.grad, found_by_windows(adjoint, op, adjoint.grad)), "share")


def _is_mirrored(window: PoolWindow) -> bool:
    """Whether an element is in a row of windows, one after the other, none of which lies in the padding alone."""
    return window.stride == 1 and max(window.low, window.high) < window.extent


def _rescaled(adjoint: Adjoint, op: logical.AvgPoolOp) -> SSAValue:
    """Gradients whose means are the sums of shares: times what a window has over what it finds."""
    padding = op.count_include_pad is not None
    if all(found_by_all(window, padding=padding) == window.size for window in op.windows):
        return adjoint.passed
    return adjoint.product(_shares(adjoint, op), float(prod(window.size for window in op.windows)))


def _mirrored(grad: SSAValue, windows: Sequence[PoolWindow]) -> logical.AvgPoolOp:
    """The mean of the gradients of all windows that reach an element: of window o if element e is one of
    o - low .. o - low + extent - 1. Around there are zeros."""
    return logical.AvgPoolOp(
        grad,
        sizes=[window.size for window in windows],
        dilations=[window.dilation for window in windows],
        low=[window.extent - 1 - window.low for window in windows],
        high=[window.extent - 1 - window.high for window in windows],
        count_include_pad=True,
    )


def _is_side_by_side(window: PoolWindow) -> bool:
    """Whether each element along a dimension is in one window."""
    is_dense = window.dilation == 1 or window.size == 1
    covers = window.count * window.size == window.whole
    return is_dense and window.size == window.stride and window.low == 0 and covers


def _repeated(adjoint: Adjoint, share: SSAValue, times: Sequence[int]) -> SSAValue:
    """Each element so many times along each spatial dimension."""
    info = tensor_info(share.type)
    lead, counts = info.sizes[:2], info.shape[2:]
    apart = [*lead, *(part for count in counts for part in (count, 1))]
    spread = [*lead, *(part for pair in zip(counts, times, strict=True) for part in pair)]
    whole = [*lead, *(count * size for count, size in zip(counts, times, strict=True))]
    value = adjoint.reshape(share, apart, "apart")
    return adjoint.reshape(adjoint.broadcast(value, range(len(apart)), spread, "spread"), whole, "whole")


def _added(adjoint: Adjoint, value: SSAValue, own: Sequence[Phase], counts: Sequence[int]) -> SSAValue:
    """The sum of all windows that reach each element of a phase."""
    places = product(*(range(phase.count) for phase in own))
    return _sum(adjoint, (_windows_at(adjoint, value, own, at, counts) for at in places))


def _overlapped(adjoint: Adjoint, op: logical.AvgPoolOp, share: SSAValue) -> SSAValue:
    """The same of long windows: each share at all places of its window, put together again."""
    windows, info = op.windows, tensor_info(share.type)
    spread = [*info.shape, *(window.size for window in windows)]
    held = adjoint.broadcast(share, range(info.rank), spread, "spread")
    ends = [window.low + window.whole for window in windows]
    total = overlap_add(
        adjoint, held, [window.stride for window in windows], [window.dilation for window in windows], ends
    )
    starts = [0, 0, *(window.low for window in windows)]
    return adjoint.add(logical.SliceOp(total, starts, tensor_info(op.operand.type).shape), "inside")


def _together(
    adjoint: Adjoint,
    op: logical.PoolOp,
    parts: Sequence[SSAValue | None],
    strides: Sequence[int],
    sizes: Sequence[int],
) -> SSAValue:
    """The phases as one value; zeros if no window reaches an element."""
    if all(part is None for part in parts):
        return adjoint.zeros([*op.info.sizes[:2], *sizes])
    return interleaved(adjoint, parts, strides, sizes)


def _phases(window: PoolWindow) -> list[Phase]:
    return phases(
        taps=window.size,
        windows=window.count,
        stride=window.stride,
        dilation=window.dilation,
        low=window.low,
        size=window.whole,
    )


def _windows_at(
    adjoint: Adjoint,
    value: SSAValue,
    own: Sequence[Phase],
    at: Sequence[int],
    counts: Sequence[int],
) -> SSAValue:
    """For each element of a phase one of the windows that reach it, which have borders of zeros already."""
    starts = [0, 0, *(phase.spread * number for phase, number in zip(own, at, strict=True))]
    sizes = [*tensor_info(value.type).shape[:2], *counts]
    if tensor_info(value.type).shape == tuple(sizes):
        return value
    return adjoint.add(logical.SliceOp(value, starts, sizes), "windows")


def _sum(adjoint: Adjoint, terms: Iterable[SSAValue]) -> SSAValue:
    return reduce(lambda total, term: adjoint.apply(logical.AddOp, total, term, name="sum"), terms)


GRADIENTS: Gradients = {
    logical.MaxPoolOp: (_max_pool,),
    logical.MaxPoolIndicesOp: STEPS,
    logical.MaxPoolTapsOp: STEPS,
    logical.MaxPoolGradOp: BY_FORMULA,
    logical.AvgPoolOp: (_avg_pool,),
    logical.LpPoolOp: BY_FORMULA,
}
