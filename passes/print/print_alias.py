"""`print-alias`: shows which memory each operand of an instruction is, and which operands share bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from aicf.dialects.emit import ResolvedOp
from aicf.passes.analysis.accesses import Region, region_of
from aicf.passes.print.printing import name_of, root_names, show
from aicf.passes.support.programs import programs
from aicf.passes.support.works_on import PROGRAMS


@dataclass(frozen=True)
class PrintAliasPass(ModulePass):
    """Puts `aicf.print.alias` on each instruction: a line an operand, with the bind or slot that it views, the bytes of
    it that it may touch, and the earlier operands that it overlaps or is element by element.
    """

    name = "print-alias"
    works_on = PROGRAMS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in programs(op):
            names = root_names(program)
            for instruction in program.instructions:
                show(instruction, "alias", list(_lines(instruction, names)))


def _lines(instruction: ResolvedOp, names: Mapping[Operation, str]) -> Iterator[str]:
    seen: list[tuple[str, Region]] = []
    families: tuple[tuple[str, Sequence[SSAValue]], ...] = (
        ("ins", instruction.ins),
        ("outs", instruction.outs),
        ("ws", instruction.ws),
    )
    for family, values in families:
        for number, value in enumerate(values):
            label, region = f"{family} {number}", region_of(value)
            start = region.offset + region.below
            extent = f"{name_of(region.root, names)}, bytes {start} to {start + region.size}"
            relations = [
                _relation(region, other, earlier) for earlier, other in seen if region.overlaps(other)
            ]
            yield "; ".join([f"{label}: {extent}", *relations])
            seen.append((label, region))


def _relation(region: Region, other: Region, label: str) -> str:
    return f"the same elements as {label}" if region.same_elements(other) else f"overlaps {label}"
