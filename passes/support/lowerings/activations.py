"""Activations as arithmetic and functions."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.passes.support.lowerings.base import Formulas, Lowering
from aicf.semantics.elementwise import GELU_CUBIC, SQRT_2_OVER_PI, SQRT_HALF


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


FORMULAS: Formulas = {
    logical.GeluOp: _gelu,
    logical.SiluOp: _silu,
}
