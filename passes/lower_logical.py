"""``lower-logical``: composite ops become primitive ones.

What is left is what kernels and the generator know: elementwise ops with a scalar form, matmul, plain reductions and
scans, views, constants, and ops that read or write at computed places. The formulas (``support/lowerings``) are those
of the semantics: a composite of f16 or bf16 is computed in f32, between casts, and its coefficients are rounded to that
type. Coefficients are splat constants of the full shape, so that every elementwise op has operands of one shape.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf.passes.lower_convolutions import bias_apart, has_kernels
from aicf.passes.lower_poolings import without_poolings
from aicf.passes.support.greedy import apply_patterns
from aicf.passes.support.identity import IdTable
from aicf.passes.support.lowerings import lowerings
from aicf.passes.support.works_on import FUNCTIONS


@dataclass(frozen=True)
class LowerLogicalPass(ModulePass):
    """Expands composite ops such as linear, gelu, softmax and layer_norm; the new ops are called ``<id>.<part>``."""

    name = "lower-logical"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        ids = IdTable(op)
        patterns = dict(lowerings(ids))
        if has_kernels(op):
            patterns |= bias_apart(ids)
        apply_patterns(op, without_poolings(op, patterns))
