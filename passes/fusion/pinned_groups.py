"""Whether the groups that a policy lists were formed; if not, what may be listed instead.

Passes write the ledger and never read it. So a pass only says which ops form no group; why, `explained` takes from the
ledger where the error leaves the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp, StringAttr

from aicf.dialects.emit import GroupOp, LedgerOp, find_ledger
from aicf.dialects.logical import ID_ATTR
from aicf.errors import PolicyError
from aicf.passes.support.policy import with_stems, without_bucket
from aicf.policies.kernel_policy import KernelPolicy


class UnformedGroup(PolicyError):
    """Ops that a policy pins to one group are in several.

    Args:
        entry: The entry of the policy, `groups[0]`.
        ops: Ids of the ops.
        found: Which groups they are in.
        way_out: What may be listed instead.
        why: Why they are in several.
    """

    def __init__(self, entry: str, ops: Sequence[str], found: str, way_out: str, why: str = "") -> None:
        reason = why or "no kernel of the target runs them as one instruction"
        super().__init__(f"{entry}: its ops form no group together: {found}; {reason}; {way_out}")
        self.parts = entry, ops, found, way_out


def explained(error: UnformedGroup, module: ModuleOp) -> UnformedGroup:
    """The error with the reason that a fusing pass recorded in the ledger of `module`, if one did."""
    ledger = find_ledger(module)
    why = None if ledger is None else _refusal(error.parts[1], ledger)
    return error if why is None else UnformedGroup(*error.parts, why)


def check_formed(policy: KernelPolicy, groups: Sequence[GroupOp]) -> None:
    """Checks that ops of one function which the policy pins to one group are in one.

    Raises:
        UnformedGroup: they are not.
    """
    members = {group.id.data: _op_ids(group) for group in groups} if policy.groups else {}
    for index, wanted in enumerate(policy.groups):
        here = [id_ for id_ in wanted if any(id_ in ids for ids in members.values())]
        # Views and constants may be in others as well.
        if here and not any(all(id_ in ids for id_ in here) for ids in members.values()):
            raise UnformedGroup(f"groups[{index}]", here, *_found(here, members))


def _found(here: Sequence[str], members: Mapping[str, Mapping[str, None]]) -> tuple[str, str]:
    """Which groups hold the ops, and what may be written instead."""
    held = {id_: next(name for name, ids in members.items() if id_ in ids) for id_ in here}
    parts = {name: [id_ for id_ in here if held[id_] == name] for name in dict.fromkeys(held.values())}
    found = ", ".join(f"{_quoted(ids)} in '{name}'" for name, ids in parts.items())
    legal = ", ".join(f"[{', '.join(ids)}]" for ids in parts.values() if len(ids) > 1)
    way_out = f"split it, as into {legal}," if legal else "split"
    return found, f"{way_out} or drop the entry"


def _quoted(ids: Sequence[str]) -> str:
    return " and ".join(f"'{id_}'" for id_ in ids) if len(ids) < 3 else f"'{ids[0]}' to '{ids[-1]}'"


def _refusal(ids: Sequence[str], ledger: LedgerOp) -> str | None:
    """Why a fusing pass did not take them as one, or the most of them that it tried."""
    wanted = {without_bucket(id_) for id_ in ids}
    found: dict[int, str] = {}
    for decision in ledger.decisions:
        for label, reason in decision.rejected.data.items():
            tried = {without_bucket(id_) for id_ in label.split(" + ")}
            if len(tried) > 1 and tried <= wanted and isinstance(reason, StringAttr):
                found.setdefault(len(tried), reason.data)
    return found[max(found)] if found else None


def _op_ids(group: GroupOp) -> dict[str, None]:
    ids = (op.attributes.get(ID_ATTR) for op in group.body.block.ops)
    return with_stems(id_.data for id_ in ids if isinstance(id_, StringAttr))
