"""Meanings of contractions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.semantics.base import Array, Meaning


def transposed(matrix: Array) -> Array:
    """The last two dimensions swapped, in row-major order: NumPy sums a product with a mere view in another order."""
    return np.asarray(np.swapaxes(matrix, -1, -2), order="C")


def _matmul(op: logical.MatmulOp, operands: Sequence[Array]) -> Array:
    a, b = operands
    if op.transpose_a is not None:
        a = transposed(a)
    if op.transpose_b is not None:
        b = transposed(b)
    if op.widening is not None and a.dtype.kind in "iu":
        a, b = a.astype(np.int32), b.astype(np.int32)
    return np.matmul(a, b)


def _linear(op: logical.LinearOp, operands: Sequence[Array]) -> Array:
    x, weight, *bias = operands
    product = np.matmul(x, transposed(weight))
    return product + bias[0] if bias else product


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.MatmulOp: _matmul,
    logical.LinearOp: _linear,
}
