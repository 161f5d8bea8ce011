"""Matrix products of the builder."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.frontends.builder.core import GraphCore, Value


class ContractionOps(GraphCore):
    """One method an op."""

    def matmul(
        self,
        lhs: Value,
        rhs: Value,
        *,
        transpose_a: bool = False,
        transpose_b: bool = False,
        name: str | None = None,
    ) -> Value:
        """The matrix product over the last two dimensions; ``rhs`` may be one matrix for all batches."""
        return self._insert(
            "matmul",
            name,
            lambda: logical.MatmulOp(
                self._own(lhs), self._own(rhs), transpose_a=transpose_a, transpose_b=transpose_b
            ),
        )

    def linear(self, x: Value, weight: Value, bias: Value | None = None, *, name: str | None = None) -> Value:
        """``x @ weight.T + bias``; weight is ``[outputs, inputs]``."""
        own_bias = None if bias is None else self._own(bias)
        return self._insert(
            "linear", name, lambda: logical.LinearOp(self._own(x), self._own(weight), own_bias)
        )
