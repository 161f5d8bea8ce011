"""`lower-to-emit`: functions of groups become programs over buffers, with prepared weights and their bodies kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import (
    AnyDenseElement,
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    TensorType,
    UnitAttr,
    i8,
)
from xdsl.ir import Attribute, Block, BlockArgument, OpResult, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.utils.hints import isa

from aicf.backends.base import OperandInfo, Work
from aicf.backends.registry import get_kernels
from aicf.dialects import logical
from aicf.dialects.emit import (
    PREPARE,
    BindOp,
    BodyOp,
    DecisionOp,
    GroupOp,
    ProgramOp,
    ResolvedOp,
    SlotOp,
    ViewOp,
    YieldOp,
    find_ledger,
)
from aicf.dialects.emit_types import BufferType, KernelAttr, LayoutAttr, TargetAttr
from aicf.dialects.types import element_of, tensor, tensor_info
from aicf.errors import PlanError
from aicf.passes.select_kernels import SelectKernelsPass, descriptor, kernel_record
from aicf.passes.support.ledger import record
from aicf.passes.support.peeling import PeeledOperand
from aicf.passes.support.views import View
from aicf.passes.support.work import (
    argument_attrs,
    body_symbol,
    result_attrs,
    symbol_name,
    target_of,
    updated_names,
    work_of_group,
)


@dataclass(frozen=True)
class LowerToEmitPass(ModulePass):
    """Bufferises every function: arguments and results become binds, groups become instructions.

    A result is written straight into its output bind; the new value of a parameter or state goes to a slot and is
    then copied, which `decide-inplace` may prove away. An operand whose kernel wants a prepared layout reads a
    `derived` bind, filled by the program `@prepare`.
    """

    name = "lower-to-emit"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        prepare = _Prepare(op, target_of(op))
        expected = _expected_times(op)
        functions = [f for f in op.body.block.ops if isinstance(f, func.FuncOp) and not f.is_declaration]
        for function in functions:
            program = _Bufferizer(op, function, prepare, expected).run()
            op.body.block.insert_op_before(program, function)
            function.detach()
            function.erase()
        prepare.finish()


def _expected_times(module: ModuleOp) -> dict[str, Attribute]:
    """Predicted microseconds by group id, from the ledger."""
    ledger = find_ledger(module)
    decisions: Sequence[DecisionOp] = () if ledger is None else ledger.decisions
    return {
        decision.subjects.data[0].data: decision.cost.data["expected_us"]
        for decision in decisions
        if decision.pass_name.data == SelectKernelsPass.name and "expected_us" in decision.cost.data
    }


def buffer_type(
    type_: Attribute, space: str, view: View | None = None, layout: LayoutAttr | None = None
) -> BufferType:
    """The buffer that holds a tensor: contiguous, or as `view` says."""
    info = tensor_info(type_)
    if view is None:
        return BufferType(info.shape, info.element.type, space, layout=layout)
    return BufferType(view.shape, info.element.type, space, view.strides, layout)


@dataclass
class _Prepare:
    """The program `@prepare`, shared by all programs of the module: one derived bind per weight, view and layout."""

    module: ModuleOp
    target: TargetAttr
    program: ProgramOp = field(default_factory=lambda: ProgramOp(PREPARE))
    params: dict[str, BindOp] = field(default_factory=dict[str, BindOp])
    derived: dict[tuple[str, View, LayoutAttr], BindOp] = field(
        default_factory=dict[tuple[str, View, LayoutAttr], BindOp]
    )

    def bind_for(
        self,
        param: str,
        type_: Attribute,
        operand: PeeledOperand,
        layout: LayoutAttr,
        group: GroupOp,
        place: int,
    ) -> tuple[str, BufferType]:
        """Name and type of the derived bind that holds `param`, seen through the operand's view, in `layout`."""
        key = (param, operand.view, layout)
        if key not in self.derived:
            self.derived[key] = self._add(param, type_, operand.view, layout, group, place)
        bind = self.derived[key]
        assert isinstance(bind.buffer.type, BufferType)
        return bind.bind_name.data, bind.buffer.type

    def _add(
        self, param: str, type_: Attribute, view: View, layout: LayoutAttr, group: GroupOp, place: int
    ) -> BindOp:
        block = self.program.body.block
        if param not in self.params:
            self.params[param] = BindOp("param", param, buffer_type(type_, "bound"), binding="direct")
            self.params[param].buffer.name_hint = _hint(param)
            block.add_op(self.params[param])
        count = sum(1 for name, _, _ in self.derived if name == param)
        name = f"{param}:{layout.layout.data}" + (f".{count}" if count else "")
        source = _viewed(block, self.params[param].buffer, view)
        info = tensor_info(type_)
        bind = BindOp("derived", name, BufferType(view.shape, info.element.type, "const", layout=layout))
        bind.buffer.name_hint = _hint(name)
        block.add_op(bind)
        body = BodyOp(body_symbol(name), _identity(source.type))
        self.module.body.block.add_op(body)
        record_ = self._record(group, place, layout)
        block.add_op(
            ResolvedOp(
                "pack",
                name,
                _strings(group.src),
                [source],
                [bind.buffer],
                body=body.sym_name.data,
                kernel=record_,
            )
        )
        record(
            self.module,
            LowerToEmitPass.name,
            [name, group.id.data],
            f"prepare '{param}' as {layout.layout.data}",
            "the kernel reads this layout; packed once when weights are bound",
        )
        return bind

    def _record(self, group: GroupOp, place: int, layout: LayoutAttr) -> KernelAttr:
        assert group.kernel is not None
        kernel = descriptor(group.kernel, self.target)
        return kernel.prepare(work_of_group(group).work, place, layout, self.target)

    def finish(self) -> None:
        """Adds the program to the module if anything needs preparing, binds in front."""
        if not self.derived:
            return
        block = self.program.body.block
        last: BindOp | None = None
        for bind in self.program.binds:
            if last is not None:
                bind.detach()
                block.insert_op_after(bind, last)
            last = bind
        first_program = next((op for op in self.module.body.block.ops if isinstance(op, ProgramOp)), None)
        if first_program is not None:
            self.module.body.block.insert_op_before(self.program, first_program)


def _strings(array: ArrayAttr[StringAttr]) -> list[str]:
    return [entry.data for entry in array]


def _hint(name: str) -> str:
    """A legal SSA name made from a symbol."""
    return "v_" + "".join(c if c.isalnum() or c in "_" else "_" for c in name)


def _identity(type_: Attribute) -> Region:
    assert isinstance(type_, BufferType)
    block = Block(arg_types=[tensor(type_.get_shape(), element_of(type_.element_type))])
    block.add_op(YieldOp([block.args[0]]))
    return Region(block)


def _viewed(block: Block, buffer: SSAValue, view: View) -> SSAValue:
    """`buffer` through `view`; the buffer itself if the view shows all of it unchanged."""
    base = buffer.type
    assert isinstance(base, BufferType)
    if view.is_whole and view.shape == base.get_shape():
        return buffer
    op = ViewOp(buffer, view.offset, BufferType(view.shape, base.element_type, base.space.data, view.strides))
    op.buffer.name_hint = buffer.name_hint
    block.add_op(op)
    return op.buffer


class _Bufferizer:
    """One function to one program."""

    def __init__(
        self, module: ModuleOp, function: func.FuncOp, prepare: _Prepare, expected: dict[str, Attribute]
    ):
        self.module = module
        self.function = function
        self.prepare = prepare
        self.expected = expected
        self.program = ProgramOp(function.sym_name.data)
        self.block = self.program.body.block
        self.buffers: dict[SSAValue, SSAValue] = {}
        self.outputs: dict[SSAValue, tuple[SSAValue, View]] = {}
        self.updates: list[tuple[str, SSAValue]] = []
        self.derived: dict[str, SSAValue] = {}
        self.last_bind: BindOp | None = None

    def run(self) -> ProgramOp:
        self._bind_arguments()
        self._bind_results()
        for op in self.function.body.block.ops:
            if isinstance(op, GroupOp):
                self._lower_group(op)
            elif isinstance(op, logical.ConstantOp):
                self._bind_constant(op)
            elif not isinstance(op, func.ReturnOp | logical.ReshapeOp):
                raise PlanError(
                    f"{op.name} is outside any group; run materialize-views and fuse-elementwise first"
                )
        self._copy_updates()
        self._drop_unread_params()
        return self.program

    def _add_bind(self, bind: BindOp) -> SSAValue:
        bind.buffer.name_hint = _hint(bind.bind_name.data)
        self.block.add_op(bind)
        self.last_bind = bind
        return bind.buffer

    def _bind_arguments(self) -> None:
        updated = updated_names(self.function)
        for argument in self.function.args:
            attrs = argument_attrs(self.function, argument.index)
            name, role = attrs[logical.NAME_ATTR].data, attrs[logical.ROLE_ATTR].data
            bind = BindOp(
                role, name, buffer_type(argument.type, "bound"), binding="direct", updated=name in updated
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
                bind = BindOp("output", name.data, buffer_type(value.type, "bound"), binding="direct")
                self._claim(value, self._add_bind(bind))

    def _claim(self, value: SSAValue, buffer: SSAValue) -> None:
        """Has the group behind `value` (through reshapes) write straight into `buffer`."""
        while isinstance(value, OpResult) and isinstance(value.op, logical.ReshapeOp):
            value = value.op.operands[0]
        self.outputs[value] = (buffer, View.whole(tensor_info(value.type).shape))

    def _bind_constant(self, op: logical.ConstantOp) -> None:
        id_ = op.attributes.get(logical.ID_ATTR)
        assert isinstance(id_, StringAttr)
        if not op.result.uses:
            return
        type_ = cast(TensorType[AnyDenseElement], op.result.type)
        value = DenseIntOrFPElementsAttr(type_, op.value.data)
        bind = BindOp("const", id_.data, buffer_type(op.result.type, "const"), value=value)
        bind.buffer.name_hint = op.result.name_hint
        self.block.add_op(bind)
        self.buffers[op.result] = bind.buffer

    def _lower_group(self, group: GroupOp) -> None:
        if group.kernel is None:
            raise PlanError(f"group '{group.id.data}' has no kernel; run select-kernels first")
        group_work = work_of_group(group)
        work, kernel = group_work.work, group.kernel
        layouts = kernel.record.data.get("layouts")
        ins = [
            self._operand(group, operand, place, layouts) for place, operand in enumerate(group_work.operands)
        ]
        outs = [self._result(result) for result in group.results]
        ws = self._workspace(kernel)
        body = BodyOp(body_symbol(group.id.data), _detached(work.body))
        self.module.body.block.insert_op_before(body, self.function)
        may_alias = kernel.record.data.get("may_alias")
        entries = {k: v for k, v in kernel.record.data.items() if k not in ("may_alias", "layouts")}
        hints = {"expected_us": t} if (t := self.expected.get(group.id.data)) is not None else {}
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
            kernel=KernelAttr(kernel.kernel.data, entries),
            constraints={} if may_alias is None else {"may_alias": may_alias},
            hints=hints,
        )
        op.location = group.location
        self.block.add_op(op)

    def _operand(
        self, group: GroupOp, operand: PeeledOperand, place: int, layouts: Attribute | None
    ) -> SSAValue:
        value = group.ins[operand.argument]
        layout = _layout_at(layouts, place)
        if layout is None:
            return _viewed(self.block, self.buffers[value], operand.view)
        assert isinstance(value, BlockArgument)
        name = argument_attrs(self.function, value.index)[logical.NAME_ATTR].data
        derived, type_ = self.prepare.bind_for(name, value.type, operand, layout, group, place)
        return self._derived(derived, type_)

    def _derived(self, name: str, type_: BufferType) -> SSAValue:
        if name not in self.derived:
            bind = BindOp("derived", name, type_)
            bind.buffer.name_hint = _hint(name)
            self.derived[name] = bind.buffer
            if self.last_bind is None:
                self.block.add_op(bind)
            else:
                self.block.insert_op_after(bind, self.last_bind)
            self.last_bind = bind
        return self.derived[name]

    def _result(self, result: OpResult) -> SSAValue:
        if result in self.outputs:
            buffer, view = self.outputs[result]
            written = _viewed(self.block, buffer, view)
        else:
            slot = SlotOp(buffer_type(result.type, "arena"))
            slot.buffer.name_hint = result.name_hint
            self.block.add_op(slot)
            written = slot.buffer
        self.buffers[result] = written
        return written

    def _workspace(self, kernel: KernelAttr) -> list[SSAValue]:
        size = kernel.record.data.get("workspace_bytes")
        if not isinstance(size, IntegerAttr) or not size.value.data:
            return []
        slot = SlotOp(BufferType([size.value.data], i8, "arena"))
        slot.buffer.name_hint = "ws"
        self.block.add_op(slot)
        return [slot.buffer]

    def _copy_updates(self) -> None:
        binds = {bind.bind_name.data: bind for bind in self.program.binds}
        for name, value in self.updates:
            source = self.buffers[_behind_reshapes(value)]
            target = binds[name].buffer
            assert isinstance(target.type, BufferType)
            source = _viewed(self.block, source, View.whole(target.type.get_shape()))
            self._add_copy(f"{name}.update", source, target, _sources_of(value) or [name])

    def _add_copy(self, name: str, source: SSAValue, target: SSAValue, src: Sequence[str]) -> None:
        body = BodyOp(body_symbol(f"{self.program.sym_name.data}.{name}"), _identity(target.type))
        self.module.body.block.insert_op_before(body, self.function)
        kernel = _copy_kernel(name, source, target, body.body.block, self.prepare.target)
        self.block.add_op(
            ResolvedOp("copy", name, src, [source], [target], body=body.sym_name.data, kernel=kernel)
        )

    def _drop_unread_params(self) -> None:
        """A parameter that only `@prepare` reads is no bind of this program."""
        prepared = {name for name, _, _ in self.prepare.derived}
        for bind in self.program.binds:
            read_elsewhere = bind.bind_name.data in prepared and bind.role.data == "param"
            if read_elsewhere and bind.updated is None and not bind.buffer.uses:
                bind.detach()
                bind.erase()


def _behind_reshapes(value: SSAValue) -> SSAValue:
    while isinstance(value, OpResult) and isinstance(value.op, logical.ReshapeOp):
        value = value.op.operands[0]
    return value


def _sources_of(value: SSAValue) -> list[str]:
    base = _behind_reshapes(value)
    return _strings(base.op.src) if isinstance(base, OpResult) and isinstance(base.op, GroupOp) else []


def _layout_at(layouts: Attribute | None, place: int) -> LayoutAttr | None:
    if not isa(layouts, ArrayAttr[Attribute]):
        return None
    entry = layouts.data[place] if place < len(layouts) else UnitAttr()
    return entry if isinstance(entry, LayoutAttr) else None


def _detached(block: Block) -> Region:
    region = Region()
    region.add_block(block)
    return region


def _copy_kernel(
    name: str, source: SSAValue, target: SSAValue, body: Block, platform: TargetAttr
) -> KernelAttr:
    """The first legal copy kernel of the target; copies have no alternatives worth a decision."""

    def info(value: SSAValue, role: str) -> OperandInfo:
        type_ = value.type
        assert isinstance(type_, BufferType)
        return OperandInfo(role, type_.get_shape(), element_of(type_.element_type).name, type_.get_strides())

    work = Work(name, "copy", {}, (info(source, "temp"),), (info(target, "output"),), body, None)
    for kernel in get_kernels(platform.backend.data).values():
        if "copy" in kernel.kinds and kernel.legal(work, platform) is None:
            return kernel_record(kernel, kernel.record(work, platform))
    raise PlanError(f"target {platform.backend.data} has no kernel that copies '{name}'")
