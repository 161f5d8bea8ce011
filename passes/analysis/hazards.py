"""Hazards: which earlier instructions one that touches the same memory has to wait for."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.dialects.emit import BindOp, SlotOp
from aicf.passes.analysis.accesses import Access
from aicf.passes.analysis.footprints import Footprints
from aicf.passes.analysis.strided import StridedBytes


class Hazards:
    """Read-after-write, write-after-read and write-after-write, instruction by instruction.

    Of each buffer it keeps the instructions that write parts of it which no later one writes whole, and those that have
    read such parts since.
    """

    def __init__(self) -> None:
        self._touches: dict[BindOp | SlotOp, _Touches] = {}

    def of(self, accesses: Sequence[Access]) -> set[int]:
        """The positions of those noted that conflict with an instruction which touches `accesses`."""
        needed: set[int] = set()
        for access in accesses:
            touches = self._of_root(access)
            needed.update(touches.conflicts(access.region.touched(), access.writes))
        return needed

    def note(self, accesses: Sequence[Access], position: int) -> None:
        """Adds the instruction at `position`, which comes after all that were added before."""
        for access in accesses:
            self._of_root(access).note(access.region.touched(), access.writes, position)

    def _of_root(self, access: Access) -> _Touches:
        return self._touches.setdefault(access.region.root, _Touches())


class _Touches:
    """The positions of the instructions that touch a buffer, by what they touch of it."""

    def __init__(self) -> None:
        self._footprints = Footprints()
        self._writers: dict[StridedBytes, list[int]] = {}
        self._readers: dict[StridedBytes, list[int]] = {}

    def conflicts(self, touched: StridedBytes, writes: bool) -> set[int]:
        needed: set[int] = set()
        for other in self._footprints.meeting(touched):
            needed.update(self._writers.get(other, ()))
            if writes:
                needed.update(self._readers.get(other, ()))
        return needed

    def note(self, touched: StridedBytes, writes: bool, position: int) -> None:
        """A later instruction does not wait for those whose bytes this one writes all: it waits for this one anyway."""
        if not writes:
            self._readers.setdefault(touched, []).append(position)
            return
        for other in self._footprints.meeting(touched):
            if other == touched or touched.holds(other):
                self._writers.pop(other, None)
                self._readers.pop(other, None)
        self._writers[touched] = [position]
