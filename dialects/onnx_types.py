"""Types and small tensors of the onnx dialect: values that nobody has typed yet, and tensors that may be empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import (
    AnyDenseElement,
    ArrayAttr,
    BytesAttr,
    DenseIntOrFPElementsAttr,
    IntAttr,
    NoneAttr,
    StringAttr,
    TensorType,
)
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from aicf.dialects import dims
from aicf.dialects.dims import Size
from aicf.dialects.emit_syntax import parse_optional_string
from aicf.dialects.logical_ops.constant import Literal, dense_value, typed_literal
from aicf.dialects.types import ElementType, TensorInfo, dense_array, element_of, element_of_dtype, is_tensor


@dataclass(frozen=True)
class Claim:
    """What is said of a tensor: its element type, and its sizes as far as they are said.

    Args:
        element: Of its elements.
        sizes: Numbers, or symbolic sizes of the model's inputs; None for a size that is not said; None as a whole if
            the rank is not.
    """

    element: ElementType
    sizes: tuple[Size | None, ...] | None

    @classmethod
    def of(cls, info: TensorInfo) -> Claim:
        """What is true of a tensor."""
        return cls(info.element, info.sizes)

    def bound(self, bindings: Mapping[str, int]) -> Claim:
        """The claim with numbers for names. A size that would be negative says nothing."""
        if self.sizes is None:
            return self
        sizes = [None if size is None else dims.substitute(size, bindings) for size in self.sizes]
        return Claim(
            self.element, tuple(None if isinstance(size, int) and size < 0 else size for size in sizes)
        )

    def joined(self, other: Claim) -> Claim | None:
        """All that two say of one tensor; None if they contradict each other.

        Only numbers contradict numbers: what a symbolic size is shows when it is bound.
        """
        if self.element != other.element:
            return None
        if self.sizes is None or other.sizes is None:
            return other if self.sizes is None else self
        if len(self.sizes) != len(other.sizes):
            return None
        pairs = list(zip(self.sizes, other.sizes, strict=True))
        if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
            return None
        return Claim(
            self.element, tuple(theirs if _says_more(theirs, ours) else ours for ours, theirs in pairs)
        )

    def __str__(self) -> str:
        if self.sizes is None:
            return f"{self.element.name} of any shape"
        return "x".join([*("?" if size is None else str(size) for size in self.sizes), self.element.name])


def _says_more(size: Size | None, other: Size | None) -> bool:
    return other is None or (isinstance(size, int) and not isinstance(other, int))


@irdl_attr_definition
class ValueType(ParametrizedAttribute, TypeAttribute):
    """``!onnx.value``, of a type that is not known, or ``!onnx.value<f32, ["batch", 3]>``.

    A size is a number or the text of a symbolic size. Of what a node gives, the model may declare only a part:
    ``!onnx.value<f32, [?, 3]>``, or ``!onnx.value<f32>`` of any rank.
    """

    name = "onnx.value"

    element: Attribute = param_def()
    dims: ArrayAttr[Attribute] | NoneAttr = param_def()

    @classmethod
    def unknown(cls) -> ValueType:
        """The type of what a node gives, as long as nobody has worked it out."""
        return cls(NoneAttr(), NoneAttr())

    @classmethod
    def of(cls, element: ElementType, sizes: Sequence[Size]) -> ValueType:
        """The type of a tensor."""
        return cls(
            element.type,
            ArrayAttr(map(_entry_of, sizes)),
        )

    @classmethod
    def declared(cls, claim: Claim) -> ValueType:
        """The type of what a node gives, as far as the model declares it."""
        return cls(
            claim.element.type,
            NoneAttr() if claim.sizes is None else ArrayAttr(map(_entry_of, claim.sizes)),
        )

    @property
    def claim(self) -> Claim | None:
        """Element type, rank and the sizes that are said; None if nothing is known."""
        if isinstance(self.element, NoneAttr):
            return None
        element = element_of(self.element)
        if isinstance(self.dims, NoneAttr):
            return Claim(element, None)
        return Claim(
            element, tuple(None if isinstance(entry, NoneAttr) else _size_of(entry) for entry in self.dims)
        )

    @property
    def info(self) -> TensorInfo | None:
        """Sizes and element type, None if they are not all known; a size may be 0."""
        if isinstance(self.dims, NoneAttr) or any(isinstance(entry, NoneAttr) for entry in self.dims):
            return None
        sizes = [_size_of(entry) for entry in self.dims]
        return TensorInfo(tuple(sizes), element_of(self.element))

    def verify(self) -> None:
        if isinstance(self.element, NoneAttr) and isinstance(self.dims, NoneAttr):
            return
        element_of(self.element)
        if isinstance(self.dims, NoneAttr):
            return
        for entry in self.dims:
            _check_size(entry)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """Read ``<f32, ["batch", 3]>`` or nothing."""
        if parser.parse_optional_punctuation("<") is None:
            return [NoneAttr(), NoneAttr()]
        element = parser.parse_type()
        if parser.parse_optional_punctuation(",") is None:
            parser.parse_punctuation(">")
            return [element, NoneAttr()]
        entries = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_size(parser))
        parser.parse_punctuation(">")
        return [element, ArrayAttr(entries)]

    def print_parameters(self, printer: Printer) -> None:
        """Write ``<f32, ["batch", 3]>`` or nothing."""
        if isinstance(self.element, NoneAttr):
            return
        with printer.in_angle_brackets():
            printer.print_attribute(self.element)
            if isinstance(self.dims, NoneAttr):
                return
            printer.print_string(", ")
            with printer.in_square_brackets():
                printer.print_list(self.dims, lambda size: _print_size(printer, size))


def _entry_of(size: Size | None) -> Attribute:
    if size is None:
        return NoneAttr()
    return IntAttr(size) if isinstance(size, int) else StringAttr(str(size))


def _size_of(entry: Attribute) -> Size:
    if isa(entry, IntAttr):
        return entry.data
    assert isinstance(entry, StringAttr)
    return dims.parse_size(entry.data)


def _check_size(entry: Attribute) -> None:
    if isinstance(entry, NoneAttr):
        return
    if isa(entry, IntAttr):
        if entry.data < 0:
            raise VerifyException(
                f"!onnx.value: size {entry.data} is negative; name a size that is not known"
            )
        return
    assert isinstance(entry, StringAttr)
    try:
        size = dims.parse_size(entry.data)
    except ValueError as error:
        raise VerifyException(f"!onnx.value: {error}") from error
    if str(size) != entry.data or isinstance(size, int):
        raise VerifyException(f"!onnx.value: write '{entry.data}' in normal form: {size}")


def _parse_size(parser: AttrParser) -> Attribute:
    if parser.parse_optional_punctuation("?") is not None:
        return NoneAttr()
    text = parse_optional_string(parser)
    return IntAttr(parser.parse_integer(allow_boolean=False)) if text is None else StringAttr(text)


def _print_size(printer: Printer, entry: Attribute) -> None:
    if isinstance(entry, NoneAttr):
        printer.print_string("?")
        return
    size = _size_of(entry)
    if isinstance(size, int):
        printer.print_string(str(size))
    else:
        printer.print_string_literal(str(size))


# Small tensors


def dense_of(array: NDArray[Any]) -> DenseIntOrFPElementsAttr:
    """The attribute that holds a small tensor; it may be empty.

    Raises:
        ValueError: the dtype is none of the element table.
    """
    element = element_of_dtype(array.dtype)
    data = dense_value(array, TensorInfo(array.shape, element)).data.data if array.size else b""
    return _dense(array.shape, element, data)


def _dense(shape: Sequence[int], element: ElementType, data: bytes) -> DenseIntOrFPElementsAttr:
    type_ = cast("TensorType[AnyDenseElement]", TensorType(element.type, shape))
    return DenseIntOrFPElementsAttr(type_, BytesAttr(data))


def elements_of(value: DenseIntOrFPElementsAttr) -> NDArray[Any]:
    """The elements of such an attribute, read-only, in the host dtype."""
    shape = value.get_shape()
    if 0 in shape:
        return np.empty(shape, element_of(value.get_element_type()).dtype)
    return dense_array(value)


def type_of(value: DenseIntOrFPElementsAttr) -> ValueType:
    """The type of a small tensor."""
    return ValueType.of(element_of(value.get_element_type()), value.get_shape())


def dense_literal(literal: Literal, type_: Attribute) -> DenseIntOrFPElementsAttr:
    """The attribute of what stands between the angle brackets.

    Raises:
        VerifyException: it is no tensor of that type.
    """
    if not is_tensor(type_):
        raise VerifyException(f"{type_} is not a ranked tensor type")
    shape, element = type_.get_shape(), element_of(type_)
    if any(size < 0 for size in shape):
        raise VerifyException(f"{type_}: the sizes of a constant are numbers")
    if 0 not in shape:
        return _dense(shape, element, typed_literal(literal, TensorInfo(shape, element)).data.data)
    if literal != []:
        raise VerifyException(f"{type_} is empty; write dense<[]>")
    return _dense(shape, element, b"")
