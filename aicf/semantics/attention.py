"""The meaning of attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.semantics.base import Array, Meaning, coefficient
from aicf.semantics.normalization import softmax


def _attention(op: logical.AttentionOp, operands: Sequence[Array]) -> Array:
    q, k, v, *more = operands
    mask = None if op.mask is None else more[0]
    past = op.past.value.data if op.position is None else more[-1]
    repeats = q.shape[-3] // k.shape[-3]
    k, v = (np.repeat(value, repeats, axis=-3) for value in (k, v))
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * coefficient(op.factor, op.info.element)
    if op.softcap is not None:
        bound = coefficient(op.softcap.value.data, op.info.element)
        scores = np.tanh(scores / bound) * bound
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == np.bool_ else scores + mask
    if op.causal is not None:
        window = None if op.window is None else op.window.value.data
        seen = _seen(q.shape[-2], k.shape[-2], past, window)
        scores = np.where(seen, scores, -np.inf)
    return np.matmul(softmax(scores, -1, empty_as_zero=op.empty_as_zero is not None), v)


def _seen(queries: int, keys: int, past: int | Array, window: int | None) -> Array:
    """Which keys each query sees, ``[queries, keys]``; with a `past` for each batch element ``[batch..., 1, queries,
    keys]``."""
    before = np.asarray(past)
    if before.ndim:
        before = before[..., None, None, None]
    last, key = np.arange(queries)[:, None] + before, np.arange(keys)
    return (key <= last) if window is None else (key <= last) & (key > last - window)


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.AttentionOp: _attention,
}
