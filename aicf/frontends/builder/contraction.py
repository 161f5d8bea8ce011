"""The matrix product of the builder, of vectors too."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.frontends.builder.core import Value
from aicf.frontends.builder.derived import DerivedOps


class ContractionOps(DerivedOps):
    """`matmul`, as NumPy defines it."""

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

        The dimensions before those broadcast. A vector is a row on the left and a column on the right, without
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
        *batch, rows, columns = made.shape
        kept = [size for size, value in ((rows, lhs), (columns, rhs)) if value.rank != 1]
        if len(kept) == 2:
            return made
        return self.reshape(made, [*batch, *kept])

    def _as_matrix(self, value: Value, ones: tuple[int, int]) -> Value:
        """A vector with one more dimension of size 1, before or after its own; anything else as it is."""
        if value.rank != 1:
            return value
        before, after = ones
        return self.reshape(value, [*[1] * before, *value.shape, *[1] * after])
