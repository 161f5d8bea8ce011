"""A product with the sum of one of its operands over the dim that the product contracts.

In the backward part of a linear layer that is the gradient of its weight, which contracts the rows of what comes from
above, with that of its bias, which sums them: whoever multiplies has all that is summed in shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from xdsl.ir import Block, SSAValue

from aicf.dialects import logical
from aicf.dialects.emit_kernels import YieldOp
from aicf.passes.bodies.views import View


@dataclass(frozen=True)
class OperandSum:
    """A product, and the sum of one of its operands.

    Args:
        product, total: Both ops; they are all of a body, and what they give are its results.
        index: Of the operand that is summed: 0 or 1.
    """

    product: logical.MatmulOp
    total: logical.ReduceSumOp
    index: int

    @property
    def summed(self) -> str:
        """What instructions call that operand."""
        return "ab"[self.index]


def operand_sum_of(block: Block, views: Mapping[SSAValue, tuple[int, View]]) -> OperandSum | None:
    """The product of a body and the sum beside it; None if the body is none of that form.

    Both operands are matrices in memory, and what is summed has its lines across the contracted dim, as the rows of a
    gradient. The sum may see these rows as several dims.

    Args:
        views: Values that are operands of the body, or views of them: the number of that operand, and the view.
    """
    ops = [op for op in block.ops if not (op.results and op.results[0] in views)]
    product = next((op for op in ops if isinstance(op, logical.MatmulOp)), None)
    total = next((op for op in ops if isinstance(op, logical.ReduceSumOp)), None)
    last = block.last_op
    if len(ops) != 3 or product is None or total is None or not isinstance(last, YieldOp):
        return None
    if {product.result, total.results[0]} != set(last.operands) or total.keepdims is not None:
        return None
    if any(value not in views or len(views[value][1].shape) != 2 for value in product.operands):
        return None
    lines_of_k = (product.transpose_a is not None, product.transpose_b is None)
    for index, (value, across) in enumerate(zip(product.operands, lines_of_k, strict=True)):
        if across and _sums_rows(total, views[value], views.get(total.operand)):
            return OperandSum(product, total, index)
    return None


def _sums_rows(total: logical.ReduceSumOp, matrix: tuple[int, View], seen: tuple[int, View] | None) -> bool:
    """Whether a sum of `seen` is one over the rows of `matrix`, of which it sees one dim or several."""
    if seen is None or seen[0] != matrix[0] or seen[1].offset != matrix[1].offset:
        return False
    *sizes, columns = seen[1].shape
    *steps, step = seen[1].strides
    (rows, width), (row_step, column_step) = matrix[1].shape, matrix[1].strides
    if tuple(total.axes.get_values()) != tuple(range(len(sizes))) or (columns, step) != (width, column_step):
        return False
    expected = row_step
    for size, own in zip(reversed(sizes), reversed(steps), strict=True):
        if size != 1 and own != expected:
            return False
        expected *= size
    return prod(sizes) == rows
