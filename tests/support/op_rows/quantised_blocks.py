"""Block-quantised weights, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from aicf.dialects import logical
from aicf.dialects.block_schemes import BLOCK_SCHEMES
from tests.support.blocks import random_rows, widened
from tests.support.op_rows.row import Array, Draw, OperandsAndAttrs, Row, random_of, values


def _packed(draw: Draw) -> tuple[Array, str]:
    """A matrix of one block or two a row."""
    name = draw(st.sampled_from(sorted(BLOCK_SCHEMES)))
    scheme = BLOCK_SCHEMES[name]
    rows, blocks = draw(st.integers(1, 20)), draw(st.integers(1, 2))
    return random_rows(random_of(draw), scheme, rows, blocks * scheme.length), name


def _dequantize(draw: Draw, dtype: str) -> OperandsAndAttrs:
    packed, name = _packed(draw)
    return [packed], {"scheme": name}


def _matmul(draw: Draw, dtype: str) -> OperandsAndAttrs:
    packed, name = _packed(draw)
    scheme = BLOCK_SCHEMES[name]
    columns = packed.shape[1] // scheme.nbytes * scheme.length
    batch = draw(st.lists(st.integers(1, 2), max_size=1))
    x = values(draw, dtype, (*batch, draw(st.integers(1, 5)), columns), special=False)
    if dtype == "f16":
        x = x * x.dtype.type(2.0**-10)  # sums that f16 holds
    return [x, packed], {"scheme": name}


def _chosen(draw: Draw, dtype: str) -> OperandsAndAttrs:
    """Two matrices, and indices from before the first to after the last."""
    (x, packed), attributes = _matmul(draw, dtype)
    scheme = BLOCK_SCHEMES[attributes["scheme"]]
    other = random_rows(random_of(draw), scheme, len(packed), x.shape[-1])
    return [x, np.stack([packed, other]), random_of(draw).integers(-4, 4, x.shape[:-1])], attributes


def _chosen_op(x: Any, packed: Any, indices: Any, scheme: str) -> logical.MatmulBlocksOp:
    return logical.MatmulBlocksOp(x, packed, scheme, indices)


def _widened(packed: Array, scheme: str) -> Array:
    return widened(BLOCK_SCHEMES[scheme], packed)


def _product(x: Array, packed: Array, scheme: str) -> Array:
    return np.einsum("...mk,nk->...mn", x, _widened(packed, scheme))


def _product_of_chosen(x: Array, packed: Array, indices: Array, scheme: str) -> Array:
    """-4 to -2, and 0, are the first matrix."""
    which = np.where(np.isin(indices, (-4, -3, -2, 0)), 0, 1)
    return np.einsum("...k,...nk->...n", x, _widened(packed, scheme)[which])


def _rounded(draw: Draw, dtype: str) -> OperandsAndAttrs:
    """x of which no element is near the middle between two steps."""
    packed, name = _packed(draw)
    scheme = BLOCK_SCHEMES[name]
    random, rows = random_of(draw), draw(st.integers(1, 5))
    shape = (rows, packed.shape[1] // scheme.nbytes * scheme.length // 16, 16)
    x = random.integers(-126, 127, shape) + random.uniform(-0.4, 0.4, shape)
    x[:, :, random.integers(16)] = 127
    return [(x * 2.0 ** random.integers(-9, 9)).reshape(rows, -1).astype(np.float32), packed], {
        "scheme": name
    }


def _rounded_product(x: Array, packed: Array, scheme: str) -> Array:
    parts = x.astype(np.float64).reshape(len(x), -1, 16)
    step = np.abs(parts).max(-1, keepdims=True) / 127
    return _product((np.rint(parts / step) * step).reshape(x.shape), packed, scheme)


ROWS = (
    Row(logical.DequantizeBlocksOp, _dequantize, _widened, ("f32",)),
    Row(logical.MatmulBlocksOp, _matmul, _product, ("f32", "f16", "bf16")),
    Row(_chosen_op, _chosen, _product_of_chosen, ("f32", "f16", "bf16"), name="matmul_blocks_chosen"),
    Row(logical.RoundedMatmulBlocksOp, _rounded, _rounded_product, ("f32",)),
)
