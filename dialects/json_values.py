"""Attributes as plain JSON values and back: how records and ledgers leave the IR, and how measured data enters it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    UnitAttr,
    f64,
    i1,
    i64,
)
from xdsl.ir import Attribute


def json_value(attribute: Attribute) -> object:
    """An attribute as a JSON value; kinds without one keep their text."""
    match attribute:
        case IntegerAttr():
            return bool(attribute.value.data) if attribute.type == i1 else attribute.value.data
        case FloatAttr():
            return attribute.value.data
        case StringAttr():
            return attribute.data
        case UnitAttr():
            return True
        case ArrayAttr():
            return [json_value(item) for item in attribute.data]
        case DictionaryAttr():
            return {key: json_value(value) for key, value in attribute.data.items()}
        case _:
            return str(attribute)


def attribute_of(value: object) -> Attribute:
    """The attribute of a JSON value: bool, i64, f64, string, array or dictionary. Raises ValueError for null."""
    match value:
        case bool():
            return BoolAttr.from_bool(value)
        case int():
            return IntegerAttr(value, i64)
        case float():
            return FloatAttr(value, f64)
        case str():
            return StringAttr(value)
        case list() | tuple():
            return ArrayAttr([attribute_of(item) for item in cast("Sequence[object]", value)])
        case dict():
            entries = cast("Mapping[str, object]", value)
            return DictionaryAttr({key: attribute_of(item) for key, item in entries.items()})
        case _:
            raise ValueError(f"{value!r} is no attribute value")
