"""ONNX's quantised tensors: to and from them, and products of them. Quantised convolutions are with ``conv``.

A quantised element q stands for ``(q - zero point) * scale``. Scale and zero point are one number for all, or a vector
along one axis, or one for each block of neighbours along an axis.
"""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import ElementType, element_named, tensor_info
from aicf.passes.onnx.ops.base import Node, Result, row
from aicf.passes.onnx.ops.casts import cast_to
from aicf.passes.onnx.ops.contraction import matmul
from aicf.passes.onnx.ops.element_types import element_of_onnx

_F32, _I32, _I16, _U8 = map(element_named, ("f32", "i32", "i16", "u8"))


# One tensor


@row("QuantizeLinear", since=10)
def _quantize(node: Node) -> Result:
    """saturate(round(x / scale) + zero point), to nearest even. Floats of 8 bits have no zero point: the nearest to
    x / scale."""
    target = _quantized_element(node)
    precision = element_of_onnx(node.attributes.int("precision", 0), node.element(1))
    x = node.cast(node.operand(0), precision, "x")
    scale = node.cast(_parameter(node, 1), precision, "scale")
    zero_point = _parameter(node, 2) if node.has(2) else None
    quotient = node.elementwise(logical.DivOp, x, scale)
    if target.is_float8:
        _check_no_zero_point(node)
        return cast_to(node, quotient, target, "quantized")
    return rounded(node, quotient, zero_point, target)


def _check_no_zero_point(node: Node) -> None:
    """Raises UnsupportedOp unless the zero point of floats of 8 bits is left out, or known to be 0."""
    if not node.has(2):
        return
    known = node.known(2)
    if known is None or known.astype(np.float32).any():
        raise node.unsupported(
            "the zero point of floats of 8 bits is 0; give it as a constant, or leave it out"
        )


def _quantized_element(node: Node) -> ElementType:
    if node.has(2):
        return node.element(2)
    target = element_of_onnx(node.attributes.int("output_dtype", 0), _U8)
    if target.kind != "int" and not target.is_float8:
        raise node.unsupported(f"output_dtype is {target.name}; it is an integer type, or a float of 8 bits")
    return target


def rounded(node: Node, quotient: SSAValue, zero_point: SSAValue | None, target: ElementType) -> SSAValue:
    """saturate(round(quotient) + zero point) in an integer type of at most 16 bits; the zero point broadcasts."""
    limits = np.iinfo(target.dtype)
    # Beyond f16 a sum of integers needs more digits than f16 has.
    whole = node.cast(node.apply(logical.RoundOp, quotient), _F32, "whole")
    if zero_point is not None:
        whole = node.elementwise(logical.AddOp, whole, node.cast(zero_point, _F32, "zero_point"))
    inside = node.apply(logical.ClampOp, whole, min=float(limits.min), max=float(limits.max))
    return node.cast(inside, target, "quantized")


@row("DequantizeLinear", since=10)
def _dequantize(node: Node) -> Result:
    """(x - zero point) * scale, in the type of the scale or the one stated."""
    target = element_of_onnx(node.attributes.int("output_dtype", 0), node.element(1))
    x = node.operand(0)
    if node.element(0).is_float8:
        _check_no_zero_point(node)
    else:
        x = centered(node, x, _parameter(node, 2) if node.has(2) else None)
    scale = node.cast(_parameter(node, 1), _F32, "scale")
    scaled = node.elementwise(logical.MulOp, node.cast(x, _F32, "wide"), scale)
    return node.cast(scaled, target, "dequantized")


def centered(node: Node, x: SSAValue, zero_point: SSAValue | None) -> SSAValue:
    """x - zero point as i32; the zero point broadcasts."""
    wide = node.cast(x, _I32, "i32")
    if zero_point is None:
        return wide
    return node.elementwise(logical.SubOp, wide, node.cast(zero_point, _I32, "zero_point"))


def factor(node: Node, operand: int, index: int, zero_point: SSAValue | None) -> SSAValue:
    """Operand ``operand`` of a widening product less its zero point, operand ``index``; ``zero_point`` is that, shaped.

    8 bits less 8 bits are 9, which i16 holds. Without a zero point the operand stays as narrow as it is.
    """
    x, known = node.operand(operand), node.known(index) if zero_point is not None else None
    if zero_point is None or (known is not None and not known.any()):
        return x
    wide = node.cast(x, _I16, "i16")
    offset = node.cast(zero_point, _I16, "zero_point")
    return node.apply(logical.SubOp, wide, node.broadcast_to(offset, tensor_info(wide.type).shape))


def _parameter(node: Node, index: int) -> SSAValue:
    """A scale or zero point such that it broadcasts to the shape of operand 0."""
    value, given, sizes = node.operand(index), node.shape(index), node.shape(0)
    if given in ((), (1,)):
        return node.reshape(value, ())
    axis = node.axis(node.attributes.int("axis", 1), len(sizes))
    if block := node.attributes.int("block_size", 0):
        return _of_blocks(node, value, axis, block)
    if given != (sizes[axis],):
        raise node.invalid(
            f"operand {index} is {node.type(index)}; axis {axis} of {node.type(0)} has {sizes[axis]} elements"
        )
    return node.reshape(value, [size if dim == axis else 1 for dim, size in enumerate(sizes)], "along")


def _of_blocks(node: Node, value: SSAValue, axis: int, block: int) -> SSAValue:
    """Each element ``block`` times along the axis, and what goes past the end cut off."""
    sizes, given = node.shape(0), tensor_info(value.type).shape
    blocks = -(-sizes[axis] // block)
    if given != (*sizes[:axis], blocks, *sizes[axis + 1 :]):
        raise node.invalid(
            f"a scale or zero point is {tensor_info(value.type)}; blocks of {block} along axis {axis} of "
            f"{node.type(0)} need {blocks} there"
        )
    apart = (*sizes[:axis], blocks, block, *sizes[axis + 1 :])
    dimensions = [dim for dim in range(len(apart)) if dim != axis + 1]
    repeated = node.broadcast(value, dimensions, apart, "repeated")
    whole = node.reshape(repeated, (*sizes[:axis], blocks * block, *sizes[axis + 1 :]), "blocks")
    return node.slice(whole, [0] * len(sizes), sizes)


@row("DynamicQuantizeLinear", since=11)
def _dynamic_quantize(node: Node) -> Result:
    """x as u8, with scale and zero point such that its smallest and largest element, and 0, have a number."""
    x, axes = node.operand(0), range(node.type(0).rank)
    largest = node.apply(logical.MaxOp, node.apply(logical.ReduceMaxOp, x, axes=axes), 0.0)
    smallest = node.apply(logical.MinOp, node.apply(logical.ReduceMinOp, x, axes=axes), 0.0)
    span = node.apply(logical.SubOp, largest, smallest, name="range")
    empty = node.add(logical.CompareOp("eq", largest, smallest), "empty")
    steps = node.apply(logical.DivOp, span, 255.0)
    scale = node.apply(logical.SelectOp, empty, node.splat(1.0, steps), steps, name="scale")
    below = node.apply(logical.NegOp, node.apply(logical.DivOp, smallest, scale))
    clamped = node.apply(logical.ClampOp, below, min=0.0, max=255.0)
    zero_point = node.cast(node.apply(logical.RoundOp, clamped), _U8, "zero_point")
    quotient = node.elementwise(logical.DivOp, x, scale)
    return [rounded(node, quotient, zero_point, _U8), scale, zero_point]


# Products


@row("MatMulInteger", since=10)
def _matmul_integer(node: Node) -> Result:
    """(A - its zero point) @ (B - its zero point) in i32."""
    return _product(node, (0, 2), (1, 3))


@row("QLinearMatMul", since=10)
def _quantized_matmul(node: Node) -> Result:
    """The product of two quantised tensors, quantised itself."""
    product = node.cast(_product(node, (0, 2), (3, 5)), _F32, "wide")
    a_scale, b_scale, y_scale = (
        node.cast(value, _F32, "scale")
        for value in (_of_rows(node, 0, 1), _of_columns(node, 3, 4), node.reshape(node.operand(6), ()))
    )
    joint = node.elementwise(logical.DivOp, node.elementwise(logical.MulOp, a_scale, b_scale), y_scale)
    scaled = node.elementwise(logical.MulOp, product, joint)
    return rounded(node, scaled, node.reshape(node.operand(7), ()), node.element(7))


def _product(node: Node, lhs: tuple[int, int], rhs: tuple[int, int]) -> SSAValue:
    """The i32 product of two operands less their zero points, each given as the operands' numbers."""
    a = factor(node, *lhs, _of_rows(node, *lhs) if node.has(lhs[1]) else None)
    b = factor(node, *rhs, _of_columns(node, *rhs) if node.has(rhs[1]) else None)
    return matmul(node, a, b, widening=True)


def _of_rows(node: Node, operand: int, index: int) -> SSAValue:
    """A scale or zero point of the rows of a matrix, a vector such as NumPy would not align with rows."""
    value, given = node.operand(index), node.shape(index)
    if len(given) == 1:
        return node.reshape(value, () if given == (1,) else (*given, 1), "rows")
    return value


def _of_columns(node: Node, operand: int, index: int) -> SSAValue:
    """A scale or zero point of the columns of a matrix."""
    return node.reshape(
        node.operand(index), () if node.shape(index) == (1,) else node.shape(index), "columns"
    )
