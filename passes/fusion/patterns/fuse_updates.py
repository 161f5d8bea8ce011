"""`fuse-updates`: the arithmetic of an optimizer on all parameters and states becomes one instruction."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import func
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.types import byte_count, tensor_info
from aicf.passes.bodies.matching import is_iota_like
from aicf.passes.bodies.outlining import Outline, id_of, is_rematerializable, outline
from aicf.passes.bodies.updates import body_update, is_spread
from aicf.passes.bodies.view_folding import fold_views
from aicf.passes.bodies.views import View, is_view
from aicf.passes.bodies.workload import argument_attrs, result_attrs
from aicf.passes.fusion.driver import Candidate, Decision, FusionPattern
from aicf.passes.fusion.forming import FusionContext
from aicf.passes.support.identity import op_id


@dataclass
class _Updates:
    """The updates of a function that may share a group.

    Args:
        roots: New values.
        left_out: Why some stay outside, by the ids of their ops.
        parts: How many tensors the last candidate updates.
    """

    context: FusionContext
    roots: list[OpResult]
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    parts: int = 0

    def plan(self, numbers: bool) -> Outline | None:
        """The group of as many chains as can be one, with what computes their numbers or without; None if none can."""
        while tensors := [root for root in self.roots if not _is_number(root)]:
            wanted = self.roots if numbers else tensors
            members = _members(self.context, wanted, numbers)
            if (problem := self._problem(members)) is None:
                order = sorted(members, key=self.context.position.__getitem__)
                results = [root for root in wanted if root.op in members]
                tensors_first = sorted(
                    order, key=lambda op: _is_number(op.results[0])
                )  # a number names no update
                return outline(order, self.context.group_id(tensors_first), results)
            root, reason = problem
            self.left_out[id_of(root.op)] = reason
            self.roots.remove(root)
        return None

    def _problem(self, members: Collection[Operation]) -> tuple[OpResult, str] | None:
        """A root that cannot be in the group, and why."""
        for root in self.roots:
            if root.op not in members or _is_number(root):
                continue
            if (unfit := _unfit_operand(root.op, members)) is not None:
                return root, unfit
            if _leads_back(root, members):
                return root, "another update needs what is computed from its new value, and would wait for it"
        return None


@dataclass(frozen=True)
class FuseUpdatesPass(FusionPattern[_Updates]):
    """Groups the elementwise chains that end in new values of parameters and states, whatever their shapes.

    A chain reads parameters, states and one gradient; what is computed of the gradient alone (a cast, a factor) joins
    it, a sum of gradients does not, which would keep all of them in memory. What is one number for all (learning rate,
    corrections, the counter) joins if a kernel takes it along and nothing else reads it, and is an operand otherwise.
    One chain alone stays for the other fusing passes. With `listed` only groups that the policy lists are formed.
    """

    name = "fuse-updates"
    stage = "updates"
    benefit = 0

    listed: bool = False

    def matches(self, context: FusionContext) -> Iterator[_Updates]:
        roots = _roots(context.function) if context.policy.fusion.elementwise else []
        while roots:
            seed = roots[0].op
            together = [root for root in roots if context.may_join(root.op, seed)]
            roots = [root for root in roots if root not in together]
            if not self.listed or context.are_listed([seed]):
                yield _Updates(context, together)

    def subjects(self, match: _Updates) -> Sequence[str]:
        return [id_of(root.op) for root in match.roots]

    def candidates(self, match: _Updates, context: FusionContext) -> Iterator[Candidate]:
        """The largest group that can be one, with what computes the numbers, then without."""
        for label, numbers in (("numbers computed inside", True), ("one instruction", False)):
            plan = match.plan(numbers)
            update = None if plan is None else body_update(fold_views(plan.body).block)
            if update is not None:
                match.parts = len(update.chains)
                yield Candidate(label, plan)

    def left_out(self, match: _Updates, plan: Outline, tried: Mapping[str, str]) -> Mapping[str, str]:
        return {**tried, **match.left_out}

    def decision(self, match: _Updates, plan: Outline, tried: Mapping[str, str]) -> Decision:
        parts, results = match.parts, len(plan.results)
        moved = sum(byte_count(value.type) for value in (*plan.inputs, *plan.results))
        return Decision(
            f"one instruction updates {parts} tensor{'s' if parts > 1 else ''}, {results} results",
            "one launch for all, and each gradient and state is read once",
            {"parts": IntegerAttr(parts, i64), "bytes": IntegerAttr(moved, i64)},
        )

    def reject(self, match: _Updates, because: str, tried: Mapping[str, str], context: FusionContext) -> None:
        """Records why no kernel takes the updates; where there are none to take, nothing."""
        if tried:
            because = "no kernel of the target updates them in one instruction"
            super().reject(match, because, tried, context)


def _roots(function: func.FuncOp) -> list[OpResult]:
    """The new values of parameters, states and counters that elementwise ops compute, in the order of the results."""
    terminator = function.body.block.last_op
    assert isinstance(terminator, func.ReturnOp)
    values = [
        value
        for index, value in enumerate(terminator.operands)
        if logical.UPDATES_ATTR in result_attrs(function, index)
    ]
    return [
        value for value in dict.fromkeys(values) if isinstance(value, OpResult) and _is_elementwise(value.op)
    ]


def _is_elementwise(op: Operation) -> bool:
    return op.has_trait(logical.Elementwise) and op_id(op) is not None and not is_rematerializable(op)


def _is_number(value: SSAValue) -> bool:
    return not tensor_info(value.type).shape


def _members(context: FusionContext, roots: Sequence[OpResult], numbers: bool) -> set[Operation]:
    """The ops of the chains that end in `roots`; each is read by others of them only, or is a new value itself."""
    members: set[Operation] = set()
    wanted = {root.op for root in roots}
    kept = _kept_arguments(context.function)
    for op in reversed(list(context.position)):
        if not _is_elementwise(op) or not context.may_join(op, roots[0].op):
            continue
        read_inside = all(
            reader in members or (op in wanted and isinstance(reader, func.ReturnOp))
            for reader in _readers(op)
        )
        if _is_number(op.results[0]):
            joins = numbers and read_inside and all(_is_number(operand) for operand in op.operands)
        else:
            joins = op in wanted or (read_inside and _is_light(op, kept))
        if joins:
            members.add(op)
            members.update(use.operation for use in op.results[0].uses if is_spread(use.operation))
    return members


def _readers(op: Operation) -> list[Operation]:
    """The ops that read an op's results, directly or through broadcasts of numbers."""
    found: list[Operation] = []
    for use in (use for result in op.results for use in result.uses):
        found += _readers(use.operation) if is_spread(use.operation) else [use.operation]
    return found


def _kept_arguments(function: func.FuncOp) -> frozenset[SSAValue]:
    """The parameters, states and counters: what is in memory whether it is read here or elsewhere."""
    roles = (
        (argument, argument_attrs(function, argument.index)[logical.ROLE_ATTR].data)
        for argument in function.args
    )
    return frozenset(argument for argument, role in roles if role != "input")


def _is_light(op: Operation, arguments: Collection[SSAValue]) -> bool:
    """Whether an op computes of one tensor alone, or of a parameter or state."""
    tensors = {value for value in op.operands if not _is_constant_or_splat(value)}
    return len(tensors) <= 1 or any(_comes_from(value, arguments) for value in tensors)


def _is_constant_or_splat(value: SSAValue) -> bool:
    """Whether a value is a constant, or one number for all elements."""
    return isinstance(value, OpResult) and (isinstance(value.op, logical.ConstantOp) or is_spread(value.op))


def _comes_from(value: SSAValue, arguments: Collection[SSAValue], depth: int = 16) -> bool:
    """Whether a value is computed element by element of one of `arguments`."""
    if isinstance(value, BlockArgument):
        return value in arguments
    if depth == 0 or not isinstance(value, OpResult) or not _is_elementwise(value.op):
        return False
    return any(_comes_from(operand, arguments, depth - 1) for operand in value.op.operands)


def _unfit_operand(op: Operation, members: Collection[Operation]) -> str | None:
    """Why what the chain of `op` reads is neither a number for all elements nor a tensor, in whatever shape; None if
    all of it is."""
    stack, seen = [op], set[Operation]()
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        for value in current.operands:
            if not isinstance(value, OpResult) or _is_constant_or_splat(value):
                continue
            if value.op in members:
                stack.append(value.op)
            elif is_iota_like(value):
                if tensor_info(value.type).rank > 1:
                    return (
                        f"it reads '{id_of(value.op)}', whose elements follow from coordinates along several "
                        "dimensions, and an update knows one; flatten it"
                    )
            elif (view := _moving_view(value)) is not None:
                return (
                    f"it reads '{id_of(view)}', whose elements are in another order in memory than those of the "
                    f"parameter ({view.name.removeprefix('logical.')}): copy them into that order"
                )
    return None


def _moving_view(value: SSAValue) -> Operation | None:
    """The first view by which the elements of a value are no row of memory; None if they are one, whole or in part."""
    chain: list[Operation] = []
    while is_view(value.owner):
        chain.insert(0, value.owner)
        value = value.owner.operands[0]
    view = View.whole(tensor_info(value.type).shape)
    for op in chain:
        after = view.then(op)
        if after is None or not after.is_row:
            return op
        view = after
    return None


def _leads_back(root: OpResult, members: Collection[Operation]) -> bool:
    """Whether a member needs what others compute of `root`: they could stand neither before nor after the group."""
    stack = [use.operation for use in root.uses if use.operation not in members]
    seen: set[Operation] = set()
    while stack:
        op = stack.pop()
        if op in seen:
            continue
        seen.add(op)
        for user in (use.operation for result in op.results for use in result.uses):
            if user in members:
                return True
            stack.append(user)
    return False
