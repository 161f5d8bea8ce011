"""`lower-to-emit`: functions of groups become programs over buffers, with prepared weights and their bodies kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import (
    AnyDenseElement,
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    ModuleOp,
    StringAttr,
    TensorType,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.passes import ModulePass

from aicf.backends.common.workload import Workload
from aicf.backends.registry import get_kernels
from aicf.dialects import logical
from aicf.dialects.emit import (
    PREPARE,
    BindOp,
    BodyOp,
    GroupOp,
    ProgramOp,
    ResolvedOp,
    SlotOp,
    buffer_of,
)
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr
from aicf.dialects.types import tensor_info
from aicf.errors import PlanError
from aicf.passes.bodies.buffer_aliasing import alias_of, check_written_in_place
from aicf.passes.bodies.structure import Structure, structure_of_workload
from aicf.passes.bodies.view_folding import FoldedOperand
from aicf.passes.bodies.views import View, before_reshapes, is_rearrangement
from aicf.passes.bodies.workload import (
    argument_attrs,
    body_symbol,
    boundary_names,
    buffer_info,
    result_attrs,
    symbol_name,
    target_of,
    updated_names,
    workload_of,
)
from aicf.passes.emit.bindings import decide_bindings
from aicf.passes.emit.records import RecordParts, kernel_record, take_apart
from aicf.passes.emit.weight_packing import (
    Packing,
    Prepare,
    buffer_type,
    drop_prepared_params,
    identity,
    keep_for_a_while,
    viewed,
)
from aicf.passes.support.identity import value_hint
from aicf.passes.support.interface import argument_entry, counts_of, functions, meta_attrs
from aicf.passes.support.ledger import microseconds
from aicf.passes.support.policy import execution_of
from aicf.passes.support.works_on import FUNCTIONS


@dataclass(frozen=True)
class LowerToEmitPass(ModulePass):
    """Bufferises every function: arguments and results become binds, groups become instructions.

    A concatenation outside of groups is one buffer, which the instructions of its parts write through views.
    A result is written straight into its output bind; the new value of a parameter or state goes to a slot and is
    then copied, which `decide-inplace` may prove away. The function `@prepare` becomes the program of that name, whose
    results are `derived` binds. An operand whose kernel wants a prepared layout reads a `derived` bind that `@prepare`
    fills after what it computes; what only that reads is in its arena. An input or output whose address a kernel
    embeds is staged.
    """

    name = "lower-to-emit"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        every = functions(op)
        models = [function for function in every if function.sym_name.data != PREPARE]
        execution_of(op).check_bindings({name for function in models for name in boundary_names(function)})
        for function in every:
            if function not in models:
                _replace(function, _Bufferizer(op, function, None).run())
        prepare = Prepare(op, target_of(op), self.name)
        programs = [_Bufferizer(op, function, prepare).run() for function in models]
        for function, program in zip(models, programs, strict=True):
            _replace(function, program)
        prepare.finish()
        keep_for_a_while(prepare.program, programs)


def _replace(function: func.FuncOp, program: ProgramOp) -> None:
    block = function.parent
    assert isinstance(block, Block)
    block.insert_op_before(program, function)
    block.erase_op(function)


def _is_free(op: Operation) -> bool:
    """Whether an op may be outside of groups: a view of results or parts, or what is written in parts."""
    return is_rearrangement(op) or isinstance(op, logical.ConcatOp)


def _strings(array: ArrayAttr[StringAttr]) -> list[str]:
    return [entry.data for entry in array]


class _Bufferizer:
    """One function to one program. `@prepare` itself has no `prepare`: its kernels want nothing packed."""

    def __init__(self, module: ModuleOp, function: func.FuncOp, prepare: Prepare | None):
        self.module = module
        self.function = function
        self.prepare = prepare
        self.program = ProgramOp(function.sym_name.data)
        self.block = self.program.body.block
        self.buffers: dict[SSAValue, SSAValue] = {}
        self.outputs: dict[SSAValue, tuple[SSAValue, View]] = {}
        self.updates: list[tuple[str, SSAValue]] = []
        self.derived: dict[str, SSAValue] = {}
        self.last_bind: BindOp | None = None
        self.copy_kernels: dict[Structure, tuple[KernelAttr, float]] = {}
        """Of the copies so far, by the work of each: parameters of repeated layers are alike."""

    def run(self) -> ProgramOp:
        for op in self.function.body.block.ops:
            if isinstance(op, logical.ConcatOp):
                check_written_in_place(op)
        self._bind_arguments()
        self._bind_results()
        for op in self.function.body.block.ops:
            if isinstance(op, GroupOp):
                self._lower_group(op)
            elif not (_is_free(op) or isinstance(op, func.ReturnOp | logical.ConstantOp)):
                raise PlanError(
                    f"{op.name} is outside any group; run materialize-views and fuse-elementwise first"
                )
        self._copy_updates()
        if self.prepare is not None:
            drop_prepared_params(self.program, self.prepare)
        decide_bindings(self.module, self.program, LowerToEmitPass.name)
        return self.program

    def _add_bind(self, bind: BindOp) -> SSAValue:
        """Adds a bind after the others, before the instructions lowered so far."""
        bind.buffer.name_hint = value_hint(bind.bind_name.data)
        if self.last_bind is None:
            self.block.add_op(bind)
        else:
            self.block.insert_op_after(bind, self.last_bind)
        self.last_bind = bind
        return bind.buffer

    def _bind_arguments(self) -> None:
        updated = updated_names(self.function)
        for argument in self.function.args:
            attrs = argument_attrs(self.function, argument.index)
            name, role = attrs[logical.NAME_ATTR].data, attrs[logical.ROLE_ATTR].data
            host, start = meta_attrs(argument_entry(self.function, argument.index))
            is_derived = role == "derived"
            bind = BindOp(
                role,
                name,
                buffer_type(argument.type, "const" if is_derived else "bound"),
                binding=None if is_derived else "direct",
                updated=name in updated,
                value=start,
                host=host,
            )
            self.buffers[argument] = self._add_bind(bind)

    def _bind_results(self) -> None:
        terminator = self.function.body.block.last_op
        assert isinstance(terminator, func.ReturnOp)
        for index, value in enumerate(terminator.operands):
            attrs = result_attrs(self.function, index)
            if (updates := attrs.get(logical.UPDATES_ATTR)) is not None:
                self.updates.append((updates.data, value))
            if (name := attrs.get(logical.NAME_ATTR)) is not None:
                self._claim(value, self._add_bind(self._result_bind(index, name.data, value.type)))

    def _result_bind(self, index: int, name: str, type_: Attribute) -> BindOp:
        if self.prepare is None:
            return BindOp("derived", name, buffer_type(type_, "const"))
        counts = counts_of(self.function, index)
        return BindOp("output", name, buffer_type(type_, "bound"), binding="direct", counts=counts)

    def _claim(self, value: SSAValue, buffer: SSAValue) -> None:
        """Has the group that produces `value` (through reshapes) write straight into `buffer`."""
        value = before_reshapes(value)
        self.outputs[value] = (buffer, View.whole(tensor_info(value.type).shape))

    def _constant(self, op: logical.ConstantOp) -> SSAValue:
        """The bind of a constant that an instruction reads from memory; made at the first use."""
        id_ = op.attributes.get(logical.ID_ATTR)
        assert isinstance(id_, StringAttr)
        type_ = cast(TensorType[AnyDenseElement], op.result.type)
        value = DenseIntOrFPElementsAttr(type_, op.value.data)
        bind = BindOp("const", id_.data, buffer_type(op.result.type, "const"), value=value)
        self.buffers[op.result] = self._add_bind(bind)
        return bind.buffer

    def _lower_group(self, group: GroupOp) -> None:
        if group.kernel is None:
            raise PlanError(f"group '{group.id.data}' has no kernel; run select-kernels first")
        group_work = workload_of(group)
        work, parts = group_work.work, take_apart(group.kernel)
        ins = [
            self._operand(group, operand, index, parts.layout_at(index))
            for index, operand in enumerate(group_work.operands)
        ]
        outs = [
            self._result(result, view) for result, view in zip(group.results, group_work.results, strict=True)
        ]
        ws = self._workspace(parts)
        body = BodyOp(body_symbol(group.id.data), Region(work.body))
        self.module.body.block.insert_op_before(body, self.function)
        op = ResolvedOp(
            work.kind,
            group.id.data,
            _strings(group.src),
            ins,
            outs,
            ws=ws,
            attrs=work.attrs,
            body=body.sym_name.data,
            code=None if group.code is None else symbol_name(group.code),
            prologue=None if group.prologue is None else symbol_name(group.prologue),
            kernel=parts.kernel,
            expected_us=group.expected_us,
            constraints=parts.constraints,
        )
        op.location = group.location
        self.block.add_op(op)

    def _operand(
        self, group: GroupOp, operand: FoldedOperand, index: int, layout: LayoutAttr | None
    ) -> SSAValue:
        value = group.ins[operand.argument]
        if layout is None:
            held = self.buffers.get(alias_of(value).whole)
            if held is None:
                assert isinstance(value.owner, logical.ConstantOp)
                held = self._constant(value.owner)
            return viewed(self.block, held, operand.view)
        assert isinstance(value, BlockArgument)
        name = argument_attrs(self.function, value.index)[logical.NAME_ATTR].data
        assert group.kernel is not None and self.prepare is not None
        work, src = workload_of(group).work, tuple(_strings(group.src))
        packing = Packing(name, value.type, operand.view, layout, work, group.kernel, index, src)
        return self._derived(self.prepare.bind_for(packing))

    def _derived(self, made: BindOp) -> SSAValue:
        name = made.bind_name.data
        if name not in self.derived:
            self.derived[name] = self._add_bind(BindOp("derived", name, buffer_of(made.buffer)))
        return self.derived[name]

    def _result(self, result: OpResult, view: View) -> SSAValue:
        """What the group's kernel writes: the memory in which its result lies, through `view`."""
        whole = alias_of(result).whole
        if whole not in self.buffers:
            self.buffers[whole] = self._memory(whole)
        return viewed(self.block, self.buffers[whole], view)

    def _memory(self, value: SSAValue) -> SSAValue:
        """Memory for a value that is whole: that of the output it is, else a slot."""
        if value in self.outputs:
            buffer, shown = self.outputs[value]
            return viewed(self.block, buffer, shown)
        slot = SlotOp(buffer_type(value.type, "arena"))
        slot.buffer.name_hint = value.name_hint
        self.block.add_op(slot)
        return slot.buffer

    def _workspace(self, parts: RecordParts) -> list[SSAValue]:
        if (slot := parts.workspace()) is None:
            return []
        self.block.add_op(slot)
        return [slot.buffer]

    def _copy_updates(self) -> None:
        binds = {bind.bind_name.data: bind for bind in self.program.binds}
        for name, value in self.updates:
            source = self.buffers[before_reshapes(value)]
            target = binds[name].buffer
            source = viewed(self.block, source, View.whole(buffer_of(target).get_shape()))
            self._add_copy(f"{name}.update", source, target, _sources_of(value) or [name])

    def _add_copy(self, name: str, source: SSAValue, target: SSAValue, src: Sequence[str]) -> None:
        body = BodyOp(body_symbol(f"{self.program.sym_name.data}.{name}"), identity(target.type))
        self.module.body.block.insert_op_before(body, self.function)
        kernel, us = self._copy_kernel(_copy_work(name, source, target, body.body.block))
        copy = ResolvedOp(
            "copy",
            name,
            src,
            [source],
            [target],
            body=body.sym_name.data,
            kernel=kernel,
            expected_us=microseconds(us),
        )
        self.block.add_op(copy)

    def _copy_kernel(self, work: Workload) -> tuple[KernelAttr, float]:
        """What runs a copy, and its predicted time; worked out once for all copies that are alike."""
        structure = structure_of_workload(work)
        if structure not in self.copy_kernels:
            self.copy_kernels[structure] = _copy_kernel(work, target_of(self.module))
        return self.copy_kernels[structure]


def _sources_of(value: SSAValue) -> list[str]:
    base = before_reshapes(value)
    return _strings(base.owner.src) if isinstance(base.owner, GroupOp) else []


def _copy_work(name: str, source: SSAValue, target: SSAValue, body: Block) -> Workload:
    infos = (buffer_info(source, "temp"),), (buffer_info(target, "output"),)
    return Workload(name, "copy", {}, *infos, body, None)


def _copy_kernel(work: Workload, platform: TargetAttr) -> tuple[KernelAttr, float]:
    """The first legal copy kernel of the target, and its predicted time; copies have no alternatives worth a decision.

    Most of these copies go when `decide-inplace` proves that the new value can be written where it belongs."""
    for kernel in get_kernels(platform.backend.data).values():
        if "copy" in kernel.kinds and kernel.legal(work, platform) is None:
            record = kernel_record(kernel, kernel.record(work, platform))
            return record, kernel.cost_us(work, platform)
    raise PlanError(f"target {platform.backend.data} has no kernel that copies '{work.id}'")
