"""Elementwise ops of the builder; operands are broadcast together, Python numbers become constants."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.dialects.logical import Approximation, Predicate
from aicf.frontends.builder.core import GraphCore, Operand, Value


class ElementwiseOps(GraphCore):
    """One method an op."""

    def add(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs + rhs``."""
        return self._binary(logical.AddOp, lhs, rhs, name)

    def sub(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs - rhs``."""
        return self._binary(logical.SubOp, lhs, rhs, name)

    def mul(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs * rhs``, per element."""
        return self._binary(logical.MulOp, lhs, rhs, name)

    def div(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs / rhs``; integers truncate toward zero."""
        return self._binary(logical.DivOp, lhs, rhs, name)

    def max(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """The larger of the two, per element."""
        return self._binary(logical.MaxOp, lhs, rhs, name)

    def min(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """The smaller of the two, per element."""
        return self._binary(logical.MinOp, lhs, rhs, name)

    def pow(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs ** rhs`` of floats."""
        return self._binary(logical.PowOp, lhs, rhs, name)

    def floor_div(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs // rhs`` of integers, rounded down."""
        return self._binary(logical.FloorDivOp, lhs, rhs, name)

    def mod(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs % rhs`` of integers, with the sign of ``rhs``; ``x mod 0`` is x."""
        return self._binary(logical.ModOp, lhs, rhs, name)

    def and_(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs & rhs`` of i1, or of each bit of integers."""
        return self._binary(logical.AndOp, lhs, rhs, name)

    def or_(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs | rhs`` of i1, or of each bit of integers."""
        return self._binary(logical.OrOp, lhs, rhs, name)

    def xor(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs ^ rhs`` of i1, or of each bit of integers."""
        return self._binary(logical.XorOp, lhs, rhs, name)

    def not_(self, x: Value, *, name: str | None = None) -> Value:
        """``not x`` of i1, ``~x`` of integers."""
        return self._unary(logical.NotOp, x, name)

    def shift_left(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs << rhs`` of integers; 0 for an amount that is no number of bits."""
        return self._binary(logical.ShiftLeftOp, lhs, rhs, name)

    def shift_right(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs >> rhs`` of integers, rounded down."""
        return self._binary(logical.ShiftRightOp, lhs, rhs, name)

    def eq(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs == rhs`` per element, as i1."""
        return self.compare("eq", lhs, rhs, name=name)

    def ne(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs != rhs`` per element, as i1."""
        return self.compare("ne", lhs, rhs, name=name)

    def lt(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs < rhs`` per element, as i1."""
        return self.compare("lt", lhs, rhs, name=name)

    def le(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs <= rhs`` per element, as i1."""
        return self.compare("le", lhs, rhs, name=name)

    def gt(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs > rhs`` per element, as i1."""
        return self.compare("gt", lhs, rhs, name=name)

    def ge(self, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """``lhs >= rhs`` per element, as i1."""
        return self.compare("ge", lhs, rhs, name=name)

    def is_nan(self, x: Value, *, name: str | None = None) -> Value:
        """Whether an element is NaN, as i1."""
        return self._insert("is_nan", name, lambda: logical.IsNanOp(self._own(x)))

    def compare(self, predicate: Predicate, lhs: Operand, rhs: Operand, *, name: str | None = None) -> Value:
        """i1 per element: ``eq ne lt le gt ge``."""
        a, b = self._broadcast_together("compare", lhs, rhs)
        return self._insert("compare", name, lambda: logical.CompareOp(predicate, a.ssa, b.ssa))

    def select(
        self, condition: Value, on_true: Operand, on_false: Operand, *, name: str | None = None
    ) -> Value:
        """``on_true`` where the condition holds, else ``on_false``."""
        a, b = self._broadcast_together("select", on_true, on_false)
        shape = self._joint_sizes("select", [condition, a, b])
        picked = [self._broadcast(value, shape).ssa for value in (condition, a, b)]
        return self._insert("select", name, lambda: logical.SelectOp(*picked))

    def neg(self, x: Value, *, name: str | None = None) -> Value:
        """``-x``."""
        return self._unary(logical.NegOp, x, name)

    def abs(self, x: Value, *, name: str | None = None) -> Value:
        """``|x|``."""
        return self._unary(logical.AbsOp, x, name)

    def sign(self, x: Value, *, name: str | None = None) -> Value:
        """-1, 0 or 1; NaN stays NaN."""
        return self._unary(logical.SignOp, x, name)

    def reciprocal(self, x: Value, *, name: str | None = None) -> Value:
        """``1 / x``."""
        return self._unary(logical.ReciprocalOp, x, name)

    def clamp(
        self, x: Value, min: float | None = None, max: float | None = None, *, name: str | None = None
    ) -> Value:
        """``min(max(x, min), max)``; whole bounds for integers, and either may be missing."""
        return self._insert(
            "clamp", name, lambda: logical.ClampOp(self._own(x), *(_bound(bound, x) for bound in (min, max)))
        )

    def floor(self, x: Value, *, name: str | None = None) -> Value:
        """The largest whole number that is not above x."""
        return self._unary(logical.FloorOp, x, name)

    def ceil(self, x: Value, *, name: str | None = None) -> Value:
        """The smallest whole number that is not below x."""
        return self._unary(logical.CeilOp, x, name)

    def round(self, x: Value, *, name: str | None = None) -> Value:
        """The nearest whole number, half to even."""
        return self._unary(logical.RoundOp, x, name)

    def sin(self, x: Value, *, name: str | None = None) -> Value:
        """The sine, of radians."""
        return self._unary(logical.SinOp, x, name)

    def cos(self, x: Value, *, name: str | None = None) -> Value:
        """The cosine, of radians."""
        return self._unary(logical.CosOp, x, name)

    def tan(self, x: Value, *, name: str | None = None) -> Value:
        """The tangent, of radians."""
        return self._unary(logical.TanOp, x, name)

    def asin(self, x: Value, *, name: str | None = None) -> Value:
        """The arc sine, in radians."""
        return self._unary(logical.AsinOp, x, name)

    def acos(self, x: Value, *, name: str | None = None) -> Value:
        """The arc cosine, in radians."""
        return self._unary(logical.AcosOp, x, name)

    def atan(self, x: Value, *, name: str | None = None) -> Value:
        """The arc tangent, in radians."""
        return self._unary(logical.AtanOp, x, name)

    def sinh(self, x: Value, *, name: str | None = None) -> Value:
        """The hyperbolic sine."""
        return self._unary(logical.SinhOp, x, name)

    def cosh(self, x: Value, *, name: str | None = None) -> Value:
        """The hyperbolic cosine."""
        return self._unary(logical.CoshOp, x, name)

    def asinh(self, x: Value, *, name: str | None = None) -> Value:
        """The inverse of the hyperbolic sine."""
        return self._unary(logical.AsinhOp, x, name)

    def acosh(self, x: Value, *, name: str | None = None) -> Value:
        """The inverse of the hyperbolic cosine."""
        return self._unary(logical.AcoshOp, x, name)

    def atanh(self, x: Value, *, name: str | None = None) -> Value:
        """The inverse of the hyperbolic tangent."""
        return self._unary(logical.AtanhOp, x, name)

    def expm1(self, x: Value, *, name: str | None = None) -> Value:
        """``e ** x - 1``, exact near 0."""
        return self._unary(logical.Expm1Op, x, name)

    def log1p(self, x: Value, *, name: str | None = None) -> Value:
        """``log(1 + x)``, exact near 0."""
        return self._unary(logical.Log1pOp, x, name)

    def exp(self, x: Value, *, name: str | None = None) -> Value:
        """``e ** x``."""
        return self._unary(logical.ExpOp, x, name)

    def log(self, x: Value, *, name: str | None = None) -> Value:
        """The natural logarithm."""
        return self._unary(logical.LogOp, x, name)

    def sqrt(self, x: Value, *, name: str | None = None) -> Value:
        """The square root."""
        return self._unary(logical.SqrtOp, x, name)

    def rsqrt(self, x: Value, *, name: str | None = None) -> Value:
        """``1 / sqrt(x)``."""
        return self._unary(logical.RsqrtOp, x, name)

    def tanh(self, x: Value, *, name: str | None = None) -> Value:
        """The hyperbolic tangent."""
        return self._unary(logical.TanhOp, x, name)

    def erf(self, x: Value, *, name: str | None = None) -> Value:
        """The error function."""
        return self._unary(logical.ErfOp, x, name)

    def relu(self, x: Value, *, name: str | None = None) -> Value:
        """``max(x, 0)``."""
        return self._unary(logical.ReluOp, x, name)

    def sigmoid(self, x: Value, *, name: str | None = None) -> Value:
        """``1 / (1 + exp(-x))``."""
        return self._unary(logical.SigmoidOp, x, name)

    def silu(self, x: Value, *, name: str | None = None) -> Value:
        """``x * sigmoid(x)``."""
        return self._unary(logical.SiluOp, x, name)

    def gelu(self, x: Value, approximate: Approximation = "none", *, name: str | None = None) -> Value:
        """GELU, by erf or by its tanh approximation."""
        return self._insert("gelu", name, lambda: logical.GeluOp(self._own(x), approximate))

    def leaky_relu(self, x: Value, negative_slope: float = 0.01, *, name: str | None = None) -> Value:
        """``x > 0 ? x : negative_slope * x``."""
        return self._insert("leaky_relu", name, lambda: logical.LeakyReluOp(self._own(x), negative_slope))

    def elu(self, x: Value, alpha: float = 1.0, *, name: str | None = None) -> Value:
        """``x > 0 ? x : alpha * (exp(x) - 1)``."""
        return self._insert("elu", name, lambda: logical.EluOp(self._own(x), alpha))

    def softplus(self, x: Value, beta: float = 1.0, *, name: str | None = None) -> Value:
        """``log(1 + exp(beta * x)) / beta``."""
        return self._insert("softplus", name, lambda: logical.SoftplusOp(self._own(x), beta))

    def hard_sigmoid(
        self, x: Value, alpha: float = 1 / 6, beta: float = 0.5, *, name: str | None = None
    ) -> Value:
        """``alpha * x + beta``, cut off at 0 and 1."""
        return self._insert("hard_sigmoid", name, lambda: logical.HardSigmoidOp(self._own(x), alpha, beta))

    def hard_swish(self, x: Value, *, name: str | None = None) -> Value:
        """``x * hard_sigmoid(x)``."""
        return self._unary(logical.HardSwishOp, x, name)

    def cast(self, x: Value, dtype: str, *, name: str | None = None) -> Value:
        """The value in another element type."""
        return self._insert("cast", name, lambda: logical.CastOp(self._own(x), dtype))

    def bitcast(self, x: Value, dtype: str, *, name: str | None = None) -> Value:
        """The bits as elements of another type of as many bytes."""
        return self._insert("bitcast", name, lambda: logical.BitcastOp(self._own(x), dtype))

    def _unary(self, op_class: type[logical.UnaryOp], x: Value, name: str | None) -> Value:
        return self._insert(op_class.name, name, lambda: op_class(self._own(x)))

    def _binary(
        self, op_class: type[logical.BinaryOp], lhs: Operand, rhs: Operand, name: str | None
    ) -> Value:
        a, b = self._broadcast_together(op_class.name, lhs, rhs)
        return self._insert(op_class.name, name, lambda: op_class(a.ssa, b.ssa))


def _bound(bound: float | None, x: Value) -> float | None:
    """A bound of floats as a float, so that ``clamp(x, 0, 6)`` is what it looks like."""
    return float(bound) if bound is not None and x.info.element.is_float else bound
