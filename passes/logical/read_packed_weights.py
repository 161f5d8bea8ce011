"""``read-packed-weights``: what reads a block-quantised weight reads its blocks, and widens only what it needs.

A product with the rows of the weight reads them in blocks and widens them in registers. A gather of rows is one of
packed rows, widened afterwards; products of matrices that are gathered, as experts are, with a column each read them
where they lie. Other consumers read the widened weight, which a kernel makes at every call.

A cast to f16 or bf16 between a weight and its product is dropped, so the weight of a narrow product is not rounded to
the narrow type. `rounding: strict` keeps that cast, and with it the widened weight.

Where the policy says so (`packed_activations`), what a product of f32 multiplies the weight with is rounded to 8 bits,
but not with gathered matrices, and not next to codes that are floats.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from aicf.dialects.block_bits import BLOCK_BITS
from aicf.dialects.logical import (
    BLOCK_FACTORS,
    BroadcastOp,
    CastOp,
    DequantizeBlocksOp,
    GatherOp,
    MatmulBlocksOp,
    MatmulOp,
    ReshapeOp,
    RoundedMatmulBlocksOp,
)
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.support.identity import (
    Expansion,
    IdTable,
    derived_id,
    op_id,
    replace_with_op,
    set_identity,
    sources,
)
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.policy import lowered_precision_of, policy_of
from aicf.passes.support.works_on import FUNCTIONS
from aicf.policies.precision_policy import INT8

ONLY_F32 = "only f32 activations are rounded to 8 bits"
PACKED = "packed"
"""The name of a gather of packed rows, after the id of the op that it was."""
WIDENED = "widened"
"""The name of what widens them where a cast follows."""


@dataclass(frozen=True)
class ReadPackedWeightsPass(ModulePass):
    """Lets products and gathers of rows read block-quantised weights as they lie in memory."""

    name = "read-packed-weights"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        is_strict = policy_of(op).rounding == "strict"
        for inner in list(op.walk()):
            if isinstance(inner, MatmulOp) and (weight := _rows_of_blocks(inner, is_strict)) is not None:
                _multiply_blocks(op, inner, weight)
            elif isinstance(inner, MatmulOp) and (chosen := _chosen_blocks(inner, is_strict)) is not None:
                _multiply_chosen(op, inner, *chosen)
            elif isinstance(inner, GatherOp) and (weight := _widened_blocks(inner.operand)) is not None:
                _gather_packed(op, inner, weight)
        if lowered_precision_of(op).packed_activations == INT8:
            _record_widened(op)


def _widened_blocks(value: SSAValue) -> DequantizeBlocksOp | None:
    """What widens the blocks of a value, perhaps before a cast."""
    if isinstance(value.owner, CastOp):
        value = value.owner.operand
    return value.owner if isinstance(value.owner, DequantizeBlocksOp) else None


def _factor_blocks(value: SSAValue, is_strict: bool) -> DequantizeBlocksOp | None:
    """What widens the blocks of a factor of a product, if the product can read these.

    A narrow product would read the weight rounded to its type; in registers it need not be, unless rounding is strict.
    """
    if isinstance(value.owner, CastOp) and (is_strict or element_of(value.type).name not in BLOCK_FACTORS):
        return None
    return _widened_blocks(value)


def _rows_of_blocks(matmul: MatmulOp, is_strict: bool) -> DequantizeBlocksOp | None:
    """The weight of a product that contracts its columns, in which its blocks lie."""
    weight = _factor_blocks(matmul.rhs, is_strict)
    is_plain = matmul.transpose_b is not None and matmul.transpose_a is None
    return weight if weight is not None and is_plain and weight.info.rank == 2 else None


def _multiply_blocks(module: ModuleOp, matmul: MatmulOp, weight: DequantizeBlocksOp) -> None:
    scheme, asked = weight.scheme.data, lowered_precision_of(module).packed_activations == INT8
    unrounded = _unrounded(scheme, element_of(matmul.lhs.type).name)
    is_rounded = asked and unrounded is None
    made = (RoundedMatmulBlocksOp if is_rounded else MatmulBlocksOp)(matmul.lhs, weight.packed, scheme)
    replace_with_op(PatternRewriter(matmul), matmul, made, weight)
    because = "where the target has kernels for it, they widen blocks in registers, and read the fewest bytes"
    choice = "product of packed rows"
    if is_rounded:
        choice, because = (
            "product of packed rows and activations of 8 bits",
            "the policy says packed_activations",
        )
    elif asked and unrounded is not None:
        because = unrounded
    _record(module, weight, made, choice, because)


def _unrounded(scheme: str, element: str) -> str | None:
    """Why activations of an element type are not rounded next to a scheme's codes; None if they can be."""
    if element != "f32":
        return f"{ONLY_F32}, so these stay {element}"
    if BLOCK_BITS[scheme].floats is not None:
        return f"the codes of {scheme} are floats, so activations stay f32"
    return None


def _chosen_blocks(matmul: MatmulOp, is_strict: bool) -> tuple[DequantizeBlocksOp, GatherOp] | None:
    """The widened matrices of a product, one for each column, and the gather of their rows of bytes."""
    weight = _factor_blocks(matmul.lhs, is_strict)
    is_plain = matmul.transpose_b is None and matmul.transpose_a is None
    is_column = tensor_info(matmul.rhs.type).sizes[-1] == 1
    if weight is None or not (is_plain and is_column):
        return None
    gather = weight.packed.owner
    if not isinstance(gather, GatherOp) or gather.axis.value.data != 0:
        return None
    is_of_matrices = tensor_info(gather.operand.type).rank == 3
    has_row_for_each = matmul.info.sizes[:-2] == weight.info.sizes[:-2]
    return (weight, gather) if is_of_matrices and has_row_for_each else None


def _multiply_chosen(
    module: ModuleOp, matmul: MatmulOp, weight: DequantizeBlocksOp, gather: GatherOp
) -> None:
    """Columns become rows, one for each index."""
    expansion = Expansion(PatternRewriter(matmul), matmul, IdTable(module))
    sizes = tensor_info(matmul.rhs.type).sizes[:-1]
    rows = expansion.add(ReshapeOp(matmul.rhs, sizes), "rows")
    wanted = (*tensor_info(gather.indices.type).sizes, sizes[-1])
    if sizes != wanted:
        missing = len(wanted) - len(sizes)
        rows = expansion.add(BroadcastOp(rows, range(missing, len(wanted)), wanted), "each")
    replacement = MatmulBlocksOp(rows, gather.operand, weight.scheme.data, gather.indices)
    product = expansion.add(replacement, "chosen")
    because = "where the target has kernels for it, they read the matrices that are chosen, and no others"
    if lowered_precision_of(module).packed_activations == INT8:
        element = element_of(matmul.rhs.type).name
        because += f"; activations stay {element}, as no kernel rounds them for chosen matrices"
    _record(module, weight, replacement, "product of chosen packed matrices", because)
    expansion.finish([expansion.add(ReshapeOp(product, matmul.info.sizes), "")])


def _gather_packed(module: ModuleOp, gather: GatherOp, weight: DequantizeBlocksOp) -> None:
    """Rows of bytes first: only what is read is widened."""
    axis = gather.axis.value.data
    if axis == tensor_info(weight.packed.type).rank - 1:
        return
    rows = GatherOp(weight.packed, gather.indices, axis)
    own = op_id(gather)
    name = None if own is None else IdTable(module).fresh(derived_id(own, PACKED))
    set_identity(rows, name, sources(gather))
    rows.location = gather.location
    rewriter = PatternRewriter(gather)
    rewriter.insert(rows, InsertPoint.before(gather))
    replacement = DequantizeBlocksOp(rows, weight.scheme.data)
    cast = gather.operand.owner
    if isinstance(cast, CastOp):
        own = None if own is None else IdTable(module).fresh(derived_id(own, WIDENED))
        set_identity(replacement, own, (*sources(gather), *sources(weight)))
        replacement.location = gather.location
        rewriter.insert(replacement, InsertPoint.before(gather))
        replace_with_op(rewriter, gather, CastOp(replacement.result, gather.info.element), cast)
    else:
        replace_with_op(rewriter, gather, replacement, weight)
    _record(module, weight, replacement, "gather of packed rows", "only the rows that are read are widened")


def _record_widened(module: ModuleOp) -> None:
    """Notes the products that are not rounded because they read a widened weight, and if none is rounded at all."""
    rounded = False
    for op in module.walk():
        rounded |= isinstance(op, RoundedMatmulBlocksOp)
        weights = [weight for value in op.operands if (weight := _widened_blocks(value)) is not None]
        if isinstance(op, MatmulOp) and weights:
            _record_unrounded(module, op, weights[0])
    if not rounded:
        because = (
            "packed_activations has no effect: no product contracts f32 activations with the rows of one matrix in "
            "blocks of whole numbers"
        )
        choice = "activations stay as they are"
        record_decision(module, ReadPackedWeightsPass.name, ["module"], choice, because)


def _record_unrounded(module: ModuleOp, matmul: MatmulOp, weight: DequantizeBlocksOp) -> None:
    element = element_of(matmul.lhs.type).name
    because = ONLY_F32
    if element == "f32":
        because = (
            "the weight is widened: packed rows are for the transpose of one matrix on the right, and for matrices "
            "that indices choose, with a column each"
        )
    subjects = [name for op in (weight, matmul) if (name := op_id(op)) is not None]
    record_decision(module, ReadPackedWeightsPass.name, subjects, f"activations stay {element}", because)


def _record(module: ModuleOp, weight: Operation, reader: Operation, choice: str, because: str) -> None:
    subjects = [name for op in (weight, reader) if (name := op_id(op)) is not None]
    rejected = {"widened weight": "all of it would be written and read again"}
    record_decision(module, ReadPackedWeightsPass.name, subjects, choice, because, rejected=rejected)
