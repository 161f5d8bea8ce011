"""Alignment that instructions ask for (`constraints {align = ...}`): of their operands, so of binds and slots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aicf.dialects.emit import BindOp, ProgramOp, ResolvedOp, SlotOp
from aicf.dialects.emit_constraints import MAX_ALIGN, alignments
from aicf.passes.analysis.accesses import Region, region_of


@dataclass(frozen=True)
class AlignedOperand:
    """An operand whose address must be a multiple of `align` bytes; ins are counted before outs."""

    number: int
    region: Region
    align: int

    def problem(self) -> str | None:
        """Why no bind and no placement of a slot can give the operand that address; None if one can."""
        root = self.region.root
        if self.region.offset % self.align:
            return (
                f"it begins {self.region.offset} bytes into its buffer, and no address of that makes both multiples; "
                "copy it to a slot of its own first"
            )
        if isinstance(root, BindOp) and root.role.data not in ("input", "output"):
            return (
                f"it is {root.role.data} '{root.bind_name.data}', which lies where its owner has it; copy it to a slot "
                "first, or drop the constraint"
            )
        return None

    def is_given(self) -> bool:
        """Whether its bind or slot, with the alignment stated there, puts it at such an address."""
        root = self.region.root
        if isinstance(root, BindOp) and root.binding is not None and root.binding.data == "staged":
            return self.align <= MAX_ALIGN  # memory of ours, aligned like an arena
        stated = 1 if root.align is None else root.align.value.data
        return stated % self.align == 0


def aligned_operands(op: ResolvedOp) -> Iterator[AlignedOperand]:
    """The operands of an instruction that its constraints want aligned."""
    operands = (*op.ins, *op.outs)
    for number, align in alignments(op.constraints.data).items():
        yield AlignedOperand(number, region_of(operands[number]), align)


def root_alignments(program: ProgramOp) -> dict[BindOp | SlotOp, int]:
    """The bytes of which the address of a bind or slot must be a multiple, for those that some operand asks it of."""
    wanted: dict[BindOp | SlotOp, int] = {}
    for op in program.instructions:
        for operand in aligned_operands(op):
            root = operand.region.root
            wanted[root] = max(operand.align, wanted.get(root, 1))
    return wanted
