"""Two policies as one, and a policy with changes, as plain values. Which fields there are is not known here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from aicf.errors import PolicyError, quoted

Entries: TypeAlias = Mapping[str, Any]

Names: TypeAlias = tuple[str, str]
"""What messages call the two policies."""


def patched(value: Entries, changes: Entries) -> dict[str, Any]:
    """A JSON merge patch (RFC 7396): objects are changed entry by entry, None removes, anything else replaces."""
    result = dict(value)
    for name, change in changes.items():
        if change is None:
            result.pop(name, None)
        elif isinstance(change, Mapping):
            own = result.get(name)
            entries = cast("Entries", own if isinstance(own, dict) else {})
            result[name] = patched(entries, cast("Entries", change))
        else:
            result[name] = change
    return result


def merged(
    first: Entries,
    second: Entries,
    default: Entries,
    names: Names,
    path: str = "",
) -> dict[str, Any]:
    """Everything that either says: an entry that one of them lacks, or has at its default, is the other's.

    Raises:
        PolicyError: they say different things; the message names the path and both policies.
    """
    result: dict[str, Any] = {}
    for name in dict.fromkeys([*first, *second]):
        a, b, plain = first.get(name), second.get(name), default.get(name)
        if a == b or b is None or b == plain:
            result[name] = a
        elif a is None or a == plain:
            result[name] = b
        elif isinstance(a, dict) and isinstance(b, dict):
            result[name] = merged(
                cast("Entries", a), cast("Entries", b), cast("Entries", plain or {}), names, f"{path}{name}."
            )
        else:
            raise PolicyError(
                f"{path}{name}: {quoted(cast('object', a))} in {names[0]}, {quoted(cast('object', b))} in {names[1]}; "
                "drop one of them"
            )
    return result


def united(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """The items of both, each once, in order."""
    return [*first, *(item for item in second if item not in first)]


def check_disjoint(
    field: str, first: Sequence[Sequence[str]], second: Sequence[Sequence[str]], names: Names
) -> None:
    """Raises PolicyError if a name is in a list of one policy and in another list of the other."""
    place = {name: (index, items) for index, items in enumerate(first) for name in items}
    for index, items in enumerate(second):
        for name in items:
            if name in place and place[name][1] != items:
                raise PolicyError(
                    f"{field}[{place[name][0]}] in {names[0]} and {field}[{index}] in {names[1]} both have '{name}'; "
                    "drop it from one of them"
                )
