"""The policies of a session: what its compiles follow, and the limits that are its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias, TypeVar

from aicf.engines.limits import Limits
from aicf.errors import PolicyError
from aicf.policies.execution_policy import COMPILE, ExecutionPolicy
from aicf.policies.kernel_policy import KernelPolicy
from aicf.policies.policy import AnySection, Policy, PolicyLike, policy_from, resolve_policy
from aicf.policies.precision_policy import PrecisionPolicy
from aicf.support.arguments import path_from

KernelPolicyLike: TypeAlias = KernelPolicy | Mapping[str, object] | str | Path | None
ExecutionPolicyLike: TypeAlias = ExecutionPolicy | Mapping[str, object] | str | Path | None
PrecisionPolicyLike: TypeAlias = PrecisionPolicy | Mapping[str, object] | str | Path | None
"""A policy of one section: itself, plain values, inline JSON, or the path of a JSON or YAML file."""

_Section = TypeVar("_Section", KernelPolicy, ExecutionPolicy, PrecisionPolicy)
_SectionLike: TypeAlias = AnySection | Mapping[str, object] | str | Path | None


def policies(
    whole: PolicyLike | None,
    kernel: KernelPolicyLike,
    execution: ExecutionPolicyLike,
    precision: PrecisionPolicyLike = None,
) -> Policy:
    """The sections, and what the whole policy says beside them, as one policy.

    Raises:
        PolicyError: one of them is not legal, or has another section, or the whole policy contradicts a section.
    """
    found = Policy() if whole is None else policy_from(whole)
    for name, section in (
        ("kernel_policy=", _section(KernelPolicy, kernel)),
        ("exec_policy=", _section(ExecutionPolicy, execution)),
        ("precision_policy=", _section(PrecisionPolicy, precision)),
    ):
        found = found.merge(section, ("policy=", name))
    return found


def limits_of(policy: Policy) -> Limits:
    """What it says of sessions."""
    execution = policy.execution
    return Limits(execution.new_shapes == COMPILE, execution.max_programs, execution.max_bytes)


def compile_text(policy: Policy | None) -> str:
    """What compiles follow of it, as inline JSON; empty if that is all default."""
    if policy is None:
        return ""
    wanted = replace(policy, execution=policy.execution.for_compile())
    return wanted.to_line() if wanted != Policy() else ""


def _text_of(name: str, given: str | Path) -> str:
    return given if isinstance(given, str) else str(path_from(given, PolicyError, name))


def _section(kind: type[_Section], given: _SectionLike) -> _Section:
    """One section."""
    if given is None:
        return kind()
    if isinstance(given, kind):
        return given
    if isinstance(given, KernelPolicy | ExecutionPolicy | PrecisionPolicy):
        raise PolicyError(f"{kind.SECTION}: expected a {kind.__name__}, got a {type(given).__name__}")
    if isinstance(given, Mapping):
        return kind.from_json_value(dict(given))
    found = kind()
    for section in resolve_policy(_text_of(kind.SECTION, given)).sections:
        if isinstance(section, kind):
            found = section
        elif section != type(section)():
            raise PolicyError(
                f"{kind.SECTION}: the policy also has the section '{section.SECTION}'; give that to its own argument"
            )
    return found
