"""Reading the fields of policies: plain values checked one by one, with errors that name the path and what is legal.

A policy is plain JSON values in files and an attribute in modules. Which fields a policy has is in `kernel_policy`,
`execution_policy` and `precision_policy`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    f64,
    i1,
    i64,
)
from xdsl.ir import Attribute

from aicf.errors import PolicyError, did_you_mean, quoted
from aicf.policies.class_schema import object_schema


@dataclasses.dataclass(frozen=True)
class Reader:
    """What checks the plain value of a field.

    Args:
        read: From the path and the value of a field to what the policy holds. Raises PolicyError.
        schema: What it lets pass, as JSON Schema.
    """

    read: Callable[[str, object], Any]
    schema: Mapping[str, Any]

    def __call__(self, path: str, value: object) -> Any:
        """What the policy holds of a value. Raises PolicyError."""
        return self.read(path, value)


SCHEMA_KEY = "$schema"
"""Key of a file that tells editors where the schema of policies is. It says nothing to a compile."""

AUTO = "auto"
"""Spelling of a choice that is left to the passes."""

_MAX_LISTED = 40
_PAST_INTEGERS = 1 << 63
_LARGEST = sys.float_info.max


def suggest(name: str, legal: Collection[str], intro: str) -> str:
    """The names close to `name`, then `intro` and the legal names; close names alone if the legal ones are many."""
    close = did_you_mean(name, legal)
    if close and len(legal) > _MAX_LISTED:
        return close
    shown = sorted(legal)[:_MAX_LISTED]
    more = f", and {len(legal) - len(shown)} more" if len(legal) > len(shown) else ""
    return f"{close} {intro}: {', '.join(shown) or 'none'}{more}".strip()


def check_names(field: str, names: Iterable[str], known: Collection[str], what: str) -> None:
    """Raises PolicyError, naming the path, for the first key of a field that is not known; `what` it should be."""
    for name in names:
        if name not in known:
            raise PolicyError(f"{field}.{name}: no {what}; {suggest(name, known, 'it has')}")


def check_version(found: int, known: int) -> None:
    """Raises PolicyError for a policy of another format."""
    if found != known:
        raise PolicyError(f"version: {found} is not known here; this release reads {known}")


# One reader per kind of field


def entries(path: str, value: object, legal: Sequence[str]) -> dict[str, object]:
    """The entries of an object that has no others than the `legal` ones."""
    _expect(path, isinstance(value, dict), "an object", value)
    found = cast(dict[object, object], value)
    for name in found:
        if name not in legal:
            where = f"{name}" if path == "policy" else f"{path}.{name}"
            raise PolicyError(f"{where}: unknown field; {suggest(str(name), legal, 'legal')}")
    return cast(dict[str, object], found)


def without_schema(value: object) -> object:
    """The value of a file without its `$schema`. Raises PolicyError if that is no text."""
    if not isinstance(value, dict) or SCHEMA_KEY not in value:
        return cast("object", value)
    found = cast("dict[object, object]", value)
    _string(SCHEMA_KEY, found[SCHEMA_KEY])
    return {name: entry for name, entry in found.items() if name != SCHEMA_KEY}


def _integer(path: str, value: object) -> int:
    fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) < _PAST_INTEGERS
    _expect(path, fits, "an integer", value)
    return cast(int, value)


def _count(path: str, value: object) -> int:
    if (found := _integer(path, value)) < 0:
        raise PolicyError(f"{path}: must be at least 0, got {found}")
    return found


def _number(path: str, value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    _expect(path, is_number and abs(cast(float, value)) <= _LARGEST, "a finite number", value)
    return float(cast(float, value))


def _numbers(path: str, value: object) -> tuple[float, ...]:
    return tuple(_number(f"{path}[{index}]", item) for index, item in enumerate(_list(path, value)))


def _pairs_of_numbers(path: str, value: object) -> tuple[tuple[float, float], ...]:
    found = [_numbers(f"{path}[{index}]", item) for index, item in enumerate(_list(path, value))]
    for index, item in enumerate(found):
        _expect(f"{path}[{index}]", len(item) == 2, "two numbers", list(item))
    return tuple((low, high) for low, high in found)


def _boolean(path: str, value: object) -> bool:
    _expect(path, isinstance(value, bool), "true or false", value)
    return cast(bool, value)


def _string(path: str, value: object) -> str:
    _expect(path, isinstance(value, str), "a string", value)
    return cast(str, value)


def _strings(path: str, value: object) -> tuple[str, ...]:
    return tuple(_string(f"{path}[{index}]", item) for index, item in enumerate(_list(path, value)))


def _string_lists(path: str, value: object) -> tuple[tuple[str, ...], ...]:
    return tuple(_strings(f"{path}[{index}]", item) for index, item in enumerate(_list(path, value)))


def _json_value(path: str, value: object) -> object:
    match value:
        case bool() | int() | float() | str():
            return value
        case list():
            items = cast(list[object], value)
            return [_json_value(f"{path}[{index}]", item) for index, item in enumerate(items)]
        case dict():
            return map_of(json_value)(path, cast(dict[str, object], value))
        case _:
            raise PolicyError(f"{path}: expected a string, a number, true or false, a list or an object")


def _lists_of(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_NUMBER, _STRING = {"type": "number"}, {"type": "string"}

integer = Reader(_integer, {"type": "integer"})
"""An integer."""

count = Reader(_count, {"type": "integer", "minimum": 0})
"""An integer, at least 0."""

number = Reader(_number, _NUMBER)
"""A finite number."""

numbers = Reader(_numbers, _lists_of(_NUMBER))
"""A list of numbers."""

pairs_of_numbers = Reader(_pairs_of_numbers, _lists_of({**_lists_of(_NUMBER), "minItems": 2, "maxItems": 2}))
"""A list of lists of two numbers."""

boolean = Reader(_boolean, {"type": "boolean"})
"""True or false."""

string = Reader(_string, _STRING)
"""A string."""

strings = Reader(_strings, _lists_of(_STRING))
"""A list of strings."""

string_lists = Reader(_string_lists, _lists_of(_lists_of(_STRING)))
"""A list of lists of strings."""

json_value = Reader(_json_value, {"type": ["string", "number", "boolean", "array", "object"]})
"""Any value that an attribute can hold."""


def choice(legal: Sequence[str]) -> Reader:
    """A reader of one of a few strings."""

    def read(path: str, value: object) -> str:
        _expect(path, isinstance(value, str), f"one of {', '.join(legal)}", value)
        if value not in legal:
            raise PolicyError(f"{path}: '{value}' is not legal; {suggest(cast(str, value), legal, 'legal')}")
        return cast(str, value)

    return Reader(read, {"enum": list(legal)})


def map_of(reader: Reader) -> Reader:
    """A reader of objects with any names, whose values `reader` reads."""

    def read(path: str, value: object) -> dict[str, Any]:
        _expect(path, isinstance(value, dict), "an object", value)
        found = cast(dict[object, object], value)
        return {_string(path, key): reader(f"{path}.{key}", item) for key, item in found.items()}

    return Reader(read, {"type": "object", "additionalProperties": reader.schema})


def switches(kind: type[Any]) -> Reader:
    """A reader of a data class whose fields are all booleans."""
    legal = [entry.name for entry in dataclasses.fields(kind)]

    def read(path: str, value: object) -> Any:
        found = entries(path, value, legal)
        return kind(**{name: _boolean(f"{path}.{name}", entry) for name, entry in found.items()})

    return Reader(read, object_schema(kind, dict.fromkeys(legal, boolean.schema)))


def _expect(path: str, holds: bool, wanted: str, value: object) -> None:
    if not holds:
        raise PolicyError(f"{path}: expected {wanted}, got {_shown(value)}")


def _shown(value: object) -> str:
    """A value as it stands in a policy file; of what can stand in none, what Python says."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return quoted(value)


def _list(path: str, value: object) -> list[object]:
    _expect(path, isinstance(value, list), "a list", value)
    return cast(list[object], value)


def read_fields(readers: Mapping[str, Reader], value: object) -> dict[str, Any]:
    """The fields of a policy; missing ones stay away. Raises PolicyError naming the path of what is not legal."""
    found = entries("policy", value, list(readers))
    return {name: read_field(readers, name, entry) for name, entry in found.items()}


def read_field(readers: Mapping[str, Reader], name: str, value: object) -> Any:
    """One field. Raises PolicyError naming the path of what is not legal."""
    try:
        return readers[name](name, value)
    except RecursionError:
        raise PolicyError(f"{name}: it contains itself, or is nested too deeply; write it out") from None


# Attributes as plain values


def from_attr(path: str, attribute: Attribute) -> object:
    """The plain value of an attribute. Raises PolicyError naming the path of one that has none."""
    match attribute:
        case IntegerAttr() if attribute.type in (i1, i64):
            return bool(attribute.value.data) if attribute.type == i1 else attribute.value.data
        case FloatAttr() if attribute.type == f64:
            return attribute.value.data
        case StringAttr():
            return attribute.data
        case ArrayAttr():
            return [from_attr(f"{path}[{index}]", item) for index, item in enumerate(attribute.data)]
        case DictionaryAttr():
            return {key: from_attr(f"{path}.{key}", item) for key, item in attribute.data.items()}
        case _:
            raise PolicyError(
                f"{path}: {attribute} is no policy value; use strings, bools, i64, f64, lists, objects"
            )
