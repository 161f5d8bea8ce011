"""`fuse-multi-output`: elementwise groups that read the same values, or each other's, become one with several results.

The groups are formed already, so no product, norm or chain loses an op to another group; only whole groups join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass

from aicf.backends.base import Work
from aicf.dialects import logical
from aicf.dialects.emit import GroupOp
from aicf.dialects.types import byte_count, tensor_info
from aicf.passes.support.fusion import (
    MEMBER_LIMIT,
    REFUSAL_LIMIT,
    FusionContext,
    fusion_contexts,
    id_of,
    name_of,
    refusal,
)
from aicf.passes.support.ledger import record
from aicf.passes.support.merging import Merge, members, window
from aicf.passes.support.policy import without_bucket
from aicf.passes.support.verdicts import SAME_TIME, Verdict
from aicf.passes.support.work import target_of, work_of_group
from aicf.policies.kernel_policy import BATCH_INVARIANT

_RESULTS = 4
"""Most results of a group. A backward pass has up to three of one reading (of the input, a scale, a shift) and keeps
one value; with more, each thread writes in so many places that what it saves of one read is lost again."""

_OPERANDS = 16
"""Most operands of a group with several results: an address and a vector of each are in registers at once."""

_WINDOW = 64
"""How far behind a group, in ops, others are looked for: farther on, what is kept for them costs more memory than a
read, and looking everywhere would take time that grows with the square of the program."""


@dataclass(frozen=True)
class FuseMultiOutputPass(ModulePass):
    """Joins groups of pointwise ops, reductions and running sums of one iteration space, two at a time.

    Two are joined where the later reads the earlier (a residual sum that is kept, and the norm of it), or where both
    read a value of that space (an activation and its derivative; a maximum and where it is), if a kernel takes them
    together and is predicted to take no longer than the two, on every target. What others read of both is a result,
    of the whole space or one for each row. Groups stay two where a third reads the one and feeds the other.
    """

    name = "fuse-multi-output"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for context in fusion_contexts(op, target_of(op), formed=True):
            joiner = _Joiner(context)
            for group in list(context.function.body.block.ops):
                if isinstance(group, GroupOp) and group.parent is not None:
                    joiner.join(group)


@dataclass
class _Joiner:
    """The joining of the groups of one function."""

    context: FusionContext
    points: dict[GroupOp, int] = field(default_factory=dict[GroupOp, int])
    """Of groups that were looked at: the points of their iteration space, 0 if they are not elementwise."""
    times: dict[GroupOp, float] = field(default_factory=dict[GroupOp, float])

    def join(self, group: GroupOp) -> None:
        """Lets `group` take in one later group after the other, as long as there is one to take."""
        refused: dict[str, str] = {}
        saved, reasons = 0, dict[str, None]()
        while (merge := self._next(group, refused)) is not None:
            saved += _saved_bytes(merge)
            reasons[_why(merge)] = None
            group = merge.form()
            refused.clear()
        if reasons:
            self._record_joined(group, "; ".join(reasons), refused, saved)
        elif refused:
            self._record(group, "apart", "no other group joins it", refused)

    def _next(self, group: GroupOp, refused: dict[str, str]) -> Merge | None:
        """The first later group that may be joined, those that read `group` before others, and why not others."""
        for merge in self._candidates(group):
            if (reason := self._refusal(merge)) is None:
                return merge
            if len(refused) < REFUSAL_LIMIT and len(merge.results) > 1:
                refused[" + ".join(map(id_of, members(merge.second)))] = reason
        return None

    def _candidates(self, group: GroupOp) -> Iterator[Merge]:
        if not self._points(group):
            return
        readers: list[Merge] = []
        siblings: list[Merge] = []
        late: list[Operation] = []
        shared = {value for value in group.ins if self._is_full(value, group)}
        for op in window(group, _WINDOW):
            reads = any(operand.owner is group for operand in op.operands)
            if isinstance(op, GroupOp) and self._points(op):
                both = (value for value in op.operands if value in shared)
                if reads:
                    readers.append(Merge(group, op, tuple(late)))
                elif any(self._is_full(value, op) for value in both):
                    siblings.append(Merge(group, op, tuple(late)))
            if reads or any(operand.owner in late for operand in op.operands):
                late.append(op)
        yield from readers
        yield from siblings

    def _points(self, group: GroupOp) -> int:
        if group not in self.points:
            self.points[group] = _points_of(work_of_group(group).work)
        return self.points[group]

    def _is_full(self, value: SSAValue, group: GroupOp) -> bool:
        """Whether a value has an element for each point of a group."""
        return tensor_info(value.type).elements == self._points(group)

    # Why two groups stay two

    def _refusal(self, merge: Merge) -> str | None:
        if (reason := self._against_policy(merge)) is not None:
            return reason
        if (through := merge.through) is not None:
            return f"it also reads '{name_of(through)}', which reads the first: each would wait for the other"
        if (count := len(merge.results)) > _RESULTS:
            return f"together they have {count} results that others read, and a group has at most {_RESULTS}"
        if (count := len(merge.operands)) > _OPERANDS:
            return f"together they read {count} values, and a group with several results at most {_OPERANDS}"
        if (count := len(merge.members)) > MEMBER_LIMIT:
            return f"together they are {count} ops, and a group has at most {MEMBER_LIMIT}"
        return self._against_kernels(merge)

    def _against_policy(self, merge: Merge) -> str | None:
        policy, second = self.context.policy, merge.second.id.data
        if not self.context.may_be_one(merge.members):
            return "the policy pins them to different groups"
        if self.context.are_listed(merge.members):
            return None
        if not (policy.fusion.elementwise and policy.fusion.multi_output):
            return "fusion to several results is off by policy"
        if any(id_ in policy.kernels or id_ in policy.records for id_ in (second, without_bucket(second))):
            return f"the policy names '{second}', which would not be an instruction"
        if policy.determinism == BATCH_INVARIANT:
            return "what is one instruction may not depend on the batch, and what pays does"
        return None

    def _against_kernels(self, merge: Merge) -> str | None:
        """The reasons of the kernels, or that the two groups are predicted to take less time."""
        if (reason := refusal(merge.plan, self.context)) is not None:
            return reason
        if self.context.are_listed(merge.members):
            return None
        whole = self.context.verdict(merge.plan).whole_us
        apart = sum(self._us(part) for part in merge.parts)
        return None if whole <= apart * SAME_TIME else f"predicted {whole:.3g} us, and {apart:.3g} us apart"

    def _us(self, group: GroupOp) -> float:
        """Predicted microseconds of a group by itself."""
        if group not in self.times:
            verdict = Verdict.of(work_of_group(group), self.context.target, self.context.policy)
            self.times[group] = verdict.whole_us
        return self.times[group]

    # The ledger

    def _record_joined(self, group: GroupOp, because: str, refused: Mapping[str, str], saved: int) -> None:
        choice = f"one kernel for {len(members(group))} ops, {len(group.results)} results"
        self._record(group, choice, because, refused, {"saved_bytes": IntegerAttr(saved, i64)})

    def _record(
        self,
        group: GroupOp,
        choice: str,
        because: str,
        refused: Mapping[str, str],
        cost: Mapping[str, Attribute] | None = None,
    ) -> None:
        subjects = [group.id.data, *map(id_of, members(group))]
        record(self.context.module, FuseMultiOutputPass.name, subjects, choice, because, refused, cost)


def _why(merge: Merge) -> str:
    """What the two groups gain as one."""
    if any(value.owner is merge.first for value in merge.second.ins):
        return "what is kept of earlier ops is in registers when later ops read it"
    return "what several ops read is read once"


def _points_of(work: Work) -> int:
    """Points of the iteration space of elementwise work, 0 of any other: of products, and of what has no loops."""
    if work.code is None or any(isinstance(op, logical.MatmulOp) for op in work.body.ops):
        return 0
    return prod((*work.code.parallel_sizes, *work.code.reduce_sizes))


def _saved_bytes(merge: Merge) -> int:
    """Bytes that the two groups move and one group does not."""
    apart = sum(_bytes((*part.ins, *part.results)) for part in merge.parts)
    return apart - _bytes((*merge.operands, *merge.results))


def _bytes(values: Iterable[SSAValue]) -> int:
    return sum(byte_count(value.type) for value in values)
