"""Meanings of ops on block-quantised weights: the definitions of the schemes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.dialects.block_bits import BLOCK_BITS, LEAST_MAGNITUDE
from aicf.dialects.block_schemes import BLOCK_SCHEMES
from aicf.semantics.base import Array, Meaning
from aicf.semantics.contraction import transposed
from aicf.semantics.indexing import clamped


def _widened(scheme: str, packed: Array) -> Array:
    return BLOCK_SCHEMES[scheme].rows(packed)


def _dequantize_blocks(op: logical.DequantizeBlocksOp, operands: Sequence[Array]) -> Array:
    return _widened(op.scheme.data, operands[0])


def _matmul_blocks(op: logical.MatmulBlocksOp, operands: Sequence[Array]) -> Array:
    x, packed, *chosen = operands
    wide = x if x.dtype == np.float64 else x.astype(np.float32)
    if not chosen:
        return np.matmul(wide, transposed(_widened(op.scheme.data, packed)).astype(wide.dtype)).astype(
            x.dtype
        )
    weights = _widened(op.scheme.data, packed[clamped(chosen[0], len(packed))]).astype(wide.dtype)
    return np.matmul(weights, wide[..., None])[..., 0].astype(x.dtype)


def rounded(x: Array, together: int) -> Array:
    """x rounded to 8 bits, of its own type: each `together` neighbours to a step of their largest magnitude by 127."""
    parts = x.astype(np.float32).reshape(*x.shape[:-1], -1, together)
    largest = np.maximum(np.abs(parts).max(-1, keepdims=True), np.float32(LEAST_MAGNITUDE))
    with np.errstate(invalid="ignore"):  # what is not finite becomes NaN
        multiples = np.rint(parts * (np.float32(127) / largest)) * (largest / np.float32(127))
    return multiples.reshape(x.shape).astype(x.dtype)


def _rounded_matmul_blocks(op: logical.RoundedMatmulBlocksOp, operands: Sequence[Array]) -> Array:
    x, packed = operands
    scheme = op.scheme.data
    of_8_bits = rounded(x, BLOCK_BITS[scheme].rounded_together)
    return np.matmul(of_8_bits, transposed(_widened(scheme, packed)).astype(x.dtype))


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.DequantizeBlocksOp: _dequantize_blocks,
    logical.MatmulBlocksOp: _matmul_blocks,
    logical.RoundedMatmulBlocksOp: _rounded_matmul_blocks,
}
