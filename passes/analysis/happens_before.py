"""Happens-before of a program: the transitive closure of the `after` edges, and of nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from aicf.dialects.emit import EdgeAttr, ProgramOp, ResolvedOp
from aicf.passes.support.identity import invalid


def _waits(op: ResolvedOp, edge: EdgeAttr) -> str:
    return f"instruction '{op.instruction.data}' waits for '{edge.source.data}'"


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


class HappensBefore:
    """Answers whether one instruction's end precedes another's start.

    A programmatic edge counts like a full one: it puts the end of its source before the wait of its target, and before
    its wait an instruction touches only memory that nothing writes, so no conflict can fall in between.
    Stored as one bit set an instruction; a chain of n instructions takes n * n / 8 bytes.
    """

    def __init__(self, program: ProgramOp):
        self.order = program.instructions
        self.index = {op.instruction.data: place for place, op in enumerate(self.order)}
        self.masks: list[int] = []
        for place, op in enumerate(self.order):
            self.masks.append(self._mask(place, op))

    def _mask(self, place: int, op: ResolvedOp) -> int:
        mask = 0
        for edge in op.after:
            source = self.index.get(edge.source.data)
            if source is None:
                raise invalid(op, f"{_waits(op, edge)}, which does not exist")
            if source >= place:
                raise invalid(
                    op,
                    f"{_waits(op, edge)}, which comes later in the text; the text is one topological order",
                )
            mask |= self.masks[source] | (1 << source)
        return mask

    def before(self, first: ResolvedOp, second: ResolvedOp) -> bool:
        """Whether `first` ends before `second` starts."""
        return bool(self.masks[self.place(second)] >> self.place(first) & 1)

    def ordered(self, one: ResolvedOp, other: ResolvedOp) -> bool:
        """Whether either ends before the other starts."""
        return self.before(one, other) or self.before(other, one)

    def bits(self, ops: Iterable[ResolvedOp]) -> int:
        """A set of instructions in the form of the masks: one bit a position."""
        found = 0
        for op in ops:
            found |= 1 << self.place(op)
        return found

    def first_late(self, firsts: int, second: ResolvedOp) -> ResolvedOp | None:
        """The first of the set `firsts` that is neither `second` nor before it, None if there is none."""
        place = self.place(second)
        late = firsts & ~self.masks[place] & ~(1 << place)
        return self.order[_lowest(late)] if late else None

    def is_before_all(self, first: ResolvedOp, others: int) -> bool:
        """Whether `first` ends before every other instruction of the set `others` starts."""
        place = self.place(first)
        if others & ((1 << place) - 1):
            return False
        left = others & ~(1 << place)
        while left:
            if not self.masks[_lowest(left)] >> place & 1:
                return False
            left &= left - 1
        return True

    def place(self, op: ResolvedOp) -> int:
        """Position in text order."""
        return self.index[op.instruction.data]

    @cached_property
    def is_total(self) -> bool:
        """Whether any two instructions are ordered."""
        return all(mask == (1 << place) - 1 for place, mask in enumerate(self.masks))
