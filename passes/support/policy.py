"""The policies of a module, as `apply-policy` wrote them, and how their ids match those of the module."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute

from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.json_values import attribute_of
from aicf.errors import PolicyError
from aicf.policies.execution_policy import ExecutionPolicy
from aicf.policies.kernel_policy import KernelPolicy
from aicf.policies.precision_policy import PrecisionPolicy
from aicf.policies.section import Section

POLICY_ATTR = "aicf.policy"
EXECUTION_ATTR = "aicf.execution"
PRECISION_ATTR = "aicf.precision"
READ_FROM_ATTR = "aicf.read_from"
"""The backend of the programs that the decisions in the policies were read from, by `raise-emit`."""
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
        how = f"to {lowered['to']}" if "to" in lowered else f"by {', '.join(lowered)}"
        raise PolicyError(
            f"precision: the program is lowered {how} already; give the model that it was made from"
        )
    return not lowered


def note_read_from(module: ModuleOp, target: TargetAttr) -> None:
    """Notes that the decisions in the policies were read from programs for a target, and are none of a user's."""
    module.attributes[READ_FROM_ATTR] = target.backend


def forget_read(module: ModuleOp, backend: str) -> str | None:
    """Opens again what was read from programs for another backend: groups, layouts, kernels and their records, streams
    and bindings. What a user asked for stays.

    Returns: The name of that backend, None if nothing was read from one.
    """
    source = module.attributes.get(READ_FROM_ATTR)
    if not isinstance(source, StringAttr) or source.data == backend:
        return None
    kernel = replace(policy_of(module), groups=(), layouts={}, kernels={}, records={})
    execution = replace(execution_of(module), streams=0, streams_of={}, bindings={})
    module.attributes[POLICY_ATTR], module.attributes[EXECUTION_ATTR] = kernel.to_attr(), execution.to_attr()
    del module.attributes[READ_FROM_ATTR]
    return source.data


def spend(module: ModuleOp) -> None:
    """Leaves of the policies what still says something once all is decided: the program itself says the rest.

    So two ways to the same decisions, one by predicted times and one by a policy that pins them, end in one text.
    """
    module.attributes.pop(READ_FROM_ATTR, None)
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
