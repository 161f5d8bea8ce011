"""`materialize-views`: copies where strides cannot express a view, and where a result would alias something else.

What follows from coordinates alone gets memory where its reader knows no coordinates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.passes import ModulePass

from aicf.backends.registry import get_kernels
from aicf.dialects import logical
from aicf.dialects.emit import GroupOp, YieldOp
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.factored_views import strided
from aicf.passes.bodies.matching import is_iota_like, only_reader
from aicf.passes.bodies.outlining import id_of, is_rematerializable, outline, sources_of
from aicf.passes.bodies.view_folding import reads_in_memory
from aicf.passes.bodies.view_reconstruction import view_ops
from aicf.passes.bodies.views import View, before_reshapes, is_view
from aicf.passes.bodies.workload import result_attrs, target_of
from aicf.passes.fusion.forming import FusionContext, form_group, fusion_contexts
from aicf.passes.support.identity import derived_id, op_id, set_identity, sources
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.works_on import FUNCTIONS


@dataclass(frozen=True)
class MaterializeViewsPass(ModulePass):
    """Turns into groups (later `copy` instructions) the views that strides cannot express, and returned views.

    A concatenation that would be transposed by a copy is made of transposed parts: whoever computes them may write them
    there. A reshape of a computed value that is only returned stays a view. A copy of a raised program stays one if the
    policy names a kernel for it. What remains of reshape, transpose, slice and broadcast after this pass is free:
    operand strides or index maps.
    """

    name = "materialize-views"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for context in fusion_contexts(op, target_of(op)):
            _give_memory(context)
            break_chains(context)
            if _keep_copies(context):
                break_chains(context)
            _copy_returns(context)


def _give_memory(context: FusionContext) -> None:
    """Materialises coordinates, and what follows from them alone, for ops that take operands from memory."""
    for op in list(context.function.body.block.ops):
        for number in range(len(op.operands)):
            source = _through_views(
                op.operands[number]
            )  # as it is now: another operand may have been the same
            if (_moves_elements(op) or reads_in_memory(op, number)) and is_iota_like(source):
                assert isinstance(source, OpResult)
                _materialize(source.op, context, f"'{id_of(op)}' reads it from memory", _READERS)


def _through_views(value: SSAValue) -> SSAValue:
    while isinstance(value, OpResult) and is_view(value.op):
        value = value.op.operands[0]
    return value


def _moves_elements(op: Operation) -> bool:
    """Whether a view is no part of a kernel's loops: it does more than to repeat, and to add or drop dims of size 1."""
    if not is_view(op) or isinstance(op, logical.BroadcastOp):
        return False
    sizes = [tensor_info(value.type).sizes for value in (op.operands[0], op.results[0])]
    source, target = ([size for size in each if size != 1] for each in sizes)
    return not isinstance(op, logical.ReshapeOp) or source != target


def break_chains(context: FusionContext) -> None:
    """Materialises the source of each view that strides cannot express on top of it, unless other views express what is
    read of that view in the end."""
    views: dict[SSAValue, View] = {}
    for op in _read_views(context.function.body.block):
        source = op.operands[0]
        base = views.get(source, View.whole(tensor_info(source.type).shape))
        view = base.then(op)
        if view is None:
            assert isinstance(source, OpResult)
            if _rebuild(op, context):
                return break_chains(context)
            because = f"'{id_of(op)}' needs its elements in row-major order in memory"
            if not _transposed_parts(source.op, context, because):
                _materialize(source.op, context, because)
            view = View.whole(tensor_info(op.results[0].type).shape)
        views[op.results[0]] = view


def _read_views(block: Block) -> list[Operation]:
    """The views of a block that something other than a view reads, at once or through others, in order. A group has
    copies of those that feed it: what it alone read is read by nobody now."""
    read: list[Operation] = []
    known: set[Operation] = set()
    for op in reversed(list(block.ops)):
        if is_view(op):
            readers = (use.operation for use in op.results[0].uses)
            if any(not is_view(reader) or reader in known for reader in readers):
                known.add(op)
                read.append(op)
    return read[::-1]


def _rebuild(op: Operation, context: FusionContext) -> bool:
    """Puts other views in the place of a view that strides cannot express and of those of it, if they express all that
    something other than a view reads of it: a slice may keep one part of a dimension that a reshape joined."""
    made: dict[Operation, list[Operation]] = {}
    views = _views_of(op)
    for end in views:
        if all(is_view(use.operation) for use in end.results[0].uses):
            continue
        chain = _chain_to(end)
        if (view := strided(chain)) is None:
            return False
        try:
            made[end] = view_ops(chain[0].operands[0], view)
        except ValueError:
            return False
    for end, ops in made.items():
        _replace_end(end, ops, context)
    for view in reversed(views):
        context.function.body.block.erase_op(view)
    context.renumber()
    return True


def _views_of(op: Operation) -> list[Operation]:
    """A view and all views that read it, at once or through others, in order."""
    found, order = {op}, [op]
    waiting = [op]
    while waiting:
        readers = {use.operation for use in waiting.pop().results[0].uses if is_view(use.operation)}
        waiting += readers - found
        found |= readers
    after = op.next_op
    while len(order) < len(found) and after is not None:
        if after in found:
            order.append(after)
        after = after.next_op
    return order


def _chain_to(op: Operation) -> list[Operation]:
    """The views that lead to the result of `op`, from memory on."""
    chain = [op]
    while is_view(owner := chain[0].operands[0].owner):
        chain.insert(0, owner)
    return chain


def _replace_end(end: Operation, ops: Sequence[Operation], context: FusionContext) -> None:
    """Gives those who read a view the result of `ops` instead, which stand for all of its chain."""
    chain, name = _chain_to(end), id_of(end)
    src = list(dict.fromkeys(source for op in chain for source in sources(op)))
    source = ops[-1].results[0] if ops else chain[0].operands[0]
    ids = [derived_id(name, f"view{number}") for number in range(len(ops) - 1)]
    for op, id_ in zip(ops, [*ids, name], strict=bool(ops)):
        set_identity(op, id_, src)
    context.function.body.block.insert_ops_before(ops, end)
    if ops:
        source.name_hint = end.results[0].name_hint
    end.results[0].replace_all_uses_with(source)
    record_decision(
        context.module,
        MaterializeViewsPass.name,
        [name, *ids],
        "strides",
        "strides express what is read in the end, though not each view on the way",
        {"copy": "the elements can be read where they are"},
    )


def _keep_copies(context: FusionContext) -> bool:
    """Materialises further copies that the policy has a kernel for; whether there are any. What reads them in a raised
    program may be a view of what they copy."""
    kept = False
    last = {without_feeder(id_of(op)): op for op in context.function.body.block.ops if is_view(op)}
    for name, op in last.items():
        kernel = context.policy.kernels.get(name)
        if kernel is None or name == id_of(op) or copy_name(op, context) != name:
            continue
        known = get_kernels(context.target.backend.data).get(kernel)
        is_returned = any(isinstance(use.operation, func.ReturnOp) for use in op.results[0].uses)
        if known is not None and known.kinds == frozenset(("copy",)) and not is_returned:
            _materialize(op, context, "the policy has a kernel for the copy", {})
            kept = True
    return kept


def _transposed_parts(op: Operation, context: FusionContext, because: str) -> bool:
    """Puts transposed parts side by side in place of a concatenation that only `op`, a transposition, reads."""
    concat = op.operands[0].owner
    if not isinstance(op, logical.TransposeOp) or not isinstance(concat, logical.ConcatOp):
        return False
    if only_reader(concat.result) is not op or not context.may_be_one([concat, op]):
        return False
    order = op.permutation.get_values()
    parts = [logical.TransposeOp(part, order) for part in concat.parts]
    made = logical.ConcatOp([part.result for part in parts], order.index(concat.axis.value.data))
    for number, part in enumerate(parts):
        set_identity(part, derived_id(id_of(op), f"part{number}"), sources(op))
    set_identity(made, id_of(concat), [*sources(concat), *sources(op)])
    made.result.name_hint = op.result.name_hint
    block = context.function.body.block
    block.insert_ops_before([*parts, made], op)
    op.result.replace_all_uses_with(made.result)
    block.erase_op(op)
    block.erase_op(concat)
    context.renumber()
    record_decision(
        context.module,
        MaterializeViewsPass.name,
        [id_of(made), *map(id_of, parts)],
        "transposed parts",
        because,
        _STRIDES,
    )
    return True


_STRIDES = {"strides": "they cannot express both views"}
_READERS = {"computed by its consumer": "that reads its operand from memory alone"}


def _materialize(
    op: Operation, context: FusionContext, because: str, refused: Mapping[str, str] = _STRIDES
) -> GroupOp:
    """Makes the op a group; `refused`: where else its elements could have come from, and why they do not."""
    plan = outline([op], copy_name(op, context), op.results)
    group = form_group(plan, context)
    record_decision(
        context.module,
        MaterializeViewsPass.name,
        [group.id.data],
        "copy",
        because,
        refused,
    )
    return group


def copy_name(op: Operation, context: FusionContext) -> str:
    """The id of the group that copies a view; one that goes with a product in a raised program does not take the
    product's. There a view that feeds an instruction is called after it, and so is its copy: by the instruction's name.
    """
    name, source = context.group_id([op]), _through_views(op.operands[0]) if op.operands else None
    product = (
        source is not None and isinstance(source.owner, logical.MatmulOp) and id_of(source.owner) == name
    )
    own = id_of(op)
    if not product and name != own:
        return name
    stem = without_feeder(own)
    taken = stem in context.used or any(op_id(other) == stem for other in context.position)
    return own if taken else stem


def without_feeder(id_: str) -> str:
    """The instruction that a view feeds in a raised program, by the view's id; other ids as they are."""
    return _FEEDER.sub("", id_)


_FEEDER = re.compile(r"\.feeder\d+(?=@|$)")
"""The suffix that raising a program adds to the name of an instruction to name a view that feeds it."""


def _copy_returns(context: FusionContext) -> None:
    terminator = context.function.body.block.last_op
    assert isinstance(terminator, func.ReturnOp)
    seen: set[SSAValue] = set()
    for index, given in enumerate(list(terminator.operands)):
        terminator.operands[index] = value = _as_reshape(given, context)
        reason = _copy_reason(value, index, context.function, seen)
        seen.add(before_reshapes(value))
        if reason is None:
            continue
        copy = _returned_copy(terminator.operands[index], index, context, reason)
        terminator.operands[index] = copy


def _as_reshape(value: SSAValue, context: FusionContext) -> SSAValue:
    """A returned broadcast or window that repeats and moves nothing as the reshape that it is, others as they are."""
    if not isinstance(value.owner, logical.BroadcastOp | logical.WindowOp):
        return value
    source = tensor_info(value.owner.operand.type)
    view = View.whole(source.shape).then(value.owner)
    if view is None or not view.is_whole or source.elements != value.owner.info.elements:
        return value
    reshape = logical.ReshapeOp(value.owner.operand, view.shape)
    set_identity(reshape, derived_id(id_of(value.owner), "reshape"), sources(value.owner))
    reshape.result.name_hint = value.name_hint
    context.function.body.block.insert_op_after(reshape, value.owner)
    context.renumber()
    return reshape.result


def _copy_reason(value: SSAValue, index: int, function: func.FuncOp, seen: set[SSAValue]) -> str | None:
    base = before_reshapes(value)
    updates = result_attrs(function, index).get(logical.UPDATES_ATTR)
    if updates is not None and logical.NAME_ATTR not in result_attrs(function, index):
        if isinstance(base, BlockArgument) or is_rematerializable(base.owner):  # pyright: ignore[reportArgumentType]
            return f"the new value of '{updates.data}' is a view, a constant or an argument: no instruction computes it"
        return None
    if isinstance(base, BlockArgument):
        return "the program returns an input or parameter, and what it returns has memory of its own"
    if isinstance(base, OpResult) and (
        is_rematerializable(base.op) or isinstance(base.op, logical.ConstantOp)
    ):
        return "the program returns a view or a constant, and what it returns has memory of its own"
    if base in seen:
        return "the program returns one value twice, and each result has memory of its own"
    return None


def _returned_copy(value: SSAValue, index: int, context: FusionContext, reason: str) -> SSAValue:
    attrs = result_attrs(context.function, index)
    name = (attrs.get(logical.NAME_ATTR) or attrs[logical.UPDATES_ATTR]).data
    if isinstance(value, OpResult) and is_rematerializable(value.op):
        plan = outline([value.op], id_of(value.op))
        block, inputs, ids = plan.body, list(plan.inputs), sources_of(plan.members)
        for op in block.ops:  # other results may be copies of the same
            op.attributes.pop(logical.ID_ATTR, None)
            op.attributes.pop(logical.SRC_ATTR, None)
    else:
        block = Block(arg_types=[value.type])
        block.add_op(YieldOp([block.args[0]]))
        inputs, ids = [value], [name]
    group = GroupOp(context.copy_id(name), ids, inputs, Region(block), [value.type])
    context.used.add(group.id.data)
    terminator = context.function.body.block.last_op
    assert terminator is not None
    context.function.body.block.insert_op_before(group, terminator)
    group.results[0].name_hint = value.name_hint
    record_decision(context.module, MaterializeViewsPass.name, [group.id.data], "copy", reason)
    return group.results[0]
