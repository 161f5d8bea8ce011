"""`verify-order`: every conflicting pair of accesses is ordered, and every read finds what was written for it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import OpResult
from xdsl.passes import ModulePass

from aicf.dialects.emit import PREPARE, BindOp, ProgramOp, ResolvedOp, SlotOp
from aicf.passes.analysis.accesses import (
    Access,
    AccessTable,
    Region,
    accesses_by_root,
    region_of,
    written_roots,
)
from aicf.passes.analysis.coverage import is_covered
from aicf.passes.analysis.happens_before import HappensBefore
from aicf.passes.analysis.liveness import Interference, Lifetime, interfering, slot_lifetimes
from aicf.passes.support.early_start import early_conflict, triggers, waits_inside
from aicf.passes.support.identity import invalid
from aicf.passes.support.programs import programs
from aicf.passes.support.works_on import PROGRAMS


@dataclass(frozen=True)
class VerifyOrderPass(ModulePass):
    """Checks every scheduled program over happens-before, the closure of `after`; text order proves nothing.

    Values are defined before they are used; the text is a topological order of the edges; two accesses that share
    bytes, one of them a write, are ordered; slots that share bytes are never alive together; all that is read of a
    slot is written before, and all of every output is written, as is all that `@prepare` makes. A programmatic edge
    comes from a kernel that lets others start early; what starts early waits inside, and reads nothing before its wait
    that the program writes.
    Raises InvalidIR naming both instructions.
    """

    name = "verify-order"
    works_on = PROGRAMS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in programs(op):
            _verify_definitions(program)
            if program.phase.data == "bufferized":
                continue
            order, table = HappensBefore(program), accesses_by_root(program)
            _verify_early_starts(program, table)
            for root, accesses in table.items():
                _verify_root(program, root, accesses, order)
            _verify_shared_bytes(program, table, order)


def _verify_definitions(program: ProgramOp) -> None:
    defined: set[object] = set()
    for op in program.body.block.ops:
        for operand in op.operands:
            if operand not in defined:
                name = operand.name_hint or "a value"
                raise invalid(op, f"%{name} is used before it is defined")
        defined.update(op.results)


def _verify_early_starts(program: ProgramOp, table: AccessTable) -> None:
    written = written_roots(table)
    by_name = {op.instruction.data: op for op in program.instructions}
    for op in program.instructions:
        for edge in op.after:
            if edge.kind.data == "programmatic":
                _verify_early_start(op, by_name[edge.source.data], written)


def _verify_early_start(op: ResolvedOp, source: ResolvedOp, written: Collection[BindOp | SlotOp]) -> None:
    """Checks one programmatic edge. Instructions without a record are not checked: no kernel is chosen yet."""
    if op.kernel is None or source.kernel is None:
        return
    name, other = op.instruction.data, source.instruction.data
    way_out = f'write after(["{other}" full])'
    if not triggers(source):
        kernel = source.kernel.kernel.data
        raise invalid(
            op, f"'{name}' starts before '{other}' ends, but '{kernel}' lets nothing start early; {way_out}"
        )
    if not waits_inside(op):
        kernel = op.kernel.kernel.data
        raise invalid(
            op, f"'{name}' starts before '{other}' ends, but '{kernel}' does not wait inside; {way_out}"
        )
    if (root := early_conflict(op, written)) is not None:
        raise invalid(
            op,
            f"'{name}' reads {_root_name(root)} before it waits for '{other}', and the program writes that; {way_out}",
        )


def _verify_root(
    program: ProgramOp, root: BindOp | SlotOp, accesses: Sequence[Access], order: HappensBefore
) -> None:
    writes = [access for access in accesses if access.writes]
    if not order.is_total:
        for write in writes:
            for other in accesses:
                _verify_pair(write, other, root, order)
    if isinstance(root, SlotOp):
        _verify_written_first(root, accesses, order)
    elif _is_result(root, program) and not is_covered(
        region_of(root.buffer), [write.region for write in writes]
    ):
        part = "part of " if writes else ""
        raise invalid(root, f"{part}{_root_name(root)} of @{program.sym_name.data} is never written")
    elif writes and root.role.data == "derived":
        _verify_written_first(root, accesses, order)


def _is_result(bind: BindOp, program: ProgramOp) -> bool:
    """Whether a program has to write a bind: an output, or what `@prepare` makes."""
    return bind.role.data == "output" or (bind.role.data == "derived" and program.sym_name.data == PREPARE)


def _verify_pair(write: Access, other: Access, root: BindOp | SlotOp, order: HappensBefore) -> None:
    if write.instruction is other.instruction or not write.region.overlaps(other.region):
        return
    if not order.ordered(write.instruction, other.instruction):
        first, second = write.instruction.instruction.data, other.instruction.instruction.data
        verb = "write" if other.writes else "read"
        raise invalid(
            write.instruction,
            f"'{first}' writes {_root_name(root)} that '{second}' may {verb} at the same time; "
            f'add an edge: after(["{first}" full]) or the other way round',
        )


def _root_name(root: BindOp | SlotOp) -> str:
    if isinstance(root, BindOp):
        return f"{root.role.data} '{root.bind_name.data}'"
    return f"slot %{root.buffer.name_hint or '?'}"


def _verify_written_first(root: BindOp | SlotOp, accesses: Sequence[Access], order: HappensBefore) -> None:
    """A slot that results take over in place has as many writes as reads: a read mostly finds all in the last one."""
    writes: list[Access] = []
    for access in accesses:
        if access.writes:
            writes.append(access)
            continue
        wanted, reader = access.region.touched(), access.instruction
        if not any(region.touched().holds(wanted) for region in _before(reader, writes, order)):
            _verify_read(root, access, list(_before(reader, writes, order)))


def _before(reader: ResolvedOp, writes: Sequence[Access], order: HappensBefore) -> Iterator[Region]:
    """What is written before `reader` starts, the last in the text first."""
    return (write.region for write in reversed(writes) if order.before(write.instruction, reader))


def _verify_read(root: BindOp | SlotOp, access: Access, earlier: Sequence[Region]) -> None:
    if is_covered(access.region, earlier):
        return
    part, reader = "part of " if earlier else "", access.instruction
    raise invalid(
        reader, f"'{reader.instruction.data}' reads {part}{_root_name(root)} before anything wrote it"
    )


def _verify_shared_bytes(program: ProgramOp, table: AccessTable, order: HappensBefore) -> None:
    """Slots that are alive together must not overlap in the arena: few are at any time, however long the program."""
    if any(slot.offset is None for slot in program.slots):
        return
    lifetimes = sorted(slot_lifetimes(table, order), key=_offset)
    for place, others in enumerate(interfering(lifetimes, Interference(order))):
        life = lifetimes[place]
        for other in sorted(index for index in others if index < place):
            if _offset(lifetimes[other]) + lifetimes[other].size > _offset(life):
                _raise_shared(life, lifetimes[other], order)


def _offset(life: Lifetime) -> int:
    assert life.slot.offset is not None
    return life.slot.offset.value.data


def _raise_shared(one: Lifetime, other: Lifetime, order: HappensBefore) -> None:
    names = [order.order[life.touches[-1]].instruction.data for life in (one, other)]
    results: list[OpResult] = [one.slot.buffer, other.slot.buffer]
    slots = " and ".join(f"%{value.name_hint or '?'}" for value in results)
    raise invalid(
        one.slot,
        f"slots {slots} share bytes of the arena but are alive together: '{names[0]}' and '{names[1]}' still use them; "
        "run plan-memory again or add the missing edge",
    )
