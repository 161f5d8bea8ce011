"""The policies of a module, as `apply-policy` wrote them, and how their ids match those of the module."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from xdsl.dialects.builtin import DictionaryAttr, ModuleOp

from aicf.dialects.json_values import attribute_of
from aicf.policies.execution_policy import ExecutionPolicy
from aicf.policies.kernel_policy import KernelPolicy
from aicf.policies.precision_policy import PrecisionPolicy

POLICY_ATTR = "aicf.policy"
EXECUTION_ATTR = "aicf.execution"
PRECISION_ATTR = "aicf.precision"


def policy_of(module: ModuleOp) -> KernelPolicy:
    """The module's policy, or the default one. Raises PolicyError if the attribute is not a valid policy."""
    attribute = module.attributes.get(POLICY_ATTR)
    return KernelPolicy.from_attr(attribute) if isinstance(attribute, DictionaryAttr) else KernelPolicy()


def execution_of(module: ModuleOp) -> ExecutionPolicy:
    """How the module wants to be executed, or the default. Raises PolicyError if the attribute is no valid policy."""
    attribute = module.attributes.get(EXECUTION_ATTR)
    return _read_execution(attribute) if isinstance(attribute, DictionaryAttr) else ExecutionPolicy()


@lru_cache(maxsize=64)
def _read_execution(attribute: DictionaryAttr) -> ExecutionPolicy:
    return ExecutionPolicy.from_attr(attribute)


def precision_of(module: ModuleOp) -> PrecisionPolicy:
    """In which element types the module wants to compute, or the default. Raises PolicyError if the attribute is no
    valid policy."""
    attribute = module.attributes.get(PRECISION_ATTR)
    return (
        PrecisionPolicy.from_attr(attribute) if isinstance(attribute, DictionaryAttr) else PrecisionPolicy()
    )


def spend(module: ModuleOp) -> None:
    """Leaves of the policies what still says something once all is decided: the program itself says the rest.

    So two ways to the same decisions, one by predicted times and one by a policy that pins them, end in one text.
    """
    for name, bounds in (
        (POLICY_ATTR, policy_of(module).bounds()),
        (EXECUTION_ATTR, execution_of(module).bounds()),
        (PRECISION_ATTR, precision_of(module).bounds()),
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
