"""How composite ops are written with primitive ones: a table of formulas, one entry an op, by family."""

from aicf.passes.logical.lowerings import (
    activations,
    arithmetic,
    attention,
    contraction,
    convolution,
    functions,
    indexing,
    losses,
    normalization,
    pooling,
    random,
    recurrent,
    reduction,
    training,
)
from aicf.passes.logical.lowerings.base import Formulas, LowerBy
from aicf.passes.support.greedy import PatternTable
from aicf.passes.support.identity import IdTable

FORMULAS: Formulas = {
    **contraction.FORMULAS,
    **convolution.FORMULAS,
    **arithmetic.FORMULAS,
    **attention.FORMULAS,
    **activations.FORMULAS,
    **functions.FORMULAS,
    **reduction.FORMULAS,
    **normalization.FORMULAS,
    **pooling.FORMULAS,
    **indexing.FORMULAS,
    **random.FORMULAS,
    **recurrent.FORMULAS,
    **losses.FORMULAS,
    **training.FORMULAS,
}


def lowerings(ids: IdTable) -> PatternTable:
    """Composite op class to its lowering."""
    return {op_class: (LowerBy(formula, ids),) for op_class, formula in FORMULAS.items()}


__all__ = ["FORMULAS", "lowerings"]
