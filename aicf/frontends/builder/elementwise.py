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

    def cast(self, x: Value, dtype: str, *, name: str | None = None) -> Value:
        """The value in another element type."""
        return self._insert("cast", name, lambda: logical.CastOp(self._own(x), dtype))

    def _unary(self, op_class: type[logical.UnaryOp], x: Value, name: str | None) -> Value:
        return self._insert(op_class.name, name, lambda: op_class(self._own(x)))

    def _binary(
        self, op_class: type[logical.BinaryOp], lhs: Operand, rhs: Operand, name: str | None
    ) -> Value:
        a, b = self._broadcast_together(op_class.name, lhs, rhs)
        return self._insert(op_class.name, name, lambda: op_class(a.ssa, b.ssa))
