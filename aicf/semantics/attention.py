"""The meaning of attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.semantics.base import Array, Meaning, coefficient
from aicf.semantics.normalization import softmax


def _attention(op: logical.AttentionOp, operands: Sequence[Array]) -> Array:
    q, k, v, *mask = operands
    repeats = q.shape[-3] // k.shape[-3]
    k, v = (np.repeat(value, repeats, axis=-3) for value in (k, v))
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * coefficient(op.factor, op.info.element)
    if mask:
        scores = np.where(mask[0], scores, -np.inf) if mask[0].dtype == np.bool_ else scores + mask[0]
    if op.causal is not None:
        seen = _seen(q.shape[-2], k.shape[-2], op.past.value.data)
        scores = np.where(seen, scores, -np.inf)
    return np.matmul(softmax(scores, -1, empty_as_zero=op.empty_as_zero is not None), v)


def _seen(queries: int, keys: int, past: int) -> Array:
    """Which keys each query sees, ``[queries, keys]``."""
    return np.arange(keys) <= np.arange(queries)[:, None] + past


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.AttentionOp: _attention,
}
