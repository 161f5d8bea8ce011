"""`select-layouts`: which values between instructions lie row-major in memory, and which channels-last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute
from xdsl.passes import ModulePass

from aicf.backends.registry import get_kernels
from aicf.dialects.emit import PREPARE, GroupOp
from aicf.dialects.kinds import KINDS
from aicf.errors import PolicyError
from aicf.passes.bodies.workload import target_of, workload_of
from aicf.passes.fusion.forming import FusionContext, fusion_contexts
from aicf.passes.layout.layout_graph import Component, LayoutGraph
from aicf.passes.layout.prices import LayoutPrices, may_turn
from aicf.passes.layout.reshapes import hoist_reshapes
from aicf.passes.layout.rewrite import lay_out
from aicf.passes.layout.search import LEAST_GAIN, LEAST_GAIN_US, Found, LayoutSearch
from aicf.passes.support.ledger import microseconds, record_decision
from aicf.passes.support.policy import policy_of, with_stems, without_bucket
from aicf.passes.support.works_on import GROUPS
from aicf.policies.kernel_policy import BATCH_INVARIANT, CHANNELS_LAST, EVERY_VALUE, PITCHED, ROW_MAJOR

_TOLD = 8
"""How many values that no kernel takes channels-last have the reason in the ledger."""


@dataclass(frozen=True)
class SelectLayoutsPass(ModulePass):
    """Lays results of groups channels-last where the sum of predicted times of all that give and read them is less.

    Candidates are results of three to five dimensions that groups alone read, connected with a convolution, a pooling,
    or a transposition from one order to the other. Of one instruction that casts many weights, those results are
    candidates that its kernel can write channels-last: then convolutions read a weight of this step where it was cast
    to. The meaning of a program stays: the body of a group that gives such a value ends with a transposition, the body
    of each that reads it begins with the inverse, and both are strides to kernels. A group that copies a value into the
    order in which it lies already goes: its readers read that value. The policy may say `row_major` or `channels_last`
    of each group, or of all; without it, nothing changes on a target that has no kernel of a convolution or pooling, or
    where results may not depend on the batch.

    Raises PolicyError for a group that is no candidate, or whose kernels do not take what the policy says.
    """

    name = "select-layouts"
    works_on = GROUPS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        target = target_of(op)
        windowed = {name for name, kind in KINDS.items() if kind.is_windowed}
        if all(windowed.isdisjoint(kernel.kinds) for kernel in get_kernels(target.backend.data).values()):
            return
        for function in op.walk():
            if isinstance(function, func.FuncOp) and function.sym_name.data != PREPARE:
                hoist_reshapes(function)
        deciding = [
            _Deciding(context)
            for context in fusion_contexts(op, target, grouped=True)
            if context.function.sym_name.data != PREPARE  # it runs once
        ]
        policy = policy_of(op)
        pitched = [
            id_ for id_, layout in policy.layouts.items() if layout == PITCHED
        ]  # select-pitches checks these
        policy.check_layout_keys({*with_stems(id_ for each in deciding for id_ in each.candidates), *pitched})
        for each in deciding:
            each.run()


class _Deciding:
    """The decisions about one function."""

    def __init__(self, context: FusionContext):
        self.context = context
        self.graph = LayoutGraph(context.function, partial(may_turn, context))
        self.components = self.graph.components()
        self.prices = LayoutPrices(self.graph, context)

    @property
    def candidates(self) -> list[str]:
        """Ids of the groups with results that may lie either way."""
        return [producer.id.data for component in self.components for producer in component.producers]

    def run(self) -> None:
        """Decides, rewrites, and writes the ledger."""
        choices = [self._decide(component) for component in self.components]
        last = frozenset(producer for _, found in choices for producer in found.last)
        saved = {
            group: workload_of(group).operands[0].argument
            for group in self.graph.groups
            if self.prices.is_none(group, last)
        }
        for search, found in choices:
            _Telling(self.context, search, found, [g for g in search.component.groups if g in saved]).run()
        lay_out(self.graph, last, saved)

    def _decide(self, component: Component) -> tuple[LayoutSearch, Found]:
        named = {
            producer: said
            for producer in component.producers
            if (said := self._said_of(producer)) is not None
        }
        everything = self.context.policy.layouts.get(EVERY_VALUE)
        if everything == PITCHED:
            everything = None
        if everything is None and self.context.policy.determinism == BATCH_INVARIANT:
            everything = ROW_MAJOR
        search = LayoutSearch(
            component, self.graph, self.prices, {g: s == CHANNELS_LAST for g, s in named.items()}
        )
        self._check_legal(search)
        if everything is None:
            return search, search.run()
        wanted = {producer for producer, last in search.fixed.items() if last}
        if everything == CHANNELS_LAST:
            wanted |= set(component.producers) - named.keys()
        last, refused = search.legal(wanted)
        us, row_major_us = search.total(last), search.total(())
        return search, Found(last, us, row_major_us, us, refused)

    def _said_of(self, producer: GroupOp) -> str | None:
        layouts, id_ = self.context.policy.layouts, producer.id.data
        said = layouts.get(id_, layouts.get(without_bucket(id_)))
        return ROW_MAJOR if said == PITCHED else said

    def _check_legal(self, search: LayoutSearch) -> None:
        """Raises PolicyError if kernels do not take what the policy names."""
        wanted = [producer for producer, last in search.fixed.items() if last]
        for producer in wanted:
            for group in self.graph.with_users(producer):
                if (why := self.prices.why_not(group, wanted)) is not None:
                    raise PolicyError(
                        f"layouts.{producer.id.data}: '{group.id.data}' cannot run with it {CHANNELS_LAST}: {why}; "
                        f"say {ROW_MAJOR}, or leave it out"
                    )


@dataclass(frozen=True)
class _Telling:
    """What the ledger gets to know of a component."""

    context: FusionContext
    search: LayoutSearch
    found: Found
    saved: Sequence[GroupOp]

    def run(self) -> None:
        """One decision for the values of each layout."""
        last = [producer for producer in self.search.component.producers if producer in self.found.last]
        row_major = [
            producer for producer in self.search.component.producers if producer not in self.found.last
        ]
        if last:
            because = self._by_policy(last) or self._gain
            if self.saved:
                because += f"; {_count(self.saved, 'transpose')} saved: {_quoted(self.saved)}"
            self._record(CHANNELS_LAST, last, because, {ROW_MAJOR: self._plainly}, [*last, *self.saved])
        if row_major:
            against = {producer.id.data: why for producer, why in list(self.found.refused.items())[:_TOLD]}
            against |= {} if last else {CHANNELS_LAST: self._leaning}
            because = self._by_policy(row_major) or (self._least if last else self._no_gain)
            self._record(ROW_MAJOR, row_major, because, against, row_major)

    def _record(
        self,
        layout: str,
        producers: Sequence[GroupOp],
        because: str,
        rejected: Mapping[str, str],
        subjects: Iterable[GroupOp],
    ) -> None:
        every = self.search.component.producers
        choice = f"{layout} for {len(producers)} of {_count(every, 'instruction')}"
        record_decision(
            self.context.module,
            SelectLayoutsPass.name,
            [group.id.data for group in subjects],
            choice,
            because,
            rejected,
            self._figures,
        )

    @property
    def _figures(self) -> Mapping[str, Attribute]:
        found = self.found
        figures: dict[str, Attribute] = {
            "row_major_us": microseconds(found.row_major_us),
            "channels_last_us": microseconds(found.preferred_us),
            "chosen_us": microseconds(found.us),
        }
        if self.saved:
            figures["transposes_saved"] = IntegerAttr(len(self.saved), i64)
        return figures

    def _by_policy(self, producers: Sequence[GroupOp]) -> str | None:
        """Why, if nothing was weighed."""
        policy = self.context.policy
        if self.search.fixed.keys() >= set(producers):
            return "the policy says so of each"
        if EVERY_VALUE in policy.layouts:
            refused = any(producer in self.found.refused for producer in producers)
            return "kernels do not take the other" if refused else "the policy says so of all"
        if policy.determinism == BATCH_INVARIANT:
            return "predicted times depend on the batch, the policy wants results that do not"
        return None

    @property
    def _gain(self) -> str:
        found, groups = self.found, self.search.component.groups
        against = f"not {found.row_major_us:.4g}{self._end}"
        return f"predicted {found.us:.4g} us for all {len(groups)} that touch one, {against}"

    @property
    def _no_gain(self) -> str:
        found = self.found
        bound = max(LEAST_GAIN * found.row_major_us, LEAST_GAIN_US)
        return f"predicted {found.row_major_us:.4g} us, and no other order saves {bound:.3g} us{self._end}"

    @property
    def _least(self) -> str:
        return f"none is predicted to take less in the other order by itself{self._end}"

    @property
    def _end(self) -> str:
        return f"; {self.found.end}" if self.found.end else ""

    @property
    def _plainly(self) -> str:
        return f"predicted {self.found.row_major_us:.4g} us, not {self.found.us:.4g}"

    @property
    def _leaning(self) -> str:
        return f"predicted {self.found.preferred_us:.4g} us where kernels take it"


def _count(groups: Sequence[GroupOp], noun: str) -> str:
    return f"{len(groups)} {noun}" if len(groups) == 1 else f"{len(groups)} {noun}s"


def _quoted(groups: Sequence[GroupOp]) -> str:
    named = ", ".join(f"'{group.id.data}'" for group in groups[:_TOLD])
    return named if len(groups) <= _TOLD else f"{named} and {len(groups) - _TOLD} more"
