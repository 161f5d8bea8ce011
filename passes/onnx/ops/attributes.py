"""The attributes of an ONNX node as Python values, each checked to be of the type that its reader asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

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

A = TypeVar("A", bound=Attribute)
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
        attr = self._of(IntegerAttr, name, "an integer")
        return default if attr is None else attr.value.data

    def flag(self, name: str, default: bool = False) -> bool:
        """A whole number that is 0 for no."""
        return bool(self.int(name, default))

    def float(self, name: str, default: D) -> float | D:
        """A number, as ONNX holds it: rounded to f32."""
        attr = self._of(FloatAttr, name, "a float")
        return default if attr is None else attr.value.data

    def string(self, name: str, default: D) -> str | D:
        """A text."""
        attr = self._of(StringAttr, name, "a string")
        return default if attr is None else attr.data

    def ints(self, name: str, default: D) -> list[int] | D:
        """A list of whole numbers."""
        attr = self._of(DenseArrayBase[IntegerType], name, "a list of integers")
        return default if attr is None else [int(value) for value in attr.get_values()]

    def floats(self, name: str, default: D) -> list[float] | D:
        """A list of numbers, each rounded to f32."""
        attr = self._of(DenseArrayBase[AnyFloat], name, "a list of floats")
        return default if attr is None else [float(value) for value in attr.get_values()]

    def strings(self, name: str, default: D) -> list[str] | D:
        """A list of texts."""
        attr = self._of(ArrayAttr[StringAttr], name, "a list of strings")
        return default if attr is None else [entry.data for entry in attr]

    def tensor(self, name: str, default: D) -> NDArray[Any] | D:
        """A small tensor."""
        attr = self._of(DenseIntOrFPElementsAttr, name, "a tensor")
        return default if attr is None else elements_of(attr)

    def _of(self, kind: type[A], name: str, wanted: str) -> A | None:
        """The attribute, None if it is absent."""
        attr = self.values.get(name)
        if attr is not None and not isa(attr, kind):
            raise ValueError(f"attribute {name} is {attr}; it is {wanted}")
        return attr
