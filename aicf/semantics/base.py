"""What meanings share: their type, and in which type composite ops are defined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray

from aicf.dialects.types import ElementType, element_named

Array: TypeAlias = NDArray[Any]


Meaning: TypeAlias = Callable[[Any, Sequence[Array]], Array | tuple[Array, ...]]
"""From an op, for its properties, and its operands to its result; a tuple of an op with more of them."""


def composite_element(element: ElementType) -> ElementType:
    """The element type in which a composite (gelu, softmax, layer_norm and the like) is defined: f64, else f32."""
    return element if element.name == "f64" else element_named("f32")


def coefficient(value: float, element: ElementType) -> float:
    """A literal of a composite's formula: rounded to the type it is defined in, as lowered IR has it."""
    return float(composite_element(element).dtype.type(value))


def unary(function: Callable[[Array], Array]) -> Meaning:
    return lambda op, operands: function(operands[0])


def binary(function: Callable[[Array, Array], Array]) -> Meaning:
    return lambda op, operands: function(operands[0], operands[1])
