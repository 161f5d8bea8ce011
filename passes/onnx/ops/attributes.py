"""The attributes of an ONNX node as Python values, each checked to be of the type that its reader asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, TypeVar, cast

from numpy.typing import NDArray
from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
)
from xdsl.ir import Attribute
from xdsl.utils.hints import isa

from aicf.dialects.onnx import elements_of

D = TypeVar("D")


@dataclass(frozen=True)
class Attributes:
    """The attributes of one node, by name; a default stands for an absent one.

    Every method raises ValueError, in a user's words, for an attribute of another type.
    """

    values: Mapping[str, Attribute]

    def has(self, name: str) -> bool:
        """Whether the attribute is given."""
        return name in self.values

    def int(self, name: str, default: D) -> int | D:
        """A whole number."""
        attr = self.values.get(name)
        if attr is None:
            return default
        if not isinstance(attr, IntegerAttr):
            raise _wrong(name, "an integer", attr)
        return attr.value.data

    def float(self, name: str, default: D) -> float | D:
        """A number, as ONNX holds it: rounded to f32."""
        attr = self.values.get(name)
        if attr is None:
            return default
        if not isinstance(attr, FloatAttr):
            raise _wrong(name, "a float", attr)
        return attr.value.data

    def string(self, name: str, default: D) -> str | D:
        """A text."""
        attr = self.values.get(name)
        if attr is None:
            return default
        if not isinstance(attr, StringAttr):
            raise _wrong(name, "a string", attr)
        return attr.data

    def ints(self, name: str, default: D) -> list[int] | D:
        """A list of whole numbers."""
        attr = self.values.get(name)
        if attr is None:
            return default
        if not _is_list_of(attr, IntegerType):
            raise _wrong(name, "a list of integers", attr)
        return [int(value) for value in cast("DenseArrayBase[IntegerType]", attr).get_values()]

    def floats(self, name: str, default: D) -> list[float] | D:
        """A list of numbers, each rounded to f32."""
        attr = self.values.get(name)
        if attr is None:
            return default
        if not _is_list_of(attr, AnyFloat):
            raise _wrong(name, "a list of floats", attr)
        return [float(value) for value in cast("DenseArrayBase[AnyFloat]", attr).get_values()]

    def strings(self, name: str, default: D) -> list[str] | D:
        """A list of texts."""
        attr = self.values.get(name)
        if attr is None:
            return default
        if not isa(attr, ArrayAttr[StringAttr]):
            raise _wrong(name, "a list of strings", attr)
        return [entry.data for entry in attr]

    def tensor(self, name: str, default: D) -> NDArray[Any] | D:
        """A small tensor."""
        attr = self.values.get(name)
        if attr is None:
            return default
        if not isa(attr, DenseIntOrFPElementsAttr):
            raise _wrong(name, "a tensor", attr)
        return elements_of(attr)


def _is_list_of(attr: Attribute, element: type[Attribute] | UnionType) -> bool:
    return isinstance(attr, DenseArrayBase) and isinstance(
        cast("DenseArrayBase[IntegerType]", attr).elt_type, element
    )


def _wrong(name: str, wanted: str, attr: Attribute) -> ValueError:
    return ValueError(f"attribute {name} is {attr}; it is {wanted}")
