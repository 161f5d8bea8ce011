"""Files of policies: JSON or YAML by their suffix, as plain values. Which fields these have is not known here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from aicf.errors import PolicyError
from aicf.policies.fields import AUTO
from aicf.support.arguments import path_from
from aicf.support.files import reason_of, write_whole


def read_text(path: str | Path) -> str:
    """The text of a `.json`, `.yaml` or `.yml` file. Raises PolicyError if that fails."""
    path = _path_from(path)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        way_out = "save it as UTF-8 text" if isinstance(error, UnicodeDecodeError) else "check the path"
        raise PolicyError(f"policy file '{path}' cannot be read: {reason_of(error)}; {way_out}") from error


def write_value(path: str | Path, value: Mapping[str, object], comment: str = "") -> None:
    """Writes `.json`, `.yaml` or `.yml`, whole or not at all, YAML with a line of comment on top.

    Raises PolicyError if that fails.
    """
    path = _path_from(path)
    text = (
        json_text(value)
        if path.suffix == ".json"
        else (f"# {comment}\n" if comment else "") + yaml_text(value)
    )
    try:
        write_whole(path, lambda stream: stream.write(text.encode()))
    except OSError as error:
        reason = f"{reason_of(error)}; choose a path that can be written"
        raise PolicyError(f"policy file '{path}' cannot be written: {reason}") from error


def json_text(value: Mapping[str, object]) -> str:
    """Indented JSON."""
    return json.dumps(value, indent=2) + "\n"


def yaml_text(value: Mapping[str, object]) -> str:
    """YAML in the order of the value."""
    return yaml.safe_dump(value, sort_keys=False, width=100)


def _path_from(path: str | Path) -> Path:
    path = path_from(path, PolicyError, "the policy's path")
    if path.suffix not in (".json", ".yaml", ".yml"):
        raise PolicyError(f"policy '{path}': give '{AUTO}', inline JSON, or a .json, .yaml or .yml file")
    return path
