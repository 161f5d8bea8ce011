"""The layout of a right operand of products that is packed ahead, where a kernel reads lines along K."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

PRODUCT_WEIGHT = "product_weight"
"""Layout of a matrix [.., K, N]: ``[..][N][K]``, K innermost."""
_WHOLE = 16
"""Elements that every line is a multiple of: whole 16 bytes of whatever type."""


def k_innermost(shape: Sequence[int]) -> tuple[int, ...]:
    """Element strides of a matrix [.., K, N] in the layout; what fills up a line is never read."""
    *batch, k, n = shape
    pitch = ceil(k / _WHOLE) * _WHOLE
    return (*(prod(batch[dim + 1 :]) * n * pitch for dim in range(len(batch))), 1, pitch)
