"""What groups are predicted to take if some of their values lie channels-last, and which copies are none then."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from math import inf

from xdsl.dialects import func
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.emit import GroupOp
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.buffer_aliasing import alias_of
from aicf.passes.bodies.structure import Structure, structure_of_body
from aicf.passes.bodies.view_folding import FoldedOperand
from aicf.passes.bodies.views import View, is_rearrangement
from aicf.passes.bodies.workload import aliased_workload, argument_attrs, origin_of, result_attrs, workload_of
from aicf.passes.fusion.forming import FusionContext
from aicf.passes.layout.alias_candidates import least_us, why_not_aliased
from aicf.passes.layout.layout_graph import LayoutGraph, channel_dims, channels_last, to_channels_last
from aicf.passes.support.identity import op_id
from aicf.passes.support.policy import without_bucket

Labels = Collection[GroupOp]
"""The groups whose values lie channels-last."""


class LayoutPrices:
    """Predicted times of the groups of one function by how their values lie; alike ones are worked out once.

    Attributes:
        evaluations: How many pieces of work were derived and priced so far.
    """

    def __init__(self, graph: LayoutGraph, context: FusionContext):
        self.graph = graph
        self.context = context
        self.evaluations = 0
        self._structures: dict[GroupOp, Structure] = {}
        self._known: dict[Structure, tuple[float, str | None]] = {}
        self._own: dict[tuple[GroupOp, tuple[bool, ...]], tuple[float, str | None]] = {}

    def us(self, group: GroupOp, labels: Labels) -> float:
        """Predicted microseconds; infinite where no kernel runs the group."""
        return self._priced(group, labels)[0]

    def why_not(self, group: GroupOp, labels: Labels) -> str | None:
        """Why no kernel runs the group; None if one does."""
        return self._priced(group, labels)[1]

    def is_none(self, group: GroupOp, labels: Labels) -> bool:
        """Whether a group is a copy of what lies in that order already, so that nothing is left of it to do."""
        if (operand := self._copies.get(group)) is None:
            return False
        source, result = group.ins[operand.argument], group.results[0]
        if not (self._is_last(source, labels) or self._is_last(result, labels)):
            return False
        if self._memory(source, labels) != self._memory(result, labels):
            return False
        aliased = aliased_workload(group, lambda value: self._view(value, labels))
        read, written = aliased.operands[0].view, aliased.results[0]
        steps = zip(read.shape, read.strides, written.strides, strict=True)
        return read.offset == written.offset and all(size == 1 or a == b for size, a, b in steps)

    def _priced(self, group: GroupOp, labels: Labels) -> tuple[float, str | None]:
        key = group, tuple(self._is_last(value, labels) for value in (*group.ins, *group.results))
        if key not in self._own:
            self._own[key] = (0.0, None) if self.is_none(group, labels) else self._alike(group, labels)
        return self._own[key]

    def _alike(self, group: GroupOp, labels: Labels) -> tuple[float, str | None]:
        views = tuple(self._view(value, labels) for value in (*group.ins, *group.results))
        key = (*self._structure(group), *views)
        if key not in self._known:
            self.evaluations += 1
            aliased = aliased_workload(group, lambda value: self._view(value, labels))
            reason = why_not_aliased(group, aliased, self.context)
            self._known[key] = inf if reason is not None else least_us(aliased, self.context), reason
        return self._known[key]

    def _structure(self, group: GroupOp) -> Structure:
        """All that decides what kernels say of a group but where its values lie."""
        if group not in self._structures:
            pinned = self.context.policy.kernels.get(
                group.id.data, self.context.policy.kernels.get(without_bucket(group.id.data))
            )
            origins = (origin_of(value) for value in group.ins)
            self._structures[group] = (pinned, *structure_of_body(group.body.block), *origins)
        return self._structures[group]

    def _is_last(self, value: SSAValue, labels: Labels) -> bool:
        owner = value.owner
        return isinstance(owner, GroupOp) and owner in labels and value in self.graph.values[owner]

    def _view(self, value: SSAValue, labels: Labels) -> View:
        if self._is_last(value, labels):
            return channels_last(tensor_info(value.type).shape, channel_dims(value))
        return alias_of(value).view

    def _memory(self, value: SSAValue, labels: Labels) -> tuple[int, ...]:
        """The sizes of a value's memory, outermost first."""
        shape = tensor_info(value.type).shape
        if not self._is_last(value, labels):
            return shape
        return tuple(shape[dim] for dim in to_channels_last(len(shape), channel_dims(value)))

    # Copies that may be left out

    @cached_property
    def _copies(self) -> Mapping[GroupOp, FoldedOperand]:
        """The groups that only copy one value in another order, and may share its memory, with their operand."""
        found: dict[GroupOp, FoldedOperand] = {}
        given_back: set[SSAValue] = set()
        for group in self.graph.groups:
            work = workload_of(group)
            if work.work.kind != "copy" or len(group.results) != 1 or group.kernel is not None:
                continue
            source, result = group.ins[work.operands[0].argument], group.results[0]
            returns = list(_returns(result))
            if self._is_requested(group) or not _only_moves(group) or alias_of(result).whole is not result:
                continue
            if returns and not self._may_be_given_back(source, returns, given_back):
                continue
            if isinstance(source, OpResult) or _is_input(source):
                found[group] = work.operands[0]
                given_back |= {source} if returns else set()
        return found

    def _may_be_given_back(
        self, source: SSAValue, returns: list[tuple[func.ReturnOp, int]], given_back: set[SSAValue]
    ) -> bool:
        """Whether a result of the function may be the memory of `source`: no argument's and no other result's, and not
        what a parameter or state becomes."""
        if not isinstance(source.owner, GroupOp) or source in given_back or any(_returns(source)):
            return False
        entry = result_attrs(self.context.function, returns[0][1])
        return len(returns) == 1 and logical.UPDATES_ATTR not in entry and alias_of(source).whole is source

    def _is_requested(self, group: GroupOp) -> bool:
        """Whether the policy speaks of the copy as an instruction of its own."""
        policy, ids = self.context.policy, [group.id.data]
        ids += [id_ for op in group.body.block.ops if (id_ := op_id(op)) is not None]
        names = {name for id_ in ids for name in (id_, without_bucket(id_))}
        return any(
            not names.isdisjoint(said) for said in (policy.kernels, policy.records, self.context.pinned)
        )


def may_turn(context: FusionContext, group: GroupOp, result: OpResult) -> bool:
    """Whether a kernel runs a group if `result` lies channels-last and all else where it does."""

    def view_of(value: SSAValue) -> View:
        shape = tensor_info(value.type).shape
        return channels_last(shape) if value is result else alias_of(value).view

    return why_not_aliased(group, aliased_workload(group, view_of), context) is None


def _only_moves(group: GroupOp) -> bool:
    *ops, _ = group.body.block.ops
    return all(is_rearrangement(op) for op in ops)


def _returns(value: SSAValue) -> list[tuple[func.ReturnOp, int]]:
    """Where a value, or a reshape of it outside of groups, is given back."""
    found: list[tuple[func.ReturnOp, int]] = []
    for use in value.uses:
        op: Operation = use.operation
        if isinstance(op, func.ReturnOp):
            found.append((op, use.index))
        elif is_rearrangement(op):
            found += _returns(op.results[0])
    return found


def _is_input(value: SSAValue) -> bool:
    if not isinstance(value, BlockArgument):
        return False
    function = value.owner.parent_op()
    assert isinstance(function, func.FuncOp)
    role = argument_attrs(function, value.index).get(logical.ROLE_ATTR)
    return role is not None and role.data == "input"
