"""Forming groups: what the fusing passes know of a function, and which of the possible groups a kernel takes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from types import MappingProxyType

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, Region

from aicf.backends.registry import get_kernels
from aicf.dialects import logical
from aicf.dialects.emit import PREPARE, GroupOp
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.kinds import may_run
from aicf.passes.bodies.matching import is_iota_like
from aicf.passes.bodies.outlining import Outline, id_of, is_rematerializable, sources_of
from aicf.passes.bodies.products import Product
from aicf.passes.bodies.structure import Structure, structure_of_workload
from aicf.passes.bodies.workload import (
    GroupWorkload,
    remember_workload,
    rename_group,
)
from aicf.passes.fusion.attention.position_masks import mask_ids
from aicf.passes.fusion.moment_copies import copy_listed, moment_ids
from aicf.passes.fusion.profitability import Profitability
from aicf.passes.fusion.why_not_fusible import why_no_kind
from aicf.passes.fusion.workload_templates import WorkTemplate
from aicf.passes.support.identity import copied_id, derived_id, op_id, part_of, sources
from aicf.passes.support.policy import policy_of, with_stems, without_bucket
from aicf.policies.kernel_policy import ATTENTION, AUTO, MATH, KernelPolicy


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
    listed_results: frozenset[Operation] = field(init=False)
    """Reshapes by which groups that the policy lists give what others read: they feed nobody else by a copy."""
    begins: list[str] = field(init=False)
    """By which op each group that the policy lists has its name, as an id of the policy: the first that does not follow
    from coordinates. One that does is copied to its readers, or is a group of its own before others take it in."""
    named: dict[str, int] = field(init=False)
    """Sources, to the first of the policy's groups that begins with an op of theirs: the one of their name. Empty where
    the policy has kernels, whose keys are names."""
    used: set[str] = field(init=False)
    profitabilities: dict[Structure, Profitability] = field(default_factory=dict[Structure, Profitability])
    """Of the bodies that were possible groups so far, with what they read."""
    elsewhere: dict[Structure, Profitability] = field(default_factory=dict[Structure, Profitability])
    """Of the work of formed groups, where values would lie elsewhere."""
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
        self.pinned = {id_: number for number, ids in enumerate(self.policy.groups) for id_ in ids}
        self.listed = {}
        for op in self.position if self.pinned else ():
            if op_id(op) is not None and (number := self._pin(op)) is not None:
                self.listed.setdefault(number, []).append(op)
        self.listed_results = frozenset(filter(self._is_listed_result, chain(*self.listed.values())))
        placed = self._placed_ids() if self.pinned else set[str]()
        self.begins = [next((id_ for id_ in ids if id_ not in placed), ids[0]) for ids in self.policy.groups]
        self.named = self._named_by_sources() if self.pinned and not self.policy.kernels else {}

    def _is_listed_result(self, op: Operation) -> bool:
        """Whether the policy lists a reshape with what it reads and not with all that read it."""
        if not isinstance(op, logical.ReshapeOp) or not isinstance(source := op.operand.owner, Operation):
            return False
        if op_id(source) is None or not self.are_listed((source, op)):
            return False
        readers = (use.operation for use in op.result.uses)
        return any(op_id(each) is None or self._pin(each) != self._pin(op) for each in readers)

    def _placed_ids(self) -> set[str]:
        """The ids, also without their buckets, of what follows from coordinates, in groups or not."""
        ops = (op for op in self.function.walk() if any(map(is_iota_like, op.results)))
        return {name for op in ops if (id_ := op_id(op)) for name in (id_, without_bucket(id_))}

    def _named_by_sources(self) -> dict[str, int]:
        begins = {begin: number for number, begin in enumerate(self.begins)}
        named: dict[str, int] = {}
        for op in self.function.walk():
            id_ = op_id(op) or ""
            number = begins.get(id_, begins.get(without_bucket(id_)))
            if number is not None:
                first = sources(op)[0]
                named[first] = min(number, named.get(first, number))
        return named

    def renumber(self) -> None:
        """Notes the positions of the function's ops again, after some were added or moved."""
        self.position = {op: index for index, op in enumerate(self.function.body.block.ops)}

    def group_id(self, members: Sequence[Operation], free: Collection[str] = ()) -> str:
        """The id of a group: its first source with the bucket of the first member, else the first member's own id.

        A number follows where another group is called that already, which is none of `free`. A policy that names a
        group by its first member, as that of a raised program may, is followed. Of several groups that a policy without
        kernels lists and that begin with ops of one source, the first has its name; a part without the first op of its
        group is called by its own id, and so is what `@prepare` computes: the source's name is that of what runs at
        every call.
        """
        own = id_of(members[0])
        is_named = self.function.sym_name.data != PREPARE and self._is_named(members)
        src = sources_of(members) if is_named else []
        name = src[0] + own[own.find("@") :] if src and "@" in own and "@" not in src[0] else None
        is_key = own in self.policy.kernels or own in self.policy.layouts
        wanted = own if is_key else name or (src[0] if src else own)
        numbered = (derived_id(own, str(number)) for number in count(1))
        return next(id_ for id_ in chain((wanted, own), numbered) if id_ in free or id_ not in self.used)

    def _is_named(self, members: Sequence[Operation]) -> bool:
        """Whether the group that the policy lists with `members`, if it lists one, begins among them, and has the name
        of the first one's source."""
        if (group := self._pin(members[0])) is None:
            return True
        first = self.begins[group]
        begins = any(first in (id_of(op), without_bucket(id_of(op))) for op in members)
        return begins and self.named.get(sources(members[0])[0], group) == group

    def rename(self, group: GroupOp, name: str) -> None:
        """Calls a group otherwise, with what is called after it."""
        self.used.discard(group.id.data)
        self.used.add(name)
        rename_group(group, name)

    def copy_id(self, result: str) -> str:
        """The id of a group that copies a result of the function: says its bucket, and is new in the module."""
        function, at, bucket = self.function.sym_name.data.partition("@")
        wanted = f"{result}.copy{at}{bucket}"
        taken = wanted in self.used or any(op_id(op) == wanted for op in self.position)
        return f"{function}.{wanted}" if taken else wanted

    def may_join(self, op: Operation, other: Operation) -> bool:
        """Whether two ops may share a group: the policy's pinned groups let them, and so do their micro-batches.

        What two of those have in common would keep the values of both in memory, which they are there to avoid.
        """
        return self._group_and_part(op) == self._group_and_part(other)

    def may_be_one(
        self, ops: Iterable[Operation], ids: Mapping[Operation, str] = MappingProxyType({})
    ) -> bool:
        """`may_join` of all of `ops`; `ids` are those of future copies."""
        return len({self._group_and_part(op, ids.get(op)) for op in ops}) <= 1

    def why_not_fusible(
        self, ops: Iterable[Operation], ids: Mapping[Operation, str] = MappingProxyType({})
    ) -> str:
        """Why `may_be_one` refuses."""
        by_policy = len({self._pin(op, ids.get(op)) for op in ops}) > 1
        return (
            OTHER_GROUPS
            if by_policy
            else "they are of different micro-batches, which run one after the other"
        )

    def are_listed(
        self, ops: Iterable[Operation], ids: Mapping[Operation, str] = MappingProxyType({})
    ) -> bool:
        """Whether all of `ops` are in one of the policy's groups; `ids` are those of future copies."""
        pins = {self._pin(op, ids.get(op)) for op in ops}
        return len(pins) == 1 and None not in pins

    def profitability(self, plan: Outline) -> Profitability:
        """What kernels say of the group, asked once of groups that are alike."""
        if (known := self.profitabilities.get(plan.structure)) is None:
            known = self.profitabilities[plan.structure] = Profitability.of(
                plan.work, self.target, self.policy
            )
        return known

    def profitability_of(self, work: GroupWorkload) -> Profitability:
        """What kernels say of the work of a formed group, asked once of all that is alike."""
        key = (*structure_of_workload(work.work), work.no_code)
        if (known := self.elsewhere.get(key)) is None:
            known = self.elsewhere[key] = Profitability.of(work, self.target, self.policy)
        return known

    def work(self, plan: Outline) -> GroupWorkload:
        """The work of a group that is formed: its own if it is the first of its kind, else a copy under its names."""
        if plan.structure not in self.formed:
            self.formed.add(plan.structure)
            return plan.work
        if (known := self.templates.get(plan.structure)) is None:
            known = self.templates[plan.structure] = WorkTemplate.of(plan.body, plan.origins)
        return known.named(plan.id, plan.body)

    def is_wanted(self, plan: Outline, kind: str) -> bool:
        """Whether the policy asks for the group, whatever it costs: by its ops, or by a kernel for it or its kind, or
        by whose kernels run attention."""
        keys = (plan.id, without_bucket(plan.id), kind)
        if kind == ATTENTION and self.policy.attention not in (AUTO, MATH):
            return True
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
        work = plan.work.under(self.policy).work
        if work.kind not in kernel.kinds and may_run(kernel.kinds, work.kind):
            return None  # when layouts are decided it becomes what that kernel runs
        reason = (
            kernel.legal(work, self.target)
            if work.kind in kernel.kinds
            else f"it does not run instructions of kind {work.kind}"
        )
        return (
            None
            if reason is None
            else f"the policy pins kernel {kernel.id} for it, which cannot run it: {reason}"
        )

    def why_none_of(self, kinds: Collection[str]) -> str | None:
        """Says that no kernel of the target runs instructions of `kinds` at all; None if one may."""
        kernels = get_kernels(self.target.backend.data).values()
        if any(kind in kernel.kinds for kernel in kernels for kind in kinds):
            return None
        return f"target {self.target.backend.data} has no kernel of kind {' or '.join(kinds)}"

    def sink_readers(self, group: GroupOp) -> None:
        """Moves the users of `group`, direct and indirect, after it where they stand before it."""
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
        if last is not group:
            self.renumber()

    def listed_with(self, op: Operation) -> tuple[Operation, ...]:
        """What the policy lists in one group with `op`, without the producers that the group gets copies of: in the
        order of the list, as another pass may have merged the group, unless an op would stand before its producer."""
        group = self._pin(op)
        if group is None:
            return ()
        here = [each for each in self.listed[group] if each in self.position]
        computing = {each for each in here if not is_rematerializable(each)}
        found = [
            each for each in here if each in computing or any(x.owner in computing for x in each.operands)
        ]
        place = {name: number for number, name in enumerate(self.policy.groups[group])}

        def listed_at(op: Operation) -> int:
            return place.get(id_of(op), place.get(without_bucket(id_of(op)), len(place)))

        in_order = sorted(found, key=listed_at)
        return tuple(in_order if _are_in_order(in_order) else found)

    def _group_and_part(self, op: Operation, copy: str | None = None) -> tuple[int | None, str | None]:
        """Ops of one place may share a group."""
        return self._pin(op, copy), part_of(copy or id_of(op))

    def _pin(self, op: Operation, copy: str | None = None) -> int | None:
        """Which of the policy's groups names the op, or its future copy, by its id with or without the bucket."""
        id_ = copy or id_of(op)
        return self.pinned.get(id_, self.pinned.get(without_bucket(id_)))


def _are_in_order(ops: Sequence[Operation]) -> bool:
    """Whether each op stands after those whose results it reads."""
    waiting = set(ops)
    for op in ops:
        if any(x.owner in waiting for x in op.operands):
            return False
        waiting.remove(op)
    return True


OTHER_GROUPS = "the policy's groups keep them in different instructions"
"""The reason against ops as one that a policy keeps apart."""

NO_GAIN = "fusing them is illegal or not predicted to be faster on this target"
"""The reason in short where every group that was tried has its own."""


def fusion_contexts(
    module: ModuleOp, target: TargetAttr, *, grouped: bool = False
) -> Iterator[FusionContext]:
    """One context per function with a body, which gets the copies that the policy lists beside convolutions.

    Args:
        grouped: All is in groups already: what only feeds them has lost its id, so those of a policy are not checked.
    """
    policy = policy_of(module)
    functions = [op for op in module.body.block.ops if isinstance(op, func.FuncOp) and not op.is_declaration]
    if policy.groups and not grouped:
        known = _check_groups(policy, module)
        for function in functions:
            copy_listed(policy, function, known)
    for function in functions:
        yield FusionContext(module, function, target, policy)


def _check_groups(policy: KernelPolicy, module: ModuleOp) -> Collection[str]:
    """The ids of the module's ops, with and without buckets.

    Raises PolicyError for ids in `groups` that no op has, nor a copy of one that a product or a convolution may get for
    itself, nor one of a cast that any group may, nor what a mask may.
    """
    ids = [identity for op in module.walk() if (identity := op_id(op)) is not None]
    known, copies = with_stems(ids), dict[str, None]()
    if any(id_ not in known for group in policy.groups for id_ in group):
        products = [id_of(op) for op in module.walk() if isinstance(op, Product) and op_id(op)]
        casts = [id_of(op) for op in module.walk() if isinstance(op, logical.CastOp) and op_id(op)]
        copies = with_stems(copied_id(id_, product) for product in products for id_ in ids)
        copies |= with_stems(copied_id(cast, reader) for cast in casts for reader in ids)
        copies |= with_stems(mask_ids(module, ids))
        copies |= with_stems(moment_ids(module, ids))
    policy.check_groups(known, copies)
    return known


def form_group(plan: Outline, context: FusionContext) -> GroupOp:
    """Replaces the members by one group at the position of the last one."""
    types = [result.type for result in plan.results]
    group = GroupOp(plan.id, sources_of(plan.members), plan.inputs, Region(plan.body), types)
    context.used.add(plan.id)
    last = plan.members[-1]
    group.location = last.location
    block = last.parent
    assert block is not None
    block.insert_op_after(group, last)
    remember_workload(group, context.work(plan))
    inside = set(plan.members)
    for old, new in zip(plan.results, group.results, strict=True):
        new.name_hint = old.name_hint
        old.replace_uses_with_if(new, lambda use: use.operation not in inside)
    context.position[group] = context.position[last]
    for op in reversed(plan.members):
        block.erase_op(op)
        del context.position[op]
    if len(group.results) > 1:
        context.sink_readers(group)
    return group


def refusal(
    plan: Outline,
    context: FusionContext,
    kinds: Collection[str] | None = None,
    loss: str | None = None,
) -> str | None:
    """Why no kernel of the target runs the group as one of `kinds` (any by default), or why it should not; else None.

    `loss` is what the fusion costs beyond the group itself: enough to refuse it where kernels say what parts cost.
    """
    profitability = context.profitability(plan)
    kind = profitability.work.kind
    if kinds is not None and kind not in kinds:
        return why_no_kind(plan, kinds)
    if not profitability.legal:
        return "; ".join(f"{k}: {why}" for k, why in profitability.rejected.items()) or (
            f"target {context.target.backend.data} has no kernel of kind {kind}"
        )
    if (reason := context.why_not_pinned(plan)) is not None:
        return reason
    return None if context.is_wanted(plan, kind) else profitability.against(loss)


def left_behind(largest: Iterable[Operation], members: Collection[Operation]) -> str | None:
    """Says that ops which a product could take along by itself are not among `members`; None if all are."""
    left = next((op for op in largest if op not in members), None)
    return None if left is None else f"it leaves out '{id_of(left)}', which is fused with the product alone"
