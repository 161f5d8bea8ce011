"""`decide-inplace`: results move onto the bytes of operands that are not needed any more, where that is proved."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, SymbolRefAttr
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from aicf.dialects.emit import (
    BindOp,
    BodyOp,
    EdgeAttr,
    ProgramOp,
    ResolvedOp,
    SlotOp,
    ViewOp,
    buffer_of,
    symbols,
)
from aicf.dialects.emit_types import BufferType, i64_pairs
from aicf.passes.analysis.accesses import Access, accesses_by_root, region_of
from aicf.passes.analysis.alignment import aligned_operands
from aicf.passes.analysis.happens_before import HappensBefore
from aicf.passes.bodies.workload import symbol_name
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.policy import execution_of
from aicf.passes.support.programs import advance, programs
from aicf.passes.support.works_on import until_phase

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
    works_on = until_phase("inplace")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        allowed = execution_of(op).inplace
        for program in programs(op):
            if not advance(program, "scheduled", "inplace"):
                continue
            if not allowed:
                because = "in-place updates are off by policy (inplace)"
                record_decision(
                    op, self.name, [program.sym_name.data], "every result has memory of its own", because
                )
                continue
            facts = _Facts(HappensBefore(program), accesses_by_root(program))
            _remove(op, program, _done_in_place(op, program, facts))
            _reuse_operands(op, program)


@dataclass(frozen=True)
class _Operands:
    """What an instruction says of its memory, read once: an update of many tensors has thousands of operands and pairs.

    Args:
        permitted: The (result, operand) pairs that its kernel lets share bytes.
        results, operands: Their numbers, by what they lie on.
    """

    permitted: frozenset[tuple[int, int]]
    results: dict[_Root, list[int]]
    operands: dict[_Root, list[int]]

    @staticmethod
    def of(instruction: ResolvedOp) -> _Operands:
        """Those of an instruction."""
        return _Operands(
            frozenset(may_alias_pairs(instruction)), _by_root(instruction.outs), _by_root(instruction.ins)
        )

    def move(self, source: _Root, target: _Root) -> None:
        """What was on `source` lies on `target`."""
        for held in (self.results, self.operands):
            if source in held:
                held[target] = sorted([*held.get(target, ()), *held.pop(source)])


def _by_root(values: Sequence[SSAValue]) -> dict[_Root, list[int]]:
    found: dict[_Root, list[int]] = {}
    for number, value in enumerate(values):
        found.setdefault(region_of(value).root, []).append(number)
    return found


@dataclass(frozen=True)
class _Facts:
    """What overwriting is proved by.

    Args:
        order: Of the instructions. It still holds for the others when one is removed.
        table: Their accesses, in text order; follows what is moved.
        read: Those of the instructions whose operands were asked for; follows as well.
    """

    order: HappensBefore
    table: dict[_Root, list[Access]]
    read: dict[ResolvedOp, _Operands] = field(default_factory=dict["ResolvedOp", _Operands])

    def operands(self, instruction: ResolvedOp) -> _Operands:
        """What an instruction says of its memory."""
        if instruction not in self.read:
            self.read[instruction] = _Operands.of(instruction)
        return self.read[instruction]

    def move(self, source: _Root, target: _Root, without: ResolvedOp) -> None:
        """The slot `source` lies on `target` from now on, and `without` is gone."""
        accesses = self.table.pop(source)
        for instruction in {access.instruction for access in accesses} & self.read.keys():
            self.read[instruction].move(source, target)
        moved = [replace(access, region=replace(access.region, root=target)) for access in accesses]
        kept = [access for access in (*self.table[target], *moved) if access.instruction is not without]
        self.table[target] = sorted(kept, key=lambda access: self.order.position(access.instruction))


def may_alias_pairs(instruction: ResolvedOp) -> tuple[tuple[int, int], ...]:
    """The (result, operand) pairs that the kernel lets share bytes."""
    return i64_pairs(instruction.constraints.data.get("may_alias")) or ()


def _done_in_place(module: ModuleOp, program: ProgramOp, facts: _Facts) -> list[ResolvedOp]:
    """The copies that have to go, since their values are computed straight into binds from now on."""
    done: list[ResolvedOp] = []
    for each in program.instructions:
        # Not decided earlier: a value that updates two binds lies on the first of them when the second is looked at.
        if each.kind.data == "copy" and _updates_bind(each) and _try_update_in_place(module, each, facts):
            done.append(each)
    return done


def _stays_by_hand(copy: ResolvedOp, writers: Sequence[ResolvedOp], slot: _Root) -> str | None:
    """Why constraints that were written by hand keep a copy: of its own place or stream, or of its operand's address,
    which would become that of the bind."""
    if stated := sorted(copy.constraints.data.keys() - {"may_alias"}):
        return f"the copy has constraints of its own ({', '.join(stated)})"
    for writer in writers:
        if any(operand.region.root is slot for operand in aligned_operands(writer)):
            return f"'{writer.instruction.data}' wants the new value aligned, which a slot alone is"
    return None


def _updates_bind(copy: ResolvedOp) -> bool:
    root = region_of(copy.outs[0]).root
    return (
        isinstance(root, BindOp)
        and root.updated is not None
        and isinstance(region_of(copy.ins[0]).root, SlotOp)
    )


def _try_update_in_place(module: ModuleOp, copy: ResolvedOp, facts: _Facts) -> bool:
    """Computes the value straight into the bind, if nothing needs the old value later: then the copy has to go."""
    source, target = region_of(copy.ins[0]), region_of(copy.outs[0])
    assert isinstance(target.root, BindOp)
    name = target.root.bind_name.data
    writes = [access for access in facts.table[source.root] if access.writes]
    touching = [access.instruction for access in facts.table[source.root]]
    conflict = _stays_by_hand(copy, touching, source.root) or _conflict(facts, writes, copy)
    if not writes or conflict is not None:
        because = conflict or "no instruction computes the new value"
        record_decision(
            module, DecideInplacePass.name, [copy.instruction.data, name], "keep the copy", because
        )
        return False
    facts.move(source.root, target.root, copy)
    _move(source.root, target.root.buffer)
    record_decision(
        module,
        DecideInplacePass.name,
        [*dict.fromkeys(write.instruction.instruction.data for write in writes), name],
        f"write '{name}' in place",
        "every other reader of the old value ends before, and the kernel reads each element before it writes it",
        {"copy": f"{target.size} bytes through a slot of their own"},
    )
    return True


def _conflict(facts: _Facts, writes: Sequence[Access], copy: ResolvedOp) -> str | None:
    """Why the writers of the new value, several where each writes a part, may not write it over the old one."""
    source, target = region_of(copy.ins[0]), region_of(copy.outs[0])
    if not writes:
        return None
    if not source.type.is_contiguous or source.offset or source.size != region_of(source.root.buffer).size:
        return "the new value is part of a larger buffer"
    for write in writes:
        producer, moved = write.instruction, replace(write.region, root=target.root)
        for access in facts.table[target.root]:
            user = access.instruction
            if user is copy or facts.order.before(user, producer) or not moved.overlaps(access.region):
                continue
            if user is not producer:
                reads = f"'{user.instruction.data}' reads the old value"
                return f"{reads}, and may run after '{producer.instruction.data}' writes the new one"
            if not _may_alias(producer, source.root, target.root, facts.operands(producer)):
                reads = f"'{producer.instruction.data}' reads the old value"
                return f"{reads}, and its kernel {_kernel(producer)} may not overwrite what it reads"
    return None


def _kernel(instruction: ResolvedOp) -> str:
    return "none" if instruction.kernel is None else instruction.kernel.kernel.data


def _may_alias(instruction: ResolvedOp, result_root: _Root, operand_root: _Root, of: _Operands) -> bool:
    """Whether the results on `result_root` may lie in the memory of `operand_root`: over operands there only element by
    element and by permission."""
    outs, ins = instruction.outs, instruction.ins
    return all(
        _is_apart(outs[result], ins[operand], operand_root)
        or ((result, operand) in of.permitted and _same_map(outs[result], ins[operand]))
        for result in of.results.get(result_root, ())
        for operand in of.operands.get(operand_root, ())
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
        of = _Operands.of(instruction)
        for result, operand in may_alias_pairs(instruction):
            if result < len(instruction.outs) and operand < len(instruction.ins):
                _try_reuse(module, order, users, instruction, result, operand, of)


def _try_reuse(
    module: ModuleOp,
    order: HappensBefore,
    users: dict[_Root, int],
    instruction: ResolvedOp,
    result: int,
    operand: int,
    of: _Operands,
) -> None:
    """`users`: the instructions on each root, as sets of bits: the slot of a long chain has as many as the program."""
    new, old = region_of(instruction.outs[result]).root, region_of(instruction.ins[operand]).root
    if new is old or not isinstance(new, SlotOp) or not isinstance(old, SlotOp):
        return
    if region_of(new.buffer).size > region_of(old.buffer).size or not _may_alias(instruction, new, old, of):
        return
    if not order.is_before_all(instruction, users[new]):
        return  # the result shares its slot with an earlier value already
    late = order.first_late(users[old], instruction)
    subjects = [instruction.instruction.data]
    if late is not None:
        record_decision(
            module,
            DecideInplacePass.name,
            subjects,
            "a slot of its own",
            f"'{late.instruction.data}' uses operand {operand} too, and may run later",
        )
        return
    size = region_of(new.buffer).size
    if new.is_before_in_block(old):  # of a concatenation that writes other parts first
        old.detach()
        Rewriter.insert_op(old, InsertPoint.before(new))
    _move(new, old.buffer)
    of.move(new, old)
    users[old] |= users.pop(new)
    record_decision(
        module,
        DecideInplacePass.name,
        subjects,
        f"result {result} overwrites operand {operand}",
        f"nothing else uses the operand afterwards; saves {size} bytes",
    )


def _move(slot: _Root, buffer: SSAValue) -> None:
    """Replaces a slot by a buffer of at least its size, through a view if the types differ."""
    wanted, given = buffer_of(slot.buffer), buffer_of(buffer)
    if (wanted.get_shape(), wanted.get_strides()) != (given.get_shape(), given.get_strides()):
        buffer = _view_before(slot, buffer, 0, slot.buffer)
    _retype_views(slot.buffer, buffer)
    slot.buffer.replace_all_uses_with(buffer)
    Rewriter.erase_op(slot)


def _retype_views(old: SSAValue, new: SSAValue) -> None:
    """Views of a slot that moves to a bind live in the bind's space."""
    for use in list(old.uses):
        view = use.operation
        if isinstance(view, ViewOp):
            strides = buffer_of(view.buffer).get_strides()
            moved = _view_before(view, new, view.offset.value.data, view.buffer, strides)
            _retype_views(view.buffer, moved)
            view.buffer.replace_all_uses_with(moved)
            Rewriter.erase_op(view)


def _view_before(
    op: Operation, buffer: SSAValue, offset: int, like: SSAValue, strides: Sequence[int] | None = None
) -> SSAValue:
    """What `like` shows, seen in `buffer`, where that lies: a view before `op`."""
    type_, space = buffer_of(like), buffer_of(buffer).space.data
    view = ViewOp(buffer, offset, BufferType(type_.get_shape(), type_.element_type, space, strides))
    view.buffer.name_hint = like.name_hint
    Rewriter.insert_op(view, InsertPoint.before(op))
    return view.buffer


def _remove(module: ModuleOp, program: ProgramOp, copies: Sequence[ResolvedOp]) -> None:
    """Erases instructions, and bodies that were theirs alone; what waited for one waits for what it waited for."""
    gone = {copy.instruction.data: copy for copy in copies}
    for op in program.instructions:
        edges = list(op.after)
        for name in [edge.source.data for edge in edges if edge.source.data in gone]:
            kept = [edge for edge in edges if edge.source.data != name]
            known = {edge.source.data for edge in kept}
            edges = kept + [edge for edge in gone[name].after if edge.source.data not in known]
        if edges != list(op.after):
            op.properties["after"] = ArrayAttr[EdgeAttr](edges)
    for copy in copies:
        _erase(copy)
    _drop_bodies(module, {copy.body for copy in copies if copy.body is not None})


def _erase(instruction: ResolvedOp) -> None:
    """Erases an instruction, with the views that it alone had."""
    views = [operand.owner for operand in (*instruction.ins, *instruction.outs)]
    Rewriter.erase_op(instruction)
    for view in views:
        if isinstance(view, ViewOp) and not view.buffer.uses:
            Rewriter.erase_op(view)


def _drop_bodies(module: ModuleOp, references: Set[SymbolRefAttr]) -> None:
    """Erases the bodies of instructions that are gone, those left out that another one shares."""
    if not references:
        return
    used = {op.body for program in programs(module) for op in program.instructions}
    table = symbols(module)
    for reference in references - used:
        body = table.get(symbol_name(reference))
        if isinstance(body, BodyOp):
            Rewriter.erase_op(body)
