"""What the print-only passes share: an analysis is shown as discardable attributes, which `aicf-opt` prints.

Attributes, and not lines on the terminal, so that a result stands beside the op it is about and lit can check it. Later
passes ignore them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute, Operation

from aicf.dialects.emit import BindOp, ProgramOp, SlotOp
from aicf.errors import PlanError
from aicf.passes.support.programs import programs

PREFIX = "aicf.print."
"""Attribute names are this and the analysis."""

Shown = int | str | Sequence[str]


def show(op: Operation, analysis: str, result: Sequence[str] | Mapping[str, Shown]) -> None:
    """Puts a result on an op as `aicf.print.<analysis>`."""
    op.attributes[PREFIX + analysis] = _attribute(result)


def _attribute(value: Shown | Mapping[str, Shown]) -> Attribute:
    match value:
        case int():
            return IntegerAttr(value, i64)
        case str():
            return StringAttr(value)
        case Mapping():
            return DictionaryAttr({key: _attribute(entry) for key, entry in value.items()})
        case _:
            return ArrayAttr([StringAttr(entry) for entry in value])


def scheduled_programs(module: ModuleOp) -> Iterator[ProgramOp]:
    """The programs of a module, which must have their edges.

    Raises:
        PlanError: a program is not scheduled.
    """
    for program in programs(module):
        if program.phase.data == "bufferized":
            raise PlanError(f"program @{program.sym_name.data} has no order yet; run schedule first")
        yield program


def root_names(program: ProgramOp) -> dict[Operation, str]:
    """What to call each bind and slot of a program: slots have no name, so they are numbered in text order."""
    names: dict[Operation, str] = {
        bind: f"{bind.role.data} '{bind.bind_name.data}'" for bind in program.binds
    }
    return names | {slot: f"slot {number}" for number, slot in enumerate(program.slots)}


def name_of(root: BindOp | SlotOp, names: Mapping[Operation, str]) -> str:
    """The name of a bind or slot with its place in the arena, if it has one."""
    if isinstance(root, SlotOp) and root.offset is not None:
        return f"{names[root]} at {root.offset.value.data}"
    return names[root]
