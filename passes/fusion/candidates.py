"""Growing sets of ops that could share a kernel, along uses in text order.

Only prefixes with few values that others read, mostly one, can be outlined ("cuts"). Products side by side, which share
only what they read, are outlined together with a result each.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

from xdsl.ir import Block, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.emit import GroupOp
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.bodies.outlining import id_of, is_rematerializable, name_of, outline
from aicf.passes.bodies.products import Product
from aicf.passes.bodies.view_folding import reads_in_memory
from aicf.passes.fusion.driver import Candidate, label
from aicf.passes.fusion.forming import FusionContext

Accept = Callable[[Operation], bool]


_SEARCH_LIMIT = 48
"""How many ops outside a cluster are looked through for ones that could still join: keeps fusion linear."""


MEMBER_LIMIT = 128
"""Most ops of a cluster: beyond it registers spill and compile time grows, and nothing is gained."""


_CANDIDATE_LIMIT = 8
"""How many prefixes of a cluster are tried on the kernels: enough to find a legal one, few enough to stay linear."""


REFUSAL_LIMIT = 8
"""How many ops next to a cluster have the reason why they stay outside in the ledger: keeps that linear too."""


POINTWISE_ON_SUMS = "only elementwise ops of the product's shape can be its epilogue"
"""What `pointwise_like` accepts, in words."""


Accumulation: TypeAlias = Product | logical.ConvOp
"""What sums products, and hands the sums to an epilogue."""


def pointwise_like(matmul: Accumulation) -> Accept:
    """Accepts the pointwise ops that can run on the accumulator of a product: those of its shape."""
    shape = tensor_info(matmul.result.type).shape

    def accept(op: Operation) -> bool:
        return op.has_trait(logical.Elementwise) and tensor_info(op.results[0].type).shape == shape

    return accept


class FusionCandidates:
    """Ops that could share a kernel, grown from seeds; remembers every prefix of no more than `results` results."""

    def __init__(self, seeds: Sequence[Operation], context: FusionContext, results: int = 1):
        self.seeds = seeds
        self.context = context
        self.results = results
        self.members: list[Operation] = []
        self.has_reduction = False
        self.refused: dict[str, str] = {}
        """Why ops that read a member stay outside, by their id."""
        self._cuts: list[tuple[int, tuple[SSAValue, ...]]] = []
        self._inside: set[Operation] = set()
        self._live: dict[SSAValue, int] = {}
        for seed in seeds:
            self._add(seed)

    def _add(self, op: Operation) -> None:
        self.members.append(op)
        self._inside.add(op)
        self.has_reduction |= op.has_trait(logical.Reduction)
        for operand in op.operands:
            if operand in self._live:
                self._live[operand] -= 1
                if not self._live[operand]:
                    del self._live[operand]
        for result in op.results:
            if uses := result.uses.get_length():
                self._live[result] = uses
        if 0 < len(self._live) <= self.results:
            self._cuts.append((len(self.members), tuple(self._live)))

    def grow(self, accept: Accept, wanted: str) -> None:
        """Adds users, transitively and in text order, that `accept` and do not depend on a rejected one.

        `wanted` says what it accepts, for the reason against an op that is nothing of that.
        """
        frontier = _Frontier(self.context.position)
        for seed in self.seeds:
            frontier.add_readers(seed, of_member=True)
        outside: set[Operation] = set()
        while frontier.holds_readers and len(outside) < _SEARCH_LIMIT and len(self.members) < MEMBER_LIMIT:
            op = frontier.pop()
            blocker = next((x.owner for x in op.operands if x.owner in outside), None)
            joins = blocker is None and accept(op) and self.context.may_join(op, self.seeds[0])
            if joins:
                self._add(op)
            else:
                outside.add(op)
                self._refuse(op, blocker, wanted)
            frontier.add_readers(op, of_member=joins)

    def _refuse(self, op: Operation, blocker: Operation | Block | None, wanted: str) -> None:
        """Notes why an op that reads a member stays outside."""
        name = name_of(op)
        if name is None or len(self.refused) >= REFUSAL_LIMIT:
            return
        if not any(operand.owner in self._inside for operand in op.operands):
            return
        if isinstance(op, GroupOp):
            self.refused[name] = "it is fused into another instruction already"
        elif isinstance(blocker, Operation):
            self.refused[name] = f"it also reads '{name_of(blocker)}', which cannot be fused"
        elif not self.context.may_join(op, self.seeds[0]):
            self.refused[name] = self.context.why_not_fusible([op, self.seeds[0]])
        else:
            self.refused[name] = f"{wanted}, and it is {_described(op)}"

    def left_out(self, members: Collection[Operation], tried: Mapping[str, str]) -> dict[str, str]:
        """Why ops next to the group that was formed are not in it.

        Args:
            members: Those of the group.
            tried: Why larger groups were refused, by their ops.
        """
        said = {name for label in tried for name in label.split(" + ")}
        cut = [name for op in self.members if op not in members and (name := id_of(op)) not in said]
        because = "with it, the instruction would write several results, or one of a wider type"
        return {**tried, **dict.fromkeys(cut[:REFUSAL_LIMIT], because), **self.refused}

    def groups(self, accept: Accept) -> Iterator[Candidate]:
        """The candidates as groups, then the seeds alone."""
        for cut in chain(self.candidates(accept), (tuple(self.seeds),)):
            plan = outline(cut, self.context.group_id(cut), given=self.context.listed_results)
            yield Candidate(label(cut), plan)

    def candidates(self, accept: Accept) -> Iterator[tuple[Operation, ...]]:
        """The prefixes with few results and more than the seeds, largest first, each with its own producers."""
        for length, results in self._cuts[: -_CANDIDATE_LIMIT - 1 : -1]:
            if length > len(self.seeds) and not any(map(_is_smaller_before, results)):
                cut = self.members[:length]
                spread = with_producers(cut, accept, self.context)
                yield spread
                without_broadcasts = with_producers(cut, accept, self.context, through_broadcasts=False)
                if without_broadcasts != spread:
                    yield without_broadcasts


def _described(op: Operation) -> str:
    """What an op does; an elementwise one is refused for its shape alone. No sizes: those of one bucket are not of
    another, and a reason is told once for all."""
    shape = " of another shape" if op.has_trait(logical.Elementwise) else ""
    return f"{op.name.removeprefix('logical.')}{shape}"


class _Frontier:
    """The ops that read members of a cluster, or what depends on others that do, in text order.

    Only readers of members can still join. The others are kept to tell which of these depend on an op that stays
    outside, so nothing is left to do as soon as no reader of a member waits, however long the program goes on.
    """

    def __init__(self, position: Mapping[Operation, int]):
        self._position = position
        self._ops: dict[int, Operation] = {}
        self._queue: list[int] = []
        self._readers: set[int] = set()

    @property
    def holds_readers(self) -> bool:
        """Whether an op that reads a member waits to be looked at."""
        return bool(self._readers and self._queue)

    def pop(self) -> Operation:
        """The first of the ops in the text."""
        position = heapq.heappop(self._queue)
        self._readers.discard(position)
        return self._ops[position]

    def add_readers(self, op: Operation, *, of_member: bool) -> None:
        """Adds what reads `op`, which is a member of the cluster or stays outside."""
        for result in op.results:
            for use in result.uses:
                position = self._position.get(use.operation)
                if position is None:
                    continue
                if position not in self._ops:
                    if _is_dead_producer(use.operation):
                        continue
                    self._ops[position] = use.operation
                    heapq.heappush(self._queue, position)
                if of_member:
                    self._readers.add(position)


def result_count(members: Collection[Operation]) -> int:
    """How many values of the members others read."""
    results = (result for op in members for result in op.results)
    return sum(any(use.operation not in members for use in result.uses) for result in results)


def _is_dead_producer(op: Operation) -> bool:
    """Whether all groups that the op feeds have their own copy: as a member it would only stand late in the text."""
    return not any(result.uses for result in op.results) and is_rematerializable(op)


def _is_widened_for_pointwise(value: SSAValue) -> bool:
    """Whether the value is a cast to a wider type that its readers can do themselves: better written narrow."""
    if not isinstance(value, OpResult) or not isinstance(value.op, logical.CastOp):
        return False
    wide, narrow = element_of(value.type), element_of(value.op.operand.type)
    readers = [use.operation for use in value.uses]
    pointwise = all(op.has_trait(logical.Elementwise) or op.has_trait(logical.Reduction) for op in readers)
    return pointwise and wide.bytes > narrow.bytes


def _is_smaller_before(value: SSAValue) -> bool:
    """Whether what the value is made of is better written than the value."""
    return isinstance(value.owner, logical.WindowOp) or _is_widened_for_pointwise(value)


def with_producers(
    cut: Sequence[Operation], accept: Accept, context: FusionContext, *, through_broadcasts: bool = True
) -> tuple[Operation, ...]:
    """The cut with the ops added that only its pointwise ops read, as long as they `accept`, in text order.

    Also those that it reads through a broadcast, such as the cast of a scale: they are computed once an element.
    What is cloned into every group it feeds is no member of any, and a cast to a narrower type that ends what follows
    another product is left to that product, which then writes fewer bytes.
    """

    def accepted(op: Operation) -> bool:
        return accept(op) and not is_rematerializable(op)

    inside = set(cut)
    stack = [operand for op in cut for operand in op.operands]
    while stack:
        value = stack.pop()
        if not isinstance(value, OpResult) or value.op in inside or value.op not in context.position:
            continue
        only_here = all(
            use.operation in inside and not reads_in_memory(use.operation, use.index) for use in value.uses
        )
        if _is_narrowed_product(value.op, accept, context):
            continue
        wanted = accepted(value.op) or (through_broadcasts and _spreads_computed(value.op, accepted, context))
        if only_here and wanted and context.may_join(value.op, cut[0]):
            inside.add(value.op)
            stack.extend(value.op.operands)
    return tuple(sorted(inside, key=context.position.__getitem__))


def _is_narrowed_product(op: Operation, accept: Accept, context: FusionContext) -> bool:
    """Whether `op` casts what acceptable ops compute of another product to a narrower type."""
    if (
        not isinstance(op, logical.CastOp)
        or element_of(op.result.type).bytes >= element_of(op.operand.type).bytes
    ):
        return False
    stack, seen = [op.operand], set[SSAValue]()
    while stack and len(seen) < _SEARCH_LIMIT:
        value = stack.pop()
        if value in seen or not isinstance(value, OpResult) or value.op not in context.position:
            continue
        seen.add(value)
        if isinstance(value.op, Accumulation):
            return True
        if accept(value.op):
            stack.extend(value.op.operands)
    return False


def _spreads_computed(op: Operation, accept: Accept, context: FusionContext) -> bool:
    """Whether `op` broadcasts what an acceptable op of the function computes for it alone."""
    if not isinstance(op, logical.BroadcastOp) or not isinstance(op.operand, OpResult):
        return False
    source = op.operand.op
    return (
        source in context.position
        and op.operand.has_one_use()
        and accept(source)
        and context.may_join(source, op)
    )
