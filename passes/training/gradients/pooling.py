"""What poolings pass back: the maximum to the element that it is, means and norms to all elements of the window.

Each element of the operand gathers from the windows that it is in, phase by phase (`logical/phases.py`): these windows
lie side by side, so what is gathered are slices, and no window is written to memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import product
from math import prod

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import PoolWindow, int_values
from aicf.dialects.types import element_named, tensor_info
from aicf.passes.logical.lowerings.pooling import found_by_windows
from aicf.passes.logical.overlap_add import overlap_add, zeros_around
from aicf.passes.logical.phases import ALONE, MOST_PHASES, Phase, interleaved, padded, phases
from aicf.passes.support.writing import static_size
from aicf.passes.training.gradients.base import BY_FORMULA, STEPS, Adjoint, Gradients

_MOST_TERMS = 64
"""Elements of a window, or of a row of one, that are gathered term by term."""


def _max_pool(adjoint: Adjoint, op: logical.MaxPoolOp) -> SSAValue:
    """Sums at the first of the largest elements of each window."""
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
    windows = op.windows
    is_short = prod(window.size for window in windows) <= _MOST_TERMS
    if is_short and prod(window.stride for window in windows) <= MOST_PHASES:
        return _gathered(adjoint, op, indices)
    return _scattered(adjoint, op, indices)


def _scattered(adjoint: Adjoint, op: logical.MaxPoolOp, indices: SSAValue) -> SSAValue:
    """The gradient of each window, added at its index."""
    info = tensor_info(op.operand.type)
    planes = prod(static_size(op, size) for size in info.sizes[:2])
    counts = [planes, prod(op.info.shape[2:])]
    zeros = adjoint.zeros([planes, prod(info.shape[2:])])
    rows, parts = (
        adjoint.add(logical.ReshapeOp(value, counts), "planes") for value in (indices, adjoint.grad)
    )
    summed = adjoint.add(logical.ScatterElementsOp(zeros, rows, parts, 1, "add"), "scatter")
    return adjoint.add(logical.ReshapeOp(summed, info.sizes), "reshape")


def _gathered(adjoint: Adjoint, op: logical.MaxPoolOp, indices: SSAValue) -> SSAValue:
    """At each element the gradients of the windows that it is in and whose largest element it is.

    All that is written to memory is as short as it may be: an 8-bit number for each window, and phases in the element
    type of the operand.
    """
    windows, element, wide = (
        op.windows,
        tensor_info(op.operand.type).element,
        tensor_info(adjoint.grad.type).element,
    )
    sizes, strides = tensor_info(op.operand.type).shape[2:], [window.stride for window in windows]
    counts = [-(-size // stride) for size, stride in zip(sizes, strides, strict=True)]
    taps = _taps(adjoint, op, indices)
    every = list(product(*map(_phases, windows)))
    reaching = [own for own in every if _reaches(own, op.info.shape[2:])]
    if not reaching:
        return adjoint.zeros(tensor_info(op.operand.type).sizes)
    borders = _borders(reaching)
    taps, grad = (_bordered(adjoint, value, borders) for value in (taps, adjoint.passed))
    parts: list[SSAValue | None] = []
    for own in every:
        if not _reaches(own, op.info.shape[2:]):
            parts.append(None)
            continue
        shifted = [low - phase.low for phase, (low, _) in zip(own, borders, strict=True)]
        found = (
            adjoint.where(
                adjoint.compare(
                    "eq", _windows_at(adjoint, taps, own, at, counts, shifted), _tap_at(op, own, at)
                ),
                adjoint.cast(_windows_at(adjoint, grad, own, at, counts, shifted), wide, "widen"),
                0.0,
            )
            for at in product(*(range(phase.count) for phase in own))
        )
        parts.append(adjoint.cast(_sum(adjoint, found), element, "phase"))
    return _together(adjoint, op, parts, strides, sizes)


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


def _bordered(adjoint: Adjoint, value: SSAValue, borders: Sequence[tuple[int, int]]) -> SSAValue:
    """What windows hold with zeros in the place of those that are missing."""
    low, high = zip(*borders, strict=True)
    return zeros_around(adjoint, value, [0, 0, *low], [0, 0, *high])


def _tap_at(op: logical.MaxPoolOp, own: Sequence[Phase], at: Sequence[int]) -> int:
    """Which element of a window, in row-major order, an element of a phase is for the windows `at` which it is."""
    number = 0
    for window, phase, place in zip(op.windows, own, at, strict=True):
        number = number * window.size + phase.taps[phase.count - 1 - place]
    return number


def _taps(adjoint: Adjoint, op: logical.MaxPoolOp, indices: SSAValue) -> SSAValue:
    """Which element of its window each maximum is, in row-major order, as i8; -1 for a window that finds none.

    Args:
        indices: Where the maxima lie in their planes; the number of elements of one where there is none.
    """
    sizes = tensor_info(op.operand.type).shape[2:]
    rest = adjoint.cast(indices, element_named("i32"), "index") if prod(sizes) < 1 << 31 else indices
    none = adjoint.compare("eq", rest, prod(sizes))
    info = tensor_info(rest.type)
    number: SSAValue | None = None
    for axis, window in enumerate(op.windows):
        along, pitch = rest, prod(sizes[axis + 1 :])
        if axis + 1 < len(sizes):
            along = adjoint.apply(logical.DivOp, rest, pitch, name="along")
            before = adjoint.apply(logical.MulOp, along, pitch, name="before")
            rest = adjoint.apply(logical.SubOp, rest, before, name="rest")
        start = adjoint.add(logical.IotaOp(2 + axis, info.sizes, info.element), "window")
        start = adjoint.apply(logical.MulOp, start, window.stride, name="start")
        tap = adjoint.apply(logical.SubOp, along, start, name="reach")
        tap = adjoint.apply(logical.AddOp, tap, window.low, name="reach")
        if window.dilation > 1:
            tap = adjoint.apply(logical.DivOp, tap, window.dilation, name="tap")
        if number is not None:
            number = adjoint.apply(logical.MulOp, number, window.size, name="row")
            tap = adjoint.apply(logical.AddOp, number, tap, name="tap")
        number = tap
    assert number is not None
    return adjoint.cast(adjoint.where(none, -1, number), element_named("i8"), "taps")


def _avg_pool(adjoint: Adjoint, op: logical.AvgPoolOp) -> SSAValue:
    """Each window's share at all of its elements, one dimension after the other."""
    windows = op.windows
    share = adjoint.add(
        logical.DivOp(adjoint.grad, found_by_windows(adjoint, op, adjoint.grad)),
        "share",
    )
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
    shifted: Sequence[int] | None = None,
) -> SSAValue:
    """For each element of a phase one of the windows that reach it, which have borders of zeros already: by `shifted`
    windows more than the phase needs before the first."""
    more = shifted or [0] * len(own)
    places = zip(own, at, more, strict=True)
    starts = [0, 0, *(phase.spread * number + before for phase, number, before in places)]
    sizes = [*tensor_info(value.type).shape[:2], *counts]
    if tensor_info(value.type).shape == tuple(sizes):
        return value
    return adjoint.add(logical.SliceOp(value, starts, sizes), "windows")


def _sum(adjoint: Adjoint, terms: Iterable[SSAValue]) -> SSAValue:
    return reduce(lambda total, term: adjoint.apply(logical.AddOp, total, term, name="sum"), terms)


GRADIENTS: Gradients = {
    logical.MaxPoolOp: (_max_pool,),
    logical.MaxPoolIndicesOp: STEPS,
    logical.AvgPoolOp: (_avg_pool,),
    logical.LpPoolOp: BY_FORMULA,
}
