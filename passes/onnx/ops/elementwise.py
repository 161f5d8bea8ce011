"""ONNX ops that compute each element from the elements at its index: arithmetic, functions, comparison and logic.

Operands broadcast together. Remainders and powers are in ``powers.py``, activations in ``activations.py``, changes of
the element type in ``casts.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp, Predicate
from aicf.passes.onnx.ops.base import Lower, Node, Result, row
from aicf.passes.onnx.ops.pointwise import narrow, pointwise, widen

# One op for one

_FUNCTIONS: Mapping[str, Callable[..., LogicalOp]] = {
    "Abs": logical.AbsOp,
    "Acos": logical.AcosOp,
    "Acosh": logical.AcoshOp,
    "Asin": logical.AsinOp,
    "Asinh": logical.AsinhOp,
    "Atan": logical.AtanOp,
    "Atanh": logical.AtanhOp,
    "BitwiseNot": logical.NotOp,
    "Ceil": logical.CeilOp,
    "Cos": logical.CosOp,
    "Cosh": logical.CoshOp,
    "Erf": logical.ErfOp,
    "Exp": logical.ExpOp,
    "Floor": logical.FloorOp,
    "Log": logical.LogOp,
    "Neg": logical.NegOp,
    "Not": logical.NotOp,
    "Reciprocal": logical.ReciprocalOp,
    "Relu": logical.ReluOp,
    "Round": logical.RoundOp,
    "Sigmoid": logical.SigmoidOp,
    "Sign": logical.SignOp,
    "Sin": logical.SinOp,
    "Sinh": logical.SinhOp,
    "Sqrt": logical.SqrtOp,
    "Tan": logical.TanOp,
    "Tanh": logical.TanhOp,
}

_OPERATORS: Mapping[str, Callable[..., LogicalOp]] = {
    "Add": logical.AddOp,
    "And": logical.AndOp,
    "BitwiseAnd": logical.AndOp,
    "BitwiseOr": logical.OrOp,
    "BitwiseXor": logical.XorOp,
    "Div": logical.DivOp,
    "Mul": logical.MulOp,
    "Or": logical.OrOp,
    "Sub": logical.SubOp,
    "Xor": logical.XorOp,
}

_SHIFTS: Mapping[str, Callable[..., LogicalOp]] = {
    "LEFT": logical.ShiftLeftOp,
    "RIGHT": logical.ShiftRightOp,
}

_COMPARISONS: Mapping[str, Predicate] = {
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
}


def _function(op_class: Callable[..., LogicalOp]) -> Lower:
    """A function of one operand."""
    return pointwise()(lambda node: node.apply(op_class, node.operand(0)))


def _operator(op_class: Callable[..., LogicalOp]) -> Lower:
    """A function of two operands."""
    return pointwise()(lambda node: node.elementwise(op_class, node.operand(0), node.operand(1)))


def _comparison(predicate: Predicate) -> Lower:
    return pointwise("i1")(lambda node: compare(node, predicate, node.operand(0), node.operand(1)))


for _op_type, _op_class in _FUNCTIONS.items():
    row(_op_type)(_function(_op_class))
for _op_type, _op_class in _OPERATORS.items():
    row(_op_type, since=7)(_operator(_op_class))
for _op_type, _predicate in _COMPARISONS.items():
    row(_op_type, since=7)(_comparison(_predicate))


def compare(node: Node, predicate: Predicate, lhs: SSAValue, rhs: SSAValue | float) -> SSAValue:
    """``lhs predicate rhs`` as i1, broadcast."""

    def make(a: SSAValue, b: SSAValue) -> LogicalOp:
        return logical.CompareOp(predicate, a, b)

    return node.elementwise(make, lhs, rhs, name=predicate)


def select(
    node: Node, condition: SSAValue, on_true: SSAValue | float, on_false: SSAValue | float
) -> SSAValue:
    """``condition ? on_true : on_false``, one of which may be a number; the tensors have one shape."""
    like = on_true if isinstance(on_true, SSAValue) else on_false
    assert isinstance(like, SSAValue)
    branches = (
        value if isinstance(value, SSAValue) else node.splat(value, like) for value in (on_true, on_false)
    )
    return node.apply(logical.SelectOp, condition, *branches)


@row("IsNaN")
@pointwise("i1")
def _is_nan(node: Node) -> Result:
    """x is no number."""
    return node.apply(logical.IsNanOp, node.operand(0))


@row("IsInf")
@pointwise("i1")
def _is_inf(node: Node) -> Result:
    """x is one of the two infinities, or only of that one that is asked for."""
    x = node.operand(0)
    signs = (("detect_negative", -np.inf), ("detect_positive", np.inf))
    found = [compare(node, "eq", x, value) for name, value in signs if node.attributes.int(name, 1)]
    if not found:
        return np.broadcast_to(np.False_, node.shape(0))
    return reduce(lambda one, other: node.apply(logical.OrOp, one, other), found)


@row("BitShift", since=11)
@pointwise()
def _bit_shift(node: Node) -> Result:
    """The bits of X moved by Y places in a direction."""
    direction = node.attributes.string("direction", "")
    if direction not in _SHIFTS:
        raise node.invalid(f"direction is '{direction}'; use one of {', '.join(_SHIFTS)}")
    return node.elementwise(_SHIFTS[direction], node.operand(0), node.operand(1))


@row("Where")
@pointwise(1)
def _where(node: Node) -> Result:
    """condition ? X : Y."""
    return node.elementwise(logical.SelectOp, *node.operands())


# Any number of operands


def _fold(op_class: Callable[..., LogicalOp]) -> Lower:
    """One operator between all operands, from the left."""
    return pointwise()(lambda node: _folded(node, op_class, node.operands()))


def _folded(node: Node, op_class: Callable[..., LogicalOp], values: list[SSAValue]) -> SSAValue:
    return reduce(lambda one, other: node.elementwise(op_class, one, other), values)


row("Max", since=6)(_fold(logical.MaxOp))
row("Min", since=6)(_fold(logical.MinOp))


@row("Sum", since=6)
@pointwise()
def _sum(node: Node) -> Result:
    """The sum of all operands, of f16 and bf16 in f32."""
    return narrow(node, _total(node))


@row("Mean", since=6)
@pointwise()
def _mean(node: Node) -> Result:
    """The sum of all operands over their number."""
    return narrow(node, node.apply(logical.DivOp, _total(node), node.count))


def _total(node: Node) -> SSAValue:
    return _folded(node, logical.AddOp, [widen(node, value) for value in node.operands()])


@row("Clip", since=6, until=10)
@pointwise()
def _clip_to_attributes(node: Node) -> Result:
    """min(max(x, min), max), the bounds being attributes."""
    bounds = {name: node.attributes.float(name, None) for name in ("min", "max")}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    return node.add(logical.ClampOp(node.operand(0), **given)) if given else node.raw(0)


@row("Clip", since=11)
@pointwise()
def _clip(node: Node) -> Result:
    """min(max(x, min), max), the bounds being operands, either of which may be missing."""
    if not (node.has(1) or node.has(2)):
        return node.raw(0)
    value = node.operand(0)
    for index, op_class in ((1, logical.MaxOp), (2, logical.MinOp)):
        if node.has(index):
            value = node.elementwise(op_class, value, node.operand(index))
    return value
