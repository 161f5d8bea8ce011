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
        widening: bool = False,
        name: str | None = None,
    ) -> Value:
        """The matrix product over the last two dimensions, as NumPy defines it.

        The dimensions in front of those broadcast. A vector is a row on the left and a column on the right, without
        that dimension in the result. With `widening` it is of integers of at most 16 bits, and its sums are i32.

        Raises:
            InvalidIR: the shapes or element types do not fit, or a vector is to be transposed.
        """
        for flag, value, side in ((transpose_a, lhs, "a"), (transpose_b, rhs, "b")):
            self._own(value)
            if flag and value.rank == 1:
                raise self._error(
                    f"matmul: {value.info} is a vector and has no transpose; drop transpose_{side}"
                )
        left, right = self._as_matrix(lhs, (1, 0)), self._as_matrix(rhs, (0, 1))
        made = self._insert(
            "matmul",
            name,
            lambda: logical.MatmulOp(
                self._own(left),
                self._own(right),
                transpose_a=transpose_a,
                transpose_b=transpose_b,
                widening=widening,
            ),
        )
        *batch, rows, columns = made.info.sizes
        kept = [size for size, value in ((rows, lhs), (columns, rhs)) if value.rank != 1]
        if len(kept) == 2:
            return made
        return self._insert("reshape", None, lambda: logical.ReshapeOp(self._own(made), [*batch, *kept]))

    def _as_matrix(self, value: Value, ones: tuple[int, int]) -> Value:
        """A vector with a dimension of size 1 more, in front or behind; anything else as it is."""
        if value.rank != 1:
            return value
        before, behind = ones
        sizes = [*[1] * before, *value.info.sizes, *[1] * behind]
        return self._insert("reshape", None, lambda: logical.ReshapeOp(self._own(value), sizes))

    def linear(self, x: Value, weight: Value, bias: Value | None = None, *, name: str | None = None) -> Value:
        """``x @ weight.T + bias``; weight is ``[outputs, inputs]``."""
        own_bias = None if bias is None else self._own(bias)
        return self._insert(
            "linear", name, lambda: logical.LinearOp(self._own(x), self._own(weight), own_bias)
        )
