"""`Policy`: what users hand to a compile, a kernel policy and an execution policy in one file.

    kernel:
      kernels: {fc1: cpu.gemm_avx2}
    execution:
      streams: 2

A text without sections states fields of either in short, as in `{kernels: {...}, streams: 2}`: their names differ.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from aicf.arguments import text_from
from aicf.errors import PolicyError, quoted
from aicf.policies import fields
from aicf.policies.execution_policy import ExecutionPolicy
from aicf.policies.kernel_policy import KernelPolicy
from aicf.policies.policy_file import json_text, read_text, write_value, yaml_text
from aicf.policies.policy_text import parse

AUTO = fields.AUTO
"""Spelling of the default policy where it is asked for by name."""

KERNEL, EXECUTION = KernelPolicy.SECTION, ExecutionPolicy.SECTION
SECTIONS = (KERNEL, EXECUTION)

_OWN_NAMES: Mapping[str, frozenset[str]] = {
    KERNEL: frozenset(KernelPolicy.READERS) - frozenset(ExecutionPolicy.READERS),
    EXECUTION: frozenset(ExecutionPolicy.READERS) - frozenset(KernelPolicy.READERS),
}
"""Fields that only one section has."""

_Section = TypeVar("_Section", KernelPolicy, ExecutionPolicy)


@dataclass(frozen=True)
class Policy:
    """What runs, and how it is executed.

    Args:
        kernel: Groups, kernels, records, rounding and determinism.
        execution: Streams, memory, overwriting, prepared weights.
    """

    kernel: KernelPolicy = field(default_factory=KernelPolicy)
    execution: ExecutionPolicy = field(default_factory=ExecutionPolicy)

    def __post_init__(self) -> None:
        for name, part, kind in (
            (KERNEL, self.kernel, KernelPolicy),
            (EXECUTION, self.execution, ExecutionPolicy),
        ):
            if not isinstance(part, kind):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise PolicyError(f"{name}: expected a {kind.__name__}, got {quoted(part)}")

    def to_json_value(self) -> dict[str, Any]:
        """JSON values with both sections and every field, in a fixed order."""
        return {KERNEL: self.kernel.to_json_value(), EXECUTION: self.execution.to_json_value()}

    @classmethod
    def from_json_value(cls, value: object) -> Policy:
        """Reads plain values, with sections or in short; missing fields have their defaults.

        Raises:
            PolicyError: a field is unknown, or a value not legal; the message names the path and lists what is.
        """
        if _has_sections(value):
            sections = fields.entries("policy", value, SECTIONS)
            return cls(
                _section(KERNEL, KernelPolicy.from_json_value, sections),
                _section(EXECUTION, ExecutionPolicy.from_json_value, sections),
            )
        legal = [*KernelPolicy.READERS, *(name for name in ExecutionPolicy.READERS if name != "version")]
        given = fields.entries("policy", value, legal)
        ours = {name: given[name] for name in KernelPolicy.READERS if name in given}
        return cls(
            KernelPolicy.from_json_value(ours),
            ExecutionPolicy.from_json_value(
                {name: entry for name, entry in given.items() if name not in ours}
            ),
        )

    def to_json(self) -> str:
        """The policy as indented JSON."""
        return json_text(self.to_json_value())

    def to_line(self) -> str:
        """The policy as JSON on one line."""
        return json.dumps(self.to_json_value())

    def to_yaml(self) -> str:
        """The policy as YAML."""
        return yaml_text(self.to_json_value())

    @classmethod
    def from_text(cls, text: str, where: str = "policy") -> Policy:
        """Reads JSON or YAML.

        Raises:
            PolicyError: the text is neither, or a value is not legal; `where` is named.
        """
        value = parse(text_from(text, PolicyError, where), where)
        return cls.from_json_value({} if value is None else value)

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Reads a `.json`, `.yaml` or `.yml` file. Raises PolicyError if that fails."""
        text = read_text(path)
        try:
            return cls.from_text(text)
        except PolicyError as error:
            raise PolicyError(f"{path}: {error.message}") from error

    def save(self, path: str | Path, comment: str = "") -> None:
        """Writes `.json`, `.yaml` or `.yml`, whole or not at all, YAML with a line of comment on top.

        Raises PolicyError if that fails.
        """
        write_value(path, self.to_json_value(), comment)

    def stated(self) -> list[str]:
        """Names of the fields that are not at their default, of both sections."""
        pairs = ((self.kernel, KernelPolicy()), (self.execution, ExecutionPolicy()))
        return [
            entry.name
            for ours, default in pairs
            for entry in dataclasses.fields(default)
            if getattr(ours, entry.name) != getattr(default, entry.name)
        ]


def resolve_policy(text: str) -> Policy:
    """The policy a user means: `auto` (the default policy), an inline JSON object, or the path of a file.

    Raises:
        PolicyError: it is none of these, or not legal.
    """
    if text == AUTO:
        return Policy()
    if text.lstrip().startswith("{"):
        return Policy.from_text(text)
    return Policy.load(Path(text))


def _has_sections(value: object) -> bool:
    return isinstance(value, dict) and any(section in value for section in SECTIONS)


def _section(name: str, read: Callable[[object], _Section], sections: Mapping[str, object]) -> _Section:
    """Reads a section. Where a field's name says enough, paths in errors begin with it, as they do after the passes."""
    try:
        return read({} if (given := sections.get(name)) is None else given)
    except PolicyError as error:
        path, _, rest = error.message.partition(": ")
        if path == "policy":
            path = name
        elif re.split(r"[.\[]", path)[0] not in _OWN_NAMES[name]:
            path = f"{name}.{path}"
        raise PolicyError(f"{path}: {rest}") from error
