"""The policies of a module, as `apply-policy` wrote them, and how their ids match those of the module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr

from aicf.dialects.emit import GroupOp
from aicf.dialects.logical import ID_ATTR
from aicf.dialects.plain_values import attribute_of
from aicf.errors import PolicyError
from aicf.policies.execution_policy import ExecutionPolicy
from aicf.policies.kernel_policy import KernelPolicy

POLICY_ATTR = "aicf.policy"
EXECUTION_ATTR = "aicf.execution"


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


def spend(module: ModuleOp) -> None:
    """Leaves of the policies what still says something once all is decided: the program itself says the rest.

    So two ways to the same decisions, one by predicted times and one by a policy that pins them, end in one text.
    """
    for name, bounds in (
        (POLICY_ATTR, policy_of(module).bounds()),
        (EXECUTION_ATTR, execution_of(module).bounds()),
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


def check_formed(policy: KernelPolicy, groups: Sequence[GroupOp]) -> None:
    """Checks that ops of one function which the policy pins to one group are in one.

    Raises:
        PolicyError: they are not, because no kernel takes them together.
    """
    members = {group.id.data: _op_ids(group) for group in groups} if policy.groups else {}
    for place, wanted in enumerate(policy.groups):
        _check_together(f"groups[{place}]", wanted, members)


def _check_together(path: str, wanted: Sequence[str], members: Mapping[str, Mapping[str, None]]) -> None:
    """Whether one group holds all of `wanted` that the function has; views and constants may be in others as well."""
    here = [id_ for id_ in wanted if any(id_ in ids for ids in members.values())]
    if here and not any(all(id_ in ids for id_ in here) for ids in members.values()):
        places = (f"'{id_}' in '{next(name for name, ids in members.items() if id_ in ids)}'" for id_ in here)
        raise PolicyError(
            f"{path}: its ops form no group together: {', '.join(places)}; no kernel of the target takes them "
            "as one: split or drop the entry"
        )


def _op_ids(group: GroupOp) -> dict[str, None]:
    ids = (op.attributes.get(ID_ATTR) for op in group.body.block.ops)
    return with_stems(id_.data for id_ in ids if isinstance(id_, StringAttr))
