"""What each op passes back to its operands: a table, one entry an op, by family."""

from aicf.dialects import logical
from aicf.passes.training.gradients import (
    activations,
    arithmetic,
    contraction,
    convolution,
    data_movement,
    functions,
    indexing,
    losses,
    normalization,
    pooling,
    recurrent,
    reduction,
    training,
)
from aicf.passes.training.gradients.base import STEPS, Adjoint, ByFormula, Gradient, Gradients, Tape

GRADIENTS: Gradients = {
    **arithmetic.GRADIENTS,
    **functions.GRADIENTS,
    **activations.GRADIENTS,
    **contraction.GRADIENTS,
    **convolution.GRADIENTS,
    **recurrent.GRADIENTS,
    **reduction.GRADIENTS,
    **normalization.GRADIENTS,
    **pooling.GRADIENTS,
    **data_movement.GRADIENTS,
    **indexing.GRADIENTS,
    **losses.GRADIENTS,
    **training.GRADIENTS,
    logical.ConstantOp: STEPS,
    logical.IotaOp: STEPS,
}

__all__ = ["GRADIENTS", "Adjoint", "ByFormula", "Gradient", "Tape"]
