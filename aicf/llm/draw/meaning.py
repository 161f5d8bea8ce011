"""What `aicf.draw` computes, in NumPy.

All sums are of whole numbers, so that every kernel, in whatever order it adds, draws the same index.
"""

from __future__ import annotations

import numpy as np

from aicf.runtime.tensors import Array


def draw(weights: Array, uniform: Array, top_k: Array, top_p: Array, min_p: Array) -> Array:
    """An index, drawn with the probability of its weight among those that are kept.

    Kept are the `top_k` largest weights; of these the largest ones whose sum first reaches `top_p` of theirs (Holtzman
    et al., The Curious Case of Neural Text Degeneration, 2020); and of these the ones of at least `min_p` of the
    largest (Nguyen et al., Min P Sampling, 2024). Equal weights are kept or left out together.

    Args:
        weights: i32[count], or i32[rows, count] of which each row is drawn from; one that is not positive never is.
        uniform: f64[1], at least 0 and below 1: the share of the kept sum that comes before the index; of several rows
            f64[rows], and likewise what follows.
        top_k: i64[1]; 0 keeps all.
        top_p: f32[1]; 1 keeps all.
        min_p: f32[1]; 0 keeps all.

    Returns: i64[1]; -1 if no weight is positive.
    """
    rows = weights.reshape(-1, weights.shape[-1])
    return np.array(
        [_drawn(*each) for each in zip(rows, uniform, top_k, top_p, min_p, strict=True)], np.int64
    )


def _drawn(weights: Array, uniform: float, top_k: int, top_p: float, min_p: float) -> int:
    """The index of one row."""
    positive = np.maximum(weights.astype(np.int64), 0)
    falling = np.sort(positive)[::-1]
    least = 1
    if 0 < top_k < len(falling):
        least = max(least, int(falling[top_k - 1]))
    if top_p < 1:
        sums = np.cumsum(falling[falling >= least])
        if len(sums):
            reached = int(np.argmax(sums >= max(float(top_p) * float(sums[-1]), 1.0)))
            least = max(least, int(falling[reached]))
    least = max(least, int(np.ceil(float(min_p) * float(falling[0]))))
    sums = np.cumsum(np.where(positive >= least, positive, 0))
    return int(np.argmax(sums > int(float(uniform) * float(sums[-1])))) if sums[-1] else -1
