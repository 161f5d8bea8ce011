"""`fuse-epilogues`: pointwise ops, or a copy, after a product or convolution join it, so that it is written once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from aicf.dialects import logical
from aicf.dialects.emit import GroupOp
from aicf.passes.bodies.matching import only_reader
from aicf.passes.bodies.outlining import Outline, id_of, outline
from aicf.passes.bodies.views import is_rearrangement, view_after
from aicf.passes.fusion.candidates import POINTWISE_ON_SUMS, Accumulation, FusionCandidates, pointwise_like
from aicf.passes.fusion.driver import Candidate, Decision, FusionPattern, label
from aicf.passes.fusion.forming import OTHER_GROUPS, FusionContext, form_group
from aicf.passes.support.policy import without_bucket


@dataclass(frozen=True)
class _Match:
    """A product, and the ops that could be its epilogue."""

    product: Accumulation
    cluster: FusionCandidates


@dataclass(frozen=True)
class FuseEpiloguesPass(FusionPattern[_Match]):
    """Groups each matmul and convolution with the pointwise ops that follow it: bias, activation, any scalar program.

    The largest set with one result for which the target has a legal kernel is taken; larger ones are recorded with
    the reason. A matmul whose epilogue no kernel takes becomes a group of one, but with what transposes its rows where
    that would be a copy of its own: then its kernel writes each row where it belongs. A matmul that no kernel takes
    alone is left to `fuse-elementwise`.
    """

    name = "fuse-epilogues"
    stage = "after_views"
    benefit = 20

    def matches(self, context: FusionContext) -> Iterator[_Match]:
        for product in list(context.function.body.block.ops):
            if isinstance(product, Accumulation):
                cluster = FusionCandidates([product], context)
                if context.policy.fusion.epilogue:
                    cluster.grow(pointwise_like(product), POINTWISE_ON_SUMS)
                yield _Match(product, cluster)

    def candidates(self, match: _Match, context: FusionContext) -> Iterator[Candidate]:
        return match.cluster.groups(pointwise_like(match.product))

    def form(
        self, match: _Match, plans: Iterable[Outline], tried: Mapping[str, str], context: FusionContext
    ) -> None:
        (plan,) = plans
        copy = _copy_after(match.product, context) if plan.members == (match.product,) else None
        if copy is None or not self._form_with_copy(match.product, copy, context):
            super().form(match, [plan], tried, context)

    def _form_with_copy(self, product: Accumulation, copy: GroupOp, context: FusionContext) -> bool:
        """Makes the product and `copy` one group if a kernel writes the result with the strides that it has then."""
        moves = _moves_in_function(product, copy)
        members = (product, *moves)
        plan = outline(members, context.group_id(members), [moves[-1].results[0]])
        listed = [op for op in moves if context.are_listed([op])]  # what only feeds, a policy need not list
        obstacle = None if context.may_be_one([product, *listed]) else OTHER_GROUPS
        if Candidate(label(members), plan, ("gemm",), obstacle=obstacle).refusal(context) is not None:
            for op in reversed(moves):
                op.detach()
                op.erase()
            return False
        # The body no longer has the views after the product, so its value takes the product's name.
        plan.results[0].name_hint = product.result.name_hint
        subjects = [id_of(member) for member in members]
        context.position |= dict.fromkeys(moves, context.position[product])
        copy.results[0].replace_all_uses_with(moves[-1].results[0])
        context.function.body.block.erase_op(copy)
        del context.position[copy]
        group = form_group(plan, context)
        because = "its rows are written where the copy would put them, so no copy runs"
        self.record(context, [group.id.data, *subjects], Decision("one kernel with the copy", because))
        return True

    def left_out(self, match: _Match, plan: Outline, tried: Mapping[str, str]) -> Mapping[str, str]:
        return match.cluster.left_out(plan.members, tried)

    def decision(self, match: _Match, plan: Outline, tried: Mapping[str, str]) -> Decision:
        if len(plan.members) == 1:
            return Decision("alone", _why_alone(match.cluster, bool(tried)))
        return Decision(
            f"one kernel for {len(plan.members)} ops",
            "the pointwise ops run on the accumulator, so the product is written once and never read back",
        )


def _copy_after(matmul: Accumulation, context: FusionContext) -> GroupOp | None:
    """The instruction that only moves whole rows of a product, and is all that reads it."""
    reader = only_reader(matmul.result) if isinstance(matmul, logical.MatmulOp) else None
    if not context.policy.fusion.epilogue or not isinstance(reader, GroupOp):
        return None
    id_ = reader.id.data
    if any(name in context.policy.kernels for name in (id_, without_bucket(id_), "copy")):
        return None
    *moves, _ = reader.body.block.ops
    if not moves or not all(is_rearrangement(op) for op in moves):
        return None
    view = view_after(moves)
    return reader if view is not None and view.strides[-1] == 1 else None


def _moves_in_function(matmul: Accumulation, copy: GroupOp) -> list[Operation]:
    """Clones the ops of `copy` into the function, after the product."""
    block = matmul.parent
    assert block is not None
    value: SSAValue = matmul.result
    last: Operation = matmul
    moves: list[Operation] = []
    for op in list(copy.body.block.ops)[:-1]:
        clone = op.clone({op.operands[0]: value})
        block.insert_op_after(clone, last)
        moves.append(clone)
        value, last = clone.results[0], clone
    return moves


def _why_alone(cluster: FusionCandidates, refused: bool) -> str:
    if not cluster.context.policy.fusion.epilogue:
        return "epilogue fusion is off by policy (fusion.epilogue)"
    if refused:
        return "no kernel of the target runs it with the elementwise ops after it as an epilogue"
    if len(cluster.members) > 1:
        return "the elementwise ops after it have several results with other consumers, and an epilogue writes one"
    return "no elementwise op is its only consumer"
