"""The kernel policy of a module, as `apply-policy` wrote it; the default policy if it did not run."""

from __future__ import annotations

from xdsl.dialects.builtin import DictionaryAttr, ModuleOp

from aicf.policies.kernel_policy import KernelPolicy

POLICY_ATTR = "aicf.policy"


def policy_of(module: ModuleOp) -> KernelPolicy:
    """The module's policy. Raises PolicyError if the attribute is not a valid policy."""
    attribute = module.attributes.get(POLICY_ATTR)
    return KernelPolicy.from_attr(attribute) if isinstance(attribute, DictionaryAttr) else KernelPolicy()
