"""Functions of angles and hyperbolas by the few that have code, each within some units of the last place."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.passes.logical.lowerings.base import Formulas, Lowering

_LARGE = 1e8
"""From here on ``x * x + 1`` is ``x * x`` in f64."""
_FAR = 32.0
"""From here on ``exp(-x)`` is nothing beside ``exp(x)``, and below it ``exp(x)`` is finite in every type."""


def _tan(lower: Lowering, op: logical.TanOp) -> SSAValue:
    """sin(x) / cos(x)."""
    x = lower.widen(op.operand)
    return lower.apply(logical.DivOp, lower.apply(logical.SinOp, x), lower.apply(logical.CosOp, x))


def _asin(lower: Lowering, op: logical.AsinOp) -> SSAValue:
    """atan(x / sqrt((1 - x) (1 + x)))."""
    x = lower.widen(op.operand)
    below, above = _distances(lower, x)
    height = lower.apply(logical.SqrtOp, lower.apply(logical.MulOp, below, above))
    return lower.apply(logical.AtanOp, lower.apply(logical.DivOp, x, height))


def _acos(lower: Lowering, op: logical.AcosOp) -> SSAValue:
    """2 atan(sqrt((1 - x) / (1 + x)))."""
    below, above = _distances(lower, lower.widen(op.operand))
    half = lower.apply(logical.AtanOp, lower.apply(logical.SqrtOp, lower.apply(logical.DivOp, below, above)))
    return lower.apply(logical.AddOp, half, half)


def _distances(lower: Lowering, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """1 - x and 1 + x."""
    one = lower.splat(1.0, x, "one")
    return lower.apply(logical.SubOp, one, x), lower.apply(logical.AddOp, one, x)


def _sinh(lower: Lowering, op: logical.SinhOp) -> SSAValue:
    """(e + e / (e + 1)) / 2 with e = expm1(|x|); far from 0 it is exp(|x|) / 2."""
    x = lower.widen(op.operand)
    size = lower.apply(logical.AbsOp, x)
    e = lower.apply(logical.Expm1Op, size)
    tail = lower.apply(logical.DivOp, e, lower.apply(logical.AddOp, e, 1.0))
    near = lower.apply(logical.MulOp, lower.apply(logical.AddOp, e, tail), 0.5)
    return _signed(lower, _near_or_far(lower, size, near), x)


def _cosh(lower: Lowering, op: logical.CoshOp) -> SSAValue:
    """exp(|x|) / 2 + 1 / (2 exp(|x|)); far from 0 the first half alone."""
    size = lower.apply(logical.AbsOp, lower.widen(op.operand))
    half = lower.apply(logical.MulOp, lower.apply(logical.ExpOp, size), 0.5)
    tail = lower.apply(logical.DivOp, lower.splat(0.25, half, "quarter"), half)
    return _near_or_far(lower, size, lower.apply(logical.AddOp, half, tail))


def _near_or_far(lower: Lowering, size: SSAValue, near: SSAValue) -> SSAValue:
    """``near``, or exp(size) / 2 as the product of two roots, one of them halved, which does not overflow too early."""
    root = lower.apply(logical.ExpOp, lower.apply(logical.MulOp, size, 0.5), name="root")
    far = lower.apply(logical.MulOp, lower.apply(logical.MulOp, root, 0.5), root)
    is_far = lower.add(logical.CompareOp("gt", size, lower.splat(_FAR, size, "far")), "is_far")
    return lower.apply(logical.SelectOp, is_far, far, near)


def _asinh(lower: Lowering, op: logical.AsinhOp) -> SSAValue:
    """log1p(|x| + x^2 / (1 + sqrt(x^2 + 1))); of large x log(2 |x|)."""
    x = lower.widen(op.operand)
    size = lower.apply(logical.AbsOp, x)
    square = lower.apply(logical.MulOp, size, size, name="square")
    root = lower.apply(logical.SqrtOp, lower.apply(logical.AddOp, square, 1.0))
    rest = lower.apply(logical.DivOp, square, lower.apply(logical.AddOp, root, 1.0))
    near = lower.apply(logical.Log1pOp, lower.apply(logical.AddOp, size, rest))
    return _signed(lower, _unless_large(lower, size, near), x)


def _acosh(lower: Lowering, op: logical.AcoshOp) -> SSAValue:
    """log1p(t + sqrt(t) sqrt(t + 2)) with t = x - 1; of large x log(2 x). The root of t is NaN below 1."""
    x = lower.widen(op.operand)
    t = lower.apply(logical.SubOp, x, 1.0)
    roots = (lower.apply(logical.SqrtOp, part) for part in (t, lower.apply(logical.AddOp, t, 2.0)))
    rest = lower.apply(logical.AddOp, t, lower.apply(logical.MulOp, *roots))
    near = lower.apply(logical.Log1pOp, rest)
    return _unless_large(lower, x, near)


def _unless_large(lower: Lowering, size: SSAValue, near: SSAValue) -> SSAValue:
    """``near``, or log(2 size) as the sum of the logarithms of r and 2 r with r = sqrt(size), which do not overflow."""
    root = lower.apply(logical.SqrtOp, size, name="root")
    double = lower.apply(logical.AddOp, root, root)
    logs = (lower.apply(logical.LogOp, part) for part in (root, double))
    is_large = lower.add(logical.CompareOp("gt", size, lower.splat(_LARGE, size, "large")), "is_large")
    return lower.apply(logical.SelectOp, is_large, lower.apply(logical.AddOp, *logs), near)


def _atanh(lower: Lowering, op: logical.AtanhOp) -> SSAValue:
    """log1p(2 |x| / (1 - |x|)) / 2."""
    x = lower.widen(op.operand)
    size = lower.apply(logical.AbsOp, x)
    below = lower.apply(logical.SubOp, lower.splat(1.0, size, "one"), size)
    ratio = lower.apply(logical.DivOp, lower.apply(logical.AddOp, size, size), below)
    return _signed(lower, lower.apply(logical.MulOp, lower.apply(logical.Log1pOp, ratio), 0.5), x)


def _signed(lower: Lowering, magnitude: SSAValue, x: SSAValue) -> SSAValue:
    """The magnitude of an odd function with the sign of its argument; of 0 the argument, which may be -0."""
    negative = lower.apply(logical.NegOp, magnitude)
    zero = lower.splat(0.0, x, "zero")
    above, below = (lower.add(logical.CompareOp(order, x, zero), order) for order in ("gt", "lt"))
    return lower.apply(logical.SelectOp, above, magnitude, lower.apply(logical.SelectOp, below, negative, x))


FORMULAS: Formulas = {
    logical.TanOp: _tan,
    logical.AsinOp: _asin,
    logical.AcosOp: _acos,
    logical.SinhOp: _sinh,
    logical.CoshOp: _cosh,
    logical.AsinhOp: _asinh,
    logical.AcoshOp: _acosh,
    logical.AtanhOp: _atanh,
}
