"""What arithmetic, choices and casts pass back."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_of
from aicf.passes.training.gradients.base import STEPS, Adjoint, Gradients


def _same(adjoint: Adjoint, op: logical.AddOp | logical.SubOp | logical.SaveOp) -> SSAValue:
    """d(a + b)/da = 1; also of a value that is only marked."""
    return adjoint.grad


def _negated(adjoint: Adjoint, op: logical.SubOp | logical.NegOp) -> SSAValue:
    """d(-x)/dx = -1."""
    return adjoint.apply(logical.NegOp, adjoint.grad)


def _times_rhs(adjoint: Adjoint, op: logical.MulOp) -> SSAValue:
    return adjoint.product(adjoint.grad, adjoint.saved(op.rhs))


def _times_lhs(adjoint: Adjoint, op: logical.MulOp) -> SSAValue:
    return adjoint.product(adjoint.grad, adjoint.saved(op.lhs))


def _numerator(adjoint: Adjoint, op: logical.DivOp) -> SSAValue:
    """d(a / b)/da = 1 / b."""
    return adjoint.apply(logical.DivOp, adjoint.grad, adjoint.saved(op.rhs))


def _denominator(adjoint: Adjoint, op: logical.DivOp) -> SSAValue:
    """d(a / b)/db = -(a / b) / b."""
    share = adjoint.apply(logical.DivOp, adjoint.product(adjoint.grad, adjoint.result), adjoint.saved(op.rhs))
    return adjoint.apply(logical.NegOp, share)


def _abs(adjoint: Adjoint, op: logical.AbsOp) -> SSAValue:
    """sign(x): 0 at 0."""
    return adjoint.product(adjoint.grad, adjoint.apply(logical.SignOp, adjoint.saved(op.operand)))


def _extreme(adjoint: Adjoint, op: logical.MaxOp | logical.MinOp) -> SSAValue:
    """All to the operand that is taken, half to each of two equal ones."""
    own, other = (
        adjoint.saved(op.operands[adjoint.operand_index]),
        adjoint.saved(op.operands[1 - adjoint.operand_index]),
    )
    half = adjoint.product(adjoint.grad, 0.5)
    tie = adjoint.where(adjoint.compare("eq", own, other), half, adjoint.grad)
    beaten = adjoint.compare("lt" if isinstance(op, logical.MaxOp) else "gt", own, other)
    return adjoint.where(beaten, 0.0, tie)


def _base(adjoint: Adjoint, op: logical.PowOp) -> SSAValue:
    """d(a ** b)/da = b * a ** (b - 1); 0 where b is 0."""
    base, exponent = adjoint.saved(op.lhs), adjoint.saved(op.rhs)
    power = adjoint.apply(logical.PowOp, base, adjoint.apply(logical.SubOp, exponent, 1.0))
    slope = adjoint.product(adjoint.grad, exponent, power)
    return adjoint.where(adjoint.compare("eq", exponent, 0.0), 0.0, slope)


def _exponent(adjoint: Adjoint, op: logical.PowOp) -> SSAValue:
    """d(a ** b)/db = a ** b * log(a); 0 where a is 0 and b at least 0."""
    base, exponent = adjoint.saved(op.lhs), adjoint.saved(op.rhs)
    slope = adjoint.product(adjoint.grad, adjoint.result, adjoint.apply(logical.LogOp, base))
    flat = adjoint.add(
        logical.AndOp(adjoint.compare("eq", base, 0.0), adjoint.compare("ge", exponent, 0.0)), "flat"
    )
    return adjoint.where(flat, 0.0, slope)


def _clamp(adjoint: Adjoint, op: logical.ClampOp) -> SSAValue:
    """1 between the bounds and on them, 0 outside."""
    x, grad = adjoint.saved(op.operand), adjoint.grad
    for predicate, bound in zip(("lt", "gt"), op.bounds, strict=True):
        if bound is not None:
            grad = adjoint.where(adjoint.compare(predicate, x, float(bound)), 0.0, grad)
    return grad


def _on_true(adjoint: Adjoint, op: logical.SelectOp) -> SSAValue:
    return adjoint.where(adjoint.saved(op.condition), adjoint.grad, 0.0)


def _on_false(adjoint: Adjoint, op: logical.SelectOp) -> SSAValue:
    return adjoint.where(adjoint.saved(op.condition), 0.0, adjoint.grad)


def _cast(adjoint: Adjoint, op: logical.CastOp) -> SSAValue:
    """The derivative in the type that was cast."""
    return adjoint.cast(adjoint.grad, element_of(op.operand.type), "cast")


GRADIENTS: Gradients = {
    logical.AddOp: (_same, _same),
    logical.SubOp: (_same, _negated),
    logical.MulOp: (_times_rhs, _times_lhs),
    logical.DivOp: (_numerator, _denominator),
    logical.NegOp: (_negated,),
    logical.AbsOp: (_abs,),
    logical.MaxOp: (_extreme, _extreme),
    logical.MinOp: (_extreme, _extreme),
    logical.PowOp: (_base, _exponent),
    logical.ClampOp: (_clamp,),
    logical.SelectOp: (None, _on_true, _on_false),
    logical.CastOp: (_cast,),
    logical.SaveOp: (_same,),
    logical.SignOp: STEPS,
    logical.FloorDivOp: STEPS,
    logical.ModOp: STEPS,
    logical.ShiftLeftOp: STEPS,
    logical.ShiftRightOp: STEPS,
    logical.BitcastOp: STEPS,
    logical.CompareOp: STEPS,
    logical.IsNanOp: STEPS,
    logical.AndOp: STEPS,
    logical.OrOp: STEPS,
    logical.XorOp: STEPS,
    logical.NotOp: STEPS,
    logical.ConstantOp: STEPS,
}
