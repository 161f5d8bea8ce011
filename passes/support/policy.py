"""The policies of a module, as `apply-policy` wrote them, and how their ids match those of the module."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeVar

from xdsl.dialects.builtin import DictionaryAttr, ModuleOp
from xdsl.ir import Attribute

from aicf.dialects.json_values import attribute_of
from aicf.errors import PolicyError
from aicf.policies.execution_policy import ExecutionPolicy
from aicf.policies.kernel_policy import KernelPolicy
from aicf.policies.precision_policy import PrecisionPolicy
from aicf.policies.section import Section

POLICY_ATTR = "aicf.policy"
EXECUTION_ATTR = "aicf.execution"
PRECISION_ATTR = "aicf.precision"
LOWERED_PRECISION_ATTR = "aicf.lowered_precision"
"""What `lower-precision` has written into the program: the same policy, which no pass follows a second time."""


def policy_of(module: ModuleOp) -> KernelPolicy:
    """The module's policy, or the default one. Raises PolicyError if the attribute is not a valid policy."""
    return _read(KernelPolicy, module.attributes.get(POLICY_ATTR))


def execution_of(module: ModuleOp) -> ExecutionPolicy:
    """How the module wants to be executed, or the default. Raises PolicyError if the attribute is no valid policy."""
    return _read(ExecutionPolicy, module.attributes.get(EXECUTION_ATTR))


def precision_of(module: ModuleOp) -> PrecisionPolicy:
    """In which element types the module wants to compute, or the default. Raises PolicyError if the attribute is no
    valid policy."""
    return _read(PrecisionPolicy, module.attributes.get(PRECISION_ATTR))


def lowered_precision_of(module: ModuleOp) -> PrecisionPolicy:
    """In which element types the module computes because a policy said so, or the default. Raises PolicyError if the
    attribute is no valid policy."""
    return _read(PrecisionPolicy, module.attributes.get(LOWERED_PRECISION_ATTR))


_S = TypeVar("_S", bound=Section)


@lru_cache(maxsize=64)
def _read(kind: type[_S], attribute: Attribute | None) -> _S:
    """A section of the policy. Some thirty passes of a compile read the same attribute."""
    return kind.from_attr(attribute) if isinstance(attribute, DictionaryAttr) else kind()


def asks_for_precision(module: ModuleOp, wanted: PrecisionPolicy) -> bool:
    """Whether a policy says something of the precision of a module that is not written into it yet.

    Raises:
        PolicyError: the module was lowered by another policy.
    """
    if wanted == PrecisionPolicy():
        return False
    lowered = lowered_precision_of(module).bounds()
    if lowered and lowered != wanted.bounds():
        raise PolicyError(
            f"precision: the program is lowered to {lowered.get('to', 'other types')} already; give the model that it "
            "was made from"
        )
    return not lowered


def spend(module: ModuleOp) -> None:
    """Leaves of the policies what still says something once all is decided: the program itself says the rest.

    So two ways to the same decisions, one by predicted times and one by a policy that pins them, end in one text.
    """
    for name, bounds in (
        (POLICY_ATTR, policy_of(module).bounds()),
        (EXECUTION_ATTR, execution_of(module).bounds()),
        (LOWERED_PRECISION_ATTR, lowered_precision_of(module).bounds()),
    ):
        module.attributes.pop(name, None)
        if bounds:
            module.attributes[name] = attribute_of(bounds)


def without_bucket(id_: str) -> str:
    """`fc1@N=32` to `fc1`: policies name ops and groups of all buckets at once, or with the bucket those of one."""
    return id_.partition("@")[0]


def with_stems(ids: Iterable[str]) -> dict[str, None]:
    """The ids, each also without its bucket, in order."""
    return {name: None for id_ in ids for name in (id_, without_bucket(id_))}
