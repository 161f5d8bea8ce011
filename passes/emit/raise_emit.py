"""`raise-emit`: emit IR back to lowered logical IR, with its decisions as the policy, for another try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from aicf.dialects import logical
from aicf.dialects.emit import (
    PREPARE,
    BindOp,
    BodyOp,
    KernelOp,
    ProgramOp,
    ResolvedOp,
    SlotOp,
    ViewOp,
    YieldOp,
    buffer_of,
    find_ledger,
    symbols,
)
from aicf.dialects.emit_types import BufferType, TargetAttr
from aicf.dialects.types import dense_array
from aicf.errors import PlanError, PolicyError
from aicf.passes.analysis.accesses import Region as Bytes
from aicf.passes.analysis.accesses import region_of
from aicf.passes.bodies.concat_reconstruction import Operand, Piece, Pieces, box_of, filling
from aicf.passes.bodies.view_reconstruction import laid_out, view_ops
from aicf.passes.bodies.views import View, is_view
from aicf.passes.bodies.workload import TARGET_ATTR, body_of
from aicf.passes.emit.prepared_values import Inliner, Origin, PreparedValues
from aicf.passes.emit.read_decisions import Pins, decisions_of
from aicf.passes.emit.weight_packing import tensor_of
from aicf.passes.support.identity import invalid, set_identity, unused, value_hint
from aicf.passes.support.policy import EXECUTION_ATTR, POLICY_ATTR, note_read_from
from aicf.passes.support.programs import programs
from aicf.passes.support.works_on import PROGRAMS

PINS = ("all", "groups", "nothing")
ARGUMENT_ROLES = ("input", "param", "state", "meta")


@dataclass(frozen=True)
class RaiseEmitPass(ModulePass):
    """Inlines the bodies of every program into a function and drops buffers, slots, prepared weights and the ledger.

    The groups and how their results lie, the kernels with their records and the number of streams become the module's
    policy, so that running the pipeline again from `start=lowered` gives the same programs. For another backend
    `set-target` opens them again, as they name kernels that it has not. `pin=groups` keeps the groups for any target
    and leaves the kernels open, `pin=nothing` leaves all open for this one, too.
    """

    name = "raise-emit"
    works_on = PROGRAMS

    pin: str = "all"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.pin not in PINS:
            raise PolicyError(f"pin: '{self.pin}' is not known; legal: {', '.join(PINS)}")
        table = symbols(op)
        taken = _ids(op)
        prepared = _prepared(op, taken)
        every = self.pin == "all"
        decisions = decisions_of(op, Pins(groups=self.pin != "nothing", kernels=every, records=every))
        for program in programs(op):
            if program.sym_name.data != PREPARE:
                op.body.block.insert_op_before(_Raiser(program, table, prepared, taken).run(), program)
        op.attributes[POLICY_ATTR] = decisions.kernel.to_attr()
        op.attributes[EXECUTION_ATTR] = decisions.execution.to_attr()
        target = op.attributes.get(TARGET_ATTR)
        if every and isinstance(target, TargetAttr):
            note_read_from(op, target)
        _drop_emit(op)


def _ids(root: Operation) -> set[str]:
    """All op ids in the bodies of a module, or in one."""
    ids = (op.attributes.get(logical.ID_ATTR) for op in root.walk())
    return {id_.data for id_ in ids if isinstance(id_, StringAttr)}


def _prepared(module: ModuleOp, taken: set[str]) -> PreparedValues:
    """What each derived bind holds, read from `@prepare`."""
    table = symbols(module)
    program = table.get(PREPARE)
    if not isinstance(program, ProgramOp):
        return PreparedValues()
    found = _Raiser(program, table, PreparedValues(), set(taken)).prepare()
    for instruction in program.instructions:  # what is inlined keeps its ids
        if (body := body_of(instruction, table)) is not None:
            taken -= _ids(body)
    return found


def _view_in_elements(region: Bytes) -> View:
    type_ = region.type
    return View(region.offset // type_.element_bytes, type_.get_shape(), type_.get_strides())


def _drop_emit(module: ModuleOp) -> None:
    ledger = find_ledger(module)
    for op in reversed(list(module.body.block.ops)):
        if op is ledger or isinstance(op, ProgramOp | BodyOp | KernelOp):
            Rewriter.erase_op(op)


@dataclass
class _Raiser:
    """One program to one function: follows which value each bind and slot holds, instruction by instruction."""

    program: ProgramOp
    table: Mapping[str, Operation]
    prepared: PreparedValues
    taken: set[str]
    block: Block = field(default_factory=Block)
    held: dict[BindOp | SlotOp, SSAValue] = field(default_factory=dict[BindOp | SlotOp, SSAValue])
    params: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    interface: list[DictionaryAttr] = field(default_factory=list[DictionaryAttr])
    copies: set[SSAValue] = field(default_factory=set[SSAValue])
    """What copies made, and what is made of parts: only those who read it know how it was called."""
    parts: dict[BindOp | SlotOp, Pieces] = field(default_factory=dict[BindOp | SlotOp, Pieces])
    joined: list[logical.ConcatOp] = field(default_factory=list[logical.ConcatOp])
    """Copies of several parts, whose operands are those of the concatenation that they are a part of."""
    feeders: int = 0

    def prepare(self) -> PreparedValues:
        """What `@prepare` makes, as values of a block of its own."""
        for bind in self.program.binds:
            self._take_bind(bind)
        origins: dict[str, Origin] = {}
        for instruction in self.program.instructions:
            if instruction.kind.data == "pack":
                origins |= self._packed(instruction)
            else:
                self._raise(instruction)
        for bind in self.program.binds:
            if bind.role.data == "derived" and (value := self._held(bind)) is not None:
                origins[bind.bind_name.data] = Origin(value, View.whole(buffer_of(bind.buffer).get_shape()))
        types = {bind.bind_name.data: bind.buffer.type for bind in self.program.binds}
        return PreparedValues(origins, {value: (name, types[name]) for name, value in self.params.items()})

    def _packed(self, instruction: ResolvedOp) -> dict[str, Origin]:
        source, target = region_of(instruction.ins[0]), region_of(instruction.outs[0]).root
        held = self._held(source.root)
        if held is None or not isinstance(target, BindOp):
            raise invalid(
                instruction, "@prepare packs parameters, and what it computes, into derived binds only"
            )
        return {target.bind_name.data: Origin(held, _view_in_elements(source))}

    def _held(self, root: BindOp | SlotOp) -> SSAValue | None:
        """All that a bind or slot holds, if anything was written."""
        return self.parts[root].whole if root in self.parts else self.held.get(root)

    def run(self) -> func.FuncOp:
        """The function; the program stays as it is."""
        for bind in self.program.binds:
            self._take_bind(bind)
        for bind in self.program.binds:
            if bind.role.data == "derived":
                self._take_derived(bind)
        for instruction in self.program.instructions:
            self._raise(instruction)
        return self._finish()

    def _argument(self, name: str, role: str, type_: BufferType, bind: BindOp | None = None) -> SSAValue:
        argument = self.block.insert_arg(tensor_of(type_), len(self.block.args))
        argument.name_hint = value_hint(name)
        entry: dict[str, Attribute] = {
            logical.NAME_ATTR: StringAttr(name),
            logical.ROLE_ATTR: StringAttr(role),
        }
        for key, attr in ((logical.START_ATTR, bind and bind.value), (logical.HOST_ATTR, bind and bind.host)):
            if attr is not None:
                entry[key] = attr
        self.interface.append(DictionaryAttr(entry))
        return argument

    def _take_bind(self, bind: BindOp) -> None:
        assert isinstance(bind.buffer.type, BufferType)
        name, role, type_ = bind.bind_name.data, bind.role.data, bind.buffer.type
        if role in ARGUMENT_ROLES:
            self.held[bind] = self.params[name] = self._argument(name, role, type_, bind)
        elif role == "const":
            assert bind.value is not None
            op = logical.ConstantOp(dense_array(bind.value), tensor_of(type_))
            self._add(op, name, [name])
            self.held[bind] = op.result

    def _take_derived(self, bind: BindOp) -> None:
        name = bind.bind_name.data
        if (origin := self.prepared.origins.get(name)) is None:
            raise invalid(bind, f"derived bind '{name}' is not filled by @{PREPARE}")
        self.held[bind] = self.inliner.value(origin.value)

    @cached_property
    def inliner(self) -> Inliner:
        """Computes in this function what `@prepare` does."""
        _, at, bucket = self.program.sym_name.data.partition("@")
        return Inliner(self.block, self._parameter, at + bucket, self.taken)

    def _parameter(self, prepared: SSAValue) -> SSAValue:
        """The argument for a parameter that `@prepare` reads."""
        name, type_ = self.prepared.params[prepared]
        if name not in self.params:
            assert isinstance(type_, BufferType)
            self.params[name] = self._argument(name, "param", type_)
        return self.params[name]

    def _add(self, op: Operation, id_: str, src: Sequence[str]) -> None:
        op.attributes[logical.ID_ATTR] = StringAttr(id_)
        op.attributes[logical.SRC_ATTR] = ArrayAttr([StringAttr(name) for name in src])
        self.block.add_op(op)

    def _read(self, value: SSAValue, instruction: ResolvedOp, called: str | None) -> SSAValue:
        """What an operand shows, `called` so by its reader: the value of its bind or slot, through view ops."""
        region = region_of(value)
        view = _view_in_elements(region)
        parts = self.parts.get(region.root)
        if parts is not None and not parts.is_untouched(view):
            held, view = parts.seen(view, called) or (None, view)
        else:
            held = self.held.get(region.root)
        if held is None:
            raise invalid(instruction, f"'{instruction.instruction.data}' reads a buffer that nothing wrote")
        if held in self.copies and held.name_hint is None:
            held.name_hint = called
        if isinstance(region.root, BindOp) and region.root.role.data == "derived":
            view = self._view_of_derived(region.root, view)
        try:
            ops = view_ops(held, view)
        except ValueError as error:
            raise invalid(
                instruction, f"'{instruction.instruction.data}' cannot be raised: {error}"
            ) from error
        for op in ops:
            self._feed(op, instruction)
        return ops[-1].results[0] if ops else held

    def _view_of_derived(self, bind: BindOp, view: View) -> View:
        """What is read of the value of a derived bind: packed ones are read whole."""
        is_packed = buffer_of(bind.buffer).get_layout() is not None
        return self.prepared.origins[bind.bind_name.data].view if is_packed else view

    def _feed(self, op: Operation, instruction: ResolvedOp) -> None:
        """Adds a view, broadcast or constant that feeds `instruction`."""
        self._add(op, self._feeder_id(instruction), [source.data for source in instruction.src])

    def _feeder_id(self, instruction: ResolvedOp) -> str:
        """A new id, with the bucket of the instruction last."""
        base, at, bucket = instruction.instruction.data.partition("@")
        while True:
            self.feeders += 1
            id_ = f"{base}.feeder{self.feeders}{at}{bucket}"
            if id_ not in self.taken:
                self.taken.add(id_)
                return id_

    def _raise(self, instruction: ResolvedOp) -> None:
        body = body_of(instruction, self.table)
        name = instruction.instruction.data
        if body is None:
            raise invalid(
                instruction, f"'{name}' has no body, so nothing says what it means; run select-kernels"
            )
        values: dict[SSAValue, SSAValue] = {
            argument: self._read(operand, instruction, argument.name_hint)
            for argument, operand in zip(body.body.block.args, instruction.ins, strict=True)
        }
        for op in body.body.block.ops:
            if isinstance(op, YieldOp):
                self._write(instruction, [values[value] for value in op.operands])
                continue
            clone = op.clone(values)
            if logical.ID_ATTR in op.attributes:
                self.block.add_op(clone)
            else:
                self._feed(clone, instruction)

    def _write(self, instruction: ResolvedOp, results: Sequence[SSAValue]) -> None:
        for out, value in zip(instruction.outs, results, strict=True):
            region = region_of(out)
            if self._write_part(instruction, out, value):
                continue
            self.parts.pop(region.root, None)
            filled = _filled_by(out)
            ops = laid_out(value, _view_in_elements(region), buffer_of(filled).get_shape())
            if ops is None:
                raise invalid(
                    instruction,
                    f"'{instruction.instruction.data}' writes elements of a buffer that are no block of it; "
                    "that cannot be raised",
                )
            for op in ops:
                self._feed(op, instruction)
            if ops:
                ops[-1].results[0].name_hint = value.name_hint
            elif is_view(value.owner):
                self.copies.add(value)
            self.held[region.root] = ops[-1].results[0] if ops else value

    def _write_part(self, instruction: ResolvedOp, out: SSAValue, value: SSAValue) -> bool:
        """Notes a block of a buffer; once all blocks are written, they are a concatenation. False if it is none, or all
        of the buffer."""
        region, whole = region_of(out), buffer_of(_whole_of(out))
        if buffer_of(out).element_count == whole.element_count:
            return False
        shape, view = whole.get_shape(), _view_in_elements(region)
        box = box_of(view, shape)
        ops = None if box is None else filling(value, view, box, shape)
        if box is None or ops is None:
            return False
        for op in ops:
            self._feed(op, instruction)
        known = self.parts.get(region.root)
        if known is None or known.shape != shape:
            add = partial(self._add_concat, self._joined_name(region.root))
            known = self.parts[region.root] = Pieces(shape, self.block, add)
        said = Operand.named(instruction.instruction.data) if self._only_copies(instruction) else None
        operands: tuple[SSAValue, ...] = ()
        if (
            said is not None
            and instruction.kind.data == "concat"
            and isinstance(value.owner, logical.ConcatOp)
        ):
            operands = tuple(value.owner.parts)
            self.joined.append(value.owner)
        src = [source.data for source in instruction.src]
        filled = ops[-1].results[0] if ops else value
        filled.name_hint = value.name_hint
        known.add(Piece(box, filled, self.block.last_op, said, src, operands))
        return True

    def _only_copies(self, instruction: ResolvedOp) -> bool:
        """Whether no op of its body is one of the program's."""
        body = body_of(instruction, self.table)
        return body is not None and not any(logical.ID_ATTR in op.attributes for op in body.body.block.ops)

    def _joined_name(self, root: BindOp | SlotOp) -> str:
        """What a concatenation that fills a bind or slot is called. The name of what `@prepare` computes says which op
        made it, and so the concatenation has that op's id again."""
        if isinstance(root, BindOp) and root.role.data == "derived":
            return root.bind_name.data.rpartition(":")[2]
        hint = root.buffer.name_hint if isinstance(root, SlotOp) else None
        return f"{hint or self.program.sym_name.data.partition('@')[0]}.concat"

    def _add_concat(
        self,
        name: str,
        op: logical.ConcatOp,
        after: Operation | None,
        id_: str | None,
        src: Sequence[str],
    ) -> None:
        _, at, bucket = self.program.sym_name.data.partition("@")
        own = id_ or unused(name, self.taken, "", f"{at}{bucket}")
        self.taken.add(own)
        self.copies.add(op.result)
        set_identity(op, own, src or [own])
        if after is not None:
            self.block.insert_op_after(op, after)
        elif self.block.first_op is not None:
            self.block.insert_op_before(op, self.block.first_op)
        else:
            self.block.add_op(op)

    def _drop_gaps(self) -> None:
        """Takes out gaps between rows, which nobody reads: `select-pitches` writes them again."""
        for op in reversed(list(self.block.ops)):
            is_unread = isinstance(op, logical.ConcatOp | logical.ConstantOp) and not op.results[0].uses
            if is_unread:
                self.block.erase_op(op)

    def _finish(self) -> func.FuncOp:
        results: list[SSAValue] = []
        entries: list[DictionaryAttr] = []
        for bind in self._results():
            key = logical.NAME_ATTR if bind.role.data == "output" else logical.UPDATES_ATTR
            if bind in self.parts:
                self.held[bind] = self._whole(bind, self.parts[bind])
            if bind not in self.held:
                raise PlanError(f"output '{bind.bind_name.data}' is never written")
            results.append(self._shaped(bind))
            counts = {} if bind.counts is None else {logical.COUNTS_ATTR: bind.counts}
            entries.append(DictionaryAttr({key: bind.bind_name, **counts}))
        self.block.add_op(func.ReturnOp(*results))
        for op in self.joined:
            if not op.result.uses:
                self.block.erase_op(op)
        self._drop_gaps()
        types = FunctionType.from_lists([a.type for a in self.block.args], [r.type for r in results])
        return func.FuncOp(
            self.program.sym_name.data,
            types,
            Region(self.block),
            arg_attrs=ArrayAttr(self.interface),
            res_attrs=ArrayAttr(entries),
        )

    def _results(self) -> list[BindOp]:
        """Outputs and what is updated, in the order of the binds.

        Updates are among each other in the order in which they are written: an instruction of many updates has its
        results in the order of those of the function.
        """
        results = [
            bind for bind in self.program.binds if bind.role.data == "output" or bind.updated is not None
        ]
        writes = chain.from_iterable(op.outs for op in self.program.instructions)
        roots = dict.fromkeys(region_of(out).root for out in writes)
        updated = [root for root in roots if isinstance(root, BindOp) and root.updated is not None]
        updated += [bind for bind in results if bind.updated is not None and bind not in roots]
        in_order = iter(updated)
        return [next(in_order) if bind.updated is not None else bind for bind in results]

    def _whole(self, bind: BindOp, parts: Pieces) -> SSAValue:
        """What a bind holds that was written in parts."""
        if (whole := parts.whole) is None:
            raise PlanError(f"'{bind.bind_name.data}' is written in part; that cannot be raised")
        return whole

    def _shaped(self, bind: BindOp) -> SSAValue:
        """What the bind holds, in the bind's shape."""
        assert isinstance(bind.buffer.type, BufferType)
        value = self.held[bind]
        if value.type == tensor_of(bind.buffer.type):
            return value
        op = logical.ReshapeOp(value, bind.buffer.type.get_shape())
        self._add(op, f"{bind.bind_name.data}.reshape", [bind.bind_name.data])
        return op.result


def _whole_of(out: SSAValue) -> SSAValue:
    """The contiguous buffer that `out` is all or a part of: the nearest one that begins where its bind or slot does.

    A value that took over the memory of another one, which may be larger, is a view of it, and what is written in parts
    there has views of that view.
    """
    while isinstance(out.owner, ViewOp):
        out = out.owner.source
        if buffer_of(out).is_contiguous and region_of(out).offset == 0:
            break
    return out


def _filled_by(out: SSAValue) -> SSAValue:
    """The contiguous buffer whose elements an instruction writes, in whatever order: `out` itself, or what it views."""
    if isinstance(out.owner, ViewOp) and not buffer_of(out).is_contiguous:
        return out.owner.source
    return out
