"""Hazards: which earlier instructions one that touches the same memory has to wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from aicf.dialects.emit import BindOp, SlotOp
from aicf.passes.analysis.accesses import Access, Region

_Touch: TypeAlias = tuple[int, Region]
"""An instruction, by its place, and what it touches of a buffer."""


@dataclass
class Hazards:
    """Read-after-write, write-after-read and write-after-write, instruction by instruction.

    Args:
        writers, readers: Of each buffer: the instructions that write parts of it which no later one writes whole, and
            those that have read such parts since; each with what it touches.
    """

    writers: dict[BindOp | SlotOp, list[_Touch]] = field(default_factory=dict[BindOp | SlotOp, list[_Touch]])
    readers: dict[BindOp | SlotOp, list[_Touch]] = field(default_factory=dict[BindOp | SlotOp, list[_Touch]])

    def of(self, accesses: Sequence[Access]) -> set[int]:
        """The places of those noted that conflict with an instruction which touches `accesses`."""
        needed: set[int] = set()
        for access in accesses:
            root = access.region.root
            earlier = [*self.writers.get(root, ()), *(self.readers.get(root, ()) if access.writes else ())]
            needed.update(place for place, region in earlier if region.overlaps(access.region))
        return needed

    def note(self, accesses: Sequence[Access], place: int) -> None:
        """Adds the instruction at `place`, which comes after all that were added before."""
        for access in accesses:
            root, touch = access.region.root, (place, access.region)
            if access.writes:
                self.writers[root] = [*_left(self.writers.get(root, ()), access.region), touch]
                self.readers[root] = _left(self.readers.get(root, ()), access.region)
            else:
                self.readers.setdefault(root, []).append(touch)


def _left(touches: Sequence[_Touch], written: Region) -> list[_Touch]:
    """Those that a later instruction does not wait for anyway if it waits for one that writes all of `written`."""
    return [(place, region) for place, region in touches if not written.touched().holds(region.touched())]
