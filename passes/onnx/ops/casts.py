"""ONNX ops that change the element type."""

from __future__ import annotations

from typing import Any, cast

import ml_dtypes
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import ElementType, element_named, element_of
from aicf.passes.onnx.ops.base import Node, OneResult, Result, row
from aicf.passes.onnx.ops.element_types import element_of_onnx
from aicf.passes.onnx.ops.pointwise import pointwise

F32 = element_named("f32")


def element_attribute(node: Node, name: str, default: ElementType | None = None) -> ElementType:
    """The element type that an attribute names by ONNX's number.

    Raises:
        UnsupportedOp: tensors have no such elements here.
        InvalidIR: the attribute is missing, and there is no default.
    """
    number = node.attributes.int(name, None)
    if number is None:
        if default is None:
            raise node.invalid(f"attribute {name} is missing; it is the number of an element type")
        return default
    try:
        return element_of_onnx(number)
    except ValueError as error:
        raise node.unsupported(str(error)) from error


@row("Cast", since=6)
def _cast(node: Node) -> Result:
    """The operand in the element type ``to``."""
    return _in_type(node, element_attribute(node, "to"))


@row("CastLike", since=15)
def _cast_like(node: Node) -> Result:
    """The operand in the element type of another."""
    return _in_type(node, node.element(1))


def _in_type(node: Node, element: ElementType) -> OneResult:
    if node.element(0) == element:
        return node.raw(0)
    array = node.known(0)
    if array is not None and 0 in array.shape:
        return array.astype(element.dtype)
    return cast_to(node, node.operand(0), element, "cast")


def cast_to(node: Node, x: SSAValue, element: ElementType, name: str) -> SSAValue:
    """`x` in another element type. As a float of 8 bits, what is too large, infinity among it, becomes the largest
    number, unless the attribute ``saturate`` is 0; NaN stays NaN."""
    if not element.is_float8 or not node.attributes.int("saturate", 1):
        return node.cast(x, element, name)
    if not element_of(x.type).is_float or element_of(x.type).is_float8:
        x = node.cast(x, F32, f"{name}.wide")
    largest = float(cast(Any, ml_dtypes.finfo(element.dtype)).max)
    return node.cast(node.apply(logical.ClampOp, x, min=-largest, max=largest), element, name)


@row("BitCast", since=26)
@pointwise()
def _bit_cast(node: Node) -> Result:
    """The bits of the operand as numbers of an element type of as many bits."""
    return node.apply(logical.BitcastOp, node.operand(0), element=element_attribute(node, "to"))
