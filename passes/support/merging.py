"""Two groups as one with the results of both that others read: the body, and what stands between them in the text.

Shared by nothing but `fuse-multi-output` so far; what may be merged and when that pays is said there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.ir import Block, Operation, OpResult, Region, SSAValue

from aicf.dialects.emit import GroupOp, YieldOp
from aicf.passes.support.fusion import Outline
from aicf.passes.support.identity import op_id
from aicf.passes.support.peeling import yielded
from aicf.passes.support.work import remember_work


def window(group: GroupOp, limit: int) -> Iterator[Operation]:
    """Up to `limit` ops behind `group`, in text order."""
    op = group.next_op
    while op is not None and limit:
        yield op
        op, limit = op.next_op, limit - 1


def members(group: GroupOp) -> list[Operation]:
    """The ops of a group that are ops of the function: all but what was cloned into it."""
    return [op for op in group.body.block.ops if op_id(op) is not None]


@dataclass(frozen=True)
class Merge:
    """A group and a later one as one group.

    Args:
        first, second: In text order.
        late: What stands between them and reads the first, at once or through others, in text order.
    """

    first: GroupOp
    second: GroupOp
    late: tuple[Operation, ...]

    @property
    def id(self) -> str:
        """That of the first group."""
        return self.first.id.data

    @property
    def parts(self) -> tuple[GroupOp, GroupOp]:
        """Both groups."""
        return self.first, self.second

    @property
    def members(self) -> list[Operation]:
        """The ops of both."""
        return [*members(self.first), *members(self.second)]

    @cached_property
    def through(self) -> Operation | None:
        """What the second group reads that itself reads the first, if there is such an op: then they stay two."""
        return next((op for op in self.late if any(x.owner is op for x in self.second.ins)), None)

    @cached_property
    def results(self) -> tuple[OpResult, ...]:
        """The results of both that others read."""
        inside = set(self.parts)
        results = (result for part in self.parts for result in part.results)
        return tuple(r for r in results if any(use.operation not in inside for use in r.uses))

    @cached_property
    def operands(self) -> tuple[SSAValue, ...]:
        """What both read of others, each once."""
        own = set(self.first.results)
        values = (value for part in self.parts for value in part.ins)
        return tuple(dict.fromkeys(value for value in values if value not in own))

    @cached_property
    def plan(self) -> Outline:
        """The group that they would be."""
        return Outline(self.id, tuple(self.members), self._body(), self.operands, self.results)

    def form(self) -> GroupOp:
        """Replaces both by one group at the place of the second, and what reads the first behind it."""
        src = list(dict.fromkeys(entry.data for part in self.parts for entry in part.src))
        plan, types = self.plan, [result.type for result in self.results]
        work = plan.work
        group = GroupOp(self.id, src, self.operands, Region(plan.body), types)
        group.location = self.second.location
        block = self.second.parent
        assert block is not None
        block.insert_op_after(group, self.second)
        remember_work(group, work)
        for old, new in zip(plan.results, group.results, strict=True):
            new.name_hint = old.name_hint
            old.replace_uses_with_if(new, lambda use: use.operation not in self.parts)
        for part in reversed(self.parts):
            block.erase_op(part)
        _sink(self.late, group, block)
        return group

    def _body(self) -> Block:
        """The ops of the first group, then those of the second."""
        block = Block(arg_types=[value.type for value in self.operands])
        known: dict[SSAValue, SSAValue] = dict(zip(self.operands, block.args, strict=True))
        for part in self.parts:
            inner = part.body.block
            for argument, operand in zip(inner.args, part.ins, strict=True):
                value = known[argument] = known[operand]
                value.name_hint = value.name_hint or argument.name_hint
            for op in inner.ops:
                if not isinstance(op, YieldOp):
                    block.add_op(_copied(op, known))
            for result, value in zip(part.results, yielded(inner), strict=True):
                known[result] = known[value]
        block.add_op(YieldOp([known[result] for result in self.results]))
        return block


def _copied(op: Operation, known: dict[SSAValue, SSAValue]) -> Operation:
    """A copy of `op` on the values `known`, to which its results are added."""
    copy = op.clone({operand: known[operand] for operand in op.operands})
    for old, new in zip(op.results, copy.results, strict=True):
        new.name_hint = old.name_hint
        known[old] = new
    return copy


def _sink(ops: Sequence[Operation], group: GroupOp, block: Block) -> None:
    """Moves ops, in their order, behind the group whose results they read."""
    last: Operation = group
    for op in ops:
        op.detach()
        block.insert_op_after(op, last)
        last = op
