"""Meanings of ops on block-quantised weights: the definitions of the schemes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from aicf.dialects import logical
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
    if not chosen:
        return np.matmul(x, transposed(_widened(op.scheme.data, packed)).astype(x.dtype))
    weights = _widened(op.scheme.data, packed[clamped(chosen[0], len(packed))]).astype(x.dtype)
    return np.matmul(weights, x[..., None])[..., 0]


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.DequantizeBlocksOp: _dequantize_blocks,
    logical.MatmulBlocksOp: _matmul_blocks,
}
