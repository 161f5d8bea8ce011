"""Frozen dataclasses to plain JSON values and back, checked: how a plan is stored in an artifact.

Legal field types: int, float, str, bool, None, unions of these, `tuple[T, ...]`, fixed tuples, `dict[str,
object]` (plain values) and other such dataclasses. Reading never evaluates anything and raises only
ArtifactError.
"""

from __future__ import annotations

import dataclasses
import types
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from aicf.errors import ArtifactError

T = TypeVar("T")


def to_plain(value: object) -> Any:
    """`value` as dicts, lists, strings and numbers."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in cast(tuple[object, ...], value)]
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in cast(dict[str, object], value).items()}
    return value


def from_plain(cls: type[T], value: object, where: str) -> T:
    """The `cls` that `to_plain` turned into `value`.

    Args:
        where: What is read, for messages: `plan`.

    Raises:
        ArtifactError: a field is missing, unknown or of another type; the message names its path.
    """
    return cast(T, _read(cls, value, where))


@cache
def _fields(cls: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _read(hint: Any, value: object, where: str) -> object:
    if dataclasses.is_dataclass(hint):
        return _read_dataclass(cast(type[Any], hint), value, where)
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _read_union(get_args(hint), value, where)
    if origin is tuple:
        return _read_tuple(get_args(hint), value, where)
    if origin is dict:
        _expect(isinstance(value, dict), "an object", value, where)
        return dict(cast(dict[str, object], value))
    kinds = (int, float) if hint is float else hint
    is_bool_for_number = isinstance(value, bool) and hint is not bool
    _expect(isinstance(value, kinds) and not is_bool_for_number, hint.__name__, value, where)
    return value


def _read_dataclass(cls: type[Any], value: object, where: str) -> object:
    _expect(isinstance(value, dict), "an object", value, where)
    entries = cast(dict[str, object], value)
    hints = _fields(cls)
    if odd := sorted(hints.keys() ^ entries.keys(), key=str):
        problem = "lacks" if odd[0] in hints else "has an unknown"
        raise ArtifactError(f"{where} {problem} field '{odd[0]}'; the file is corrupt or of another version")
    return cls(**{name: _read(hint, entries[name], f"{where}.{name}") for name, hint in hints.items()})


def _read_union(choices: tuple[Any, ...], value: object, where: str) -> object:
    if value is None and types.NoneType in choices:
        return None
    some = [choice for choice in choices if choice is not types.NoneType]
    fitting = [choice for choice in some if type(value) is choice]
    return _read((fitting or some)[0], value, where)


def _read_tuple(items: tuple[Any, ...], value: object, where: str) -> object:
    _expect(isinstance(value, list), "a list", value, where)
    values = cast(list[object], value)
    if items[-1] is Ellipsis:
        return tuple(_read(items[0], item, f"{where}[{index}]") for index, item in enumerate(values))
    _expect(len(values) == len(items), f"{len(items)} values", value, where)
    pairs = zip(items, values, strict=True)
    return tuple(_read(hint, item, f"{where}[{index}]") for index, (hint, item) in enumerate(pairs))


def _expect(holds: bool, wanted: str, value: object, where: str) -> None:
    if not holds:
        raise ArtifactError(
            f"{where} must be {wanted}, got {type(value).__name__}; the file is corrupt or of another version"
        )
