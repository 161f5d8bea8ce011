"""Which parts of a slot or bind hold a value: what was written of it, and whether that is all that another view has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aicf.passes.analysis.accesses import Region
from aicf.passes.analysis.footprints import Footprints
from aicf.passes.analysis.strided import StridedBytes


@dataclass(frozen=True)
class Change:
    """What an access leaves in a region: the value of a result (`defines`), or anything, as a workspace does."""

    region: Region
    defines: bool


class DefinedBytes:
    """What of one slot or bind holds a value, after changes that come in the order in which they happen."""

    def __init__(self) -> None:
        self._footprints = Footprints()
        self._count = 0
        self._last: dict[StridedBytes, tuple[int, Change]] = {}
        self._defined: set[StridedBytes] = set()

    def add(self, change: Change) -> None:
        """Adds the next change."""
        touched = change.region.touched()
        met = self._footprints.meeting(touched)
        self._count += 1
        self._last[touched] = (self._count, change)
        if change.defines:
            self._defined.add(touched)
        else:
            self._defined.difference_update(met)

    def holds(self, wanted: Region) -> bool:
        """Whether every element of `wanted` has a value."""
        touched = wanted.touched()
        if touched not in self._defined and self._is_defined(wanted):
            self._defined.add(touched)
        return touched in self._defined

    def changes_of(self, wanted: Region) -> list[Change]:
        """The changes to `wanted` in order, without those that a later one to the same bytes undoes."""
        met = self._footprints.meeting(wanted.touched())
        found = sorted((self._last[each] for each in met if each in self._last), key=lambda entry: entry[0])
        return [change for _, change in found]

    def _is_defined(self, wanted: Region) -> bool:
        changes = self.changes_of(wanted)
        if all(change.defines for change in changes):
            return is_covered(wanted, [change.region for change in changes])
        return _is_inside_elements(wanted, changes)


def is_covered(wanted: Region, parts: Sequence[Region]) -> bool:
    """Whether every element of `wanted` is one of `parts`, all of them in one slot.

    Ranges tell, of whole parts or of their columns in rows; else the elements are counted one by one.
    """
    touched = [part.touched() for part in parts]
    return _is_inside(wanted.touched(), touched) or _is_inside_elements(
        wanted, [Change(part, True) for part in parts]
    )


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


def _is_inside_elements(wanted: Region, changes: Sequence[Change]) -> bool:
    if not changes:
        return not wanted.size
    regions = (wanted, *(change.region for change in changes))
    written: NDArray[np.bool_] = np.zeros(max(region.touched().end for region in regions), np.bool_)
    for change in changes:
        written[_elements(change.region)] = change.defines
    return bool(written[_elements(wanted)].all())


def _elements(region: Region) -> NDArray[np.int64]:
    """The first byte of each element, from the start of the slot: all views of a slot have elements of one size."""
    if region.type.get_layout() is not None:
        return np.arange(region.offset, region.offset + region.size, dtype=np.int64)
    bytes_: NDArray[np.int64] = np.full((), region.offset, np.int64)
    steps = zip(region.type.get_shape(), region.type.get_strides(), strict=True)
    for size, step in steps:
        bytes_ = np.add.outer(bytes_, np.arange(size, dtype=np.int64) * step * region.type.element_bytes)
    return bytes_
