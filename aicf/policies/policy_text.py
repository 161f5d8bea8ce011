"""The text of a policy, JSON or YAML, as plain values: what either would read without a word is refused here.

A name that stands twice in an object would lose one of its values, and an alias may hold itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

import yaml

from aicf.errors import PolicyError


def parse(text: str, where: str) -> object:
    """The plain value of a text.

    Raises:
        PolicyError: it is neither JSON nor YAML, or says something twice; `where` is named, with line and column.
    """
    try:
        return _parse(text)
    except yaml.MarkedYAMLError as error:
        at = "" if error.problem_mark is None else _at(error.problem_mark)
        raise PolicyError(f"{where}: neither JSON nor YAML: {at}{error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise PolicyError(f"{where}: neither JSON nor YAML: {error}") from error


def _parse(text: str) -> object:
    try:
        return cast(object, json.loads(text, object_pairs_hook=_object))
    except json.JSONDecodeError:
        _refuse_aliases(text)
        return cast(object, yaml.load(text, _Loader))


def _refuse_aliases(text: str) -> None:
    tokens = cast("Iterable[object]", yaml.scan(text))  # pyright: ignore[reportUnknownMemberType]
    for token in tokens if "*" in text else ():
        if isinstance(token, yaml.AliasToken):
            raise PolicyError(f"{_at(token.start_mark)}a policy holds no aliases; write the value out")


def _object(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise PolicyError(f"{twice}: stands twice in one object; keep one")
    return found


def _at(mark: yaml.Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}: "


class _Loader(yaml.SafeLoader):
    """YAML's plain values, each name of an object once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[object] = set()
        for key, _ in node.value:
            name = cast("yaml.Node", key).value
            if isinstance(name, str) and name in seen:
                raise PolicyError(f"{name}: stands twice in one object, at {_at(key.start_mark)}keep one")
            seen.add(name if isinstance(name, str) else None)
        return super().construct_mapping(node, deep)
