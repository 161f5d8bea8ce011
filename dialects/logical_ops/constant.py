"""``logical.constant``: a splat or a small tensor in the IR. Weights are no constants; they stay in their file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from xdsl.dialects.builtin import AnyDenseElement, BytesAttr, DenseIntOrFPElementsAttr, TensorType
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from aicf.dialects.dense_text import print_dense
from aicf.dialects.logical_ops.base import StatedResultOp
from aicf.dialects.logical_ops.properties import Properties
from aicf.dialects.traits import TakesFloat8
from aicf.dialects.types import ElementType, TensorInfo, dense_array, tensor, tensor_info
from aicf.errors import quoted

__all__ = ["MAX_CONSTANT_ELEMENTS", "ConstantOp"]

MAX_CONSTANT_ELEMENTS = 1024
"""Most elements of a constant that is no splat."""

_NO_NUMBERS = "OUSMmc"
"""NumPy's kinds of objects, texts, dates and complex numbers."""

Literal: TypeAlias = "int | float | str | list[Literal]"
"""What stands between the angle brackets."""


@irdl_op_definition
class ConstantOp(StatedResultOp):
    """``dense<0.5> : T``: one value everywhere (a splat of any shape, symbolic too), or a small static tensor.

    ``value`` holds a splat as a rank-0 tensor, whatever the shape of the result: its cost does not grow with
    it.
    """

    name = "logical.constant"
    MAY_BE_EMPTY: ClassVar[bool] = True

    value = prop_def(DenseIntOrFPElementsAttr)
    traits = traits_def(TakesFloat8())

    def __init__(self, value: ArrayLike, type_: Attribute):
        """Args:
            value: A scalar, or an array of the type's shape; values outside the element type are refused.
            type_: The result type.

        Raises:
            VerifyException: the shape differs, the value does not fit, or it is too large.
        """
        super().__init__(result=type_, value=dense_value(value, tensor_info(type_)))

    @classmethod
    def check_result(cls, operands: Sequence[Attribute], properties: Properties, result: Attribute) -> None:
        """A splat has the result's element type; anything else its whole type and few elements."""
        source, target = tensor_info(_value_type(properties.get("value"))), tensor_info(result)
        if source.element != target.element:
            raise VerifyException(f"the value is {source.element.name}, the type {target.element.name}")
        if source.rank == 0:
            return
        if source.sizes != target.sizes:
            raise VerifyException(f"the value has shape {source.shape_text}, the type {target.shape_text}")
        if math.prod(source.shape) > MAX_CONSTANT_ELEMENTS:
            raise VerifyException(
                f"{source} has {math.prod(source.shape)} elements; at most {MAX_CONSTANT_ELEMENTS} stand in the IR. "
                "Make it a parameter and put the values into the weights file"
            )

    @property
    def is_splat(self) -> bool:
        """One value everywhere."""
        return tensor_info(self.value.type).rank == 0

    @property
    def array(self) -> NDArray[Any]:
        """The elements in the host dtype; shape () for a splat."""
        return dense_array(self.value)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read ``dense<...> {attributes} : T``."""
        parser.parse_keyword("dense")
        position = parser.pos
        with parser.in_angle_brackets():
            literal = parse_literal(parser)
        end = parser.pos
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        type_ = parser.parse_type()
        try:
            info = tensor_info(type_)
            value = typed_literal(literal, info)
        except VerifyException as error:
            parser.raise_error(f"{cls.name}: {error}", position, end)
        return cls.create(result_types=[type_], properties={"value": value}, attributes=attributes)

    def print(self, printer: Printer) -> None:
        """Write ``dense<...> {attributes} : T``."""
        printer.print_string(" ")
        print_dense(printer, self.value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)


def _value_type(value: Attribute | None) -> Attribute:
    if not isa(value, DenseIntOrFPElementsAttr):
        raise VerifyException("a constant has a dense value")
    return value.type


def dense_value(value: ArrayLike, info: TensorInfo) -> DenseIntOrFPElementsAttr:
    """The attribute for a scalar or an array of ``info``'s shape; equal elements become a splat.

    Raises:
        VerifyException: a wrong shape, or an integer outside the element type.
    """
    array = np.asarray(value)
    if array.dtype.kind in _NO_NUMBERS:
        raise VerifyException(f"{quoted(value)} is no number of type {info.element.name}")
    if array.ndim and tuple(array.shape) != info.sizes:
        shape = "x".join(str(size) for size in array.shape)
        raise VerifyException(f"the value has shape {shape}, the type {info.shape_text}")
    converted = _converted(array, info.element)
    raw = converted.tobytes()
    step = converted.itemsize
    splat = array.ndim == 0 or raw == raw[:step] * array.size
    shape = () if splat else array.shape
    data = raw[:step] if splat else raw
    if info.element.kind == "bool":
        data = data.replace(b"\x01", b"\xff")
    type_ = cast(TensorType[AnyDenseElement], tensor(shape, info.element))
    return DenseIntOrFPElementsAttr(type_, BytesAttr(data))


def _converted(array: NDArray[Any], element: ElementType) -> NDArray[Any]:
    if array.dtype == element.dtype:
        return np.ascontiguousarray(array)
    if element.kind == "int":
        limits = np.iinfo(element.dtype)
        for entry in array.ravel().tolist():
            if not (limits.min <= entry <= limits.max and entry == int(entry)):
                raise VerifyException(f"{entry} is no {element.name}")
    with np.errstate(over="ignore", invalid="ignore"):
        converted = np.ascontiguousarray(array.astype(element.dtype))
    if element.is_float and np.any(np.isfinite(array) & ~np.isfinite(converted)):
        raise VerifyException(f"a value is too large for {element.name}")
    if element.is_float and np.any(np.isinf(array) & np.isnan(converted)):
        raise VerifyException(f"{element.name} has no infinity")
    return converted


class _Bits(int):
    """A hexadecimal literal: for a float type the bits, for an integer type the number."""


def parse_literal(parser: Parser) -> Literal:
    """A number, true or false, a nested list of them, or the hexadecimal string of all bytes."""
    if (text := parser.parse_optional_str_literal()) is not None:
        return text
    entries = parser.parse_optional_comma_separated_list(
        parser.Delimiter.SQUARE, lambda: parse_literal(parser)
    )
    if entries is not None:
        return entries
    if (flag := parser.parse_optional_boolean()) is not None:
        return flag
    start = parser.pos
    number = parser.parse_number()
    spelled = parser.lexer.input.slice(start, parser.pos) or ""
    return _Bits(number) if isinstance(number, int) and "0x" in spelled else number


def typed_literal(literal: Literal, info: TensorInfo) -> DenseIntOrFPElementsAttr:
    if not isinstance(literal, str):
        return dense_value(_numbers(literal, info.element), info)
    try:
        raw = bytes.fromhex(literal.removeprefix("0x"))
        array = np.frombuffer(raw, np.int8 if info.element.kind == "bool" else info.element.dtype)
    except ValueError:
        raise VerifyException(
            f"the string is not the bytes of {info.element.name} elements in hexadecimal"
        ) from None
    if array.size != 1 and (not info.is_static or array.size != math.prod(info.shape)):
        raise VerifyException(f"the string holds {array.size} elements, {info} has {info.elements}")
    shaped = array.reshape(() if array.size == 1 else info.shape)
    return dense_value(shaped != 0 if info.element.kind == "bool" else shaped, info)


def _numbers(literal: int | float | list[Literal], element: ElementType) -> NDArray[Any]:
    if isinstance(literal, list):
        rows = [_numbers(entry, element) for entry in literal if not isinstance(entry, str)]
        if len(rows) != len(literal) or len({row.shape for row in rows}) != 1:
            raise VerifyException("the rows of the literal have different lengths")
        return np.stack(rows)
    if isinstance(literal, _Bits) and element.is_float:
        if int(literal) >= 1 << 8 * element.bytes or literal < 0:
            raise VerifyException(f"{int(literal):#x} is no bit pattern of {element.name}")
        return np.frombuffer(int(literal).to_bytes(element.bytes, "little"), element.dtype).reshape(())
    if isinstance(literal, float if element.kind == "int" else bool) and element.kind != "bool":
        raise VerifyException(f"{str(literal).lower()} is no {element.name}")
    if element.kind == "bool" and literal not in (0, 1):
        raise VerifyException(f"{literal} is no i1")
    # Each element on its own, so that a list of numbers and bit patterns keeps the bits.
    number = np.asarray(literal)
    return _converted(number, element).reshape(()) if element.is_float else number
