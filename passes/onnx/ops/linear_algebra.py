"""The determinant, by elimination with pivots; as many steps are written as the matrices have rows."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.onnx.ops.base import Node, Result, row
from aicf.passes.onnx.ops.elementwise import compare, select
from aicf.passes.onnx.ops.pointwise import narrow, widen

_MOST_ROWS = 32


@row("Det", since=11)
def _det(node: Node) -> Result:
    """The determinant of each matrix of the last two dimensions."""
    shape = node.shape(0)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise node.invalid(f"the operand has shape {list(shape)}; it holds square matrices")
    if shape[-1] > _MOST_ROWS:
        raise node.unsupported(f"matrices have {shape[-1]} rows; up to {_MOST_ROWS} are eliminated here")
    size, batch = shape[-1], shape[:-2]
    matrix = widen(node, node.operand(0))
    product: SSAValue | None = None
    while size:
        matrix, pivot = _eliminate(node, matrix, size)
        product = pivot if product is None else node.apply(logical.MulOp, product, pivot)
        size -= 1
    if product is None:
        raise node.invalid("the matrices have no rows")
    return narrow(node, node.reshape(product, batch))


def _eliminate(node: Node, matrix: SSAValue, size: int) -> tuple[SSAValue, SSAValue]:
    """The matrix without its first column and the row of its largest element there, and that element, signed.

    Taking row p out and not row 0 moves p rows down by one, each a change of sign.
    """
    *batch, _, _ = tensor_info(matrix.type).shape
    none = [0] * len(batch)
    column = node.slice(matrix, [*none, 0, 0], [*batch, size, 1])
    largest = node.apply(logical.ArgmaxOp, node.apply(logical.AbsOp, column), axis=len(batch), keepdims=True)
    taken = node.broadcast_to(largest, [*batch, 1, size])
    pivot_row = node.apply(logical.GatherElementsOp, matrix, taken, axis=len(batch))
    pivot = node.slice(pivot_row, [*none, 0, 0], [*batch, 1, 1])
    odd = compare(node, "eq", node.apply(logical.ModOp, largest, 2), 1)
    signed = select(node, odd, node.apply(logical.NegOp, pivot), pivot)
    if size == 1:
        return matrix, signed
    rest = _without_row(node, matrix, largest, size)
    # A pivot of 0 has nothing but zeros beside it, and makes the determinant 0: what is divided by does not matter.
    divisor = select(node, compare(node, "eq", pivot, 0.0), node.splat(1.0, pivot), pivot)
    scaled = node.elementwise(logical.DivOp, node.slice(rest, [*none, 0, 0], [*batch, size - 1, 1]), divisor)
    tail = node.slice(pivot_row, [*none, 0, 1], [*batch, 1, size - 1])
    rest = node.slice(rest, [*none, 0, 1], [*batch, size - 1, size - 1])
    return node.apply(logical.SubOp, rest, node.elementwise(logical.MulOp, scaled, tail)), signed


def _without_row(node: Node, matrix: SSAValue, largest: SSAValue, size: int) -> SSAValue:
    """The other rows in their order: those from the index on move up by one."""
    *batch, _, _ = tensor_info(matrix.type).shape
    none = [0] * len(batch)
    upper = node.slice(matrix, [*none, 0, 0], [*batch, size - 1, size])
    lower = node.slice(matrix, [*none, 1, 0], [*batch, size - 1, size])
    number = node.add(logical.IotaOp(len(batch), tensor_info(upper.type).shape, "i64"))
    return select(node, compare(node, "lt", number, largest), upper, lower)
