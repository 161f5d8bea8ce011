"""What the norm of all gradients passes back, for a penalty on it; counters are integers, and pass back nothing."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.training.gradients.base import BY_FORMULA, STEPS, Adjoint, Gradients


def _global_norm(adjoint: Adjoint, op: logical.GlobalNormOp) -> SSAValue:
    """x / norm; 0 where the norm is 0."""

    def share() -> SSAValue:
        norm = adjoint.result
        quotient = adjoint.apply(logical.DivOp, adjoint.grad, norm)
        return adjoint.where(adjoint.compare("eq", norm, 0.0), 0.0, quotient)

    part = adjoint.saved(op.parts[adjoint.operand_index])
    spread = adjoint.spread(adjoint.shared("share", share), range(tensor_info(part.type).rank), part)
    return adjoint.product(spread, part)


GRADIENTS: Gradients = {
    logical.GlobalNormOp: (_global_norm,),
    logical.ClipFactorOp: BY_FORMULA,
    logical.DetachOp: STEPS,
    logical.StepIncOp: STEPS,
    logical.BiasCorrOp: STEPS,
    logical.LearningRateOp: STEPS,
    logical.StepRateOp: STEPS,
    logical.OneCycleRateOp: STEPS,
}
