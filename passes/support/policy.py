"""The kernel policy of a module, as `apply-policy` wrote it, and how its ids match those of the module."""

from __future__ import annotations

from xdsl.dialects.builtin import DictionaryAttr, ModuleOp

from aicf.policies.kernel_policy import KernelPolicy

POLICY_ATTR = "aicf.policy"


def policy_of(module: ModuleOp) -> KernelPolicy:
    """The module's policy, or the default one. Raises PolicyError if the attribute is not a valid policy."""
    attribute = module.attributes.get(POLICY_ATTR)
    return KernelPolicy.from_attr(attribute) if isinstance(attribute, DictionaryAttr) else KernelPolicy()


def without_bucket(id_: str) -> str:
    """`fc1@N=32` to `fc1`: policies name ops and groups of all buckets at once, or with the bucket those of one."""
    return id_.partition("@")[0]
