"""ONNX's matrix products: MatMul and Gemm. Products of quantised tensors are in ``quantization``."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.onnx.ops.base import Node, Result, row


@row("MatMul", since=1)
def _matmul(node: Node) -> Result:
    """A @ B as NumPy's matmul: a vector is a row on the left and a column on the right."""
    return matmul(node, node.operand(0), node.operand(1))


def matmul(node: Node, lhs: SSAValue, rhs: SSAValue, *, widening: bool = False) -> SSAValue:
    """The product of two tensors of rank 1 or more by NumPy's rules."""
    lhs_sizes, rhs_sizes = tensor_info(lhs.type).shape, tensor_info(rhs.type).shape
    if not lhs_sizes or not rhs_sizes:
        raise node.invalid("an operand is a scalar; a product needs rank 1 or more")
    rows = node.reshape(lhs, (1, *lhs_sizes), "row") if len(lhs_sizes) == 1 else lhs
    columns = node.reshape(rhs, (*rhs_sizes, 1), "column") if len(rhs_sizes) == 1 else rhs
    product = node.apply(logical.MatmulOp, rows, columns, widening=widening)
    sizes = list(tensor_info(product.type).shape)
    if len(rhs_sizes) == 1:
        del sizes[-1]
    if len(lhs_sizes) == 1:
        del sizes[len(sizes) - (1 if len(rhs_sizes) == 1 else 2)]
    return node.reshape(product, sizes)


@row("Gemm", since=7)
def _gemm(node: Node) -> Result:
    """alpha * A' @ B' + beta * C, A' and B' transposed where the attributes say so; C is broadcast."""
    attributes, bias = node.attributes, node.optional(2)
    alpha, beta = attributes.float("alpha", 1.0), attributes.float("beta", 1.0)
    flipped = [attributes.flag(name) for name in ("transA", "transB")]
    if node.type(0).rank != 2 or node.type(1).rank != 2:
        raise node.invalid(f"A is {node.type(0)} and B is {node.type(1)}; both are matrices")
    if (alpha, beta) == (1.0, 1.0) and flipped == [False, True] and _is_bias(node):
        return node.apply(logical.LinearOp, node.operand(0), node.operand(1), node.operand(2))
    product = node.apply(
        logical.MatmulOp, node.operand(0), node.operand(1), transpose_a=flipped[0], transpose_b=flipped[1]
    )
    product = _times(node, product, alpha, "alpha")
    if bias is None or beta == 0.0:
        return product
    spread = node.broadcast_to(_times(node, bias, beta, "beta"), tensor_info(product.type).shape)
    return node.apply(logical.AddOp, product, spread)


def _is_bias(node: Node) -> bool:
    """C is a vector with an element for each column of the product."""
    return node.has(2) and node.shape(2) == node.shape(1)[:1]


def _times(node: Node, value: SSAValue, factor: float, name: str) -> SSAValue:
    if factor == 1.0:
        return value
    element = tensor_info(value.type).element
    if not element.is_float and factor != int(factor):
        raise node.unsupported(
            f"{name} is {factor}, and the tensors are {element.name}; use a whole number or floats"
        )
    return node.apply(logical.MulOp, value, factor, name=name)
