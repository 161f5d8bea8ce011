"""Small damages to a placed emit program, and their undoing: what a broken pass or a careless edit would leave.

Which damage is harmful is not known here; a simulator and the verifiers judge the damaged program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IntegerAttr,
    StringAttr,
    i32,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue

from aicf.backends.common.kernel import EARLY_READS
from aicf.dialects.emit import (
    BindOp,
    EdgeAttr,
    ProgramOp,
    ResolvedOp,
    SlotOp,
    ViewOp,
    buffer_of,
    root_buffer,
)
from aicf.dialects.emit_types import KernelAttr

GRANULE = 64
"""Bytes between the offsets that slots are moved to."""


@dataclass(frozen=True)
class Mutation:
    """One damage: its `kind`, what makes it different from others of the kind, and what does it."""

    kind: str
    name: str
    apply: Callable[[], None]


class Original:
    """A program as it was, to go back to: fields and operands of all its ops, and their order."""

    def __init__(self, program: ProgramOp) -> None:
        self.program = program
        self.fields = dict(program.properties)
        self.ops = [(op, dict(op.properties), tuple(op.operands)) for op in program.body.block.ops]

    def restore(self) -> None:
        """Undoes every mutation."""
        self.program.properties = dict(self.fields)
        for op, fields, operands in self.ops:
            op.properties = dict(fields)
            if tuple(op.operands) != operands:
                op.operands = operands
        block = self.program.body.block
        if [op for op, _, _ in self.ops] != list(block.ops):
            for op in list(block.ops):
                op.detach()
            block.add_ops(op for op, _, _ in self.ops)


def put_buffers_first(program: ProgramOp) -> None:
    """Moves slots and views before all instructions, so that each instruction may be given any of them."""
    first, *_ = program.instructions
    for op in list(program.body.block.ops):
        if isinstance(op, SlotOp | ViewOp):
            op.detach()
            program.body.block.insert_op_before(op, first)


def mutations(program: ProgramOp) -> list[Mutation]:
    """All single damages of a final program."""
    return [
        *_moved_slots(program),
        *_damaged_edges(program),
        *_moved_waits(program),
        *_swapped(program),
        *_redirected(program),
        *value_mutations(program),
    ]


def value_mutations(program: ProgramOp) -> list[Mutation]:
    """Damages after which an instruction may read what nobody has written: operands that are other buffers or parts of
    them, instructions that are gone, results that somebody takes as workspace."""
    return [*_reading_others(program), *_dropped(program), *_taken_as_workspace(program)]


def _moved_slots(program: ProgramOp) -> Iterator[Mutation]:
    """Every slot to every other place in the arena; `early reuse` is the place of another slot."""
    assert program.arena_bytes is not None
    taken = {slot.offset.value.data for slot in program.slots if slot.offset is not None}
    for number, slot in enumerate(program.slots):
        assert slot.offset is not None and slot.size is not None
        last = program.arena_bytes.value.data - slot.size.value.data
        for offset in range(0, last + 1, GRANULE):
            if offset != slot.offset.value.data:
                kind = "early reuse" if offset in taken else "moved slot"
                yield Mutation(
                    kind, f"{number} to {offset}", _setter(slot, "offset", IntegerAttr(offset, i64))
                )


def _setter(op: Operation, key: str, value: Attribute) -> Callable[[], None]:
    def apply() -> None:
        op.properties[key] = value

    return apply


def _damaged_edges(program: ProgramOp) -> Iterator[Mutation]:
    """Edges dropped, of the other kind, and from another source."""
    for index, op in enumerate(program.instructions):
        name = op.instruction.data
        for number, edge in enumerate(op.after):
            source, kind = edge.source.data, edge.kind.data
            yield Mutation("dropped edge", f"{source}-{name}", _edge_setter(op, number, None))
            other = "programmatic" if kind == "full" else "full"
            yield Mutation(
                f"edge {other}", f"{source}-{name}", _edge_setter(op, number, EdgeAttr(source, other))
            )
            for earlier in program.instructions[:index]:
                if (away := earlier.instruction.data) != source:
                    change = _edge_setter(op, number, EdgeAttr(away, kind))
                    yield Mutation("bent edge", f"{source}-{name} from {away}", change)


def _edge_setter(op: ResolvedOp, number: int, edge: EdgeAttr | None) -> Callable[[], None]:
    """Puts `edge` in the place of edge `number` of what the op waited for at first; None drops it."""
    old = op.after.data[number]

    def apply() -> None:
        kept = [edge if each == old else each for each in op.after]
        op.properties["after"] = ArrayAttr([each for each in kept if each is not None])

    return apply


def _moved_waits(program: ProgramOp) -> Iterator[Mutation]:
    """Each operand read before the wait, all of them, or no wait at all."""
    for op in program.instructions:
        assert op.kernel is not None
        name, count = op.instruction.data, len(op.ins)
        early = {str(number): [number] for number in range(count)} | {"all": [*range(count)], "none": []}
        for what, numbers in early.items():
            value = ArrayAttr([IntegerAttr(number, i64) for number in numbers])
            yield Mutation("moved early_reads", f"{name} {what}", _record_setter(op, value))
        yield Mutation("no wait", name, _record_setter(op, None))


def _record_setter(op: ResolvedOp, early: ArrayAttr[IntegerAttr] | None) -> Callable[[], None]:
    assert op.kernel is not None
    record = {key: value for key, value in op.kernel.record.data.items() if key != EARLY_READS}
    if early is not None:
        record[EARLY_READS] = early
    return _setter(op, "kernel", KernelAttr(op.kernel.kernel.data, DictionaryAttr(record)))


def _swapped(program: ProgramOp) -> Iterator[Mutation]:
    """Two instructions change places in the text: each with its edges, or each taking over those of the other."""
    instructions = program.instructions
    for index, op in enumerate(instructions):
        for other in instructions[index + 1 :]:
            name = f"{op.instruction.data}, {other.instruction.data}"
            yield Mutation("swapped text", name, lambda a=op, b=other: _exchange(program, a, b, False))
            yield Mutation("swapped order", name, lambda a=op, b=other: _exchange(program, a, b, True))


def _exchange(program: ProgramOp, one: ResolvedOp, other: ResolvedOp, is_renamed: bool) -> None:
    if one.parent is None or other.parent is None:  # another damage dropped it
        return
    block = program.body.block
    ops = list(block.ops)
    indices = ops.index(one), ops.index(other)
    ops[indices[0]], ops[indices[1]] = other, one
    for op in list(block.ops):
        op.detach()
    block.add_ops(ops)
    if is_renamed:
        names = one.instruction.data, other.instruction.data
        renamed = {names[0]: names[1], names[1]: names[0]}
        one.properties["after"], other.properties["after"] = other.after, one.after
        for op in program.instructions:
            op.properties["after"] = ArrayAttr(
                [EdgeAttr(renamed.get(e.source.data, e.source.data), e.kind.data) for e in op.after]
            )
    order = ArrayAttr([StringAttr(op.instruction.data) for op in program.instructions])
    program.properties["graphs"] = ArrayAttr([order])


def _redirected(program: ProgramOp) -> Iterator[Mutation]:
    """Each operand in the arena replaced by each other slot of its type."""
    slots = [slot.buffer for slot in program.slots]
    for op in program.instructions:
        for number, value in enumerate(op.operands):
            for index, slot in enumerate(slots):
                if slot is not value and slot.type == value.type:
                    name = f"{op.instruction.data} operand {number} to {index}"
                    yield Mutation(
                        "other slot", name, lambda o=op, n=number, s=slot: o.operands.__setitem__(n, s)
                    )


def _reading_others(program: ProgramOp) -> Iterator[Mutation]:
    """Each operand that is read replaced by each other buffer of its shape and strides, or part of one."""
    buffers = [op.buffer for op in program.body.block.ops if isinstance(op, BindOp | SlotOp | ViewOp)]
    for op in program.instructions:
        for number, value in enumerate(op.ins):
            for index, other in enumerate(buffers):
                if other is not value and _form(other) == _form(value):
                    name = f"{op.instruction.data} operand {number} from {index}"
                    yield Mutation(
                        "other operand", name, lambda o=op, n=number, b=other: o.operands.__setitem__(n, b)
                    )


def _form(value: SSAValue) -> tuple[object, ...]:
    type_ = buffer_of(value)
    return type_.element_type, type_.get_shape(), type_.get_strides(), type_.get_layout()


def _dropped(program: ProgramOp) -> Iterator[Mutation]:
    """Each instruction left out; what waited for it waits for what it waited for."""
    for op in program.instructions:
        yield Mutation("dropped writer", op.instruction.data, lambda o=op: _drop(program, o))


def _drop(program: ProgramOp, dropped: ResolvedOp) -> None:
    if dropped.parent is None:  # dropped before
        return
    name = dropped.instruction.data
    dropped.detach()
    for op in program.instructions:
        edges = [edge for edge in op.after if edge.source.data != name]
        if len(edges) < len(op.after):
            known = {edge.source.data for edge in edges}
            edges += [edge for edge in dropped.after if edge.source.data not in known]
            op.properties["after"] = ArrayAttr(edges)
    order = ArrayAttr([StringAttr(op.instruction.data) for op in program.instructions])
    program.properties["graphs"] = ArrayAttr([order])


def _taken_as_workspace(program: ProgramOp) -> Iterator[Mutation]:
    """Each slot and output, and each part of one, as workspace of each instruction that does not touch it."""
    buffers = [op.buffer for op in program.body.block.ops if isinstance(op, BindOp | SlotOp | ViewOp)]
    for op in program.instructions:
        touched = {root_buffer(value) for value in op.operands}
        for index, buffer in enumerate(buffers):
            root = root_buffer(buffer)
            is_ours = isinstance(root, SlotOp) or (isinstance(root, BindOp) and root.role.data == "output")
            if is_ours and root not in touched:
                name = f"{index} of {op.instruction.data}"
                yield Mutation("taken as workspace", name, lambda o=op, b=buffer: _add_workspace(o, b))


def _add_workspace(op: ResolvedOp, buffer: SSAValue) -> None:
    ins, outs, ws = (len(part) for part in op.parts)
    op.operands = [*op.operands, buffer]
    op.properties["operandSegmentSizes"] = DenseArrayBase.from_list(i32, [ins, outs, ws + 1])
