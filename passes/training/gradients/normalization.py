"""What normalisations pass back, softmax among them.

The statistics are computed again from the operand: a kernel that has the row reads nothing more for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.training.gradients.base import BY_FORMULA, Adjoint, Gradients


def _softmax(adjoint: Adjoint, op: logical.SoftmaxOp) -> SSAValue:
    """y * (g - sum(g * y))."""
    y, axes = adjoint.result, [op.axis.value.data]
    weighted = adjoint.total(adjoint.product(adjoint.grad, y), axes, keepdims=True)
    centered = adjoint.apply(logical.SubOp, adjoint.grad, adjoint.spread(weighted, axes, y))
    return adjoint.product(centered, y)


def _log_softmax(adjoint: Adjoint, op: logical.LogSoftmaxOp) -> SSAValue:
    """g - exp(y) * sum(g)."""
    y, axes = adjoint.result, [op.axis.value.data]
    total = adjoint.spread(adjoint.total(adjoint.grad, axes, keepdims=True), axes, y)
    return adjoint.apply(logical.SubOp, adjoint.grad, adjoint.product(adjoint.apply(logical.ExpOp, y), total))


def _mean(adjoint: Adjoint, value: SSAValue, axes: Sequence[int]) -> SSAValue:
    """The mean along axes, repeated to the shape of the value."""
    return adjoint.spread(adjoint.mean(value, axes, True, "mean"), axes, value)


def _inverse_deviation(adjoint: Adjoint, square: SSAValue, epsilon: float, axes: Sequence[int]) -> SSAValue:
    """1 / sqrt(mean(square) + epsilon), repeated to the shape of the squares."""
    mean = adjoint.mean(square, axes, True, "variance")
    factor = adjoint.apply(logical.RsqrtOp, adjoint.apply(logical.AddOp, mean, epsilon))
    return adjoint.spread(factor, axes, square)


def _standardized(adjoint: Adjoint, op: logical.LayerNormOp | logical.RmsNormOp) -> tuple[SSAValue, SSAValue]:
    """The operand before scale and bias, and what it was multiplied by."""
    axes = logical.normalized_axes(op)

    def centered() -> SSAValue:
        x = adjoint.saved(op.operand)
        return (
            x
            if isinstance(op, logical.RmsNormOp)
            else adjoint.apply(logical.SubOp, x, _mean(adjoint, x, axes))
        )

    def factor() -> SSAValue:
        x = adjoint.shared("centered", centered)
        return _inverse_deviation(adjoint, adjoint.product(x, x), op.epsilon.value.data, axes)

    inverse = adjoint.shared("factor", factor)
    value = adjoint.shared(
        "standardized", lambda: adjoint.product(adjoint.shared("centered", centered), inverse)
    )
    return value, inverse


def _norm_operand(adjoint: Adjoint, op: logical.LayerNormOp | logical.RmsNormOp) -> SSAValue:
    """f * (h - mean(h) - n * mean(h * n)): h = g * scale, n the standardised operand, f its factor.

    Without a mean in the forward formula there is no mean(h).
    """
    axes = logical.normalized_axes(op)
    normal, factor = _standardized(adjoint, op)
    scale = adjoint.broadcast(adjoint.saved(op.scale), axes, tensor_info(normal.type).sizes, "scale")
    h = adjoint.product(adjoint.grad, scale)
    slanted = adjoint.product(normal, _mean(adjoint, adjoint.product(h, normal), axes))
    if isinstance(op, logical.LayerNormOp):
        h = adjoint.apply(logical.SubOp, h, _mean(adjoint, h, axes))
    return adjoint.product(adjoint.apply(logical.SubOp, h, slanted), factor)


def _norm_scale(adjoint: Adjoint, op: logical.LayerNormOp | logical.RmsNormOp) -> SSAValue:
    """The sum of g * n over all rows."""
    normal, _ = _standardized(adjoint, op)
    return adjoint.total(adjoint.product(adjoint.grad, normal), range(op.axis.value.data))


def _norm_bias(adjoint: Adjoint, op: logical.LayerNormOp) -> SSAValue:
    """The sum over all rows."""
    return adjoint.total(adjoint.grad, range(op.axis.value.data))


GRADIENTS: Gradients = {
    logical.SoftmaxOp: (_softmax,),
    logical.LogSoftmaxOp: (_log_softmax,),
    logical.LayerNormOp: (_norm_operand, _norm_scale, _norm_bias),
    logical.RmsNormOp: (_norm_operand, _norm_scale),
    logical.BatchNormOp: BY_FORMULA,
    logical.GroupNormOp: BY_FORMULA,
}
