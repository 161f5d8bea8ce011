"""Growing and outlining groups: shared by the fusing passes, which say what may join.

A cluster grows along uses in text order. Only prefixes with few values that others read, mostly one, can be outlined
("cuts"). View ops and splat constants that feed a cluster are cloned into it; they cost nothing there. Products side by
side, which share only what they read, are outlined together with a result each.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from types import MappingProxyType

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue

from aicf.backends.registry import get_kernels
from aicf.dialects import logical
from aicf.dialects.emit import GroupOp, YieldOp
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.types import element_of, tensor_info
from aicf.errors import InvalidIR
from aicf.passes.support.identity import copied_id, derived_id, op_id, sources, value_hint
from aicf.passes.support.matching import is_placed
from aicf.passes.support.peeling import reads_in_memory
from aicf.passes.support.policy import policy_of, with_stems, without_bucket
from aicf.passes.support.structure import Structure, structure_of_body
from aicf.passes.support.templates import WorkTemplate
from aicf.passes.support.verdicts import Verdict
from aicf.passes.support.views import VIEW_OPS
from aicf.passes.support.work import (
    GroupWork,
    argument_attrs,
    origin_of,
    remember_work,
    work_of_body,
)
from aicf.policies.kernel_policy import KernelPolicy

Accept = Callable[[Operation], bool]

_SEARCH_LIMIT = 48
"""How many ops outside a cluster are looked through for ones that could still join: keeps fusion linear."""

MEMBER_LIMIT = 128
"""Most ops of a cluster: beyond it registers spill and compile time grows, and nothing is gained."""

_CANDIDATE_LIMIT = 8
"""How many prefixes of a cluster are tried on the kernels: enough to find a legal one, few enough to stay linear."""


REFUSAL_LIMIT = 8
"""How many ops next to a cluster have the reason why they stay outside in the ledger: keeps that linear too."""


@dataclass
class FusionContext:
    """What the fusing passes know of one function."""

    module: ModuleOp
    function: func.FuncOp
    target: TargetAttr
    policy: KernelPolicy
    position: dict[Operation, int] = field(init=False)
    pinned: dict[str, int] = field(init=False)
    listed: dict[int, list[Operation]] = field(init=False)
    """The ops of each group that the policy lists, in text order."""
    used: set[str] = field(init=False)
    verdicts: dict[Structure, Verdict] = field(default_factory=dict[Structure, Verdict])
    """Of the bodies that were possible groups so far, with what they read."""
    formed: set[Structure] = field(default_factory=set[Structure])
    templates: dict[Structure, WorkTemplate] = field(default_factory=dict[Structure, WorkTemplate])
    """Of the groups that were formed several times."""

    def __post_init__(self) -> None:
        functions = [op for op in self.module.body.block.ops if isinstance(op, func.FuncOp)]
        self.used = {
            op.id.data
            for function in functions
            if not function.is_declaration
            for op in function.body.block.ops
            if isinstance(op, GroupOp)
        }
        self.renumber()
        self.pinned = {id_: place for place, ids in enumerate(self.policy.groups) for id_ in ids}
        self.listed = {}
        for op in self.position if self.pinned else ():
            if op_id(op) is not None and (place := self._pin(op)) is not None:
                self.listed.setdefault(place, []).append(op)

    def renumber(self) -> None:
        """Notes the places of the function's ops again, after some were added or moved."""
        self.position = {op: place for place, op in enumerate(self.function.body.block.ops)}

    def group_id(self, members: Sequence[Operation], free: Collection[str] = ()) -> str:
        """The id of a group: its first source with the bucket of the first member, else the first member's own id.

        With a number where another group is called that already, which is none of `free`. A policy that names a group
        by its first member, as that of a raised program may, is followed.
        """
        own = id_of(members[0])
        src = sources_of(members)
        name = src[0] + own[own.find("@") :] if src and "@" in own and "@" not in src[0] else None
        wanted = own if own in self.policy.kernels else name or (src[0] if src else own)
        numbered = (derived_id(own, str(number)) for number in count(1))
        return next(id_ for id_ in chain((wanted, own), numbered) if id_ in free or id_ not in self.used)

    def copy_id(self, result: str) -> str:
        """The id of a group that copies a result of the function: says its bucket, and is new in the module."""
        function, at, bucket = self.function.sym_name.data.partition("@")
        wanted = f"{result}.copy{at}{bucket}"
        taken = wanted in self.used or any(op_id(op) == wanted for op in self.position)
        return f"{function}.{wanted}" if taken else wanted

    def may_join(self, op: Operation, other: Operation) -> bool:
        """Whether the policy's pinned groups let two ops share a group."""
        return self._pin(op) == self._pin(other)

    def may_be_one(
        self, ops: Iterable[Operation], ids: Mapping[Operation, str] = MappingProxyType({})
    ) -> bool:
        """Whether the policy's pinned groups let all of `ops` share a group; `ids` are those of future copies."""
        return len({self._pin(op, ids.get(op)) for op in ops}) <= 1

    def are_listed(self, ops: Iterable[Operation]) -> bool:
        """Whether all of `ops` are in one of the policy's groups."""
        pins = {self._pin(op) for op in ops}
        return len(pins) == 1 and None not in pins

    def verdict(self, plan: Outline) -> Verdict:
        """What kernels say of the group, asked once of groups that are alike."""
        if (known := self.verdicts.get(plan.structure)) is None:
            known = self.verdicts[plan.structure] = Verdict.of(plan.work, self.target, self.policy)
        return known

    def work(self, plan: Outline) -> GroupWork:
        """The work of a group that is formed: its own if it is the first of its kind, else a copy under its names."""
        if plan.structure not in self.formed:
            self.formed.add(plan.structure)
            return plan.work
        if (known := self.templates.get(plan.structure)) is None:
            known = self.templates[plan.structure] = WorkTemplate.of(plan.body, plan.origins)
        return known.named(plan.id, plan.body)

    def is_wanted(self, plan: Outline, kind: str) -> bool:
        """Whether the policy asks for the group, whatever it costs: by its ops, or by a kernel for it or its kind."""
        keys = (plan.id, without_bucket(plan.id), kind)
        return self.are_listed(plan.members) or any(key in self.policy.kernels for key in keys)

    def why_not_pinned(self, plan: Outline) -> str | None:
        """Why the kernel that the policy pins by the group's id cannot run it, so that a smaller group of that id may
        form; None if it can, if none is pinned, or if the policy lists the group."""
        if self.are_listed(plan.members):
            return None
        keys = (plan.id, without_bucket(plan.id))
        pinned = next((self.policy.kernels[key] for key in keys if key in self.policy.kernels), None)
        kernel = None if pinned is None else get_kernels(self.target.backend.data).get(pinned)
        if kernel is None:
            return None  # a kernel that there is not is an error elsewhere
        work = plan.work.work
        reason = kernel.legal(work, self.target) if work.kind in kernel.kinds else f"it runs no {work.kind}"
        return None if reason is None else f"the policy pins {kernel.id}: {reason}"

    def why_none_of(self, kinds: Collection[str]) -> str | None:
        """Says that no kernel of the target runs instructions of `kinds` at all; None if one may."""
        kernels = get_kernels(self.target.backend.data).values()
        if any(kind in kernel.kinds for kernel in kernels for kind in kinds):
            return None
        return f"the target has no kernel of kind {' or '.join(kinds)}"

    def sink_readers(self, group: GroupOp) -> None:
        """Moves what reads `group`, at once or through others, behind it where it stands in front."""
        late: set[Operation] = {group}
        last: Operation = group
        for op in list(self.function.body.block.ops):
            if op is group:
                break
            if any(operand.owner in late for operand in op.operands):
                late.add(op)
                op.detach()
                self.function.body.block.insert_op_after(op, last)
                last = op
        self.renumber()

    def listed_with(self, op: Operation) -> tuple[Operation, ...]:
        """What the policy lists in one group with `op`, without the feeders that the group gets copies of."""
        place = self._pin(op)
        here = [] if place is None else [each for each in self.listed[place] if each in self.position]
        computing = {each for each in here if not is_feeder(each)}
        return tuple(
            each for each in here if each in computing or any(x.owner in computing for x in each.operands)
        )

    def _pin(self, op: Operation, copy: str | None = None) -> int | None:
        """Which of the policy's groups names the op, or its future copy, by its id with or without the bucket."""
        id_ = copy or id_of(op)
        return self.pinned.get(id_, self.pinned.get(without_bucket(id_)))


def fusion_contexts(
    module: ModuleOp, target: TargetAttr, *, grouped: bool = False
) -> Iterator[FusionContext]:
    """One context per function with a body.

    Args:
        grouped: All is in groups already: what only feeds them has lost its id, so those of a policy are not checked.
    """
    policy = policy_of(module)
    if policy.groups and not grouped:
        _check_groups(policy, module)
    for op in list(module.body.block.ops):
        if isinstance(op, func.FuncOp) and not op.is_declaration:
            yield FusionContext(module, op, target, policy)


def _check_groups(policy: KernelPolicy, module: ModuleOp) -> None:
    """Raises PolicyError for ids in `groups` that no op has, nor a copy of one that a product may get for itself."""
    ids = [identity for op in module.walk() if (identity := op_id(op)) is not None]
    known, copies = with_stems(ids), dict[str, None]()
    if any(id_ not in known for group in policy.groups for id_ in group):
        products = [id_of(op) for op in module.walk() if isinstance(op, logical.MatmulOp) and op_id(op)]
        copies = with_stems(copied_id(id_, product) for product in products for id_ in ids)
    policy.check_groups(known, copies)


def name_of(op: Operation) -> str | None:
    """The id of an op or group; None for what has none, such as the function's return."""
    return op.id.data if isinstance(op, GroupOp) else op_id(op)


def id_of(op: Operation) -> str:
    """The op's id. Raises InvalidIR if `assign-ids` has not run."""
    id_ = op.attributes.get(logical.ID_ATTR)
    if not isinstance(id_, StringAttr):
        raise InvalidIR(f"{op.name} has no {logical.ID_ATTR}; run assign-ids before fusing")
    return id_.data


def sources_of(ops: Sequence[Operation]) -> list[str]:
    """The source ids of several ops, each once, in order."""
    return list(dict.fromkeys(source for op in ops for source in sources(op)))


POINTWISE_ON_SUMS = "only pointwise ops of the product's shape run on its sums"
"""What `pointwise_like` accepts, in words."""


def pointwise_like(matmul: logical.MatmulOp) -> Accept:
    """Accepts the pointwise ops that can run on the accumulator of a product: those of its shape."""
    shape = tensor_info(matmul.result.type).shape

    def accept(op: Operation) -> bool:
        return op.has_trait(logical.Elementwise) and tensor_info(op.results[0].type).shape == shape

    return accept


class Cluster:
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
            self.refused[name] = "it is another instruction already"
        elif isinstance(blocker, Operation):
            self.refused[name] = f"it also reads '{name_of(blocker)}', which stays outside"
        elif not self.context.may_join(op, self.seeds[0]):
            self.refused[name] = "the policy pins them to different groups"
        else:
            self.refused[name] = f"{wanted}, and it is {op.name}"

    def left_out(self, members: Collection[Operation], tried: Mapping[str, str]) -> dict[str, str]:
        """Why ops next to the group that was formed are not in it.

        Args:
            members: Those of the group.
            tried: Why larger groups were refused, by their ops.
        """
        said = {name for label in tried for name in label.split(" + ")}
        cut = [name for op in self.members if op not in members and (name := id_of(op)) not in said]
        because = (
            "with it the group would have more than one result that others read, or a wider one to write"
        )
        return {**tried, **dict.fromkeys(cut[:REFUSAL_LIMIT], because), **self.refused}

    def candidates(self, accept: Accept) -> Iterator[tuple[Operation, ...]]:
        """The prefixes with few results and more than the seeds, largest first, each with its own producers."""
        for length, results in self._cuts[: -_CANDIDATE_LIMIT - 1 : -1]:
            if length > len(self.seeds) and not any(map(_is_widened_for_pointwise, results)):
                cut = self.members[:length]
                spread = with_producers(cut, accept, self.context)
                yield spread
                plain = with_producers(cut, accept, self.context, through_broadcasts=False)
                if plain != spread:
                    yield plain


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
        place = heapq.heappop(self._queue)
        self._readers.discard(place)
        return self._ops[place]

    def add_readers(self, op: Operation, *, of_member: bool) -> None:
        """Adds what reads `op`, which is a member of the cluster or stays outside."""
        for result in op.results:
            for use in result.uses:
                place = self._position.get(use.operation)
                if place is None:
                    continue
                if place not in self._ops:
                    if _is_dead_feeder(use.operation):
                        continue
                    self._ops[place] = use.operation
                    heapq.heappush(self._queue, place)
                if of_member:
                    self._readers.add(place)


def result_count(members: Collection[Operation]) -> int:
    """How many values of the members others read."""
    results = (result for op in members for result in op.results)
    return sum(any(use.operation not in members for use in result.uses) for result in results)


def _is_dead_feeder(op: Operation) -> bool:
    """Whether all groups that the op feeds have their own copy: as a member it would only stand late in the text."""
    return not any(result.uses for result in op.results) and is_feeder(op)


def _is_widened_for_pointwise(value: SSAValue) -> bool:
    """Whether the value is a cast to a wider type that its readers can do themselves: better written narrow."""
    if not isinstance(value, OpResult) or not isinstance(value.op, logical.CastOp):
        return False
    wide, narrow = element_of(value.type), element_of(value.op.operand.type)
    readers = [use.operation for use in value.uses]
    pointwise = all(op.has_trait(logical.Elementwise) or op.has_trait(logical.Reduction) for op in readers)
    return pointwise and wide.bytes > narrow.bytes


def with_producers(
    cut: Sequence[Operation], accept: Accept, context: FusionContext, *, through_broadcasts: bool = True
) -> tuple[Operation, ...]:
    """The cut with the ops added that only its pointwise ops read, as long as they `accept`, in text order.

    Also those that it reads through a broadcast, such as the cast of a scale: they are computed once an element.
    What is cloned into every group it feeds is no member of any.
    """

    def accepted(op: Operation) -> bool:
        return accept(op) and not is_feeder(op)

    inside = set(cut)
    stack = [operand for op in cut for operand in op.operands]
    while stack:
        value = stack.pop()
        if not isinstance(value, OpResult) or value.op in inside or value.op not in context.position:
            continue
        only_here = all(
            use.operation in inside and not reads_in_memory(use.operation, use.index) for use in value.uses
        )
        wanted = accepted(value.op) or (through_broadcasts and _spreads_computed(value.op, accepted, context))
        if only_here and wanted and context.may_join(value.op, cut[0]):
            inside.add(value.op)
            stack.extend(value.op.operands)
    return tuple(sorted(inside, key=context.position.__getitem__))


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


@dataclass(frozen=True)
class Outline:
    """A possible group: its body, and the values that feed it."""

    id: str
    members: tuple[Operation, ...]
    body: Block
    inputs: tuple[SSAValue, ...]
    results: tuple[SSAValue, ...]

    @cached_property
    def origins(self) -> list[tuple[str, bool]]:
        """What each input is: its role, and whether the program updates it."""
        return [origin_of(value) for value in self.inputs]

    @cached_property
    def structure(self) -> Structure:
        """What it computes of what."""
        return *structure_of_body(self.body), *self.origins

    @cached_property
    def work(self) -> GroupWork:
        """What a kernel would have to run."""
        return work_of_body(self.id, self.body, self.origins)


def is_feeder(op: Operation) -> bool:
    """Ops that are cloned into the groups they feed: views, splat constants, and what follows from coordinates."""
    if isinstance(op, logical.ConstantOp):
        return op.is_splat
    return isinstance(op, VIEW_OPS) or any(is_placed(result) for result in op.results)


def outline(
    members: Sequence[Operation], group_id: str, results: Sequence[SSAValue] | None = None
) -> Outline:
    """The body of `members` (in text order) with feeders cloned in front.

    Args:
        results: What the group gives; by default the one value that others read.
    """
    builder = _BodyBuilder(set(members))
    for op in members:
        builder.clone(op)
    if results is None:
        read = (
            r for op in members for r in op.results if any(u.operation not in builder.inside for u in r.uses)
        )
        results = [next(read)]
    builder.block.add_op(YieldOp([builder.values[result, False] for result in results]))
    return Outline(group_id, tuple(members), builder.block, tuple(builder.inputs), tuple(results))


class _BodyBuilder:
    """Clones members and their feeders.

    What feeds a contraction or concatenation is cloned apart ("strided"): there views become operand strides, and a
    constant is an operand in memory, not a scalar of the generated code.
    """

    def __init__(self, inside: set[Operation]):
        self.inside = inside
        self.block = Block()
        self.inputs: list[SSAValue] = []
        self.values: dict[tuple[SSAValue, bool], SSAValue] = {}

    def clone(self, op: Operation, *, strided: bool = False) -> None:
        """Adds a copy of `op` behind copies of what feeds it; `strided` as what it feeds takes it."""
        operands = [
            self._inner(operand, strided or reads_in_memory(op, place))
            for place, operand in enumerate(op.operands)
        ]
        clone = op.clone_without_regions(clone_operands=False)
        clone.operands = operands
        inside = op in self.inside
        if not inside or isinstance(op, logical.ConstantOp):
            # A copied feeder has no identity of its own: the same constant feeds many groups.
            clone.attributes.pop(logical.ID_ATTR, None)
            clone.attributes.pop(logical.SRC_ATTR, None)
        for old, new in zip(op.results, clone.results, strict=True):
            new.name_hint = old.name_hint
            for key in (False, True) if inside else (strided,):
                self.values[old, key] = new
        self.block.add_op(clone)

    def _inner(self, value: SSAValue, strided: bool) -> SSAValue:
        if (value, strided) not in self.values:
            op = value.op if isinstance(value, OpResult) and value.op not in self.inside else None
            in_memory = strided and isinstance(op, logical.ConstantOp)
            if op is not None and is_feeder(op) and not in_memory:
                self.clone(op, strided=strided)
            else:
                self._add_input(value)
        return self.values[value, strided]

    def _add_input(self, value: SSAValue) -> None:
        if value in self.inputs:
            argument: SSAValue = self.block.args[self.inputs.index(value)]
        else:
            argument = self.block.insert_arg(value.type, len(self.block.args))
            argument.name_hint = argument_hint(value)
            self.inputs.append(value)
        for key in (False, True):
            is_constant = isinstance(value, OpResult) and is_feeder(value.op)
            if key or not is_constant:
                self.values[value, key] = argument


def argument_hint(value: SSAValue) -> str | None:
    """Interface values and constants are called by their name and id, whatever the text called them."""
    if isinstance(value, OpResult) and isinstance(value.op, logical.ConstantOp):
        return value_hint(id_of(value.op))
    function = value.owner.parent_op() if isinstance(value, BlockArgument) else None
    if not isinstance(value, BlockArgument) or not isinstance(function, func.FuncOp):
        return value.name_hint
    name = argument_attrs(function, value.index).get(logical.NAME_ATTR)
    return value.name_hint if name is None else value_hint(name.data)


def form_group(plan: Outline, context: FusionContext) -> GroupOp:
    """Replaces the members by one group at the place of the last one."""
    types = [result.type for result in plan.results]
    group = GroupOp(plan.id, sources_of(plan.members), plan.inputs, Region(plan.body), types)
    context.used.add(plan.id)
    last = plan.members[-1]
    group.location = last.location
    block = last.parent
    assert block is not None
    block.insert_op_after(group, last)
    remember_work(group, context.work(plan))
    for old, new in zip(plan.results, group.results, strict=True):
        new.name_hint = old.name_hint
        old.replace_uses_with_if(new, lambda use: use.operation not in plan.members)
    context.position[group] = context.position[last]
    for op in reversed(plan.members):
        block.erase_op(op)
        del context.position[op]
    if len(group.results) > 1:
        context.sink_readers(group)
    return group


def first_legal(
    cuts: Iterable[Sequence[Operation]], context: FusionContext
) -> tuple[Outline | None, dict[str, str]]:
    """The first of `cuts` that a kernel accepts, and why the ones before it were refused."""
    refused: dict[str, str] = {}
    for cut in cuts:
        plan = outline(cut, context.group_id(cut))
        if (reason := refusal(plan, context)) is None:
            return plan, refused
        refused[" + ".join(id_of(op) for op in cut)] = reason
    return None, refused


def refusal(
    plan: Outline,
    context: FusionContext,
    kinds: Collection[str] | None = None,
    loss: str | None = None,
) -> str | None:
    """Why no kernel of the target runs the group as one of `kinds` (any by default), or why it should not; else None.

    `loss` is what the fusion costs beyond the group itself: enough to refuse it where kernels say what parts cost.
    """
    verdict = context.verdict(plan)
    kind = verdict.work.kind
    if kinds is not None and kind not in kinds:
        return f"its body is {kind}, not {' or '.join(kinds)}"
    if not verdict.legal:
        return "; ".join(f"{k}: {why}" for k, why in verdict.rejected.items()) or (
            "no kernel of the target has its kind"
        )
    if (reason := context.why_not_pinned(plan)) is not None:
        return reason
    return None if context.is_wanted(plan, kind) else verdict.against(loss)


def left_behind(largest: Iterable[Operation], members: Collection[Operation]) -> str | None:
    """Says that ops which a product could take along by itself are not among `members`; None if all are."""
    left = next((op for op in largest if op not in members), None)
    return (
        None if left is None else f"'{id_of(left)}' would be left behind, which a product alone takes along"
    )
