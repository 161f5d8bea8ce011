"""The numbers by which attributes of ONNX nodes name element types, such as the ``to`` of a Cast."""

from __future__ import annotations

from collections.abc import Mapping

from aicf.dialects.types import ELEMENTS, ElementType

_NUMBERS: Mapping[str, int] = {
    "f32": 1,
    "u8": 2,
    "i8": 3,
    "i16": 5,
    "i32": 6,
    "i64": 7,
    "i1": 9,
    "f16": 10,
    "f64": 11,
    "bf16": 16,
    "f8E4M3FN": 17,
    "f8E5M2": 19,
}
"""Of ``TensorProto.DataType``."""

_ELEMENTS: Mapping[int, ElementType] = {
    _NUMBERS[element.name]: element for element in ELEMENTS if element.name in _NUMBERS
}


def element_of_onnx(number: int, unstated: ElementType | None = None) -> ElementType:
    """The element type that ``TensorProto.DataType`` has a number for; `unstated` for 0, where that is given.

    Raises:
        ValueError: it is none of the element types of tensors here.
    """
    if unstated is not None and number == 0:
        return unstated
    if number not in _ELEMENTS:
        known = ", ".join(f"{element.name} ({key})" for key, element in sorted(_ELEMENTS.items()))
        raise ValueError(f"element type {number} of ONNX is not supported; use one of {known}")
    return _ELEMENTS[number]
