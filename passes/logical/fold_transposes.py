"""``fold-transposes``: a transposition that feeds a matrix product becomes the product's own transpose flag.

Kernels read either order of the last two dimensions at no cost, a transposition of its own would copy. The
transposition stays for its other users; dce removes it if there are none.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from aicf.dialects.logical import MatmulOp, TransposeOp, int_values
from aicf.passes.support.identity import op_id, replace_with_op
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.works_on import FUNCTIONS


@dataclass(frozen=True)
class FoldTransposesPass(ModulePass):
    """Folds transpositions of the last two dimensions into ``transpose_a`` and ``transpose_b``."""

    name = "fold-transposes"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for inner in list(op.walk()):
            if isinstance(inner, MatmulOp):
                _fold_transposes(op, inner)


def _fold_transposes(module: ModuleOp, matmul: MatmulOp) -> None:
    lhs, rhs = _swapped_operand(matmul.lhs), _swapped_operand(matmul.rhs)
    folded = {name: op for name, op in (("transpose_a", lhs), ("transpose_b", rhs)) if op is not None}
    if not folded:
        return
    replacement = matmul.of_operands(
        matmul.lhs if lhs is None else lhs.operand,
        matmul.rhs if rhs is None else rhs.operand,
        **{flag: flag not in matmul.properties for flag in folded},
    )
    replace_with_op(PatternRewriter(matmul), matmul, replacement, *folded.values())
    for flag, transpose in folded.items():
        _record(module, replacement, flag, transpose)


def _swapped_operand(value: SSAValue) -> TransposeOp | None:
    """The transposition that gives the value, if it swaps the last two dimensions and nothing else."""
    op = value.owner
    if not isinstance(op, TransposeOp):
        return None
    permutation = int_values(op.permutation)
    rank = len(permutation)
    return op if rank >= 2 and permutation == (*range(rank - 2), rank - 1, rank - 2) else None


def _record(module: ModuleOp, matmul: MatmulOp, flag: str, transpose: TransposeOp) -> None:
    subjects = [identity for op in (transpose, matmul) if (identity := op_id(op)) is not None]
    record_decision(
        module,
        FoldTransposesPass.name,
        subjects,
        f"transposition read as {flag} of the product",
        "a product reads either order of the last two dimensions",
        rejected={"transposed copy": "moves every element once more"},
    )
