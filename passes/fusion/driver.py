"""The driver of the fusing passes: match, candidates, legality, profitability, form, record.

A pattern is a pass that says what it matches and which groups it would form of a match; the driver asks the kernels,
forms the first group that is legal and predicted to pay, and writes the decision to the ledger.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Literal, TypeAlias, TypeVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation
from xdsl.passes import ModulePass

from aicf.passes.bodies.outlining import Outline, id_of
from aicf.passes.bodies.workload import target_of
from aicf.passes.fusion.forming import NO_GAIN, FusionContext, form_group, fusion_contexts, refusal
from aicf.passes.fusion.profitability import SAME_TIME, slower
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.works_on import FUNCTIONS

Stage: TypeAlias = Literal["updates", "before_views", "after_views"]
"""When a pattern runs: first of all in a training step, while views are ops, or when those that move data are
instructions."""

Match = TypeVar("Match")


@dataclass(frozen=True)
class Candidate:
    """A group that a pattern would form.

    Args:
        label: What the ledger calls it where it is refused.
        plan: Its body; None if there is no such group, for the reason `obstacle`.
        kinds: The kinds of instructions that it may be; None for any.
        loss: What the fusion costs beyond the group itself, which refuses it where kernels say what the parts cost.
        obstacle: Why it is illegal whatever the kernels say; None if it may be legal.
        unfused_us: Predicts the microseconds of its parts; by default the kernels do, where they can.
    """

    label: str
    plan: Outline | None
    kinds: Collection[str] | None = None
    loss: str | None = None
    obstacle: str | None = None
    unfused_us: Callable[[], float] | None = None

    def refusal(self, context: FusionContext) -> str | None:
        """Why the group is not formed: illegal, or predicted to take longer than its parts; None if it is."""
        if self.obstacle is not None:
            return self.obstacle
        assert self.plan is not None, "a group without a body says why"
        if (reason := refusal(self.plan, context, self.kinds, self.loss)) is not None:
            return reason
        if self.unfused_us is None or context.are_listed(self.plan.members):
            return None
        fused_us, unfused_us = context.profitability(self.plan).fused_us, self.unfused_us()
        return None if fused_us <= unfused_us * SAME_TIME else slower(fused_us, unfused_us)


def label(ops: Iterable[Operation]) -> str:
    """What the ledger calls a group of these ops."""
    return " + ".join(map(id_of, ops))


@dataclass(frozen=True)
class Decision:
    """What the ledger says of a formed group.

    Args:
        choice: What was decided, in a few words.
        because: Why.
        cost: Figures, with the unit in the key.
    """

    choice: str
    because: str
    cost: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])


@dataclass(frozen=True)
class FusionPattern(ModulePass, Generic[Match]):
    """A pass that groups the ops of a function which match a pattern. One file a pattern; it registers by being there.

    Attributes:
        stage: When it runs.
        benefit: Patterns of a stage run in the order of their benefits, highest first.
        switch: The setting of the policy's `fusion` that turns the pattern off; None if it has none.
        kinds: The kinds of instructions that it forms; without a kernel of any, nothing is tried. Empty for any kind.
    """

    works_on = FUNCTIONS
    stage: ClassVar[Stage]
    benefit: ClassVar[int]
    switch: ClassVar[str | None] = None
    kinds: ClassVar[tuple[str, ...]] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for context in fusion_contexts(op, target_of(op)):
            for match in self.matches(context):
                self._fuse(match, context)
            self.clean_up(context)

    @abstractmethod
    def matches(self, context: FusionContext) -> Iterator[Match]:
        """What matches, in text order. A match is dealt with before the next one is asked for, so its ops may be gone
        by then."""

    def candidates(self, match: Match, context: FusionContext) -> Iterator[Candidate]:
        """The groups to try, those that gain most first. For patterns that form one group of a match; others override
        `choose`."""
        return iter(())

    def obstacle(self, match: Match, context: FusionContext) -> str | None:
        """Why no group of the match can be legal, so that none is tried; None if one may be."""
        return None

    @abstractmethod
    def decision(self, match: Match, plan: Outline, tried: Mapping[str, str]) -> Decision:
        """What the ledger says of the group `plan`; `tried` says why other groups were not formed."""

    def subjects(self, match: Match) -> Sequence[str]:
        """The ids that the ledger names where nothing is fused; without any that is not recorded."""
        return ()

    def left_out(self, match: Match, plan: Outline, tried: Mapping[str, str]) -> Mapping[str, str]:
        """Why neighbours of the group `plan` are not in it; by default why larger groups are refused."""
        return tried

    def choose(self, match: Match, context: FusionContext, tried: dict[str, str]) -> Iterable[Outline] | None:
        """The groups to form of a match, mostly one, each outlined when the ones before it are formed; None if none is
        legal. `tried` takes why others are not formed."""
        plan = first_formed(self.candidates(match, context), context, tried)
        return None if plan is None else (plan,)

    def form(
        self, match: Match, plans: Iterable[Outline], tried: Mapping[str, str], context: FusionContext
    ) -> None:
        """Forms the groups and records each."""
        for plan in plans:
            subjects, decision = [*map(id_of, plan.members)], self.decision(match, plan, tried)
            left_out = self.left_out(match, plan, tried)
            group = form_group(plan, context)
            self.record(context, [group.id.data, *subjects], decision, left_out)

    def reject(self, match: Match, because: str, tried: Mapping[str, str], context: FusionContext) -> None:
        """Records that nothing is fused."""
        if subjects := self.subjects(match):
            self.record(context, subjects, Decision("not fused", because), tried)

    def record(
        self,
        context: FusionContext,
        subjects: Sequence[str],
        decision: Decision,
        tried: Mapping[str, str] | None = None,
    ) -> None:
        """Writes a decision to the ledger; `tried` says why other groups were not formed."""
        record_decision(
            context.module, self.name, subjects, decision.choice, decision.because, tried, decision.cost
        )

    def clean_up(self, context: FusionContext) -> None:
        """Runs after all matches of a function."""

    def _fuse(self, match: Match, context: FusionContext) -> None:
        tried: dict[str, str] = {}
        plans = None
        because = self._why_off(context) or self.obstacle(match, context) or self._why_no_kernel(context)
        if because is None:
            plans = self.choose(match, context, tried)
        if plans is None:
            self.reject(match, because or NO_GAIN, tried, context)
        else:
            self.form(match, plans, tried, context)

    def _why_off(self, context: FusionContext) -> str | None:
        field = None if self.switch is None else context.policy.forbids_fusion(self.switch)
        return None if field is None else f"{self.switch} fusion is off by policy ({field})"

    def _why_no_kernel(self, context: FusionContext) -> str | None:
        return context.why_none_of(self.kinds) if self.kinds else None


def first_formed(
    candidates: Iterable[Candidate], context: FusionContext, tried: dict[str, str]
) -> Outline | None:
    """The first of the groups that is legal and predicted to pay; `tried` takes why those before it are not formed."""
    for candidate in candidates:
        if (reason := candidate.refusal(context)) is None:
            return candidate.plan
        tried[candidate.label] = reason
    return None
