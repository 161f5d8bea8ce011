"""Whether some views of a slot together hold every element of another view of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aicf.passes.analysis.accesses import Region
from aicf.passes.analysis.strided import StridedBytes


def is_covered(wanted: Region, parts: Sequence[Region]) -> bool:
    """Whether every element of `wanted` is one of `parts`, all of them in one slot.

    Ranges tell, of whole parts or of their columns in rows; else the elements are counted one by one.
    """
    touched = [part.touched() for part in parts]
    return _is_inside(wanted.touched(), touched) or _is_inside_elements(wanted, parts)


def _is_inside(wanted: StridedBytes, parts: Sequence[StridedBytes]) -> bool:
    """Whether ranges without gaps, of parts or of columns in the same rows, hold the range of `wanted`."""
    reached = wanted.start
    for part in sorted((part for part in parts if not part.dims), key=lambda part: part.start):
        if part.start <= reached:
            reached = max(reached, part.end)
    if reached >= wanted.end or not wanted.run:
        return True
    lengths = sorted({part.dims[0][1] for part in parts if part.dims}, reverse=True)
    return any(_is_inside_rows(wanted, parts, length) for length in lengths)


def _is_inside_rows(wanted: StridedBytes, parts: Sequence[StridedBytes], length: int) -> bool:
    if (rows := wanted.rows(length)) is None:
        return False
    alike = [its for part in parts if (its := part.rows(length)) is not None and its.is_alike(rows)]
    return _is_inside(rows.columns, [its.columns for its in alike])


def _is_inside_elements(wanted: Region, parts: Sequence[Region]) -> bool:
    if not parts:
        return not wanted.size
    written: NDArray[np.bool_] = np.zeros(max(part.touched().end for part in (wanted, *parts)), np.bool_)
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
