"""`decide-inplace`: results move onto the bytes of operands that are not needed any more, where that is proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, SymbolRefAttr
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from aicf.dialects.emit import BindOp, BodyOp, EdgeAttr, ProgramOp, ResolvedOp, SlotOp, ViewOp, symbols
from aicf.dialects.emit_types import BufferType, alias_pairs
from aicf.passes.analysis.accesses import Access, accesses_by_root, accesses_of, region_of
from aicf.passes.analysis.happens_before import HappensBefore
from aicf.passes.support.ledger import record
from aicf.passes.support.policy import execution_of
from aicf.passes.support.programs import advance, programs
from aicf.passes.support.work import symbol_name

_Root = BindOp | SlotOp


@dataclass(frozen=True)
class DecideInplacePass(ModulePass):
    """Two rewrites, each proved over happens-before.

    The copy of a new value into its parameter or state goes away if the value can be computed there: everything
    else that reads the old value ends before. A result takes over the slot of an operand if the kernel permits it
    (`may_alias`) and everything else that touches the slot ends before the instruction. Neither happens where the
    policy says `inplace: false`.
    """

    name = "decide-inplace"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        allowed = execution_of(op).inplace
        for program in programs(op):
            if not advance(program, "scheduled", "inplace"):
                continue
            if not allowed:
                because = "the policy allows no overwriting"
                record(op, self.name, [program.sym_name.data], "every result has memory of its own", because)
                continue
            _update_in_place(op, program)
            _reuse_operands(op, program)


def may_alias_pairs(instruction: ResolvedOp) -> tuple[tuple[int, int], ...]:
    """The (result, operand) pairs that the kernel lets share bytes."""
    return alias_pairs(instruction.constraints.data.get("may_alias")) or ()


def _updates_bind(copy: ResolvedOp) -> bool:
    root = region_of(copy.outs[0]).root
    return (
        isinstance(root, BindOp)
        and root.updated is not None
        and isinstance(region_of(copy.ins[0]).root, SlotOp)
    )


def _update_in_place(module: ModuleOp, program: ProgramOp) -> None:
    """Drops what copies there are of new values. The order of the instructions that stay is the same without them."""
    order, table = HappensBefore(program), accesses_by_root(program)
    for instruction in program.instructions:
        if instruction.kind.data == "copy" and _updates_bind(instruction):
            _try_update_in_place(module, program, instruction, order, table)


def _try_update_in_place(
    module: ModuleOp,
    program: ProgramOp,
    copy: ResolvedOp,
    order: HappensBefore,
    table: dict[_Root, list[Access]],
) -> None:
    """Computes the value straight into the bind and drops the copy, if nothing needs the old value later; `table`
    follows."""
    source, target = region_of(copy.ins[0]), region_of(copy.outs[0])
    assert isinstance(target.root, BindOp)
    name = target.root.bind_name.data
    writes = [access for access in table[source.root] if access.writes]
    conflict = _conflict(order, table, writes, copy)
    if not writes or conflict is not None:
        because = conflict or "its value is not computed by an instruction"
        record(module, DecideInplacePass.name, [copy.instruction.data, name], "keep the copy", because)
        return
    users = [access.instruction for access in (*table.pop(source.root), *table[target.root])]
    _move(source.root, target.root.buffer)
    table[target.root] = [
        access
        for user in sorted(dict.fromkeys(users), key=order.place)
        if user is not copy
        for access in accesses_of(user)
        if access.region.root is target.root
    ]
    body = copy.body
    _remove(program, copy)
    if body is not None:
        _drop_body(module, body)
    record(
        module,
        DecideInplacePass.name,
        [*dict.fromkeys(write.instruction.instruction.data for write in writes), name],
        f"write '{name}' in place",
        "every other reader of the old value ends before, and the kernel reads each element before it writes it",
        {"copy": f"{target.size} bytes through a slot of their own"},
    )


def _conflict(
    order: HappensBefore, table: Mapping[_Root, list[Access]], writes: Sequence[Access], copy: ResolvedOp
) -> str | None:
    """Why the writers of the new value, several where each writes a part, may not write it over the old one."""
    source, target = region_of(copy.ins[0]), region_of(copy.outs[0])
    if not writes:
        return None
    if not source.type.is_contiguous or source.offset or source.size != region_of(source.root.buffer).size:
        return "the new value is part of a larger buffer"
    for write in writes:
        producer, moved = write.instruction, replace(write.region, root=target.root)
        for access in table[target.root]:
            user = access.instruction
            if user is copy or order.before(user, producer) or not moved.overlaps(access.region):
                continue
            if user is not producer:
                return f"'{user.instruction.data}' still reads the old value"
            if not _may_alias(producer, source.root, target.root):
                return f"kernel {_kernel(producer)} may not overwrite what it reads"
    return None


def _kernel(instruction: ResolvedOp) -> str:
    return "none" if instruction.kernel is None else instruction.kernel.kernel.data


def _may_alias(instruction: ResolvedOp, result_root: _Root, operand_root: _Root) -> bool:
    """Whether the results on `result_root` may lie in the memory of `operand_root`: over operands there only element by
    element and by permission."""
    pairs = may_alias_pairs(instruction)
    results = [i for i, out in enumerate(instruction.outs) if region_of(out).root is result_root]
    operands = [i for i, value in enumerate(instruction.ins) if region_of(value).root is operand_root]
    return all(
        _is_apart(instruction.outs[result], instruction.ins[operand], operand_root)
        or ((result, operand) in pairs and _same_map(instruction.outs[result], instruction.ins[operand]))
        for result in results
        for operand in operands
    )


def _is_apart(result: SSAValue, operand: SSAValue, root: _Root) -> bool:
    """Whether a result that moves to the root of an operand would share no byte with it."""
    return not replace(region_of(result), root=root).overlaps(region_of(operand))


def _same_map(one: SSAValue, other: SSAValue) -> bool:
    """Whether both values, laid on one address, put each element at the same byte."""
    a, b = one.type, other.type
    assert isinstance(a, BufferType) and isinstance(b, BufferType)
    if a.element_type != b.element_type or region_of(one).offset != region_of(other).offset:
        return False
    if a.is_contiguous and b.is_contiguous:
        return a.element_count == b.element_count
    return a.get_shape() == b.get_shape() and a.get_strides() == b.get_strides()


def _reuse_operands(module: ModuleOp, program: ProgramOp) -> None:
    order = HappensBefore(program)
    users = {
        root: order.bits(access.instruction for access in accesses)
        for root, accesses in accesses_by_root(program).items()
    }
    for instruction in program.instructions:
        for result, operand in may_alias_pairs(instruction):
            if result < len(instruction.outs) and operand < len(instruction.ins):
                _try_reuse(module, order, users, instruction, result, operand)


def _try_reuse(
    module: ModuleOp,
    order: HappensBefore,
    users: dict[_Root, int],
    instruction: ResolvedOp,
    result: int,
    operand: int,
) -> None:
    """`users`: the instructions on each root, as sets of bits: the slot of a long chain has as many as the program."""
    new, old = region_of(instruction.outs[result]).root, region_of(instruction.ins[operand]).root
    if new is old or not isinstance(new, SlotOp) or not isinstance(old, SlotOp):
        return
    if region_of(new.buffer).size > region_of(old.buffer).size or not _may_alias(instruction, new, old):
        return
    if not order.is_before_all(instruction, users[new]):
        return  # the result shares its slot with an earlier value already
    late = order.first_late(users[old], instruction)
    subjects = [instruction.instruction.data]
    if late is not None:
        record(
            module,
            DecideInplacePass.name,
            subjects,
            "a slot of its own",
            f"'{late.instruction.data}' still uses operand {operand}",
        )
        return
    size = region_of(new.buffer).size
    _move(new, old.buffer)
    users[old] |= users.pop(new)
    record(
        module,
        DecideInplacePass.name,
        subjects,
        f"result {result} overwrites operand {operand}",
        f"nothing else uses the operand afterwards; saves {size} bytes",
    )


def _move(slot: _Root, buffer: SSAValue) -> None:
    """Replaces a slot by a buffer of at least its size, through a view if the types differ."""
    assert isinstance(slot.buffer.type, BufferType) and isinstance(buffer.type, BufferType)
    wanted, given = slot.buffer.type, buffer.type
    if (wanted.get_shape(), wanted.get_strides()) != (given.get_shape(), given.get_strides()):
        view = ViewOp(buffer, 0, BufferType(wanted.get_shape(), wanted.element_type, given.space.data))
        view.buffer.name_hint = slot.buffer.name_hint
        assert slot.parent is not None
        slot.parent.insert_op_before(view, slot)
        buffer = view.buffer
    _retype_views(slot.buffer, buffer)
    slot.buffer.replace_all_uses_with(buffer)
    slot.detach()
    slot.erase()


def _retype_views(old: SSAValue, new: SSAValue) -> None:
    """Views of a slot that moves to a bind live in the bind's space."""
    assert isinstance(new.type, BufferType)
    for use in list(old.uses):
        view = use.operation
        if isinstance(view, ViewOp):
            type_ = view.buffer.type
            assert isinstance(type_, BufferType)
            moved = ViewOp(
                new,
                view.offset.value.data,
                BufferType(type_.get_shape(), type_.element_type, new.type.space.data, type_.get_strides()),
            )
            moved.buffer.name_hint = view.buffer.name_hint
            assert view.parent is not None
            view.parent.insert_op_before(moved, view)
            _retype_views(view.buffer, moved.buffer)
            view.buffer.replace_all_uses_with(moved.buffer)
            view.detach()
            view.erase()


def _drop_body(module: ModuleOp, reference: SymbolRefAttr) -> None:
    """Erases the body of an instruction that is gone, unless another one shares it."""
    shared = any(op.body == reference for program in programs(module) for op in program.instructions)
    body = symbols(module).get(symbol_name(reference))
    if isinstance(body, BodyOp) and not shared:
        body.detach()
        body.erase()


def _remove(program: ProgramOp, instruction: ResolvedOp) -> None:
    """Erases an instruction; what waited for it waits for what it waited for."""
    name, inherited = instruction.instruction.data, list(instruction.after)
    for op in program.instructions:
        edges = list(op.after)
        if any(edge.source.data == name for edge in edges):
            kept = [edge for edge in edges if edge.source.data != name]
            known = {edge.source.data for edge in kept}
            kept += [edge for edge in inherited if edge.source.data not in known]
            op.properties["after"] = ArrayAttr[EdgeAttr](kept)
    views = [operand.owner for operand in (*instruction.ins, *instruction.outs)]
    instruction.detach()
    instruction.erase()
    for view in views:
        if isinstance(view, ViewOp) and not view.buffer.uses:
            view.detach()
            view.erase()
