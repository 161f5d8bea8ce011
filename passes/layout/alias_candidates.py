"""What becomes of instructions whose values lie inside another one: kernels that still run them, and what that costs.

Nothing is changed here: a trial asks what would be if some parts of a concatenation were written in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from aicf.backends.registry import get_kernels
from aicf.dialects import logical
from aicf.dialects.emit import GroupOp, YieldOp
from aicf.dialects.kinds import may_run
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.buffer_aliasing import alias_of, parts_of
from aicf.passes.bodies.view_folding import Lies, fold_views
from aicf.passes.bodies.views import View, part_of_concat, view_after
from aicf.passes.bodies.workload import (
    GroupWorkload,
    aliased_workload,
    origin_of,
    workload_of,
    workload_of_folded,
)
from aicf.passes.fusion.forming import FusionContext
from aicf.passes.support.policy import without_bucket


@dataclass(frozen=True)
class Part:
    """One operand of a concatenation that a group computes.

    Args:
        index: Which operand it is.
        axis, start: Along which axis they lie side by side, and where along it this one starts.
        view: Where in the result it belongs.
        source: The value of the function that it is made of; None for a constant of the group.
        chain: The ops of the group that make the part of it, in order: views, or the constant.
    """

    index: int
    axis: int
    start: int
    view: View
    source: SSAValue | None
    chain: tuple[Operation, ...]

    @cached_property
    def values(self) -> Mapping[SSAValue, View | None]:
        """All values of the function that would lie elsewhere with it, and where; None where strides cannot say it."""
        if self.source is None:
            return {}
        view = view_after(self.chain, self.view) if self.chain else self.view
        return {self.source: None} if view is None else dict(parts_of(self.source, view))


@dataclass(frozen=True)
class Copy:
    """Neighbouring parts that one group copies, or puts side by side, from their sources in the function."""

    parts: tuple[Part, ...]

    @cached_property
    def sources(self) -> list[SSAValue]:
        """What it reads, each once."""
        return list(dict.fromkeys(part.source for part in self.parts if part.source is not None))

    @property
    def view(self) -> View:
        """Where in the result it belongs."""
        first, axis = self.parts[0], self.parts[0].axis
        size = sum(part.view.shape[axis] for part in self.parts)
        shape = tuple(size if dim == axis else own for dim, own in enumerate(first.view.shape))
        return View(first.view.offset, shape, first.view.strides)

    def body(self) -> Block:
        """The body of the group."""
        block = Block(arg_types=[source.type for source in self.sources])
        values = [_part_of(part, self.sources, block) for part in self.parts]
        if len(values) > 1:
            block.add_op(concat := logical.ConcatOp(values, self.parts[0].axis))
            values = [concat.result]
        block.add_op(YieldOp(values))
        return block


def _part_of(part: Part, sources: Sequence[SSAValue], block: Block) -> SSAValue:
    """Adds what makes a part to a body that reads `sources`."""
    value = None if part.source is None else block.args[sources.index(part.source)]
    for op in part.chain:
        clone = op.clone() if value is None else op.clone({op.operands[0]: value})
        block.add_op(clone)
        value = clone.results[0]
    assert value is not None
    return value


def parts_of_group(group: GroupOp, concat: logical.ConcatOp) -> list[Part]:
    """The parts of a concatenation, each with its source."""
    whole, axis = View.whole(tensor_info(concat.result.type).shape), concat.axis.value.data
    parts: list[Part] = []
    start = 0
    for index, value in enumerate(concat.parts):
        view = part_of_concat(concat, index, whole)
        source, chain = _source_of(value, group)
        parts.append(Part(index, axis, start, view, source, chain))
        start += view.shape[axis]
    return parts


def _source_of(value: SSAValue, group: GroupOp) -> tuple[SSAValue | None, tuple[Operation, ...]]:
    """The source in the function of a value of a group, and the ops between; None for a constant."""
    chain: list[Operation] = []
    while not isinstance(value, BlockArgument):
        assert isinstance(value.owner, Operation)
        chain.insert(0, value.owner)
        if not value.owner.operands:
            return None, tuple(chain)
        value = value.owner.operands[0]
    return group.ins[value.index], tuple(chain)


@dataclass(frozen=True)
class AliasCandidate:
    """What runs if `parts` of the concatenation of `group` are written in place."""

    group: GroupOp
    parts: tuple[Part, ...]
    context: FusionContext

    @cached_property
    def views(self) -> dict[SSAValue, View]:
        """Where the values lie that would lie elsewhere."""
        found = (entry for part in self.parts for entry in part.values.items())
        return {value: view for value, view in found if view is not None}

    @cached_property
    def works(self) -> dict[GroupOp, GroupWorkload]:
        """The groups that write or read such values, as they would be."""
        groups = dict.fromkeys(group for value in self.views for group in self._with_users(value))
        return {group: aliased_workload(group, self._view) for group in groups}

    def _with_users(self, value: SSAValue) -> Iterator[GroupOp]:
        for op in (value.owner, *(use.operation for use in value.uses)):
            if isinstance(op, GroupOp) and op is not self.group:
                yield op

    def _view(self, value: SSAValue) -> View:
        return self.views[value] if value in self.views else alias_of(value).view

    def touched_by(self, group: GroupOp) -> list[Part]:
        """The parts that a group writes or reads."""
        values = {*group.ins, *group.results}
        return [part for part in self.parts if not values.isdisjoint(part.values)]

    def refused(self) -> dict[int, str]:
        """Why parts cannot lie there, by index: what the strides of the groups that touch them are to their kernels."""
        found = {
            part.index: "strides cannot express its reshapes and transposes inside of the concatenation"
            for part in self.parts
            if None in part.values.values()
        }
        for group, work in self.works.items():
            if (reason := why_not_aliased(group, work, self.context)) is not None:
                verb = "writes" if any(result in self.views for result in group.results) else "reads"
                said = f"'{group.id.data}', which {verb} it, cannot do so in place: {reason}"
                found |= {part.index: said for part in self.touched_by(group)}
        return found

    # Predicted times: what is decided before kernels never depends on a tuning table

    def lost_us(self) -> dict[int, float]:
        """How much longer the groups of each part take, shared by the parts that a group touches."""
        lost = {part.index: 0.0 for part in self.parts}
        for group, work in self.works.items():
            parts = self.touched_by(group)
            more = self.us(work) - self.us(workload_of(group))
            for part in parts:
                lost[part.index] += more / len(parts)
        return lost

    def copy_us(self, copy: Copy) -> float:
        """What copying parts into their place takes."""
        lies = Lies(tuple(alias_of(source).view for source in copy.sources), (copy.view,))
        origins = [origin_of(source) for source in copy.sources]
        return self.us(workload_of_folded(self.group.id.data, fold_views(copy.body(), lies), origins))

    def us(self, work: GroupWorkload) -> float:
        """The least that a kernel is predicted to take."""
        return least_us(work, self.context)


def why_not_aliased(group: GroupOp, aliased: GroupWorkload, context: FusionContext) -> str | None:
    """Why no kernel, or not the one that the policy pins, runs a group whose values lie elsewhere; None if one does."""
    dense = workload_of(group).work
    if list(map(type, aliased.work.body.ops)) != list(map(type, dense.body.ops)):
        return "strides cannot express the views through which it is read or written"
    policy = context.policy
    known = context.profitability_of(aliased)
    if not known.legal:
        return "; ".join(f"{kernel}: {why}" for kernel, why in known.rejected.items())
    keys = (group.id.data, without_bucket(group.id.data), aliased.work.kind)
    pinned = next((policy.kernels[key] for key in keys if key in policy.kernels), None)
    if pinned is None or any(kernel.id == pinned for kernel in known.legal):
        return None
    kernel = get_kernels(context.target.backend.data).get(pinned)
    kind = aliased.work.kind
    if kernel is not None and kind not in kernel.kinds and may_run(kernel.kinds, kind):
        return None  # when layouts are decided it becomes what that kernel runs
    return (
        f"the policy pins kernel {pinned} for it: {known.rejected.get(pinned, 'it does not run this kind')}"
    )


def least_us(work: GroupWorkload, context: FusionContext) -> float:
    """The least microseconds that a kernel is predicted to take for work that one runs."""
    return context.profitability_of(work).least_us
