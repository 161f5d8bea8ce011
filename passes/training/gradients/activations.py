"""What activations pass back. At a kink the slope is PyTorch's: that of the side where the result is 0 or a bound."""

from __future__ import annotations

import math

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.passes.training.gradients.base import Adjoint, Gradients
from aicf.semantics.elementwise import GELU_CUBIC, HARD_SWISH_SLOPE, SQRT_2_OVER_PI, SQRT_HALF


def _relu(adjoint: Adjoint, op: logical.ReluOp) -> SSAValue:
    """1 where y > 0, told from the result; NaN passes on."""
    return adjoint.where(adjoint.compare("le", adjoint.result, 0.0), 0.0, adjoint.grad)


def _leaky_relu(adjoint: Adjoint, op: logical.LeakyReluOp) -> SSAValue:
    """1 where x > 0, else the slope."""
    positive = adjoint.compare("gt", adjoint.saved(op.operand), 0.0)
    return adjoint.where(positive, adjoint.grad, adjoint.product(adjoint.grad, op.negative_slope.value.data))


def _elu(adjoint: Adjoint, op: logical.EluOp) -> SSAValue:
    """1 where x > 0, else alpha * exp(x)."""
    x = adjoint.saved(op.operand)
    curve = adjoint.product(adjoint.grad, adjoint.apply(logical.ExpOp, x), op.alpha.value.data)
    return adjoint.where(adjoint.compare("gt", x, 0.0), adjoint.grad, curve)


def _silu(adjoint: Adjoint, op: logical.SiluOp) -> SSAValue:
    """s * (1 + x * (1 - s)), s the sigmoid of x."""
    x = adjoint.saved(op.operand)
    s = adjoint.apply(logical.SigmoidOp, x)
    complement = adjoint.apply(logical.AddOp, adjoint.apply(logical.NegOp, s), 1.0)
    slope = adjoint.apply(logical.AddOp, adjoint.product(x, complement), 1.0)
    return adjoint.product(adjoint.grad, s, slope)


def _softplus(adjoint: Adjoint, op: logical.SoftplusOp) -> SSAValue:
    """sigmoid(beta * x)."""
    scaled = adjoint.product(adjoint.saved(op.operand), op.beta.value.data)
    return adjoint.product(adjoint.grad, adjoint.apply(logical.SigmoidOp, scaled))


def _hard_sigmoid(adjoint: Adjoint, op: logical.HardSigmoidOp) -> SSAValue:
    """alpha where 0 < y < 1."""
    y, slope = adjoint.result, adjoint.product(adjoint.grad, op.alpha.value.data)
    above = adjoint.where(adjoint.compare("ge", y, 1.0), 0.0, slope)
    return adjoint.where(adjoint.compare("le", y, 0.0), 0.0, above)


def _hard_swish(adjoint: Adjoint, op: logical.HardSwishOp) -> SSAValue:
    """0 up to -3, x / 3 + 1/2 up to 3, then 1."""
    x = adjoint.saved(op.operand)
    slope = adjoint.apply(logical.AddOp, adjoint.product(x, 2 * HARD_SWISH_SLOPE), 0.5)
    above = adjoint.where(adjoint.compare("ge", x, 3.0), adjoint.grad, adjoint.product(adjoint.grad, slope))
    return adjoint.where(adjoint.compare("le", x, -3.0), 0.0, above)


def _gelu(adjoint: Adjoint, op: logical.GeluOp) -> SSAValue:
    """Phi(x) + x * Phi'(x)."""
    x = adjoint.saved(op.operand)
    curve, slope = (_tanh_curve if op.approximate.data == "tanh" else _erf_curve)(adjoint, x)
    phi = adjoint.product(adjoint.apply(logical.AddOp, curve, 1.0), 0.5)
    return adjoint.product(
        adjoint.grad, adjoint.apply(logical.AddOp, phi, adjoint.product(adjoint.product(x, slope), 0.5))
    )


def _erf_curve(adjoint: Adjoint, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """erf(x / sqrt 2) and its slope, sqrt(2 / pi) * exp(-x * x / 2)."""
    curve = adjoint.apply(logical.ErfOp, adjoint.product(x, SQRT_HALF))
    bell = adjoint.apply(logical.ExpOp, adjoint.product(adjoint.product(x, x), -0.5))
    return curve, adjoint.product(bell, math.sqrt(2 / math.pi))


def _tanh_curve(adjoint: Adjoint, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """tanh(c * (x + k * x ** 3)) and its slope."""
    square = adjoint.product(x, x)
    cubic = adjoint.apply(logical.AddOp, adjoint.product(square, GELU_CUBIC), 1.0)
    curve = adjoint.apply(logical.TanhOp, adjoint.product(adjoint.product(x, cubic), SQRT_2_OVER_PI))
    steep = adjoint.apply(logical.AddOp, adjoint.apply(logical.NegOp, adjoint.product(curve, curve)), 1.0)
    inner = adjoint.apply(logical.AddOp, adjoint.product(square, 3 * GELU_CUBIC), 1.0)
    return curve, adjoint.product(adjoint.product(steep, inner), SQRT_2_OVER_PI)


GRADIENTS: Gradients = {
    logical.ReluOp: (_relu,),
    logical.LeakyReluOp: (_leaky_relu,),
    logical.EluOp: (_elu,),
    logical.SiluOp: (_silu,),
    logical.SoftplusOp: (_softplus,),
    logical.HardSigmoidOp: (_hard_sigmoid,),
    logical.HardSwishOp: (_hard_swish,),
    logical.GeluOp: (_gelu,),
}
