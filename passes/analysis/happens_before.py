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
        self.index = {op.instruction.data: position for position, op in enumerate(self.order)}
        self.masks: list[int] = []
        for position, op in enumerate(self.order):
            self.masks.append(self._mask(position, op))

    def _mask(self, position: int, op: ResolvedOp) -> int:
        mask = 0
        for edge in op.after:
            source = self.index.get(edge.source.data)
            if source is None:
                raise invalid(op, f"{_waits(op, edge)}, which does not exist")
            if source >= position:
                raise invalid(
                    op,
                    f"{_waits(op, edge)}, which comes later in the text; the text is one topological order",
                )
            mask |= self.masks[source] | (1 << source)
        return mask

    def before(self, first: ResolvedOp, second: ResolvedOp) -> bool:
        """Whether `first` ends before `second` starts."""
        return bool(self.masks[self.position(second)] >> self.position(first) & 1)

    def ordered(self, one: ResolvedOp, other: ResolvedOp) -> bool:
        """Whether either ends before the other starts."""
        return self.before(one, other) or self.before(other, one)

    def bits(self, ops: Iterable[ResolvedOp]) -> int:
        """A set of instructions in the form of the masks: one bit a position."""
        found = 0
        for op in ops:
            found |= 1 << self.position(op)
        return found

    def first_late(self, firsts: int, second: ResolvedOp) -> ResolvedOp | None:
        """The first of the set `firsts` that is neither `second` nor before it, None if there is none."""
        position = self.position(second)
        late = firsts & ~self.masks[position] & ~(1 << position)
        return self.order[_lowest(late)] if late else None

    def is_before_all(self, first: ResolvedOp, others: int) -> bool:
        """Whether `first` ends before every other instruction of the set `others` starts."""
        position = self.position(first)
        if others & ((1 << position) - 1):
            return False
        left = others & ~(1 << position)
        while left:
            if not self.masks[_lowest(left)] >> position & 1:
                return False
            left &= left - 1
        return True

    def position(self, op: ResolvedOp) -> int:
        """Position in text order."""
        return self.index[op.instruction.data]

    @cached_property
    def is_total(self) -> bool:
        """Whether any two instructions are ordered."""
        return all(mask == (1 << position) - 1 for position, mask in enumerate(self.masks))
