"""`fuse-attention-backward`: the gradients of an attention become one kernel that never writes scores or weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.passes.bodies.attention_backward import AttentionBackward, attention_backward_ending_in
from aicf.passes.bodies.outlining import Outline, id_of, outline
from aicf.passes.fusion.attention.batches import chains_after
from aicf.passes.fusion.attention.members import members, why_in_memory
from aicf.passes.fusion.driver import Candidate, Decision, FusionPattern, label
from aicf.passes.fusion.forming import OTHER_GROUPS, FusionContext

KIND = "attention_backward"


@dataclass(frozen=True)
class Match:
    """The backward part of an attention, and its ops from the scores on, in text order."""

    backward: AttentionBackward
    members: tuple[Operation, ...]


@dataclass(frozen=True)
class FuseAttentionBackwardPass(FusionPattern[Match]):
    """Groups the five products of an attention's backward part, and all between them, where nothing else reads it.

    The weights must be computed again from queries and keys, as `eliminate-saves` decides where this kernel can be had:
    the kernel does that too. Transposes and reshapes become strides, as in `fuse-attention`.
    """

    name = "fuse-attention-backward"
    stage = "before_views"
    benefit = 0
    switch = "attention"
    kinds = (KIND,)

    def matches(self, context: FusionContext) -> Iterator[Match]:
        yield from backward_matches(context)

    def subjects(self, match: Match) -> Sequence[str]:
        return [*map(id_of, match.backward.products), id_of(match.backward.forward.scores)]

    def obstacle(self, match: Match, context: FusionContext) -> str | None:
        return obstacle_of(match, context)

    def candidates(self, match: Match, context: FusionContext) -> Iterator[Candidate]:
        """With the views after each of the three results that its strides express, then without any."""
        yield from candidates_of(match, context)

    def decision(self, match: Match, plan: Outline, tried: Mapping[str, str]) -> Decision:
        because = "scores, weights and their gradients stay on chip; weights are computed again from queries and keys"
        return Decision(f"one kernel for {len(plan.members)} ops", because)


def backward_matches(context: FusionContext) -> Iterator[Match]:
    """The backward parts of attentions in a function."""
    for op in list(context.function.body.block.ops):
        found = attention_backward_ending_in(op) if isinstance(op, logical.MatmulOp) else None
        if found is not None:
            yield Match(found, members(found.results, found.operands, context.position))


def obstacle_of(match: Match, context: FusionContext) -> str | None:
    """Why no group of the match is legal, whatever kernels there are; None if one may be."""
    if not context.may_be_one(match.members):
        return OTHER_GROUPS
    return why_in_memory(match.members, match.backward.products)


def candidates_of(match: Match, context: FusionContext) -> Iterator[Candidate]:
    """The groups to try."""
    products = match.backward.products
    longest = [next(chains_after(product)) for product in products]
    for chains in (longest, [list[Operation]() for _ in products]) if any(longest) else (longest,):
        ends = [
            chain[-1].results[0] if chain else product.result
            for product, chain in zip(products, chains, strict=True)
        ]
        inside = {*match.members, *(op for chain in chains for op in chain)}
        ops = [op for op in context.position if op in inside]
        yield Candidate(label(products), outline(ops, context.group_id(ops), ends), (KIND,))
