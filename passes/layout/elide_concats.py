"""`elide-concats`: parts of a concatenation are written where they belong, by the instructions that compute them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from math import prod

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, Operation, Region, SSAValue
from xdsl.passes import ModulePass

from aicf.dialects import logical
from aicf.dialects.emit import GroupOp
from aicf.dialects.types import element_of
from aicf.passes.bodies.buffer_aliasing import alias_of
from aicf.passes.bodies.outlining import id_of
from aicf.passes.bodies.view_folding import yielded
from aicf.passes.bodies.views import is_rearrangement
from aicf.passes.bodies.workload import argument_attrs, remember_workload, target_of, workload_of
from aicf.passes.fusion.forming import FusionContext, fusion_contexts
from aicf.passes.fusion.profitability import SAME_TIME
from aicf.passes.layout.alias_candidates import AliasCandidate, Copy, Part, parts_of_group
from aicf.passes.support.identity import derived_id, op_id, sources
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.policy import without_bucket
from aicf.passes.support.works_on import GROUPS
from aicf.policies.kernel_policy import BATCH_INVARIANT

_REFUSAL_LIMIT = 8
"""How many parts that are copied have the reason in the ledger: a concatenation may have thousands."""


@dataclass(frozen=True)
class ElideConcatsPass(ModulePass):
    """Takes concatenations out of their groups where instructions can write the parts into the result.

    What is left is a `logical.concat` outside of groups, which is a view like the reshapes there: `lower-to-emit` makes
    one buffer of it. What no instruction of the program computes, or what must lie elsewhere, a group copies there,
    neighbouring parts together. The kernels of all that write or read a part have to be legal with the strides that
    they see then, and to lose no more, as predicted, than a copy of the part takes.
    """

    name = "elide-concats"
    works_on = GROUPS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for context in fusion_contexts(op, target_of(op), grouped=True):
            for group in list(context.function.body.block.ops):
                if isinstance(group, GroupOp) and (concat := _concat_of(group)) is not None:
                    _Elision(group, concat, context).run()


def _concat_of(group: GroupOp) -> logical.ConcatOp | None:
    """The concatenation that is all a group does."""
    return next((op for op in group.body.block.ops if isinstance(op, logical.ConcatOp)), None)


@dataclass
class _Elision:
    """The decision about one concatenation."""

    group: GroupOp
    concat: logical.ConcatOp
    context: FusionContext
    parts: list[Part] = field(init=False)
    labels: list[str] = field(init=False)
    refused: dict[int, str] = field(default_factory=dict[int, str])

    def __post_init__(self) -> None:
        self.parts = parts_of_group(self.group, self.concat)
        names = [_name_of(part) for part in self.parts]
        self.labels = [
            name if names.count(name) == 1 else f"{name} (part {index})" for index, name in enumerate(names)
        ]

    def run(self) -> None:
        """Rewrites the group, or keeps it; the ledger says why."""
        reason = self._kept_by_policy()
        trial = None if reason is not None else self._largest()
        if trial is not None:
            reason = self._against(trial) if trial.parts else "none of its parts can be written in place"
        if reason is not None or trial is None:
            self._record("a copy of its parts", reason or "")
            return
        self._rewrite(trial)
        choice = f"{len(trial.parts)} of {len(self.parts)} parts written in place"
        because = f"the kernels are legal there; {_bytes(trial.parts)} bytes are not copied"
        self._record(choice, because, [group.id.data for group in trial.works])

    def _record(self, choice: str, because: str, others: Sequence[str] = ()) -> None:
        told = sorted(self.refused.items())[:_REFUSAL_LIMIT]
        rejected = {self.labels[index]: why for index, why in told}
        subjects = [self.group.id.data, *others]
        record_decision(self.context.module, ElideConcatsPass.name, subjects, choice, because, rejected)

    def _kept_by_policy(self) -> str | None:
        policy, id_ = self.context.policy, self.group.id.data
        if not policy.fusion.concat:
            return "fusion of concatenations is off by policy (fusion.concat)"
        own = op_id(self.concat) or id_
        names = (id_, without_bucket(id_), own, without_bucket(own), workload_of(self.group).work.kind)
        pinned = any(name in policy.kernels or name in self.context.pinned for name in names)
        return "the policy names it in its kernels or groups, so it is an instruction" if pinned else None

    # Which parts

    def _largest(self) -> AliasCandidate:
        """The most parts that can be written in place, each for itself worth it."""
        seen: set[SSAValue] = set()
        for part in self.parts:
            if (reason := _own_reason(part, seen)) is not None:
                self.refused[part.index] = reason
            if part.source is not None:
                seen.add(part.source)
        while True:
            left = tuple(part for part in self.parts if part.index not in self.refused)
            trial = AliasCandidate(self.group, left, self.context)
            more = trial.refused() or self._too_dear(trial)
            if not more:
                return trial
            self.refused |= more

    def _too_dear(self, trial: AliasCandidate) -> dict[int, str]:
        if self._may_not_weigh:
            return {}
        lost, copies = trial.lost_us(), {part.index: trial.copy_us(Copy((part,))) for part in trial.parts}
        return {
            index: f"writing it in place is predicted to cost {lost[index]:.3g} us more, and copying it {copy:.3g} us"
            for index, copy in copies.items()
            if lost[index] > copy * SAME_TIME
        }

    def _against(self, trial: AliasCandidate) -> str | None:
        """That copying all parts is predicted to take less than writing some in place and copying the others."""
        if self._may_not_weigh:
            return None
        before = trial.us(workload_of(self.group)) + sum(trial.us(workload_of(g)) for g in trial.works)
        after = sum(trial.us(work) for work in trial.works.values())
        after += sum(trial.copy_us(run) for run in self._runs() if isinstance(run, Copy))
        return (
            None
            if after <= before * SAME_TIME
            else f"predicted {before:.3g} us with copies and {after:.3g} us in place"
        )

    @property
    def _may_not_weigh(self) -> bool:
        """Times depend on the batch, so what is one instruction may not depend on them."""
        return self.context.policy.determinism == BATCH_INVARIANT

    # The rewrite

    def _runs(self) -> Iterator[Part | Copy]:
        """The parts in order, neighbours that are copied as one."""
        for refused, run in groupby(self.parts, lambda part: part.index in self.refused):
            parts = tuple(run)
            yield from (Copy(parts),) if refused else parts

    def _rewrite(self, trial: AliasCandidate) -> None:
        block = self.context.function.body.block
        operands = [self._copied(run) if isinstance(run, Copy) else self._moved(run) for run in self._runs()]
        concat = logical.ConcatOp(operands, _axis(self.concat))
        concat.attributes |= self.concat.attributes
        concat.location = self.group.location
        concat.result.name_hint = self.group.results[0].name_hint
        block.insert_op_before(concat, self.group)
        self.group.results[0].replace_all_uses_with(concat.result)
        block.erase_op(self.group)
        for group, work in trial.works.items():
            remember_workload(group, work)

    def _moved(self, part: Part) -> SSAValue:
        """The part, after clones of its views in the function."""
        assert part.source is not None
        value = part.source
        for op in part.chain:
            clone = op.clone({op.operands[0]: value})
            self._insert(clone)
            value = clone.results[0]
        return value

    def _copied(self, copy: Copy) -> SSAValue:
        ids = (derived_id(self.group.id.data, suffix) for suffix in _suffixes(copy.parts[0].start))
        known = {op_id(op) for op in self.context.position}
        id_ = next(id_ for id_ in ids if id_ not in self.context.used and id_ not in known)
        self.context.used.add(id_)
        src = sources(self.concat) or [id_of(self.concat)]
        body = copy.body()
        group = GroupOp(id_, src, copy.sources, Region(body), [yielded(body)[0].type])
        group.location = self.group.location
        self._insert(group)
        return group.results[0]

    def _insert(self, op: Operation) -> None:
        self.context.function.body.block.insert_op_before(op, self.group)


def _axis(op: logical.ConcatOp) -> int:
    return op.axis.value.data


def _copies(op: logical.ConcatOp) -> bool:
    """Whether a group copies some parts of a concatenation, or of one in it."""
    owners = [part.owner for part in op.parts]
    return any(
        _copies(owner)
        if isinstance(owner, logical.ConcatOp)
        else isinstance(owner, GroupOp) and _only_moves(owner)
        for owner in owners
    )


def _only_moves(group: GroupOp) -> bool:
    """Whether no op of a group is one of the program's."""
    return all(op_id(op) is None for op in group.body.block.ops)


def _bytes(parts: Sequence[Part]) -> int:
    return sum(prod(part.view.shape) * element_of(part.source.type).bytes for part in parts if part.source)


def _suffixes(start: int) -> Iterator[str]:
    """What the copy of parts from `start` along the axis on may be called; `raise-emit` knows it by that."""
    yield f"copy{start}"
    yield from (f"copy{start}_{number}" for number in count(1))


def _name_of(part: Part) -> str:
    """The name of a part in the ledger: that of the instruction or argument that it comes from."""
    source = part.source
    if isinstance(source, BlockArgument):
        function = source.owner.parent_op()
        assert isinstance(function, func.FuncOp)
        return argument_attrs(function, source.index)[logical.NAME_ATTR].data
    owner = None if source is None else source.owner
    if isinstance(owner, GroupOp) and len(owner.results) > 1:
        index = next(index for index, result in enumerate(owner.results) if result is source)
        owner = yielded(owner.body.block)[index].owner
    if isinstance(owner, GroupOp):
        return owner.id.data
    return (op_id(owner) if isinstance(owner, Operation) else None) or f"part {part.index}"


def _own_reason(part: Part, seen: set[SSAValue]) -> str | None:
    """Why a part has to be copied, whatever the kernels are."""
    source = part.source
    if source is None or isinstance(source.owner, logical.ConstantOp):
        return "it is a constant, which no instruction writes"
    if isinstance(source, BlockArgument):
        return "it is an input or parameter, which no instruction writes"
    if not all(is_rearrangement(op) for op in part.chain):
        return "it is a part or a repetition of a computed value, and instructions write values whole"
    if isinstance(source.owner, logical.ConcatOp) and part.chain:
        return "it is a reshaped or transposed concatenation: concatenate what it is made of"
    if (
        isinstance(source.owner, logical.ConcatOp)
        and _axis(source.owner) == part.axis
        and _copies(source.owner)
    ):
        return "it is a concatenation along the same axis, parts of which are copied: concatenate them all at once"
    if source in seen:
        return "the concatenation has it twice, and it is written once"
    if any(isinstance(op, func.ReturnOp) for op in _readers_through_views(source)):
        return "the program returns it too, and what it returns has memory of its own"
    if alias_of(source).whole is not source:
        return "it is written in place into another concatenation"
    return None


def _readers_through_views(value: SSAValue) -> Iterator[Operation]:
    for use in value.uses:
        if is_rearrangement(use.operation):
            yield from _readers_through_views(use.operation.results[0])
        else:
            yield use.operation
