"""`fuse-norms`: a row program (layer_norm, rms norm, softmax) joins the product whose rows it works on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.outlining import Outline, id_of, outline
from aicf.passes.bodies.products import reduces_rows
from aicf.passes.fusion.candidates import FusionCandidates
from aicf.passes.fusion.driver import Candidate, Decision, FusionPattern, label
from aicf.passes.fusion.forming import FusionContext

_RESULTS = 2
"""Most results of a group: the norm, and its operand if that has other consumers."""

Cut = tuple[Operation, ...]


_WANTED = "only reductions of the product's rows and elementwise ops on them are fused with it"


@dataclass(frozen=True)
class _Match:
    """A product, and the largest set of ops that may be one instruction with it."""

    product: logical.MatmulOp
    largest: Cut


@dataclass(frozen=True)
class FuseNormsPass(FusionPattern[_Match]):
    """Groups a product with the row program after it, and with the pointwise ops before, between and after them.

    A norm before a product is what `fuse-prologues` fuses.

    The rows never go to memory, unless others read what is normed too: then both are results. A kernel that says what
    the parts would cost takes the whole only where that costs no more: all columns of a row must meet, which leaves
    fewer tiles.
    """

    name = "fuse-norms"
    stage = "after_views"
    benefit = 30
    switch = "norm"
    kinds = ("gemm_norm",)

    def matches(self, context: FusionContext) -> Iterator[_Match]:
        products = [op for op in context.function.body.block.ops if isinstance(op, logical.MatmulOp)]
        for product in products:
            if (largest := next(_cuts(product, context), None)) is not None:
                yield _Match(product, largest)

    def subjects(self, match: _Match) -> Sequence[str]:
        return [
            id_of(match.product),
            *(id_of(op) for op in match.largest if op.has_trait(logical.Reduction)),
        ]

    def candidates(self, match: _Match, context: FusionContext) -> Iterator[Candidate]:
        """The largest set, then the same without what only feeds it, such as the cast of a scale."""
        largest, *smaller = _cuts(match.product, context)
        for cut in (largest, *(cut for cut in smaller if _results(cut) == _results(largest))):
            plan = outline(cut, context.group_id(cut), _results(cut))
            yield Candidate(label(cut), plan, self.kinds, _loss(largest, cut))

    def decision(self, match: _Match, plan: Outline, tried: Mapping[str, str]) -> Decision:
        because = "its rows stay in registers until they are normed"
        if len(plan.results) > 1:
            because += ", and are written once for others to read"
        return Decision(f"one kernel for {len(plan.members)} ops", because)


def _cuts(product: logical.MatmulOp, context: FusionContext) -> Iterator[Cut]:
    """The product with all that reduces its rows and what is pointwise around it, largest set first."""
    cluster = FusionCandidates([product], context, _RESULTS)
    cluster.grow(lambda op: _may_follow(op, product, cluster), _WANTED)
    reductions = {op for op in cluster.members if op.has_trait(logical.Reduction)}
    if not reductions:
        return
    shape = tensor_info(product.result.type).shape
    for cut in cluster.candidates(_is_elementwise):
        whole = all(tensor_info(result.type).shape == shape for result in _results(cut))
        if whole and reductions.issubset(cut):
            yield cut


def _is_elementwise(op: Operation) -> bool:
    return op.has_trait(logical.Elementwise)


def _may_follow(op: Operation, product: logical.MatmulOp, cluster: FusionCandidates) -> bool:
    """Whether `op` works on elements of the product, reduces its rows, or works on what is one for a row."""
    shape = tensor_info(product.result.type).shape
    if op.has_trait(logical.Reduction):
        return reduces_rows(op, shape)
    if not _is_elementwise(op) and not isinstance(op, logical.BroadcastOp | logical.ReshapeOp):
        return False
    own = tensor_info(op.results[0].type).shape
    if _is_elementwise(op) and own == shape:
        return True
    return cluster.has_reduction and own in (shape, (*shape[:-1], 1), shape[:-1])


def _results(cut: Cut) -> Sequence[SSAValue]:
    """The values of a cut that others read, in text order."""
    inside = set(cut)
    results = (result for op in cut for result in op.results)
    return [result for result in results if any(use.operation not in inside for use in result.uses)]


def _loss(largest: Cut, cut: Cut) -> str | None:
    left = next((op for op in largest if op not in cut), None)
    if left is None:
        return None
    return f"it leaves out '{id_of(left)}', which is fused with the norm if the product is not"
