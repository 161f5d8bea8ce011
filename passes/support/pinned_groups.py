"""Whether the groups that a policy lists were formed; if not, why, and what may be listed instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import StringAttr

from aicf.dialects.emit import GroupOp, LedgerOp
from aicf.dialects.logical import ID_ATTR
from aicf.errors import PolicyError
from aicf.passes.support.policy import with_stems, without_bucket
from aicf.policies.kernel_policy import KernelPolicy


def check_formed(policy: KernelPolicy, groups: Sequence[GroupOp], ledger: LedgerOp | None) -> None:
    """Checks that ops of one function which the policy pins to one group are in one.

    Raises:
        PolicyError: they are not; the message says why, and which groups they are in.
    """
    members = {group.id.data: _op_ids(group) for group in groups} if policy.groups else {}
    for place, wanted in enumerate(policy.groups):
        here = [id_ for id_ in wanted if any(id_ in ids for ids in members.values())]
        # Views and constants may be in others as well.
        if here and not any(all(id_ in ids for id_ in here) for ids in members.values()):
            raise PolicyError(f"groups[{place}]: {_apart(here, members, ledger)}")


def _apart(here: Sequence[str], members: Mapping[str, Mapping[str, None]], ledger: LedgerOp | None) -> str:
    """Which groups hold the ops, why they are no group together, and what may be written instead."""
    held = {id_: next(name for name, ids in members.items() if id_ in ids) for id_ in here}
    parts = {name: [id_ for id_ in here if held[id_] == name] for name in dict.fromkeys(held.values())}
    places = ", ".join(f"{_quoted(ids)} in '{name}'" for name, ids in parts.items())
    why = None if ledger is None else _refusal(here, ledger)
    legal = ", ".join(f"[{', '.join(ids)}]" for ids in parts.values() if len(ids) > 1)
    way_out = f"split it, as into {legal}," if legal else "split"
    return (
        f"its ops form no group together: {places}; {why or 'no kernel of the target takes them as one'}: "
        f"{way_out} or drop the entry"
    )


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
