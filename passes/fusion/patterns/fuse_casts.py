"""`fuse-casts`: what is computed of parameters alone, such as their casts to bf16, becomes one instruction."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from xdsl.dialects import func
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.emit import GroupOp
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.matching import computed_from
from aicf.passes.bodies.outlining import Outline, id_of, is_rematerializable, name_of, outline
from aicf.passes.bodies.updates import body_update
from aicf.passes.bodies.workload import argument_attrs, updated_names
from aicf.passes.fusion.driver import Candidate, Decision, FusionPattern, label
from aicf.passes.fusion.forming import FusionContext
from aicf.passes.logical.recompute import is_again
from aicf.passes.support.identity import op_id
from aicf.passes.support.ledger import microseconds


@dataclass(frozen=True)
class _Chain:
    """What is computed of one parameter: ops in text order, and their values that others read."""

    ops: Sequence[Operation]
    results: Sequence[OpResult]


@dataclass(frozen=True)
class _Match:
    """Chains of different parameters, and the group of all."""

    chains: Sequence[_Chain]
    plan: Outline
    context: FusionContext

    @cached_property
    def fused_us(self) -> float:
        """Predicted microseconds of the group, infinite if no kernel runs it."""
        return self._us(self.plan)

    @cached_property
    def unfused_us(self) -> float:
        """Predicted microseconds of all chains as instructions of their own: one for each value that is read."""
        pieces = [computed_from([result], (), each.ops) for each in self.chains for result in each.results]
        ids = self.context.group_id
        return sum(self._us(outline(piece, ids(piece), [piece[-1].results[0]])) for piece in pieces)

    def _us(self, plan: Outline) -> float:
        profitability = self.context.profitability(plan)
        return profitability.fused_us if profitability.legal else inf


@dataclass(frozen=True)
class FuseCastsPass(FusionPattern[_Match]):
    """Groups the elementwise chains that read one updated parameter each and nothing else, whatever their shapes.

    Mixed precision casts every parameter once a step, and nothing else orders those casts: they are parts of one
    instruction, as the updates of the parameters are. A chain stays outside if one elementwise op or reduction alone
    reads it, which takes it along for nothing, and if it computes again what would else be kept. Products, norms and
    attention have taken theirs along before. Groups form where one instruction is predicted to take no longer than
    its parts, or where the policy lists them.
    """

    name = "fuse-casts"
    stage = "after_views"
    benefit = 10

    def matches(self, context: FusionContext) -> Iterator[_Match]:
        computed = _computed(context) if context.policy.fusion.elementwise else {}
        for ops in _sets_that_may_join(computed, context):
            detours = _detours(ops, context)
            for op, through in detours.items():
                because = _detour(op, through)
                self.record(context, [id_of(op)], Decision("not fused", because), {label(ops): because})
            chains = list(_chains({op: ops[op] for op in ops if op not in detours}))
            if (plan := _plan(chains, context)) is not None:
                yield _Match(chains, plan, context)

    def subjects(self, match: _Match) -> Sequence[str]:
        return [id_of(op) for op in match.plan.members]

    def candidates(self, match: _Match, context: FusionContext) -> Iterator[Candidate]:
        yield Candidate(label(match.plan.members), match.plan, unfused_us=lambda: match.unfused_us)

    def decision(self, match: _Match, plan: Outline, tried: Mapping[str, str]) -> Decision:
        parts = len(match.chains)
        return Decision(
            f"one instruction computes what is read of {parts} parameters",
            "one launch for all, and nothing else orders them",
            {
                "parts": IntegerAttr(parts, i64),
                "unfused_us": microseconds(match.unfused_us),
                "fused_us": microseconds(match.fused_us),
            },
        )

    def reject(self, match: _Match, because: str, tried: Mapping[str, str], context: FusionContext) -> None:
        """Records why the one group is not formed."""
        (because,) = tried.values()
        super().reject(match, because, {}, context)


def _computed(context: FusionContext) -> dict[Operation, BlockArgument]:
    """All that is computed of updated parameters, one each, in text order."""
    updated = updated_names(context.function)
    found: dict[Operation, BlockArgument] = {}
    for argument in context.function.args:
        attrs = argument_attrs(context.function, argument.index)
        is_updated = logical.NAME_ATTR in attrs and attrs[logical.NAME_ATTR].data in updated
        if is_updated and attrs[logical.ROLE_ATTR].data == "param" and tensor_info(argument.type).shape:
            for use in argument.uses:
                _follow(use.operation, argument, found)
    return {op: found[op] for op in sorted(found, key=context.position.__getitem__)}


def _sets_that_may_join(
    ops: Mapping[Operation, BlockArgument], context: FusionContext
) -> Iterator[dict[Operation, BlockArgument]]:
    """Those that policy and micro-batches let be one instruction."""
    rest: dict[Operation, BlockArgument] = {**ops}
    while rest:
        seed = next(iter(rest))
        yield {op: rest[op] for op in rest if context.may_join(op, seed)}
        rest = {op: rest[op] for op in rest if not context.may_join(op, seed)}


def _detours(ops: Collection[Operation], context: FusionContext) -> dict[Operation, Operation]:
    """Those of `ops` that read another one through an op outside, which is given with each: a policy may have pinned
    that elsewhere, and an instruction of all would wait for a result of its own."""
    found: dict[Operation, Operation] = {}
    outside: dict[SSAValue, Operation] = {}
    for op in context.function.body.block.ops:
        through = next((outside[operand] for operand in op.operands if operand in outside), None)
        if op in ops and through is not None:
            found[op] = through
        follows = through is not None or any(operand.owner in ops for operand in op.operands)
        if follows and (op not in ops or op in found):
            outside |= dict.fromkeys(op.results, op)
    return found


def _detour(op: Operation, through: Operation) -> str:
    """The reason against `op`."""
    return (
        f"'{id_of(op)}' reads others of the group through '{name_of(through)}', which is not in it: each would "
        f"wait for the other; group '{name_of(through)}' with them, or '{id_of(op)}' apart"
    )


def _chains(ops: Mapping[Operation, BlockArgument]) -> Iterator[_Chain]:
    """What is left of `ops`, by parameter, without what its one reader takes along."""
    for argument in dict.fromkeys(ops.values()):
        members: set[Operation] = set()
        results: list[OpResult] = []
        for op in reversed([op for op in ops if ops[op] is argument]):
            readers = _readers(op)
            others = [reader for reader in readers if reader not in members]
            if others and (len(readers) > 1 or not _takes_along(others[0])):
                results.insert(0, op.results[0])
                members.add(op)
            elif not members.isdisjoint(readers):
                members.add(op)
        if results:
            yield _Chain([op for op in ops if op in members], results)


def _follow(op: Operation, argument: BlockArgument, found: dict[Operation, BlockArgument]) -> None:
    """Adds an op that computes of `argument` alone, and what computes of that; no new value of the parameter."""
    if op in found or not op.has_trait(logical.Elementwise) or op_id(op) is None or is_again(op):
        return
    users = [use.operation for use in op.results[0].uses]
    of_it_alone = all(
        (isinstance(value, OpResult) and found.get(value.op) is argument)
        or value is argument
        or _is_splat(value)
        for value in op.operands
    )
    if of_it_alone and not any(isinstance(user, func.ReturnOp) for user in users):
        found[op] = argument
        for user in users:
            _follow(user, argument, found)


def _is_splat(value: SSAValue) -> bool:
    """Whether a value is a constant with one number for all elements, broadcast or not."""
    while isinstance(value, OpResult) and isinstance(value.op, logical.BroadcastOp):
        value = value.op.operand
    return isinstance(value, OpResult) and isinstance(value.op, logical.ConstantOp) and value.op.is_splat


def _readers(op: Operation) -> list[Operation]:
    """What reads an op's values, each once, at once or through views that are no instructions."""
    found: dict[Operation, None] = {}
    for use in (use for result in op.results for use in result.uses):
        reader = use.operation
        found |= dict.fromkeys(_readers(reader) if is_rematerializable(reader) else [reader])
    return list(found)


def _takes_along(reader: Operation) -> bool:
    """Whether the loops of an op that is in no group yet can compute what it reads."""
    traits = (logical.Elementwise, logical.Reduction, logical.Scan)
    return not isinstance(reader, GroupOp) and any(reader.has_trait(trait) for trait in traits)


def _plan(chains: Sequence[_Chain], context: FusionContext) -> Outline | None:
    """The group of all chains; None if there is but one, if the policy lists others with them, or if they are no parts
    of one instruction."""
    members = sorted((op for chain in chains for op in chain.ops), key=context.position.__getitem__)
    if len(chains) < 2:
        return None
    if context.are_listed(members) and not set(context.listed_with(members[0])).issubset(members):
        return None
    results = sorted(
        (result for chain in chains for result in chain.results),
        key=lambda result: context.position[result.op],
    )
    plan = outline(members, context.group_id(members), results)
    return None if body_update(plan.body) is None else plan
