"""Two groups as one with the results of both that others read: its body, and its position in the text.

What may be merged and when that pays is said in `fuse-multi-output`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.ir import Block, Operation, OpResult, Region, SSAValue

from aicf.dialects import logical
from aicf.dialects.emit import GroupOp, YieldOp
from aicf.dialects.logical import ID_ATTR, SRC_ATTR
from aicf.passes.bodies.outlining import Outline, argument_hint, id_of, is_rematerializable, sources_of
from aicf.passes.bodies.view_folding import yielded
from aicf.passes.bodies.views import is_view
from aicf.passes.bodies.workload import remember_workload
from aicf.passes.fusion.forming import FusionContext
from aicf.passes.support.identity import op_id


def window(group: GroupOp, limit: int) -> Iterator[Operation]:
    """Up to `limit` ops after `group`, in text order."""
    op = group.next_op
    while op is not None and limit:
        yield op
        op, limit = op.next_op, limit - 1


def members(group: GroupOp) -> list[Operation]:
    """The ops of a group without what feeds them: views, constants, coordinates."""
    return [op for op in group.body.block.ops if type(op) is not YieldOp and not is_rematerializable(op)]


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
    context: FusionContext

    @property
    def parts(self) -> tuple[GroupOp, GroupOp]:
        """Both groups."""
        return self.first, self.second

    @cached_property
    def members(self) -> list[Operation]:
        """The ops of both."""
        return [*members(self.first), *members(self.second)]

    @cached_property
    def identified(self) -> list[Operation]:
        """The ops of both that a policy may list: also what follows from coordinates, where it is no copy of a
        producer but has memory."""
        ops = [op for part in self.parts for op in part.body.block.ops]
        return [
            *self.members,
            *(op for op in ops if op_id(op) and is_rematerializable(op) and not is_view(op)),
        ]

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
    def operands(self) -> frozenset[SSAValue]:
        """What both read of others."""
        own = set(self.first.results)
        return frozenset(value for part in self.parts for value in part.ins if value not in own)

    @cached_property
    def plan(self) -> Outline:
        """The group that they would be."""
        writer = _Writer(self)
        own = [part.id.data for part in self.parts]
        return Outline(
            self.context.group_id(writer.order, own),
            tuple(writer.order),
            writer.block,
            tuple(writer.inputs),
            tuple(writer.results),
        )

    def form(self) -> GroupOp:
        """Replaces both by one group in the place of the second, and moves users of the first after the new group."""
        plan = self.plan
        work, types = self.context.work(plan), [result.type for result in plan.results]
        group = GroupOp(plan.id, sources_of(plan.members), plan.inputs, Region(plan.body), types)
        group.location = self.second.location
        block = self.second.parent
        assert block is not None
        block.insert_op_after(group, self.second)
        remember_workload(group, work)
        for old, new in zip(plan.results, group.results, strict=True):
            new.name_hint = old.name_hint
            old.replace_uses_with_if(new, lambda use: use.operation not in self.parts)
        for part in reversed(self.parts):
            block.erase_op(part)
            self.context.used.discard(part.id.data)
        self.context.used.add(plan.id)
        _sink(self.late, group, block)
        return group


def _sink(ops: Sequence[Operation], group: GroupOp, block: Block) -> None:
    """Moves ops, in their order, after the group whose results they read."""
    last: Operation = group
    for op in ops:
        op.detach()
        block.insert_op_after(op, last)
        last = op


class _Writer:
    """Writes the body of a merge, which follows from the ops alone and not from how they came together: another way
    to the same ops, as from a program that was raised, gives the same text.

    Producers stand before their users; ops that could change places are ordered by their ids, but products come first:
    what they read are the first operands of an instruction. An op that only feeds members stands once, before its first
    user.
    """

    def __init__(self, merge: Merge):
        self.block = Block()
        self.inputs: list[SSAValue] = []
        self.given: dict[SSAValue, SSAValue] = {}
        for part in merge.parts:
            self.given |= zip(part.body.block.args, part.ins, strict=True)
        self.given |= zip(merge.first.results, yielded(merge.first.body.block), strict=True)
        self.values: dict[SSAValue, SSAValue] = {}
        self.producers: dict[tuple[object, ...], Operation] = {}
        self.order = self._in_order(merge.members)
        for op in self.order:
            self._copy(op)
        inner = {
            r: v for part in merge.parts for r, v in zip(part.results, yielded(part.body.block), strict=True)
        }
        targets = {self._value(inner[result]): result for result in merge.results}
        self.results = [targets[value] for op in self.block.ops for value in op.results if value in targets]
        for result in self.results:
            self._identify(inner[result])
        self.block.add_op(YieldOp([self._value(inner[result]) for result in self.results]))

    def _in_order(self, ops: Sequence[Operation]) -> list[Operation]:
        waits = {op: self._members_read(op, set(ops)) for op in ops}
        readers: dict[Operation, list[Operation]] = {op: [] for op in ops}
        for op, needed in waits.items():
            for other in needed:
                readers[other].append(op)
        rank = {op: (not op.has_trait(logical.Contraction), id_of(op), index) for index, op in enumerate(ops)}
        ready = [rank[op] for op in ops if not waits[op]]
        heapq.heapify(ready)
        order: list[Operation] = []
        while ready:
            op = ops[heapq.heappop(ready)[-1]]
            order.append(op)
            for reader in readers[op]:
                waits[reader].discard(op)
                if not waits[reader]:
                    heapq.heappush(ready, rank[reader])
        return order

    def _members_read(self, op: Operation, inside: set[Operation]) -> set[Operation]:
        """The members that `op` reads, also through what feeds it."""
        found: set[Operation] = set()
        stack = list(op.operands)
        while stack:
            value = self._source(stack.pop())
            if not isinstance(value, OpResult) or not self._is_inner(value):
                continue
            if value.op in inside:
                found.add(value.op)
            else:
                stack.extend(value.op.operands)
        return found

    def _source(self, value: SSAValue) -> SSAValue:
        """The value that an argument of a part stands for: one of the other part's body, or of the function."""
        while value in self.given:
            value = self.given[value]
        return value

    def _is_inner(self, value: OpResult) -> bool:
        return isinstance(value.op.parent_op(), GroupOp)

    def _value(self, value: SSAValue) -> SSAValue:
        """The value in the body, with what it takes to have it."""
        value = self._source(value)
        if value not in self.values:
            if isinstance(value, OpResult) and self._is_inner(value):
                self._copy(value.op)
            else:
                argument = self.block.insert_arg(value.type, len(self.block.args))
                argument.name_hint = argument_hint(value)
                self.inputs.append(value)
                self.values[value] = argument
        return self.values[value]

    def _copy(self, op: Operation) -> None:
        operands = {operand: self._value(operand) for operand in op.operands}
        copy = op.clone(operands)
        copy = self._one_of_equal(copy) if is_rematerializable(op) else self.block.add_op(copy) or copy
        for old, new in zip(op.results, copy.results, strict=True):
            new.name_hint = new.name_hint or old.name_hint
            self.values[old] = new

    def _identify(self, given: SSAValue) -> None:
        """Leaves a view of a result its identity: it feeds nothing, and a policy lists it as one of the group."""
        old, new = self._source(given).owner, self._value(given).owner
        if isinstance(old, Operation) and isinstance(new, Operation) and is_rematerializable(old):
            new.attributes |= {
                name: old.attributes[name] for name in (ID_ATTR, SRC_ATTR) if name in old.attributes
            }

    def _one_of_equal(self, producer: Operation) -> Operation:
        """The producer, which has no identity of its own, or an equal one that is there."""
        for name in (ID_ATTR, SRC_ATTR):
            producer.attributes.pop(name, None)
        entries = (*producer.properties.items(), *producer.attributes.items())
        key = (producer.name, tuple(producer.operands), entries, tuple(producer.result_types))
        if key not in self.producers:
            self.producers[key] = producer
            self.block.add_op(producer)
        return self.producers[key]
