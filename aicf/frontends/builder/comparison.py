"""Comparisons of the builder by name, and selection."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.frontends.builder.core import Operand, Value
from aicf.frontends.builder.derived import DerivedOps


class ComparisonOps(DerivedOps):
    """`compare` with each predicate, and `select`, whose condition is of another type than what it selects."""

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

    def select(
        self, condition: Value, on_true: Operand, on_false: Operand, *, name: str | None = None
    ) -> Value:
        """``on_true`` where the condition holds, else ``on_false``."""
        branches = self._broadcast_together("select", [on_true, on_false])
        shape = self._joint_sizes("select", [condition, *branches])
        picked = [self._own(self._broadcast(value, shape)) for value in (condition, *branches)]
        return self._insert("select", name, lambda: logical.SelectOp(*picked))

    def where(self, condition: Value, x: Operand, y: Operand, *, name: str | None = None) -> Value:
        """``select`` under NumPy's name."""
        return self.select(condition, x, y, name=name)
