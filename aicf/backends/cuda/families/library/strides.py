"""Several dims of an operand seen as the one that a library has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def joined(strides: Sequence[int], sizes: Sequence[int]) -> int | None:
    """The stride of several dims seen as one, 0 if there is one element; None if they are no such thing."""
    dims = [(stride, size) for stride, size in zip(strides, sizes, strict=True) if size > 1]
    for (outer, _), (inner, size) in pairwise(dims):
        if outer != inner * size:
            return None
    return dims[-1][0] if dims else 0
