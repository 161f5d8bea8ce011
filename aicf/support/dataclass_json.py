"""Frozen dataclasses to plain JSON values and back, checked: how a plan is stored in an artifact.

Legal field types: int, float, str, bool, None, unions of these, `tuple[T, ...]`, fixed tuples, `dict[str,
object]` (plain values) and other such dataclasses. Reading never evaluates anything and raises only
ArtifactError.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from aicf.errors import ArtifactError

T = TypeVar("T")


def parse_json(text: str | bytes) -> object:
    """The value of a JSON text. Raises ValueError if it is none, or nested too deeply."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def to_json_value(value: object) -> Any:
    """`value` as dicts, lists, strings and numbers."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [to_json_value(item) for item in cast(tuple[object, ...], value)]
    if isinstance(value, dict):
        return {key: to_json_value(item) for key, item in cast(dict[str, object], value).items()}
    return value


def from_json_value(cls: type[T], value: object, where: str) -> T:
    """The `cls` that `to_json_value` turned into `value`.

    Args:
        where: What is read, for messages: `plan`.

    Raises:
        ArtifactError: a field is missing, unknown or of another type; the message names its path.
    """
    try:
        return cast(T, _reader(cls)(value))
    except _Wrong as wrong:
        raise ArtifactError(
            f"{where}{''.join(reversed(wrong.path))} {wrong.problem}; the file is corrupt or of another version"
        ) from None


class _Wrong(Exception):
    """What is wrong with a value, and the steps of the path to it, the last one first."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str] = []


_Reader: TypeAlias = Callable[[object], object]
"""Checks a plain value and gives what the dataclass holds. Raises _Wrong."""


@cache
def _reader(hint: Any) -> _Reader:
    """The reader of a type; plans have many values of few types, so each is looked at once."""
    if dataclasses.is_dataclass(hint):
        return _dataclass_reader(cast(type[Any], hint))
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _union_reader(get_args(hint))
    if origin is tuple:
        return _tuple_reader(get_args(hint))
    if origin is dict:
        return _read_dict
    return _scalar_reader(hint)


def _dataclass_reader(cls: type[Any]) -> _Reader:
    hints = get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    known = frozenset(names)
    readers: list[tuple[str, _Reader]] = []

    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise _Wrong(_expected("an object", value))
        entries = cast(dict[str, object], value)
        if entries.keys() != known:
            odd = min(known ^ entries.keys(), key=str)
            raise _Wrong(f"{'lacks' if odd in known else 'has an unknown'} field '{odd}'")
        if not readers:  # found at the first value: a type may hold itself
            readers.extend([(name, _reader(hints[name])) for name in names])
        name = ""
        try:
            given: dict[str, object] = {}
            for name, read_field in readers:
                given[name] = read_field(entries[name])
        except _Wrong as wrong:
            wrong.path.append(f".{name}")
            raise
        return cls(**given)

    return read


def _union_reader(choices: tuple[Any, ...]) -> _Reader:
    some = [choice for choice in choices if choice is not types.NoneType]
    may_be_none = len(some) < len(choices)
    readers = {choice: _reader(choice) for choice in some}
    first = readers[some[0]]

    def read(value: object) -> object:
        if value is None and may_be_none:
            return None
        return readers.get(type(value), first)(value)

    return read


def _tuple_reader(items: tuple[Any, ...]) -> _Reader:
    is_long = items[-1] is Ellipsis
    readers = [_reader(hint) for hint in (items[:1] if is_long else items)]
    plain = frozenset(items[:1]) & {int, str}

    def read(value: object) -> object:
        if not isinstance(value, list):
            raise _Wrong(_expected("a list", value))
        values = cast(list[object], value)
        if is_long and plain.issuperset(map(type, values)):  # as shapes, of which a plan has thousands
            return tuple(values)
        if not is_long and len(values) != len(readers):
            raise _Wrong(_expected(f"{len(readers)} values", values))
        found: list[object] = []
        try:
            for item in values:
                found.append(readers[0 if is_long else len(found)](item))
        except _Wrong as wrong:
            wrong.path.append(f"[{len(found)}]")
            raise
        return tuple(found)

    return read


def _read_dict(value: object) -> object:
    if not isinstance(value, dict):
        raise _Wrong(_expected("an object", value))
    return dict(cast(dict[str, object], value))


def _scalar_reader(hint: Any) -> _Reader:
    kinds = (int, float) if hint is float else (hint,)

    def read(value: object) -> object:
        if type(value) in kinds:
            return value
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise _Wrong(_expected(hint.__name__, value))
        return value

    return read


def _expected(wanted: str, value: object) -> str:
    return f"must be {wanted}, got {type(value).__name__}"
