"""Products whose leading dimensions are joined before and taken apart after: products with the dimensions as they are.

GPT-2's Conv1D in PyTorch and many exported models compute so. Ops on different sides of a reshape are different
instructions, so what follows such a product, an activation or a residual, could not be part of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint

from aicf.dialects.logical import AddOp, BroadcastOp, LogicalOp, MatmulOp, ReshapeOp, int_values
from aicf.dialects.types import tensor_info
from aicf.passes.support.identity import op_id, replace_with_op, set_identity, sources


@dataclass(frozen=True)
class _Rows:
    """A product of joined rows with one matrix, and the row that may be added to it.

    Args:
        x: The rows, not joined.
        product: Their product.
        bias: The row, repeated to all rows; None if there is none.
        sum: What adds it.
    """

    x: SSAValue
    product: MatmulOp
    bias: BroadcastOp | None = None
    sum: AddOp | None = None


class KeepRowsApart(RewritePattern):
    """reshape(reshape(x) @ w + bias) is x @ w + bias where the rows of x are joined and taken apart again as they were.

    The sums are the same ones, and what reads the joined rows may go on doing so.
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReshapeOp, rewriter: PatternRewriter, /) -> None:
        rows = _rows_of(op.operand)
        if rows is None:
            return
        given = tensor_info(rows.x.type).sizes
        if given[:-1] != op.info.sizes[:-1] or op.info.sizes[-1] != rows.product.info.sizes[-1]:
            return
        product = MatmulOp(rows.x, rows.product.rhs, transpose_b=rows.product.transpose_b is not None)
        if rows.sum is None or rows.bias is None:
            _take_place(op, product, rows.product, rewriter)
            return
        _insert(rewriter, op, product, rows.product)
        bias = BroadcastOp(rows.bias.operand, [op.info.rank - 1], op.info.sizes)
        _insert(rewriter, op, bias, rows.bias)
        _take_place(op, AddOp(product.result, bias.result), rows.sum, rewriter)
        rewriter.erase(rows.product)
        if not any(rows.bias.result.uses):
            rewriter.erase(rows.bias)


def _rows_of(value: SSAValue) -> _Rows | None:
    """The product of joined rows that `value` is, with a bias or without; nothing else reads the product or the sum."""
    op = value.owner
    if not value.has_one_use():
        return None
    if isinstance(op, MatmulOp):
        x = _joined(op)
        return None if x is None else _Rows(x, op)
    if not isinstance(op, AddOp):
        return None
    for product, bias in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        found, repeated = product.owner, bias.owner
        if (
            isinstance(found, MatmulOp)
            and isinstance(repeated, BroadcastOp)
            and product.has_one_use()
            and tuple(int_values(repeated.dimensions)) == (1,)
            and (x := _joined(found)) is not None
        ):
            return _Rows(x, found, repeated, op)
    return None


def _joined(product: MatmulOp) -> SSAValue | None:
    """What the rows of a product with one matrix are joined of, if all but the last dimension of it are."""
    joined = product.lhs.owner
    if product.transpose_a is not None or product.widening is not None or not isinstance(joined, ReshapeOp):
        return None
    sizes = tensor_info(joined.operand.type).sizes
    is_matrix = joined.info.rank == 2 and tensor_info(product.rhs.type).rank == 2
    return joined.operand if is_matrix and len(sizes) > 2 and sizes[-1] == joined.info.sizes[-1] else None


def _insert(rewriter: PatternRewriter, op: Operation, new: LogicalOp, old: LogicalOp) -> None:
    """Inserts `new` before `op`, with the id and location of what it stands for."""
    set_identity(new, op_id(old), sources(old))
    new.location, new.result.name_hint = old.location, old.result.name_hint
    rewriter.insert(new, InsertPoint.before(op))


def _take_place(op: ReshapeOp, new: LogicalOp, old: LogicalOp, rewriter: PatternRewriter) -> None:
    """Puts `new` in the place of `op`, and of `old` before it, whose id and location it has."""
    name, location = op_id(old), old.location
    replace_with_op(rewriter, op, new, old)
    set_identity(new, name, sources(new))
    new.location = location
    rewriter.erase(old)
