"""Activations as arithmetic and functions."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.passes.logical.lowerings.base import Formulas, Lowering
from aicf.semantics.elementwise import GELU_CUBIC, HARD_SWISH_SLOPE, SQRT_2_OVER_PI, SQRT_HALF


def _gelu(lower: Lowering, op: logical.GeluOp) -> SSAValue:
    """0.5 * x * (1 + erf(x / sqrt 2)), or the tanh approximation."""
    x = lower.widen(op.operand)
    curve = _gelu_tanh(lower, x) if op.approximate.data == "tanh" else _gelu_erf(lower, x)
    shifted = lower.add(logical.AddOp(curve, lower.splat(1.0, x, "one")), "shifted")
    half = lower.add(logical.MulOp(x, lower.splat(0.5, x, "half")), "halved")
    return lower.apply(logical.MulOp, half, shifted)


def _gelu_erf(lower: Lowering, x: SSAValue) -> SSAValue:
    scaled = lower.add(logical.MulOp(x, lower.splat(SQRT_HALF, x, "sqrt_half")), "scaled")
    return lower.add(logical.ErfOp(scaled), "erf")


def _gelu_tanh(lower: Lowering, x: SSAValue) -> SSAValue:
    square = lower.add(logical.MulOp(x, x), "square")
    cube = lower.add(logical.MulOp(square, x), "cube")
    cubic = lower.add(logical.MulOp(cube, lower.splat(GELU_CUBIC, x, "cubic_coefficient")), "cubic")
    inner = lower.add(logical.AddOp(x, cubic), "inner")
    scaled = lower.add(logical.MulOp(inner, lower.splat(SQRT_2_OVER_PI, x, "sqrt_2_over_pi")), "scaled")
    return lower.add(logical.TanhOp(scaled), "tanh")


def _silu(lower: Lowering, op: logical.SiluOp) -> SSAValue:
    """x * sigmoid(x)."""
    x = lower.widen(op.operand)
    return lower.apply(logical.MulOp, x, lower.apply(logical.SigmoidOp, x))


def _leaky_relu(lower: Lowering, op: logical.LeakyReluOp) -> SSAValue:
    """x > 0 ? x : slope * x."""
    x = lower.widen(op.operand)
    return _right_of_zero(lower, x, lower.apply(logical.MulOp, x, op.negative_slope.value.data))


def _elu(lower: Lowering, op: logical.EluOp) -> SSAValue:
    """x > 0 ? x : alpha * expm1(x)."""
    x = lower.widen(op.operand)
    curve = lower.apply(logical.MulOp, lower.apply(logical.Expm1Op, x), op.alpha.value.data)
    return _right_of_zero(lower, x, curve)


def _right_of_zero(lower: Lowering, x: SSAValue, otherwise: SSAValue) -> SSAValue:
    """x > 0 ? x : otherwise."""
    zero = lower.splat(0.0, x, "zero")
    return lower.apply(
        logical.SelectOp, lower.add(logical.CompareOp("gt", x, zero), "positive"), x, otherwise
    )


def _softplus(lower: Lowering, op: logical.SoftplusOp) -> SSAValue:
    """(max(z, 0) + log1p(exp(-|z|))) / beta with z = beta * x: nothing overflows or cancels."""
    x, beta = lower.widen(op.operand), op.beta.value.data
    z = x if beta == 1 else lower.apply(logical.MulOp, x, beta, name="scaled")
    below = lower.apply(logical.NegOp, lower.apply(logical.AbsOp, z))
    tail = lower.apply(logical.Log1pOp, lower.apply(logical.ExpOp, below))
    total = lower.apply(logical.AddOp, lower.apply(logical.ReluOp, z), tail)
    return total if beta == 1 else lower.apply(logical.DivOp, total, beta)


def _hard_sigmoid(lower: Lowering, op: logical.HardSigmoidOp) -> SSAValue:
    """min(max(alpha * x + beta, 0), 1)."""
    return _cut_line(lower, lower.widen(op.operand), op.alpha.value.data, op.beta.value.data)


def _hard_swish(lower: Lowering, op: logical.HardSwishOp) -> SSAValue:
    """x * min(max(x / 6 + 1/2, 0), 1)."""
    x = lower.widen(op.operand)
    return lower.apply(logical.MulOp, x, _cut_line(lower, x, HARD_SWISH_SLOPE, 0.5))


def _cut_line(lower: Lowering, x: SSAValue, slope: float, offset: float) -> SSAValue:
    """min(max(slope * x + offset, 0), 1)."""
    line = lower.apply(logical.AddOp, lower.apply(logical.MulOp, x, slope), offset)
    return lower.apply(logical.MinOp, lower.apply(logical.ReluOp, line), 1.0)


FORMULAS: Formulas = {
    logical.GeluOp: _gelu,
    logical.SiluOp: _silu,
    logical.LeakyReluOp: _leaky_relu,
    logical.EluOp: _elu,
    logical.SoftplusOp: _softplus,
    logical.HardSigmoidOp: _hard_sigmoid,
    logical.HardSwishOp: _hard_swish,
}
