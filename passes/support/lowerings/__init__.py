"""How composite ops are written with primitive ones: a table of formulas, one entry an op, by family."""

from aicf.dialects import logical
from aicf.passes.support.greedy import PatternTable
from aicf.passes.support.identity import IdTable
from aicf.passes.support.lowerings import (
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
from aicf.passes.support.lowerings.base import Formulas, LowerBy

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

GRADIENT_FORMULAS: Formulas = {**FORMULAS, logical.LstmOp: recurrent.lstm_steps}
"""What an op is written as before its gradient is taken: steps, also where a kernel runs all of them."""


def lowerings(ids: IdTable) -> PatternTable:
    """Composite op class to its lowering."""
    return {op_class: (LowerBy(formula, ids),) for op_class, formula in FORMULAS.items()}


__all__ = ["FORMULAS", "GRADIENT_FORMULAS", "lowerings"]
