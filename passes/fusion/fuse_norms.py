"""`fuse-norms`: a row program (layer_norm, rms norm, softmax) joins the product whose rows it works on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.outlining import Outline, id_of, outline
from aicf.passes.bodies.products import reduces_rows
from aicf.passes.bodies.workload import target_of
from aicf.passes.fusion.candidates import FusionCandidates
from aicf.passes.fusion.forming import NO_GAIN, FusionContext, form_group, fusion_contexts, refusal
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.works_on import FUNCTIONS

KINDS = ("gemm_norm",)

_RESULTS = 2
"""Of a group: what is normed, if others read it too, and the norm."""

Cut = tuple[Operation, ...]


@dataclass(frozen=True)
class FuseNormsPass(ModulePass):
    """Groups a product with the row program after it, and with the pointwise ops before, between and after them.

    The rows never go to memory, unless others read what is normed too: then both are results. A kernel that says what
    the parts would cost takes the whole only where that costs no more: all columns of a row must meet, which leaves
    fewer tiles.
    """

    name = "fuse-norms"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for context in fusion_contexts(op, target_of(op)):
            for product in list(context.function.body.block.ops):
                if isinstance(product, logical.MatmulOp):
                    _fuse(product, context)


_WANTED = "only reductions of the product's rows and elementwise ops on them are fused with it"


def _fuse(product: logical.MatmulOp, context: FusionContext) -> None:
    if (first := next(_cuts(product, context), None)) is None:
        return
    refused: dict[str, str] = {}
    plan = None
    if not context.policy.fusion.norm:
        because = "fusion of norms with products is off by policy (fusion.norm)"
    elif (because := context.why_none_of(KINDS)) is None:
        because = NO_GAIN
        plan = _first_legal(product, context, refused)
    if plan is None:
        subjects = [id_of(product), *(id_of(op) for op in first if op.has_trait(logical.Reduction))]
        record_decision(context.module, FuseNormsPass.name, subjects, "not fused", because, refused)
        return
    subjects = [id_of(member) for member in plan.members]
    kept = len(plan.results) > 1
    group = form_group(plan, context)
    because = "its rows stay in registers until they are normed"
    if kept:
        because += ", and are written once for others to read"
    choice = f"one kernel for {len(subjects)} ops"
    record_decision(context.module, FuseNormsPass.name, [group.id.data, *subjects], choice, because, refused)


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


def _first_legal(
    product: logical.MatmulOp, context: FusionContext, refused: dict[str, str]
) -> Outline | None:
    """The largest set if a kernel takes it, else the same without what only feeds it, such as the cast of a scale."""
    largest, *smaller = _cuts(product, context)
    for cut in (largest, *(cut for cut in smaller if _results(cut) == _results(largest))):
        left = next((op for op in largest if op not in cut), None)
        loss = (
            None
            if left is None
            else f"it leaves out '{id_of(left)}', which is fused with the norm if the product is not"
        )
        plan = outline(cut, context.group_id(cut), _results(cut))
        if (reason := refusal(plan, context, KINDS, loss)) is None:
            return plan
        refused[" + ".join(id_of(op) for op in cut)] = reason
    return None
