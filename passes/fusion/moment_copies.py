"""Copies of ops that a policy lists beside a convolution, which takes moments of its result with them.

Where `fuse-moments` moves the statistics of a norm to a convolution, ops that the norm reads as well are computed in
both groups: `cast0` in that of the norm, its copy `cast0.conv` in that of `conv`. A policy that lists the groups of
such a program names these copies, which the model does not have. They are made before groups are formed. What the
policy lists with the convolution then forms a group apart from the rest of the norm, and `fuse-moments` moves it all.
So are the copies of casts among these that `sink-casts` gave other groups, which else would be apart from their reader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.passes.bodies.outlining import is_rematerializable
from aicf.passes.support.identity import copied_id, op_id, set_identity, sources
from aicf.passes.support.policy import without_bucket
from aicf.policies.kernel_policy import KernelPolicy


def moment_ids(module: ModuleOp, ids: Sequence[str]) -> Iterator[str]:
    """The ids that copies of ops may get which a convolution takes, from those of the module."""
    for op in module.walk():
        if isinstance(op, logical.ConvOp) and (convolution := op_id(op)) is not None:
            yield from (copied_id(id_, convolution) for id_ in ids)


def copy_listed(policy: KernelPolicy, function: func.FuncOp, known: Collection[str]) -> None:
    """Gives convolutions the copies that `policy` lists with them, and others those of casts that these took.

    Args:
        known: The ids in the module, with and without buckets: what is there is not made again.
    """
    missing = [{id_ for id_ in group if id_ not in known} for group in policy.groups]
    if not any(missing):
        return
    for op in list(function.body.block.ops):
        if not isinstance(op, logical.ConvOp) or (id_ := op_id(op)) is None:
            continue
        taken = next((ids for ids in policy.groups if _names(ids, id_)), ())
        for ids, copies in zip(policy.groups, missing, strict=True):
            if ids is taken:
                _Copying(op, [id_], ids, copies).run()
            elif sunk := {copy for copy in copies if any(map(copy.startswith, map(_start, taken)))}:
                _Copying(op, ids, ids, sunk).run()


def _start(id_: str) -> str:
    """How the ids of all copies of an op begin."""
    return f"{without_bucket(id_)}."


def _names(ids: Collection[str], id_: str) -> bool:
    """Whether some ids of a policy have one, with or without its bucket."""
    return id_ in ids or without_bucket(id_) in ids


class _Copying:
    """Copies for one group that a policy lists.

    Args:
        convolution: What stands before all that reads them.
        readers: Ids after which copies are called.
        ids: What is listed.
        copies: Those of `ids` that no op has.
    """

    def __init__(
        self,
        convolution: logical.ConvOp,
        readers: Sequence[str],
        ids: Collection[str],
        copies: Collection[str],
    ) -> None:
        self.convolution, self.readers, self.ids, self.copies = convolution, readers, ids, copies
        self.own: dict[SSAValue, SSAValue] = {}

    def run(self) -> None:
        """Lets all that is listed and after the convolution read copies where they are listed too."""
        op = self.convolution.next_op
        while op is not None:
            if _names(self.ids, op_id(op) or ""):
                op.operands = [self._own(operand) for operand in op.operands]
            op = op.next_op

    def _own(self, value: SSAValue) -> SSAValue:
        """What an op of the group reads for `value`: a copy that is listed, also through a view; else the value."""
        if value not in self.own:
            self.own[value] = self._copied(value) if isinstance(value, OpResult) else value
        return self.own[value]

    def _copied(self, value: OpResult) -> SSAValue:
        op = value.op
        names = [copied_id(op_id(op) or "", reader) for reader in self.readers]
        own = next((name for name in names if _names(self.copies, name)), names[0])
        is_listed = op_id(op) is not None and _names(self.copies, own)
        if not is_listed and not is_rematerializable(op):
            return value
        operands = [self._own(operand) for operand in op.operands]
        if not is_listed and operands == list(op.operands):
            return value
        copy = _copy_of(op, operands, own)
        return copy.results[value.index]


def _copy_of(op: Operation, operands: Sequence[SSAValue], identity: str) -> Operation:
    """A copy of `op` with other operands and its own id, where the op is."""
    copy = op.clone()
    copy.operands = operands
    copy.location = op.location
    set_identity(copy, identity, sources(op))
    for old, new in zip(op.results, copy.results, strict=True):
        new.name_hint = old.name_hint
    block = op.parent
    assert block is not None
    block.insert_op_before(copy, op)
    return copy
