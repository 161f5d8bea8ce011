"""`Policy`: what users hand to a compile, its sections in one file.

    kernel:
      kernels: {fc1: cpu.gemm_avx2}
    execution:
      streams: 2
    precision:
      to: bf16

A text without sections states fields of any in short, as in `{kernels: {...}, streams: 2}`: their names differ.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

from aicf.errors import PolicyError, quoted
from aicf.policies import fields
from aicf.policies.execution_policy import ExecutionPolicy
from aicf.policies.kernel_policy import KernelPolicy
from aicf.policies.merging import Names
from aicf.policies.policy_file import json_text, read_text, write_value, yaml_text
from aicf.policies.policy_text import parse
from aicf.policies.precision_policy import PrecisionPolicy
from aicf.policies.validation import Dims, validator
from aicf.support.arguments import mapping_from, text_from

AUTO = fields.AUTO
"""Spelling of the default policy where it is asked for by name."""

AnySection: TypeAlias = KernelPolicy | ExecutionPolicy | PrecisionPolicy

KINDS: tuple[type[AnySection], ...] = (KernelPolicy, ExecutionPolicy, PrecisionPolicy)
"""The classes of the sections, in the order of a file; a policy has a field for each, with the name of the section."""

SECTIONS = tuple(kind.SECTION for kind in KINDS)
KERNEL, EXECUTION, PRECISION = SECTIONS

_SHARED = "version"
"""The field that all sections have."""


@dataclass(frozen=True)
class Policy:
    """What runs, how it is executed, and in which element types.

    Args:
        kernel: Groups, kernels, records, rounding and determinism.
        execution: Streams, memory, overwriting, prepared weights.
        precision: Casts and scales that are written into the model.
    """

    kernel: KernelPolicy = field(default_factory=KernelPolicy)
    execution: ExecutionPolicy = field(default_factory=ExecutionPolicy)
    precision: PrecisionPolicy = field(default_factory=PrecisionPolicy)

    def __post_init__(self) -> None:
        for kind, part in zip(KINDS, self.sections, strict=True):
            if not isinstance(part, kind):
                raise PolicyError(f"{kind.SECTION}: expected a {kind.__name__}, got {quoted(part)}")

    @classmethod
    def of(cls, section: AnySection) -> Policy:
        """The policy with one section; the others are at their default."""
        own: dict[str, Any] = {section.SECTION: section}
        return cls(**own)

    @property
    def sections(self) -> tuple[AnySection, ...]:
        """All sections, in the order of `KINDS`."""
        return self.kernel, self.execution, self.precision

    def to_json_value(self) -> dict[str, Any]:
        """JSON values with all sections and every field, in a fixed order."""
        return {section.SECTION: section.to_json_value() for section in self.sections}

    @classmethod
    def from_json_value(cls, value: object) -> Policy:
        """Reads plain values, with sections or in short; missing fields have their defaults.

        Raises:
            PolicyError: a field is unknown, or a value not legal; the message names the path and lists what is.
        """
        value = fields.without_schema(value)
        if _has_sections(value):
            given = fields.entries("policy", value, SECTIONS)
            read: dict[str, Any] = {kind.SECTION: _section(kind, given.get(kind.SECTION)) for kind in KINDS}
            return cls(**read)
        stated = _by_section(fields.entries("policy", value, list(_OWNERS)))
        parts: dict[str, Any] = {kind.SECTION: kind.from_json_value(stated[kind.SECTION]) for kind in KINDS}
        return cls(**parts)

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

    def with_(self, **changes: object) -> Policy:
        """A copy with some fields changed, of any section: `policy.with_(streams=2, fusion={"prologue": False})`.

        A section may be given as a whole, `kernel=KernelPolicy()`, or as its changes. For fields see
        `KernelPolicy.with_`.

        Raises:
            PolicyError: a field is unknown, or a value not legal.
        """
        fields.entries("policy", dict(changes), [*SECTIONS, *_OWNERS])
        short = _by_section({name: value for name, value in changes.items() if name not in SECTIONS})
        parts: dict[str, Any] = {
            section.SECTION: _changed(section, changes.get(section.SECTION, {})).with_(
                **short[section.SECTION]
            )
            for section in self.sections
        }
        return Policy(**parts)

    def merge(
        self, other: Policy | AnySection, names: Names = ("the first policy", "the second policy")
    ) -> Policy:
        """All that either policy says, section by section. A field at its default says nothing.

        Args:
            other: A policy, or a section.
            names: What errors call this policy and the other one, such as the names of their files.

        Raises:
            PolicyError: the two contradict each other; the message names the field and both policies.
        """
        added = other if isinstance(other, Policy) else Policy.of(other)
        return Policy(
            self.kernel.merge(added.kernel, names),
            self.execution.merge(added.execution, names),
            self.precision.merge(added.precision, names),
        )

    def validate(
        self,
        model: object,
        target: str | None = None,
        *,
        dims: Dims | None = None,
        threads: int = 1,
        training: bool = False,
    ) -> None:
        """Checks the policy against a model and a target: every decision is made as by a compile, and no code is made.

        So every name is looked up and every kernel asked whether it is legal.

        Args:
            model, target, dims, threads, training: As of `aicf.compile`.

        Raises:
            PolicyError: a name of the policy is unknown to the model or the target, or a decision is not legal.
            Others as `aicf.compile`.
        """
        validator()(self, model, target, dims=dims, threads=threads, training=training)

    def stated(self) -> list[str]:
        """Names of the fields that are not at their default, of all sections."""
        return [
            entry.name
            for ours in self.sections
            for entry in dataclasses.fields(ours)
            if getattr(ours, entry.name) != getattr(type(ours)(), entry.name)
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


PolicyLike: TypeAlias = Policy | AnySection | Mapping[str, object] | str | Path
"""A policy or one of its sections, plain values, `auto`, inline JSON, or the path of a JSON or YAML file."""


def policy_from(given: PolicyLike) -> Policy:
    """The policy that a caller means.

    Raises:
        PolicyError: it is none of the forms, or not legal.
    """
    match given:
        case Policy():
            return given
        case KernelPolicy() | ExecutionPolicy() | PrecisionPolicy():
            return Policy.of(given)
        case str() | Path():
            return resolve_policy(str(given))
        case _:
            return Policy.from_json_value(dict(mapping_from(given, PolicyError, "the policy")))


_OWNERS = {name: kind for kind in reversed(KINDS) for name in kind.READERS}
"""Of every field, the class that has it."""


def _by_section(stated: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Fields of any section, by the section they belong to."""
    return {
        kind.SECTION: {name: entry for name, entry in stated.items() if _OWNERS[name] is kind}
        for kind in KINDS
    }


def _changed(section: AnySection, change: object) -> AnySection:
    """A section with what `with_` was given for it: another one, its changes, or None for the default."""
    if change is None:
        return type(section)()
    if isinstance(change, type(section)):
        return change
    if not isinstance(change, dict):
        raise PolicyError(f"{section.SECTION}: expected a {type(section).__name__}, got {quoted(change)}")
    return section.with_(**cast("dict[str, object]", change))


def _has_sections(value: object) -> bool:
    return isinstance(value, dict) and any(section in value for section in SECTIONS)


def _section(kind: type[AnySection], given: object) -> AnySection:
    """Reads a section. Where a field's name says enough, paths in errors begin with it, as they do after the passes."""
    try:
        return kind.from_json_value({} if given is None else given)
    except PolicyError as error:
        path, _, rest = error.message.partition(": ")
        name = re.split(r"[.\[]", path)[0]
        if path == "policy":
            path = kind.SECTION
        elif name not in kind.READERS or name == _SHARED:
            path = f"{kind.SECTION}.{path}"
        raise PolicyError(f"{path}: {rest}") from error
