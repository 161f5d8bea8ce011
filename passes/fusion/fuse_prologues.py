"""`fuse-prologues`: a row program (layer_norm, rms norm) joins the products that alone read its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.passes import ModulePass

from aicf.dialects import logical
from aicf.passes.bodies.outlining import Outline, id_of, name_of
from aicf.passes.bodies.workload import target_of
from aicf.passes.fusion.candidates import POINTWISE_ON_SUMS, FusionCandidates, pointwise_like
from aicf.passes.fusion.forming import NO_GAIN, FusionContext, form_group, fusion_contexts, left_behind
from aicf.passes.fusion.prologues import KINDS, Rows, outline_behind_rows, refusal_behind_rows, row_programs
from aicf.passes.support.identity import IdTable, copied_id, set_identity, sources, value_hint
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.works_on import FUNCTIONS

Products = Sequence[logical.MatmulOp]


@dataclass(frozen=True)
class FuseProloguesPass(ModulePass):
    """Groups a row program with the product that reads its result, and with the pointwise ops after the product.

    Several products take a copy of the row program each, but only if every reader is a product and a kernel takes each
    of them; else the rows are written for all, as they are for kernels that say what the parts would cost. Only kernels
    that hold all rows of their tile at once take a prologue.
    """

    name = "fuse-prologues"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for context in fusion_contexts(op, target_of(op)):
            products = [op for op in context.function.body.block.ops if isinstance(op, logical.MatmulOp)]
            for value in dict.fromkeys(product.lhs for product in products):
                if isinstance(value, OpResult) and value.op in context.position:
                    _fuse(value, context)


def _fuse(value: OpResult, context: FusionContext) -> None:
    readers = list(dict.fromkeys(use.operation for use in value.uses))
    readers.sort(key=lambda op: context.position.get(op, -1))
    programs = list(row_programs(value, readers, context))
    if not programs:
        return
    products = [op for op in readers if isinstance(op, logical.MatmulOp) and _reads_rows(op, value)]
    refused: dict[str, str] = {}
    if not context.policy.fusion.prologue:
        because = "prologue fusion is off by policy (fusion.prologue)"
    elif other := next((op for op in readers if op not in products), None):
        because = f"{_reads(other)}, so they have to be written to memory in any case"
    elif (because := context.why_none_of(KINDS[:1])) is None:
        because = NO_GAIN
        for rows in programs:
            if (plans := _plans(rows, products, context, refused)) is not None:
                _form(rows, plans, products, context, refused)
                return
    subjects = [id_of(value.op), *(id_of(product) for product in products)]
    record_decision(context.module, FuseProloguesPass.name, subjects, "not fused", because, refused)


def _reads_rows(product: logical.MatmulOp, value: SSAValue) -> bool:
    """Whether the product reads the rows of `value` as its left operand, and nothing else of it."""
    return product.lhs is value and product.rhs is not value and product.transpose_a is None


def _reads(op: Operation) -> str:
    """That an op other than a product of the rows reads them."""
    if isinstance(op, logical.MatmulOp):
        return f"'{id_of(op)}' reads the rows as its right operand, or transposed"
    name = name_of(op)
    return "the program returns the rows" if name is None else f"'{name}' reads the rows too"


def _plans(
    rows: Rows, products: Products, context: FusionContext, refused: dict[str, str]
) -> list[Outline] | None:
    """A group for each product, each with `rows` before the product; None if one has none.

    Where results of products meet, the first product takes along what reads both.
    """
    found: list[Outline] = []
    taken: set[Operation] = set()
    loss = f"each of {len(products)} products would compute the rows again" if len(products) > 1 else None
    for product in products:
        accept = pointwise_like(product)
        cluster = FusionCandidates([product], context)
        if context.policy.fusion.epilogue:
            cluster.grow(accept, POINTWISE_ON_SUMS)
        cuts: list[Sequence[Operation]] = [*cluster.candidates(accept), (product,)]
        free = [cut for cut in cuts if taken.isdisjoint(cut)]
        # The first product keeps the rows; those of the others will be copies, which policies call by their own ids.
        ids = (
            {row: copied_id(id_of(row), id_of(product)) for row in rows} if product is not products[0] else {}
        )
        plan = _first_legal(rows, product, free, loss, ids, context, refused)
        if plan is None:
            return None
        found.append(plan)
        taken |= set(plan.members) - set(rows)
    return found


def _first_legal(
    rows: Rows,
    product: logical.MatmulOp,
    cuts: Sequence[Sequence[Operation]],
    loss: str | None,
    ids: Mapping[Operation, str],
    context: FusionContext,
    refused: dict[str, str],
) -> Outline | None:
    for cut in cuts:
        plan = outline_behind_rows(rows, cut, [product], context)
        if (reason := refusal_behind_rows(plan, context, loss or left_behind(cuts[0], cut), ids)) is None:
            return plan
        refused[" + ".join(id_of(op) for op in (rows[-1], *cut))] = reason
    return None


def _form(
    rows: Rows, plans: Sequence[Outline], products: Products, context: FusionContext, refused: dict[str, str]
) -> None:
    """Forms the groups; all products but the first get a copy of the rows of their own."""
    copies = [_copy(rows, product, context) for product in products[1:]]
    cuts = [[op for op in plan.members if op not in rows] for plan in plans[1:]]
    copied = (
        outline_behind_rows(own, cut, [product], context)
        for own, cut, product in zip(copies, cuts, products[1:], strict=True)
    )
    for plan in chain(plans[:1], copied):
        subjects = [id_of(member) for member in plan.members]
        group = form_group(plan, context)
        record_decision(
            context.module,
            FuseProloguesPass.name,
            [group.id.data, *subjects],
            f"one kernel for {len(subjects)} ops",
            "its rows are computed where the product reads them, and never written",
            refused,
        )


def _copy(rows: Rows, product: logical.MatmulOp, context: FusionContext) -> Rows:
    """Copies the rows before `product`, and makes the product read the copy."""
    ids = IdTable(context.module)
    values: dict[SSAValue, SSAValue] = {}
    made: list[Operation] = []
    block = context.function.body.block
    for op in rows:
        clone = op.clone(values)
        own = ids.fresh(copied_id(id_of(op), id_of(product)))
        set_identity(clone, own, sources(op))
        clone.results[0].name_hint = value_hint(own)
        block.insert_op_before(clone, product)
        values[op.results[0]] = clone.results[0]
        made.append(clone)
    product.operands[0] = values[product.lhs]
    context.renumber()
    return tuple(made)
