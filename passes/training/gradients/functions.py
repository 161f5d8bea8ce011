"""What functions of one number pass back: the derivative times the function's slope.

Where the slope follows from the result, the result is read: it is in memory more often than the operand.
"""

from __future__ import annotations

import math

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.passes.training.gradients.base import STEPS, Adjoint, Gradients


def _cos(adjoint: Adjoint, op: logical.CosOp) -> SSAValue:
    """-sin(x)."""
    slope = adjoint.apply(logical.SinOp, adjoint.saved(op.operand))
    return adjoint.apply(logical.NegOp, adjoint.product(adjoint.grad, slope))


def _sin(adjoint: Adjoint, op: logical.SinOp) -> SSAValue:
    """cos(x)."""
    return adjoint.product(adjoint.grad, adjoint.apply(logical.CosOp, adjoint.saved(op.operand)))


def _tan(adjoint: Adjoint, op: logical.TanOp) -> SSAValue:
    """1 + y * y."""
    y = adjoint.result
    return adjoint.product(adjoint.grad, adjoint.apply(logical.AddOp, adjoint.product(y, y), 1.0))


def _asin(adjoint: Adjoint, op: logical.AsinOp) -> SSAValue:
    """1 / sqrt((1 - x) * (1 + x))."""
    x = adjoint.saved(op.operand)
    return adjoint.apply(logical.DivOp, adjoint.grad, adjoint.apply(logical.SqrtOp, _beside_one(adjoint, x)))


def _acos(adjoint: Adjoint, op: logical.AcosOp) -> SSAValue:
    """-1 / sqrt((1 - x) * (1 + x))."""
    x = adjoint.saved(op.operand)
    slope = adjoint.apply(logical.DivOp, adjoint.grad, adjoint.apply(logical.SqrtOp, _beside_one(adjoint, x)))
    return adjoint.apply(logical.NegOp, slope)


def _atan(adjoint: Adjoint, op: logical.AtanOp) -> SSAValue:
    """1 / (1 + x * x)."""
    x = adjoint.saved(op.operand)
    return adjoint.apply(
        logical.DivOp, adjoint.grad, adjoint.apply(logical.AddOp, adjoint.product(x, x), 1.0)
    )


def _sinh(adjoint: Adjoint, op: logical.SinhOp) -> SSAValue:
    """cosh(x)."""
    return adjoint.product(adjoint.grad, adjoint.apply(logical.CoshOp, adjoint.saved(op.operand)))


def _cosh(adjoint: Adjoint, op: logical.CoshOp) -> SSAValue:
    """sinh(x)."""
    return adjoint.product(adjoint.grad, adjoint.apply(logical.SinhOp, adjoint.saved(op.operand)))


def _asinh(adjoint: Adjoint, op: logical.AsinhOp) -> SSAValue:
    """1 / sqrt(x * x + 1)."""
    x = adjoint.saved(op.operand)
    root = adjoint.apply(logical.SqrtOp, adjoint.apply(logical.AddOp, adjoint.product(x, x), 1.0))
    return adjoint.apply(logical.DivOp, adjoint.grad, root)


def _acosh(adjoint: Adjoint, op: logical.AcoshOp) -> SSAValue:
    """1 / (sqrt(x - 1) * sqrt(x + 1)), which is NaN below 1 as the function is."""
    x = adjoint.saved(op.operand)
    roots = (adjoint.apply(logical.SqrtOp, adjoint.apply(logical.AddOp, x, shift)) for shift in (-1.0, 1.0))
    return adjoint.apply(logical.DivOp, adjoint.grad, adjoint.product(*roots))


def _atanh(adjoint: Adjoint, op: logical.AtanhOp) -> SSAValue:
    """1 / ((1 - x) * (1 + x))."""
    return adjoint.apply(logical.DivOp, adjoint.grad, _beside_one(adjoint, adjoint.saved(op.operand)))


def _beside_one(adjoint: Adjoint, x: SSAValue) -> SSAValue:
    """(1 - x) * (1 + x), which cancels less than 1 - x * x."""
    below = adjoint.apply(logical.AddOp, adjoint.apply(logical.NegOp, x), 1.0)
    return adjoint.product(below, adjoint.apply(logical.AddOp, x, 1.0))


def _erf(adjoint: Adjoint, op: logical.ErfOp) -> SSAValue:
    """2 / sqrt(pi) * exp(-x * x)."""
    x = adjoint.saved(op.operand)
    bell = adjoint.apply(logical.ExpOp, adjoint.apply(logical.NegOp, adjoint.product(x, x)))
    return adjoint.product(adjoint.grad, bell, 2 / math.sqrt(math.pi))


def _exp(adjoint: Adjoint, op: logical.ExpOp) -> SSAValue:
    """y."""
    return adjoint.product(adjoint.grad, adjoint.result)


def _expm1(adjoint: Adjoint, op: logical.Expm1Op) -> SSAValue:
    """y + 1."""
    return adjoint.product(adjoint.grad, adjoint.apply(logical.AddOp, adjoint.result, 1.0))


def _log(adjoint: Adjoint, op: logical.LogOp) -> SSAValue:
    """1 / x."""
    return adjoint.apply(logical.DivOp, adjoint.grad, adjoint.saved(op.operand))


def _log1p(adjoint: Adjoint, op: logical.Log1pOp) -> SSAValue:
    """1 / (1 + x)."""
    shifted = adjoint.apply(logical.AddOp, adjoint.saved(op.operand), 1.0)
    return adjoint.apply(logical.DivOp, adjoint.grad, shifted)


def _reciprocal(adjoint: Adjoint, op: logical.ReciprocalOp) -> SSAValue:
    """-y * y."""
    slope = adjoint.product(adjoint.grad, adjoint.result, adjoint.result)
    return adjoint.apply(logical.NegOp, slope)


def _rsqrt(adjoint: Adjoint, op: logical.RsqrtOp) -> SSAValue:
    """-y * y * y / 2."""
    y = adjoint.result
    return adjoint.product(adjoint.grad, y, y, y, -0.5)


def _sqrt(adjoint: Adjoint, op: logical.SqrtOp) -> SSAValue:
    """1 / (2 * y)."""
    return adjoint.apply(logical.DivOp, adjoint.product(adjoint.grad, 0.5), adjoint.result)


def _sigmoid(adjoint: Adjoint, op: logical.SigmoidOp) -> SSAValue:
    """y * (1 - y)."""
    y = adjoint.result
    complement = adjoint.apply(logical.AddOp, adjoint.apply(logical.NegOp, y), 1.0)
    return adjoint.product(adjoint.grad, y, complement)


def _tanh(adjoint: Adjoint, op: logical.TanhOp) -> SSAValue:
    """1 - y * y."""
    y = adjoint.result
    square = adjoint.apply(logical.NegOp, adjoint.product(y, y))
    return adjoint.product(adjoint.grad, adjoint.apply(logical.AddOp, square, 1.0))


GRADIENTS: Gradients = {
    logical.CosOp: (_cos,),
    logical.SinOp: (_sin,),
    logical.TanOp: (_tan,),
    logical.AsinOp: (_asin,),
    logical.AcosOp: (_acos,),
    logical.AtanOp: (_atan,),
    logical.SinhOp: (_sinh,),
    logical.CoshOp: (_cosh,),
    logical.AsinhOp: (_asinh,),
    logical.AcoshOp: (_acosh,),
    logical.AtanhOp: (_atanh,),
    logical.ErfOp: (_erf,),
    logical.ExpOp: (_exp,),
    logical.Expm1Op: (_expm1,),
    logical.LogOp: (_log,),
    logical.Log1pOp: (_log1p,),
    logical.ReciprocalOp: (_reciprocal,),
    logical.RsqrtOp: (_rsqrt,),
    logical.SqrtOp: (_sqrt,),
    logical.SigmoidOp: (_sigmoid,),
    logical.TanhOp: (_tanh,),
    logical.FloorOp: STEPS,
    logical.CeilOp: STEPS,
    logical.RoundOp: STEPS,
}
