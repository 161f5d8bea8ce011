"""Arithmetic and comparisons that are a few others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.passes.logical.lowerings.base import Formulas, Lowering


def _sign(lower: Lowering, op: logical.SignOp) -> SSAValue:
    """x > 0 ? 1 : (x < 0 ? -1 : x): what is left is 0 or NaN."""
    x = op.operand
    zero = lower.splat(0, x, "zero")
    above, below = (lower.add(logical.CompareOp(order, x, zero), order) for order in ("gt", "lt"))
    one = lower.splat(1, x, "one")
    rest = lower.apply(logical.SelectOp, below, lower.apply(logical.NegOp, one), x)
    return lower.apply(logical.SelectOp, above, one, rest)


def _reciprocal(lower: Lowering, op: logical.ReciprocalOp) -> SSAValue:
    """1 / x."""
    return _inverse(lower, lower.widen(op.operand))


def _inverse(lower: Lowering, x: SSAValue) -> SSAValue:
    return lower.apply(logical.DivOp, lower.splat(1.0, x, "one"), x)


def _pow(lower: Lowering, op: logical.PowOp) -> SSAValue | None:
    """Products, where the exponent is a small whole number: as exact as a power, at a small part of its cost."""
    exponent = _splat_of(op.rhs)
    if exponent not in _POWERS:
        return None
    return _POWERS[exponent](lower, lower.widen(op.lhs))


def _square(lower: Lowering, x: SSAValue) -> SSAValue:
    return lower.apply(logical.MulOp, x, x, name="square")


_POWERS: Mapping[float | int | None, Callable[[Lowering, SSAValue], SSAValue]] = {
    -1.0: _inverse,
    2.0: _square,
    3.0: lambda lower, x: lower.apply(logical.MulOp, _square(lower, x), x, name="cube"),
    4.0: lambda lower, x: _square(lower, _square(lower, x)),
}


def _clamp(lower: Lowering, op: logical.ClampOp) -> SSAValue:
    """min(max(x, low), high)."""
    value, (low, high) = op.operand, op.bounds
    if low is not None:
        value = lower.apply(logical.MaxOp, value, low)
    return value if high is None else lower.apply(logical.MinOp, value, high)


def _mod(lower: Lowering, op: logical.ModOp) -> SSAValue:
    """What truncating division leaves; plus the divisor, if it has the other sign."""
    _, remainder, other_side = _division(lower, op)
    return lower.apply(logical.SelectOp, other_side, lower.apply(logical.AddOp, remainder, op.rhs), remainder)


def _floor_div(lower: Lowering, op: logical.FloorDivOp) -> SSAValue:
    """The truncated quotient; less 1, if what it leaves has the other sign than the divisor."""
    quotient, _, other_side = _division(lower, op)
    return lower.apply(logical.SelectOp, other_side, lower.apply(logical.SubOp, quotient, 1), quotient)


def _division(lower: Lowering, op: logical.ModOp | logical.FloorDivOp) -> tuple[SSAValue, SSAValue, SSAValue]:
    """The truncated quotient, what it leaves, and whether that and the divisor are on different sides of 0.

    A zero divisor leaves all of lhs, and 0 is on neither side.
    """
    quotient = lower.apply(logical.DivOp, op.lhs, op.rhs)
    remainder = lower.apply(logical.SubOp, op.lhs, lower.apply(logical.MulOp, quotient, op.rhs))
    zero = lower.splat(0, remainder, "zero")
    signs = lower.apply(logical.XorOp, remainder, op.rhs)
    differ = lower.add(logical.CompareOp("lt", signs, zero), "signs_differ")
    for value in (remainder, op.rhs):
        differ = lower.apply(
            logical.AndOp, differ, lower.add(logical.CompareOp("ne", value, zero), "nonzero")
        )
    return quotient, remainder, differ


def _splat_of(value: SSAValue) -> float | int | None:
    """The number that every element of a value is known to be, else None."""
    owner = value.owner
    while isinstance(owner, logical.BroadcastOp):
        owner = owner.operand.owner
    return owner.array.item() if isinstance(owner, logical.ConstantOp) and owner.is_splat else None


def _is_nan(lower: Lowering, op: logical.IsNanOp) -> SSAValue:
    """x is not equal to itself."""
    return lower.add(logical.CompareOp("ne", op.operand, op.operand), "ne")


FORMULAS: Formulas = {
    logical.SignOp: _sign,
    logical.ReciprocalOp: _reciprocal,
    logical.PowOp: _pow,
    logical.ClampOp: _clamp,
    logical.ModOp: _mod,
    logical.FloorDivOp: _floor_div,
    logical.IsNanOp: _is_nan,
}
