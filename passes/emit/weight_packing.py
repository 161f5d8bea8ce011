"""The program `@prepare`: which weights are packed ahead, for which kernels, and the derived binds that hold them.
Packing comes after what `prepare-parameters` has it compute.

Whether a kernel wants a prepared layout is in its record; this only writes it down.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.rewriter import Rewriter

from aicf.backends.common.workload import Workload
from aicf.dialects.emit import (
    PREPARE,
    BindOp,
    BodyOp,
    ProgramOp,
    ResolvedOp,
    SlotOp,
    ViewOp,
    YieldOp,
    buffer_of,
    symbols,
)
from aicf.dialects.emit_types import BufferType, KernelAttr, LayoutAttr, TargetAttr
from aicf.dialects.types import element_of, tensor, tensor_info
from aicf.passes.bodies.views import View
from aicf.passes.bodies.workload import body_symbol, descriptor
from aicf.passes.support.identity import unused, value_hint
from aicf.passes.support.ledger import record_decision


@dataclass(frozen=True)
class Packing:
    """A weight that a kernel wants prepared.

    Args:
        param: Its name: of a parameter, or of what `@prepare` makes of some.
        type_: Its tensor type.
        view: What of it the kernel reads.
        layout: How the kernel wants it.
        work, kernel, index: What the kernel runs, its record, and which operand of the work it is.
        src: Source ops of the group or instruction.
    """

    param: str
    type_: Attribute
    view: View
    layout: LayoutAttr
    work: Workload
    kernel: KernelAttr
    index: int
    src: tuple[str, ...]


def _existing(module: ModuleOp) -> ProgramOp | None:
    found = symbols(module).get(PREPARE)
    return found if isinstance(found, ProgramOp) else None


@dataclass
class Prepare:
    """Collects packings of one pass; one derived bind per weight, view and layout, shared by all programs."""

    module: ModuleOp
    target: TargetAttr
    pass_name: str
    program: ProgramOp = field(init=False)
    params: dict[str, BindOp] = field(init=False)
    """What can be packed: parameters, and what is computed of them here."""
    derived: dict[tuple[str, View, LayoutAttr], BindOp] = field(
        default_factory=dict[tuple[str, View, LayoutAttr], BindOp]
    )
    taken: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.program = _existing(self.module) or ProgramOp(PREPARE)
        self.params = {
            bind.bind_name.data: bind
            for bind in self.program.binds
            if buffer_of(bind.buffer).get_layout() is None and bind.role.data in ("param", "derived")
        }
        self.taken = {bind.bind_name.data for bind in self.program.binds}
        self.taken |= {op.instruction.data for op in self.program.instructions}

    @property
    def is_open(self) -> bool:
        """Whether weights can be added: an `@prepare` that is scheduled already stays as it is."""
        return self.program.phase.data == "bufferized"

    def bind_for(self, packing: Packing) -> BindOp:
        """The derived bind that holds the weight, made by `@prepare`."""
        key = (packing.param, packing.view, packing.layout)
        if key not in self.derived:
            self.derived[key] = self._add(packing)
        return self.derived[key]

    def _add(self, packing: Packing) -> BindOp:
        block = self.program.body.block
        param, layout = packing.param, packing.layout
        if param not in self.params:
            self.params[param] = BindOp("param", param, buffer_type(packing.type_, "bound"), binding="direct")
            self.params[param].buffer.name_hint = value_hint(param)
            block.add_op(self.params[param])
        name = unused(f"{param}:{layout.layout.data}", self.taken)
        source = viewed(block, self.params[param].buffer, packing.view)
        info = tensor_info(packing.type_)
        bind = BindOp(
            "derived", name, BufferType(packing.view.shape, info.element.type, "const", layout=layout)
        )
        bind.buffer.name_hint = value_hint(name)
        block.add_op(bind)
        body = BodyOp(body_symbol(name), identity(source.type))
        self.module.body.block.add_op(body)
        kernel = descriptor(packing.kernel, self.target).prepare(
            packing.work, packing.index, layout, self.target
        )
        op = ResolvedOp(
            "pack", name, packing.src, [source], [bind.buffer], body=body.sym_name.data, kernel=kernel
        )
        block.add_op(op)
        record_decision(
            self.module,
            self.pass_name,
            [name, packing.work.id],
            f"prepare '{param}' as {layout.layout.data}",
            "the kernel reads this layout; packed once when weights are bound",
        )
        return bind

    def finish(self) -> None:
        """Adds the program to the module if anything needs preparing, binds first."""
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
        if first_program is not None and self.program.parent is None:
            self.module.body.block.insert_op_before(self.program, first_program)


def drop_prepared_params(program: ProgramOp, prepare: Prepare) -> None:
    """Erases the binds of what only `@prepare` reads: parameters, and what it computes and packs."""
    for bind in program.binds:
        read_elsewhere = bind.bind_name.data in prepare.params and bind.role.data in ("param", "derived")
        if read_elsewhere and bind.updated is None and not bind.buffer.uses:
            Rewriter.erase_op(bind)


def keep_for_a_while(prepare: ProgramOp, programs: Iterable[ProgramOp]) -> None:
    """Puts what `@prepare` computes and none of `programs` binds into its arena: only packing reads it."""
    bound = {bind.bind_name.data for program in programs for bind in program.binds}
    for bind in prepare.binds:
        type_ = buffer_of(bind.buffer)
        if bind.role.data != "derived" or type_.get_layout() is not None or bind.bind_name.data in bound:
            continue
        slot = SlotOp(BufferType(type_.get_shape(), type_.element_type, "arena"))
        slot.buffer.name_hint = bind.buffer.name_hint
        prepare.body.block.insert_op_after(slot, prepare.binds[-1])
        bind.buffer.replace_all_uses_with(slot.buffer)
        _see_in_arena(slot.buffer)
        prepare.body.block.erase_op(bind)


def _see_in_arena(buffer: SSAValue) -> None:
    """Views of a buffer are in its space."""
    for use in list(buffer.uses):
        if isinstance(view := use.operation, ViewOp):
            type_ = buffer_of(view.buffer)
            there = BufferType(type_.get_shape(), type_.element_type, "arena", type_.get_strides())
            Rewriter.replace_value_with_new_type(view.buffer, there)
            _see_in_arena(view.buffer)


@lru_cache(maxsize=8192)
def buffer_type(type_: Attribute, space: str) -> BufferType:
    """The contiguous buffer that holds a tensor."""
    info = tensor_info(type_)
    return BufferType(info.shape, info.element.type, space)


@lru_cache(maxsize=8192)
def tensor_of(type_: Attribute) -> Attribute:
    """The tensor that a buffer holds."""
    assert isinstance(type_, BufferType)
    return tensor(type_.get_shape(), element_of(type_.element_type))


def identity(type_: Attribute) -> Region:
    """The body of an instruction that moves a buffer of this type and computes nothing."""
    block = Block(arg_types=[tensor_of(type_)])
    block.add_op(YieldOp([block.args[0]]))
    return Region(block)


def viewed(block: Block, buffer: SSAValue, view: View) -> SSAValue:
    """`buffer` through `view`, at the end of `block`; the buffer itself if the view shows all of it unchanged."""
    base = buffer.type
    assert isinstance(base, BufferType)
    if view.is_whole and view.shape == base.get_shape():
        return buffer
    op = ViewOp(buffer, view.offset, BufferType(view.shape, base.element_type, base.space.data, view.strides))
    op.buffer.name_hint = buffer.name_hint
    block.add_op(op)
    return op.buffer
