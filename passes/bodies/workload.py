"""What a kernel is asked to run, read from a group or from candidate ops that could become one.

The one place where a body becomes a `Workload`: folded, its kind derived, its generated code derived. Passes that fuse,
select, generate, lower and verify all come here, so they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from weakref import WeakKeyDictionary

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr, SymbolRefAttr
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from aicf.backends.common.kernel import AnyKernel
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.registry import get_kernels
from aicf.dialects import logical
from aicf.dialects.emit import PREPARE, BindOp, BodyOp, GroupOp, ResolvedOp, buffer_of
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.emit_types import KernelAttr, TargetAttr, canonical_strides
from aicf.dialects.kinds import KINDS
from aicf.dialects.types import element_of
from aicf.errors import PolicyError
from aicf.passes.analysis.accesses import region_of
from aicf.passes.bodies.buffer_aliasing import alias_of
from aicf.passes.bodies.kernel_code import NoCode, derive_codes
from aicf.passes.bodies.kinds import derive_kind
from aicf.passes.bodies.view_folding import FoldedBody, FoldedOperand, Lies, fold_views, yielded
from aicf.passes.bodies.views import View
from aicf.passes.support.policy import execution_of
from aicf.policies.kernel_policy import BATCH_INVARIANT, KernelPolicy

TARGET_ATTR = "aicf.target"
BATCH_DEPENDENT = "the bits of a row may depend on the batch, and the policy wants them not to (determinism)"
"""The reason against a kernel that does not keep them apart."""
UNMEASURED = "unmeasured: run aicf tune"
"""The reason against a kernel whose record only a device can complete."""


@dataclass(frozen=True)
class GroupWorkload:
    """A group as work, with what its operands are in terms of the group's own operands.

    Args:
        work: What kernels see.
        operands: For each operand of the work, the group's operand that it reads, and the view of that operand's memory
            through which it reads it.
        results: Where in the memory of each result of the group, be it its own or not, the work writes.
        no_code: Why there is no generated code, if the kind would need it.
    """

    work: Workload
    operands: tuple[FoldedOperand, ...]
    results: tuple[View, ...]
    no_code: str | None

    def under(self, policy: KernelPolicy) -> GroupWorkload:
        """The same with what a policy asks of the results: their rounding, whether the batch may change them, and
        whether products may round operands that could be rounded to TF32."""
        invariant = policy.determinism == BATCH_INVARIANT
        tf32 = policy.tf32 and may_be_rounded(self.work.kind, self.work.operands)
        with_options = replace(self.work, rounding=policy.rounding, batch_invariant=invariant, tf32=tf32)
        return replace(self, work=with_options)


def may_be_rounded(kind: str, operands: Sequence[OperandInfo]) -> bool:
    """Whether an instruction is one of products of f32, which a policy may allow to round their operands to TF32."""
    return KINDS[kind].takes_tf32 and operands[0].dtype == "f32"


def target_of(module: ModuleOp) -> TargetAttr:
    """The module's target. Raises PolicyError if `set-target` has not run."""
    target = module.attributes.get(TARGET_ATTR)
    if not isinstance(target, TargetAttr):
        raise PolicyError("the module has no target; run set-target{target=...} first")
    return target


def code_symbol(group_id: str) -> str:
    """Symbol of a group's generated kernel."""
    return f"{group_id}.code"


def prologue_symbol(group_id: str) -> str:
    """Symbol of the row program before a group's products."""
    return f"{group_id}.prologue"


def body_symbol(group_id: str) -> str:
    """Symbol of an instruction's body."""
    return f"{group_id}.body"


_works: WeakKeyDictionary[GroupOp, GroupWorkload] = WeakKeyDictionary()


def workload_of(group: GroupOp) -> GroupWorkload:
    """The work of a formed group; worked out once, because the body of a group never changes."""
    if (known := _works.get(group)) is None:
        known = _works[group] = aliased_workload(group, lambda value: alias_of(value).view)
    return known


def aliased_workload(group: GroupOp, view_of: Callable[[SSAValue], View]) -> GroupWorkload:
    """The work of a group if each value lies where `view_of` says; it may have no kernel there."""
    lies = Lies(tuple(map(view_of, group.ins)), tuple(map(view_of, group.results)))
    origins = [origin_of(operand) for operand in group.ins]
    return workload_of_folded(group.id.data, fold_views(group.body.block, lies), origins)


def remember_workload(group: GroupOp, work: GroupWorkload) -> None:
    """Notes the work of a group that was worked out before the group was formed."""
    _works[group] = work


def rename_group(group: GroupOp, name: str) -> None:
    """Calls a group otherwise; its work, which has its name, is worked out again."""
    group.id = StringAttr(name)
    _works.pop(group, None)


def workload_of_body(group_id: str, body: Block, origins: Sequence[tuple[str, bool]]) -> GroupWorkload:
    """The work of a body whose block argument i comes from `origins[i]` (role, updated)."""
    return workload_of_folded(group_id, fold_views(body), origins)


def workload_of_folded(
    group_id: str, folded: FoldedBody, origins: Sequence[tuple[str, bool]]
) -> GroupWorkload:
    """The work of a body that is folded already."""
    kind, attrs = derive_kind(folded.block)
    code, prologue, reason = _code_of(folded.block, kind, code_symbol(group_id), prologue_symbol(group_id))
    operands = tuple(
        _seen_through(operand.view, argument, *origins[operand.argument])
        for operand, argument in zip(folded.operands, folded.block.args, strict=True)
    )
    results = tuple(
        _seen_through(view, value, "temp")
        for value, view in zip(yielded(folded.block), folded.results, strict=True)
    )
    work = Workload(group_id, kind, attrs, operands, results, folded.block, code, prologue)
    return GroupWorkload(work, folded.operands, folded.results, reason)


def _code_of(
    body: Block, kind: str, symbol: str, prologue: str
) -> tuple[KernelOp | None, KernelOp | None, str | None]:
    """The generated code of a folded body and of its prologue, or why it has none; nothing if its kernels need none."""
    if not KINDS[kind].needs_code:
        return None, None, None
    try:
        return *derive_codes(body, symbol, prologue), None
    except NoCode as error:
        return None, None, str(error)


def _seen_through(view: View, value: SSAValue, role: str, updated: bool = False) -> OperandInfo:
    """What the work sees through `view`, with the strides that its buffer will have."""
    strides = canonical_strides(view.shape, view.strides)
    return OperandInfo(role, view.shape, element_of(value.type).name, strides, updated, view.offset)


def workload_of_instruction(
    op: ResolvedOp, body: Block, code: str, prologue: str, may_prepare: bool
) -> GroupWorkload:
    """The work of an instruction: its body as it stands, its buffers with their strides.

    Args:
        code, prologue: Symbols for the generated code.
        may_prepare: Whether kernels may ask for prepared weights; else parameters are plain memory to them.
    """
    program, rows, reason = _code_of(body, op.kind.data, code, prologue)
    operands = tuple(buffer_info(value, *_origin_of_buffer(value, may_prepare)) for value in op.ins)
    results = tuple(buffer_info(value, "temp") for value in op.outs)
    whole = [View.whole(buffer_of(value).get_shape()) for value in (*op.ins, *op.outs)]
    read = tuple(FoldedOperand(index, view) for index, view in enumerate(whole[: len(op.ins)]))
    work = Workload(op.instruction.data, op.kind.data, op.attrs.data, operands, results, body, program, rows)
    return GroupWorkload(work, read, tuple(whole[len(op.ins) :]), reason)


def _origin_of_buffer(value: SSAValue, may_prepare: bool) -> tuple[str, bool]:
    """Role and whether it is updated; a view of a bind, or a parameter that cannot be prepared, is just memory."""
    if not isinstance(value.owner, BindOp) or (value.owner.role.data in _PACKED and not may_prepare):
        return "temp", False
    return value.owner.role.data, value.owner.updated is not None


_PACKED = ("param", "derived")
"""Roles of what kernels may want packed ahead."""


def buffer_info(value: SSAValue, role: str, updated: bool = False) -> OperandInfo:
    """A buffer as a kernel sees it."""
    type_ = buffer_of(value)
    dtype = element_of(type_.element_type).name
    offset = region_of(value).offset // type_.element_bytes
    return OperandInfo(
        role, type_.get_shape(), dtype, type_.get_strides(), updated, offset, type_.get_layout()
    )


def origin_of(value: SSAValue) -> tuple[str, bool]:
    """Role of a value of a function, and whether the program updates it.

    Where the policy lets no weights be prepared, and in `@prepare` itself, parameters are plain memory to kernels, like
    any other value.
    """
    if isinstance(value, OpResult):
        return ("const" if isinstance(value.op, logical.ConstantOp) else "temp"), False
    assert isinstance(value, BlockArgument)
    function = value.block.parent_op()
    if not isinstance(function, func.FuncOp):
        return "temp", False
    entry = argument_attrs(function, value.index)
    role = entry.get(logical.ROLE_ATTR)
    name = entry.get(logical.NAME_ATTR)
    assert isinstance(role, StringAttr) and isinstance(name, StringAttr)
    module = function.parent_op()
    if role.data in _PACKED and not _may_pack(function, module):
        return "temp", False
    return role.data, name.data in updated_names(function)


def _may_pack(function: func.FuncOp, module: Operation | None) -> bool:
    is_allowed = not isinstance(module, ModuleOp) or execution_of(module).prepared_weights
    return is_allowed and function.sym_name.data != PREPARE


def body_of(instruction: ResolvedOp, table: Mapping[str, Operation]) -> BodyOp | None:
    """What says what an instruction computes, among the symbols of its module; None if it names no body of these."""
    body = None if instruction.body is None else table.get(symbol_name(instruction.body))
    return body if isinstance(body, BodyOp) else None


def argument_attrs(function: func.FuncOp, index: int) -> dict[str, StringAttr]:
    """Interface attributes of argument `index`."""
    return _entry(function.arg_attrs, index)


def result_attrs(function: func.FuncOp, index: int) -> dict[str, StringAttr]:
    """Interface attributes of result `index`."""
    return _entry(function.res_attrs, index)


def _entry(attrs: ArrayAttr[DictionaryAttr] | None, index: int) -> dict[str, StringAttr]:
    if attrs is None:
        return {}
    return {key: value for key, value in attrs.data[index].data.items() if isinstance(value, StringAttr)}


def boundary_names(function: func.FuncOp) -> list[str]:
    """Names of the inputs and outputs."""
    arguments = (argument_attrs(function, argument.index) for argument in function.args)
    inputs = [a[logical.NAME_ATTR] for a in arguments if a.get(logical.ROLE_ATTR) == StringAttr("input")]
    results = (result_attrs(function, index) for index in range(len(function.function_type.outputs)))
    outputs = [r[logical.NAME_ATTR] for r in results if logical.NAME_ATTR in r]
    return [name.data for name in (*inputs, *outputs)]


def updated_names(function: func.FuncOp) -> frozenset[str]:
    """Names of the parameters and states that a result updates."""
    return frozenset() if function.res_attrs is None else _updated_in(_Same(function.res_attrs))


@dataclass(frozen=True, eq=False)
class _Same:
    """An attribute that equals only itself: to compare those of a function with many results takes as long as reading
    them."""

    attrs: ArrayAttr[DictionaryAttr]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.attrs is other.attrs

    def __hash__(self) -> int:
        return id(self.attrs)


@lru_cache(maxsize=8)
def _updated_in(results: _Same) -> frozenset[str]:
    names = (entry.data.get(logical.UPDATES_ATTR) for entry in results.attrs.data)
    return frozenset(name.data for name in names if isinstance(name, StringAttr))


def legal_kernels(
    group_work: GroupWorkload,
    target: TargetAttr,
    forbidden: frozenset[str] = frozenset(),
    measured: Collection[str] = frozenset(),
) -> tuple[list[AnyKernel], dict[str, str]]:
    """The kernels of the target that run the work, and for every other one of its kind the reason why not.

    Kernels whose record only a device can complete are legal only if they are in `measured`. What groups form never
    depends on a tuning table: passes that fuse leave it empty.
    """
    work = group_work.work
    legal: list[AnyKernel] = []
    rejected: dict[str, str] = {}
    for kernel in get_kernels(target.backend.data).values():
        if not kernel.is_for(work):
            continue
        reason = "forbidden by policy (forbid)" if kernel.id in forbidden else kernel.legal(work, target)
        if reason is not None:
            rejected[kernel.id] = reason if group_work.no_code is None else f"{reason} ({group_work.no_code})"
        elif work.batch_invariant and kernel.fixed_order(work, target) is None:
            rejected[kernel.id] = BATCH_DEPENDENT
        elif kernel.device_fields and kernel.id not in measured:
            rejected[kernel.id] = UNMEASURED
        else:
            legal.append(kernel)
    return legal, rejected


def symbol_name(reference: SymbolRefAttr) -> str:
    """The plain name of a symbol reference."""
    return reference.root_reference.data


def descriptor(record: KernelAttr, target: TargetAttr) -> AnyKernel:
    """The kernel a record names. Raises PolicyError if the target's backend has none of that id."""
    kernels = get_kernels(target.backend.data)
    if (kernel := kernels.get(record.kernel.data)) is None:
        raise PolicyError(
            f"kernel '{record.kernel.data}' is not one of backend '{target.backend.data}': {', '.join(kernels)}"
        )
    return kernel
