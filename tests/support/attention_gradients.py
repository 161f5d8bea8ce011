"""The gradients of attention by the definition, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def gradients(
    q: Array, k: Array, v: Array, g: Array, mask: Array | None, past: int | None, scale: float
) -> tuple[Array, Array, Array]:
    """For queries, keys and values, given the gradient `g` of ``softmax(q @ k^T * scale + mask) @ v``; query i sees
    keys 0 to i + `past` alone if that is given. A query that sees no key passes nothing back."""
    q, k, v, g = (each.astype(np.float64) for each in (q, k, v, g))
    scores = q @ np.swapaxes(k, -1, -2) * scale
    if mask is not None:
        scores = scores + mask.astype(np.float64)
    if past is not None:
        rows, keys = scores.shape[-2:]
        scores = np.where(np.arange(keys) > np.arange(rows)[:, None] + past, -np.inf, scores)
    is_empty = (scores == -np.inf).all(-1, keepdims=True)
    weights = np.exp(scores - np.where(is_empty, 0.0, scores.max(-1, keepdims=True)))
    weights = weights / np.where(is_empty, 1.0, weights.sum(-1, keepdims=True))
    by_weights = g @ np.swapaxes(v, -1, -2)
    by_scores = weights * (by_weights - (weights * by_weights).sum(-1, keepdims=True)) * scale
    return by_scores @ k, np.swapaxes(by_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ g
