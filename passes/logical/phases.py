"""What windows pass back to the elements that they are made of, phase by phase: no zeros are put between elements.

Element k of window o is element o * stride + k * dilation - low of the operand. The elements that are `stride` apart
are a *phase*: the same elements of windows reach all of them, and the windows that do lie side by side. So each phase
is a correlation of stride 1 of what the windows hold, and the phases are interleaved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.logical.overlap_add import zero, zeros_around
from aicf.passes.support.writing import OpWriter, static_size


@dataclass(frozen=True)
class Phase:
    """Every `stride`-th element along one dimension, and the windows that reach it.

    Element v of the phase is in windows v - low + i * spread, i = 0 .. count - 1, as their element
    `taps[count - 1 - i]`.

    Args:
        taps: The elements of a window that reach this phase, ascending; none if it is in no window.
        spread: Windows from one that reaches an element to the next.
        low, high: Windows that are missing before the first and after the last one; negative where some reach nothing.
    """

    taps: range
    spread: int
    low: int
    high: int

    @property
    def count(self) -> int:
        """The windows that reach each element."""
        return len(self.taps)


def phases(*, taps: int, windows: int, stride: int, dilation: int, low: int, size: int) -> list[Phase]:
    """The phases of `size` elements along one dimension, from the first element on; each has `size / stride` elements,
    rounded up.

    Args:
        taps: Elements of a window.
        windows: How many windows there are.
        stride, dilation: Elements from one window to the next, and from one element of a window to the next.
        low: Elements by which the first window starts before the first element.
    """
    common = gcd(stride, dilation)
    count = -(-size // stride)
    found: list[Phase] = []
    for first in range(stride):
        start, residue = divmod(first + low, stride)
        reaching = [tap for tap in range(min(taps, stride)) if tap * dilation % stride == residue]
        if not reaching:
            found.append(Phase(range(0), 1, 0, 0))
            continue
        own = range(reaching[0], taps, stride // common)
        spread = dilation // common
        reach = (len(own) - 1) * spread
        before = (reaching[0] * dilation - residue) // stride + reach - start
        found.append(Phase(own, spread, before, count + reach - windows - before))
    return found


def fitted(
    write: OpWriter, value: SSAValue, own: Sequence[Phase]
) -> tuple[SSAValue, list[int], list[int]] | None:
    """Windows [N, C, O1..Ok] without those that reach nothing, and the zeros that are missing around them; None if no
    window reaches an element of the phase."""
    info = tensor_info(value.type)
    starts, sizes = [0] * _LEAD, list(info.shape[:_LEAD])
    for size, phase in zip(info.shape[_LEAD:], own, strict=True):
        start = max(-phase.low, 0)
        kept = size - start - max(-phase.high, 0)
        if kept < 1 or not phase.count:
            return None
        starts.append(start)
        sizes.append(kept)
    if tuple(sizes) != info.shape:
        value = write.add(logical.SliceOp(value, starts, sizes), "reaching")
    return value, [max(phase.low, 0) for phase in own], [max(phase.high, 0) for phase in own]


def padded(write: OpWriter, value: SSAValue, own: Sequence[Phase]) -> SSAValue | None:
    """The same with zeros around it."""
    if (found := fitted(write, value, own)) is None:
        return None
    value, low, high = found
    return zeros_around(write, value, [0] * _LEAD + low, [0] * _LEAD + high)


def interleaved(
    write: OpWriter, parts: Sequence[SSAValue | None], strides: Sequence[int], sizes: Sequence[int]
) -> SSAValue:
    """Phases [N, C, V1..Vk] as one value [N, C, S1..Sk].

    Args:
        parts: The phases, those along the last dimension next to each other; None for one of zeros. One is not None.
        strides: How many phases there are along each dimension.
        sizes: S1..Sk: at most V * stride, where the rest is cut off.
    """
    present = [number for number, part in enumerate(parts) if part is not None]
    if len(present) == 1:
        value = _between_zeros(write, parts, present[0], strides)
    else:
        whole = parts if len(parts) == len(present) else _with_zeros(write, parts)
        joined = write.add(logical.ConcatOp([part for part in whole if part is not None], 1), "phases")
        value = _turned(write, joined, strides)
    info = tensor_info(value.type)
    if info.shape[_LEAD:] == tuple(sizes):
        return value
    return write.add(logical.SliceOp(value, [0] * info.rank, [*info.shape[:_LEAD], *sizes]), "cut")


def _between_zeros(
    write: OpWriter, parts: Sequence[SSAValue | None], number: int, strides: Sequence[int]
) -> SSAValue:
    """The one phase that is not zeros, in its place."""
    value = parts[number]
    assert value is not None
    info = tensor_info(value.type)
    places: list[int] = []
    for stride in reversed(strides):
        number, place = divmod(number, stride)
        places.insert(0, place)
    counts = info.shape[_LEAD:]
    apart = [size for count in counts for size in (count, 1)]
    value = write.reshape(value, [*info.sizes[:_LEAD], *apart], "apart")
    low = [size for place in places for size in (0, place)]
    high = [size for place, stride in zip(places, strides, strict=True) for size in (0, stride - 1 - place)]
    value = zeros_around(write, value, [0] * _LEAD + low, [0] * _LEAD + high)
    whole = [count * stride for count, stride in zip(counts, strides, strict=True)]
    return write.reshape(value, [*info.sizes[:_LEAD], *whole], "whole")


def _with_zeros(write: OpWriter, parts: Sequence[SSAValue | None]) -> list[SSAValue]:
    """Zeros in place of None."""
    like = next(part for part in parts if part is not None)
    zeros = write.broadcast(zero(write, like), [], tensor_info(like.type).sizes, "none")
    return [zeros if part is None else part for part in parts]


def _turned(write: OpWriter, value: SSAValue, strides: Sequence[int]) -> SSAValue:
    """[N, phases * C, V1..Vk] to [N, C, (V * stride)..]."""
    batch, channels, *counts = tensor_info(value.type).sizes
    rank, channels = len(strides), static_size(write.op, channels) // prod(strides)
    value = write.reshape(value, [batch, *strides, channels, *counts], "phases")
    pairs = (dim for number in range(rank) for dim in (2 + rank + number, 1 + number))
    value = write.add(logical.TransposeOp(value, [0, 1 + rank, *pairs]), "turned")
    whole = [static_size(write.op, count) * stride for count, stride in zip(counts, strides, strict=True)]
    return write.reshape(value, [batch, channels, *whole], "whole")


ALONE = Phase(range(1), 1, 0, 0)
"""Along a dimension in which each window is one element, and each element a window."""
_LEAD = 2
"""Dimensions before those of windows: batch and channels."""
MOST_PHASES = 16
"""More phases than that are not written out one by one."""
