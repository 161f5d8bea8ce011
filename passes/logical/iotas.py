"""A view of what follows from indices is computed of views of indices: ``reshape(iota)`` from [N] to [N, 1] is an iota.

Kernels compute such values wherever they read them, in their own loops. A reshape between would join loops of different
indices, which no kernel has.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from aicf.dialects.logical import (
    BroadcastOp,
    ConstantOp,
    IotaOp,
    LogicalOp,
    ReshapeOp,
    TransposeOp,
    int_values,
)
from aicf.dialects.types import element_of, tensor, tensor_info
from aicf.passes.bodies.matching import is_iota_like, moves_nothing
from aicf.passes.support.identity import derived_id, op_id, replace_with_op, set_identity, sources


class ViewOfIota(RewritePattern):
    """A broadcast, a transposition, or a reshape that adds and drops dimensions of size 1, of an iota."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if not isinstance(op, LogicalOp) or not isinstance(inner := op.operands[0].owner, IotaOp):
            return
        if (axis := _axis_after(op, inner.axis.value.data)) is not None:
            made = IotaOp(axis, op.info.sizes, op.info.element)
            replace_with_op(rewriter, op, made, inner)


class ReshapeOfIotas(RewritePattern):
    """A reshape that adds and drops dimensions of size 1, of what is compared or computed of iotas and splats."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if not isinstance(op, ReshapeOp) or not is_iota_like(op.operand):
            return
        inner = op.operand.owner
        if not isinstance(inner, LogicalOp) or isinstance(inner, IotaOp) or not moves_nothing(op):
            return
        operands = [_reshaped(operand, number, op, rewriter) for number, operand in enumerate(inner.operands)]
        made = type(inner).create(
            operands=operands, result_types=[op.result.type], properties=dict(inner.properties)
        )
        replace_with_op(rewriter, op, made, inner)


def _reshaped(value: SSAValue, number: int, like: ReshapeOp, rewriter: PatternRewriter) -> SSAValue:
    """Operand `number` in the shape of the result of a reshape."""
    source = value.owner
    if isinstance(source, ConstantOp):
        type_ = tensor(like.info.sizes, element_of(value.type))
        made: LogicalOp = ConstantOp(source.array.reshape(-1)[0], type_)
    else:
        made = ReshapeOp(value, like.info.sizes)
    made.location = like.location
    if (identity := op_id(like)) is not None:
        set_identity(made, derived_id(identity, f"index{number}"), sources(like))
    rewriter.insert(made, InsertPoint.before(like))
    return made.results[0]


def _axis_after(view: LogicalOp, axis: int) -> int | None:
    """Where an axis of the operand of a view lies in its result; None if the view has no one place for it."""
    if isinstance(view, TransposeOp):
        return int_values(view.permutation).index(axis)
    before = tensor_info(view.operands[0].type).sizes
    if isinstance(view, BroadcastOp):
        return int_values(view.dimensions)[axis] if before[axis] != 1 else None
    after = tensor_info(view.results[0].type).sizes
    sources = [at for at, size in enumerate(before) if size != 1]
    targets = [at for at, size in enumerate(after) if size != 1]
    if axis not in sources or [before[at] for at in sources] != [after[at] for at in targets]:
        return None
    return targets[sources.index(axis)]
