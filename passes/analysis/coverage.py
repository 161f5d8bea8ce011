"""Whether some views of a slot together hold every element of another view of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aicf.dialects.emit_types import BufferType
from aicf.passes.analysis.accesses import Region


def is_covered(wanted: Region, parts: Sequence[Region]) -> bool:
    """Whether every element of `wanted` is one of `parts`, all of them in one slot.

    Without gaps in the parts their ranges tell; else the elements are counted one by one.
    """
    return _is_inside_ranges(wanted, parts) or _is_inside_elements(wanted, parts)


def holds(part: Region, wanted: Region) -> bool:
    """Whether one view, whose elements lie side by side, holds every element of another: what most readers find."""
    (start, stop), (first, last) = _range(part), _range(wanted)
    return start <= first and last <= stop and _is_dense(part.type)


def _is_inside_ranges(wanted: Region, parts: Sequence[Region]) -> bool:
    reached, end = _range(wanted)
    for start, stop in sorted(_range(part) for part in parts if _is_dense(part.type)):
        if start <= reached:
            reached = max(reached, stop)
    return reached >= end


def _range(region: Region) -> tuple[int, int]:
    start = region.offset + region.below
    return start, start + region.size


def _is_dense(type_: BufferType) -> bool:
    """Whether the elements lie side by side in any order, each at an address of its own."""
    step = 1
    for stride, size in sorted(zip(map(abs, type_.get_strides()), type_.get_shape(), strict=True)):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _is_inside_elements(wanted: Region, parts: Sequence[Region]) -> bool:
    if not parts:
        return not wanted.size
    written: NDArray[np.bool_] = np.zeros(max(_range(part)[1] for part in (wanted, *parts)), np.bool_)
    for part in parts:
        written[_elements(part)] = True
    return bool(written[_elements(wanted)].all())


def _elements(region: Region) -> NDArray[np.int64]:
    """The first byte of each element, from the start of the slot: all views of a slot have elements of one size."""
    bytes_: NDArray[np.int64] = np.full((), region.offset, np.int64)
    steps = zip(region.type.get_shape(), region.type.get_strides(), strict=True)
    for size, step in steps:
        bytes_ = np.add.outer(bytes_, np.arange(size, dtype=np.int64) * step * region.type.element_bytes)
    return bytes_
