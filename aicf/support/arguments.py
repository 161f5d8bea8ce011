"""What callers hand over where text, a path or a dictionary is wanted, checked where it comes in.

Each function gives the argument back in the one form that everything works on, or raises the caller's class of error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from aicf.errors import AicfError, quoted

T = TypeVar("T")

_PATHS = (str, os.PathLike)


def text_from(value: object, kind: type[AicfError], what: str) -> str:
    """Text. Raises `kind` for anything else."""
    if not isinstance(value, str):
        raise kind(f"{what} is {quoted(value)}; give text")
    return value


def characters_from(value: object, kind: type[AicfError], what: str) -> str:
    """Text of whole characters, as UTF-8 can write it. Raises `kind` for anything else, such as what Python makes of
    bytes on a command line that are no UTF-8."""
    text = text_from(value, kind, what)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise kind(
            f"{what} holds bytes that are no UTF-8 at position {error.start}; give text in UTF-8"
        ) from None
    return text


def path_from(value: object, kind: type[AicfError], what: str) -> Path:
    """A path. Raises `kind` for what can be none, on any file system."""
    text: object = os.fspath(cast("str | os.PathLike[str]", value)) if isinstance(value, _PATHS) else None
    if not isinstance(text, str):
        raise kind(f"{what} is {quoted(cast(object, value))}; give a path")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise kind(f"{what} {quoted(text)} is no path: it holds half a character") from None
    if "\0" in text:
        raise kind(f"{what} {quoted(text)} is no path: it holds a NUL character")
    return Path(text)


def flag_from(value: object, kind: type[AicfError], what: str) -> bool:
    """A truth value. Raises `kind` for anything else."""
    import numpy as np  # here, since loading native code needs no NumPy

    if not isinstance(value, bool | np.bool_):
        raise kind(f"{what} is {quoted(value)}; give True or False")
    return bool(cast(object, value))


def mapping_from(value: object, kind: type[AicfError], what: str) -> Mapping[str, Any]:
    """Values by name. Raises `kind` for what is no dictionary, or has other keys than text."""
    if not isinstance(value, Mapping):
        raise kind(f"{what} is {quoted(value)}; give values by name, a dictionary")
    entries = cast("Mapping[object, Any]", value)
    for name in entries:
        text_from(name, kind, f"a name in {what}")
    return cast("Mapping[str, Any]", entries)


def instance_from(value: object, wanted: type[T], kind: type[AicfError], what: str, source: str) -> T:
    """An object of a class. Raises `kind` for anything else; `source` says what gives one."""
    if not isinstance(value, wanted):
        raise kind(f"{what} is {quoted(value)}; give {source}")
    return value


def check_function(value: object, kind: type[AicfError], what: str) -> None:
    """Raises `kind` for what cannot be called."""
    if not callable(value):
        raise kind(f"{what} is {quoted(value)}; give a function")
