"""`verify-order`: every conflicting pair of accesses is ordered, and every read finds what was written for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import OpResult
from xdsl.passes import ModulePass

from aicf.dialects.emit import PREPARE, BindOp, EdgeAttr, ProgramOp, ResolvedOp, SlotOp
from aicf.dialects.emit_constraints import keeps_its_place, stream_group
from aicf.passes.analysis.accesses import (
    Access,
    AccessTable,
    accesses_by_root,
    region_of,
    written_roots,
)
from aicf.passes.analysis.coverage import Change, DefinedBytes
from aicf.passes.analysis.happens_before import HappensBefore
from aicf.passes.analysis.hazards import Hazards
from aicf.passes.analysis.liveness import Interference, Lifetime, slot_lifetimes
from aicf.passes.analysis.programmatic_launch import early_conflict, triggers, waits_inside
from aicf.passes.support.identity import invalid
from aicf.passes.support.programs import programs
from aicf.passes.support.works_on import PROGRAMS


@dataclass(frozen=True)
class VerifyOrderPass(ModulePass):
    """Checks every scheduled program over happens-before, the closure of `after`; text order proves nothing.

    Values are defined before they are used; the text is a topological order of the edges; two accesses that share
    bytes, one of them a write, are ordered; slots that share bytes are never alive together; all that is read of a
    slot or an output is written before, and all of every output is written, as is all that `@prepare` makes. What was
    used as workspace since counts as not written. A programmatic edge comes from a kernel that lets others start early;
    what starts early waits inside, and reads nothing before its wait that the program writes. What keeps its place
    (`no_reorder`) is ordered with all others as in the text; instructions of one group (`same_stream`) share a stream.

    A bufferized program has no edges yet, and its text is its order: only what is read and left is checked there.
    Raises InvalidIR naming both instructions.
    """

    name = "verify-order"
    works_on = PROGRAMS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in programs(op):
            _verify_definitions(program)
            table = accesses_by_root(program)
            if program.phase.data == "bufferized":
                _verify_values(program, table)
                continue
            order = HappensBefore(program)
            _verify_early_starts(program, table)
            _verify_places(program, order)
            _verify_stream_groups(program)
            _verify_conflicts(table, order)
            _verify_values(program, table)
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


def _verify_places(program: ProgramOp, order: HappensBefore) -> None:
    """Checks that instructions which keep their place are ordered with all others as in the text, by full edges."""
    for kept in program.instructions:
        if not keeps_its_place(kept.constraints.data):
            continue
        name, position = kept.instruction.data, order.position(kept)
        for other in order.order[:position]:
            if not order.before(other, kept):
                _raise_displaced(kept, f"may start before '{other.instruction.data}' ends", other, kept)
        for other in order.order[position + 1 :]:
            if not order.before(kept, other):
                _raise_displaced(kept, f"may end after '{other.instruction.data}' starts", kept, other)
            _verify_full(other, [edge for edge in other.after if edge.source.data == name])
        _verify_full(kept, kept.after)


def _raise_displaced(kept: ResolvedOp, what: str, first: ResolvedOp, second: ResolvedOp) -> None:
    raise invalid(
        kept,
        f"'{kept.instruction.data}' keeps its place (no_reorder), but {what}; add an edge to "
        f"'{second.instruction.data}': after([\"{first.instruction.data}\" full])",
    )


def _verify_full(op: ResolvedOp, edges: Iterable[EdgeAttr]) -> None:
    for edge in edges:
        if edge.kind.data != "full":
            raise invalid(
                op,
                f"'{op.instruction.data}' starts before '{edge.source.data}' ends, but one of them keeps its place "
                f'(no_reorder); write after(["{edge.source.data}" full])',
            )


def _verify_stream_groups(program: ProgramOp) -> None:
    """Checks that instructions with the same name in `same_stream` run on one stream."""
    first: dict[str, ResolvedOp] = {}
    for op in program.instructions:
        if (group := stream_group(op.constraints.data)) is None:
            continue
        other = first.setdefault(group, op)
        if op.stream != other.stream:
            name, its_name = op.instruction.data, other.instruction.data
            stream, its_stream = (
                "no stream" if each.stream is None else f"stream {each.stream.value.data}"
                for each in (op, other)
            )
            raise invalid(
                op,
                f"'{name}' runs on {stream}, '{its_name}' of the same group \"{group}\" (same_stream) on {its_stream}; "
                "state one stream for both, or leave streams and edges to schedule",
            )


def _verify_conflicts(table: AccessTable, order: HappensBefore) -> None:
    """Checks that accesses which share bytes are ordered where one of them writes.

    Each is compared with the latest ones only: what those overwrote ended before them.
    """
    if order.is_total:
        return
    for root, accesses in table.items():
        hazards = Hazards()
        for access in accesses:
            for position in sorted(hazards.of([access])):
                _verify_pair(order.order[position], access, root, accesses, order)
            hazards.note([access], order.position(access.instruction))


def _verify_pair(
    earlier: ResolvedOp,
    access: Access,
    root: BindOp | SlotOp,
    accesses: Sequence[Access],
    order: HappensBefore,
) -> None:
    if earlier is access.instruction or order.before(earlier, access.instruction):
        return
    is_written_first = any(
        other.writes and other.instruction is earlier and other.region.overlaps(access.region)
        for other in accesses
    )
    both = (earlier, access.instruction)
    writer, other = both if is_written_first else both[::-1]
    verb = "write" if is_written_first and access.writes else "read"
    first, second = writer.instruction.data, other.instruction.data
    raise invalid(
        writer,
        f"'{first}' writes {_root_name(root)} that '{second}' may {verb} at the same time; "
        f'add an edge: after(["{first}" full]) or the other way round',
    )


def _root_name(root: BindOp | SlotOp) -> str:
    if isinstance(root, BindOp):
        return f"{root.role.data} '{root.bind_name.data}'"
    return f"slot %{root.buffer.name_hint or '?'}"


def _verify_values(program: ProgramOp, table: AccessTable) -> None:
    """Checks that reads find values. By now any write is known to happen before or after a read as in the text."""
    for root, accesses in table.items():
        is_result = isinstance(root, BindOp) and _is_result(root, program)
        if not is_result and not isinstance(root, SlotOp):
            continue
        defined = DefinedBytes()
        for access in accesses:
            if access.writes:
                defined.add(Change(access.region, defines=not access.reads))
            elif not defined.holds(access.region):
                _raise_undefined(root, access, accesses, defined)
        if is_result and not defined.holds(region_of(root.buffer)):
            part = "part of " if any(access.writes for access in accesses) else ""
            raise invalid(root, f"{part}{_root_name(root)} of @{program.sym_name.data} is never written")


def _is_result(bind: BindOp, program: ProgramOp) -> bool:
    """Whether a bind holds nothing until the program writes it: an output, or what `@prepare` makes."""
    return bind.role.data == "output" or (bind.role.data == "derived" and program.sym_name.data == PREPARE)


def _raise_undefined(
    root: BindOp | SlotOp, access: Access, accesses: Sequence[Access], defined: DefinedBytes
) -> None:
    reader, changes, position = access.instruction, defined.changes_of(access.region), accesses.index(access)
    part = "part of " if any(change.defines for change in changes) else ""
    what = f"'{reader.instruction.data}' reads {part}{_root_name(root)}"
    earlier, later = (
        [each for each in some if each.writes and each.region.overlaps(access.region)]
        for some in (accesses[:position], accesses[position:])
    )
    if any(each.reads for each in earlier):
        user = next(each.instruction.instruction.data for each in earlier if each.reads)
        raise invalid(
            reader, f"{what}, which was workspace of '{user}'; give '{user}' a slot of its own for it"
        )
    way_out = "add an instruction that writes it, or read another buffer"
    if others := [each.instruction.instruction.data for each in later if each.instruction is not reader]:
        way_out = f"'{others[0]}' writes it only later: move '{others[0]}' before it"
    raise invalid(reader, f"{what} before anything wrote it; {way_out}")


def _verify_shared_bytes(program: ProgramOp, table: AccessTable, order: HappensBefore) -> None:
    """Checks that slots which share bytes of the arena are never alive together.

    Each is compared with the latest ones only: those whose bytes they took ended before them.
    """
    if any(slot.offset is None for slot in program.slots):
        return
    interferes = Interference(order)
    latest: list[tuple[int, int, Lifetime]] = []
    for life in sorted(slot_lifetimes(table, order), key=lambda life: (life.first, _offset(life))):
        start, end = _offset(life), _offset(life) + life.size
        for its_start, its_end, other in latest:
            if its_start < end and start < its_end and interferes(life, other):
                _raise_shared(life, other, order)
        latest = [each for each in latest if each[0] < start or end < each[1]]
        latest.append((start, end, life))


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
