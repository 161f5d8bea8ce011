"""The policies of a session: what its compiles follow, and the limits that are its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias, TypeVar

from aicf.errors import PolicyError
from aicf.policies.execution_policy import ExecutionPolicy
from aicf.policies.kernel_policy import KernelPolicy
from aicf.policies.policy import EXECUTION, KERNEL, Policy, resolve_policy

KernelWish: TypeAlias = KernelPolicy | Mapping[str, object] | str | Path | None
ExecutionWish: TypeAlias = ExecutionPolicy | Mapping[str, object] | str | Path | None
"""A policy of one section: itself, plain values, inline JSON, or the path of a JSON or YAML file."""

_Section = TypeVar("_Section", KernelPolicy, ExecutionPolicy)


def policies(kernel: KernelWish, execution: ExecutionWish) -> Policy:
    """Both sections as one policy.

    Raises:
        PolicyError: one of them is not legal, or is of the other section.
    """
    return Policy(_section(KERNEL, KernelPolicy, kernel), _section(EXECUTION, ExecutionPolicy, execution))


def _section(name: str, kind: type[_Section], given: KernelWish | ExecutionWish) -> _Section:
    match given:
        case None:
            return kind()
        case kind():
            return given
        case KernelPolicy() | ExecutionPolicy():
            raise PolicyError(f"{name}: expected a {kind.__name__}, got a {type(given).__name__}")
        case str() | Path():
            return _of_text(name, kind, resolve_policy(str(given)))
        case _:
            return kind.from_plain(dict(given))


def _of_text(name: str, kind: type[_Section], both: Policy) -> _Section:
    """The section of a policy that states nothing else."""
    ours, theirs = (both.kernel, both.execution) if name == KERNEL else (both.execution, both.kernel)
    if theirs != type(theirs)():
        other = EXECUTION if name == KERNEL else KERNEL
        raise PolicyError(
            f"{name}: the policy also has the section '{other}'; give that to the other argument"
        )
    assert isinstance(ours, kind)
    return ours
