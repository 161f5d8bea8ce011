"""Which memory an instruction touches: every buffer value resolved to its root and the view onto it.

A root is a bind or a slot. Two values with different roots may still share bytes: slots by their offsets, which only
`Region` compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from xdsl.ir import SSAValue

from aicf.dialects.emit import BindOp, ProgramOp, ResolvedOp, SlotOp, ViewOp
from aicf.dialects.emit_types import BufferType
from aicf.passes.analysis.strided import StridedBytes


@dataclass(frozen=True)
class Region:
    """The bytes a buffer value may touch, and how its elements lie there.

    Args:
        root: Bind or slot.
        offset: Bytes from the root's first element to the first of the value; a negative stride goes below it.
        type: Shape and strides of the value.
    """

    root: BindOp | SlotOp
    offset: int
    type: BufferType

    @property
    def size(self) -> int:
        """Bytes from the lowest to past the highest element."""
        return self.type.span_bytes

    def overlaps(self, other: Region) -> bool:
        """Whether the two may share a byte: same root, or two placed slots. Strided parts side by side share none."""
        (space, start), (its_space, its_start) = self.address(), other.address()
        if space != its_space:
            return False
        low, its_low = start + self.below, its_start + other.below
        if low >= its_low + other.size or its_low >= low + self.size:
            return False
        apart = (its_start - other.offset) - (start - self.offset)
        return self.touched().meets(other.touched(apart))

    def touched(self, root: int = 0) -> StridedBytes:
        """Its bytes, where the root starts at byte `root`."""
        return self._touched if root == 0 else self._touched_at(root)

    @cached_property
    def _touched(self) -> StridedBytes:
        return self._touched_at(0)

    def _touched_at(self, root: int) -> StridedBytes:
        type_, lowest = self.type, root + self.offset + self.below
        if type_.get_layout() is not None:
            return StridedBytes(lowest, (), self.size)
        return StridedBytes.of(lowest, type_.get_shape(), type_.get_strides(), type_.element_bytes)

    @property
    def below(self) -> int:
        """Bytes from the first element to the lowest: zero or less."""
        return self.type.reach[0] * self.type.element_bytes

    def same_elements(self, other: Region) -> bool:
        """Whether both map every index to the same bytes."""
        return (
            self.address() == other.address()
            and self.type.get_shape() == other.type.get_shape()
            and self.type.get_strides() == other.type.get_strides()
            and self.type.element_type == other.type.element_type
        )

    def address(self) -> tuple[object, int]:
        """The address space and the byte offset in it: the arena for placed slots, else the root itself."""
        if isinstance(self.root, SlotOp) and self.root.offset is not None:
            return "arena", self.root.offset.value.data + self.offset
        return self.root, self.offset


def region_of(value: SSAValue) -> Region:
    """The region of a buffer value of a program."""
    assert isinstance(value.type, BufferType)
    offset, current = 0, value
    while isinstance(current.owner, ViewOp):
        offset += current.owner.offset.value.data * value.type.element_bytes
        current = current.owner.source
    assert isinstance(current.owner, BindOp | SlotOp)
    return Region(current.owner, offset, value.type)


@dataclass(frozen=True)
class Access:
    """One operand of one instruction. `writes` is true for outs and workspace, `reads` for ins and workspace."""

    instruction: ResolvedOp
    region: Region
    writes: bool
    reads: bool


def accesses_of(instruction: ResolvedOp) -> list[Access]:
    """All memory accesses of an instruction, ins first."""
    ins, outs, ws = instruction.parts
    return [
        *(Access(instruction, region_of(v), False, True) for v in ins),
        *(Access(instruction, region_of(v), True, False) for v in outs),
        *(Access(instruction, region_of(v), True, True) for v in ws),
    ]


AccessTable: TypeAlias = Mapping[BindOp | SlotOp, Sequence[Access]]
"""All accesses of a program by bind or slot, in text order."""


def accesses_by_root(program: ProgramOp) -> dict[BindOp | SlotOp, list[Access]]:
    """The access table of a program."""
    table: dict[BindOp | SlotOp, list[Access]] = {}
    for op in program.body.block.ops:
        if isinstance(op, BindOp | SlotOp):
            table[op] = []
        elif isinstance(op, ResolvedOp):
            for access in accesses_of(op):
                table[access.region.root].append(access)
    return table


def written_roots(table: AccessTable) -> frozenset[BindOp | SlotOp]:
    """Every bind and slot that an instruction of the program writes."""
    return frozenset(root for root, accesses in table.items() if any(access.writes for access in accesses))
