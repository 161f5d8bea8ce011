"""``lower-logical``: composite ops become primitive ones.

What is left is what kernels and the generator know: elementwise ops with a scalar form, matmul, plain reductions and
scans, views, constants, and ops that read or write at computed indices. The formulas (``logical/lowerings``) are those
of the semantics: a composite of f16 or bf16 is computed in f32, between casts, and its coefficients are rounded to that
type. Coefficients are splat constants of the full shape, so that every elementwise op has operands of one shape.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf.backends.registry import get_kernels
from aicf.passes.bodies.workload import TARGET_ATTR, target_of
from aicf.passes.legalize.expansions import EXPANSIONS
from aicf.passes.logical.lowerings import lowerings
from aicf.passes.logical.lowerings.base import LowerBy
from aicf.passes.support.greedy import PatternTable, apply_patterns
from aicf.passes.support.identity import IdTable
from aicf.passes.support.works_on import FUNCTIONS


@dataclass(frozen=True)
class LowerLogicalPass(ModulePass):
    """Expands composite ops such as linear, gelu, softmax and layer_norm; the new ops are called ``<id>.<part>``."""

    name = "lower-logical"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        apply_patterns(op, target_lowerings(op, IdTable(op)))


def target_lowerings(module: ModuleOp, ids: IdTable) -> PatternTable:
    """The lowerings for the target of a module, if it has one: what some kernel of it might run is left to
    `legalize-for-target`."""
    table = dict(lowerings(ids))
    kinds = _kinds_of_target(module)
    for op, row in EXPANSIONS.items():
        if not kinds.isdisjoint(row.kinds):
            table[op] = () if row.kept is None else (LowerBy(row.kept, ids),)
    return table


def _kinds_of_target(module: ModuleOp) -> frozenset[str]:
    """The kinds of instruction that the target has kernels for."""
    if TARGET_ATTR not in module.attributes:
        return frozenset()
    kernels = get_kernels(target_of(module).backend.data).values()
    return frozenset(kind for kernel in kernels for kind in kernel.kinds)
