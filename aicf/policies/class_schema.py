"""The JSON Schema of a data class: its fields with what its docstring says of them, and their defaults."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import Any

_ENTRY = re.compile(r"^    ([\w, ]+): (.+?)(?=^    \S|^\S|\Z)", re.MULTILINE | re.DOTALL)
"""Names and text of an entry of `Args:`."""


def object_schema(kind: type[Any], schemas: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """An object that has the fields of a data class and no others.

    Args:
        kind: The class; every field has a default.
        schemas: Of each field, what its values may be.
    """
    texts, default = descriptions(kind), kind()
    properties = {
        name: {
            **({"description": texts[name]} if name in texts else {}),
            **schema,
            **_default_of(getattr(default, name)),
        }
        for name, schema in schemas.items()
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def descriptions(kind: type[Any]) -> dict[str, str]:
    """What the section `Args:` of a docstring says of each field, on one line each."""
    _, _, entries = inspect.cleandoc(kind.__doc__ or "").partition("Args:\n")
    return {
        name.strip(): " ".join(text.split())
        for names, text in _ENTRY.findall(entries.partition("\n\n")[0])
        for name in names.split(",")
    }


def _default_of(value: object) -> dict[str, object]:
    """Objects and lists are empty by default, or have defaults of their own."""
    if isinstance(value, Mapping | tuple) or dataclasses.is_dataclass(value):
        return {}
    return {"default": value}
