"""The policies of a session: what its compiles follow, and the limits that are its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias, TypeVar

from aicf.arguments import path_from
from aicf.errors import PolicyError
from aicf.inference.limits import Limits
from aicf.policies.execution_policy import COMPILE, ExecutionPolicy
from aicf.policies.kernel_policy import KernelPolicy
from aicf.policies.policy import EXECUTION, KERNEL, Policy, resolve_policy

KernelPolicyLike: TypeAlias = KernelPolicy | Mapping[str, object] | str | Path | None
ExecutionPolicyLike: TypeAlias = ExecutionPolicy | Mapping[str, object] | str | Path | None
"""A policy of one section: itself, plain values, inline JSON, or the path of a JSON or YAML file."""

_Section = TypeVar("_Section", KernelPolicy, ExecutionPolicy)
_PolicyLike: TypeAlias = KernelPolicy | ExecutionPolicy | Mapping[str, object] | str | Path | None


def policies(kernel: KernelPolicyLike, execution: ExecutionPolicyLike) -> Policy:
    """Both sections as one policy.

    Raises:
        PolicyError: one of them is not legal, or is of the other section.
    """
    return Policy(
        _section(KERNEL, KernelPolicy, kernel, lambda both: (both.kernel, both.execution)),
        _section(EXECUTION, ExecutionPolicy, execution, lambda both: (both.execution, both.kernel)),
    )


def limits_of(policy: Policy) -> Limits:
    """What it says of sessions."""
    execution = policy.execution
    return Limits(execution.new_shapes == COMPILE, execution.max_programs, execution.max_bytes)


def compile_text(policy: Policy | None) -> str:
    """What compiles follow of it, as inline JSON; empty if that is all default."""
    if policy is None:
        return ""
    wanted = Policy(policy.kernel, policy.execution.for_compile())
    return wanted.to_line() if wanted != Policy() else ""


def _text_of(name: str, given: str | Path) -> str:
    return given if isinstance(given, str) else str(path_from(given, PolicyError, name))


def _section(
    name: str, kind: type[_Section], given: _PolicyLike, parts: Callable[[Policy], tuple[_Section, object]]
) -> _Section:
    """One section; `parts` tells it from the other one of a policy."""
    if given is None:
        return kind()
    if isinstance(given, kind):
        return given
    if isinstance(given, KernelPolicy | ExecutionPolicy):
        raise PolicyError(f"{name}: expected a {kind.__name__}, got a {type(given).__name__}")
    if isinstance(given, Mapping):
        return kind.from_json_value(dict(given))
    ours, theirs = parts(resolve_policy(_text_of(name, given)))
    if theirs != type(theirs)():
        other = EXECUTION if name == KERNEL else KERNEL
        raise PolicyError(
            f"{name}: the policy also has the section '{other}'; give that to the other argument"
        )
    return ours
