"""Ops of object detectors: the best box that is left, again and again, by a table of what overlaps what.

Corners lie on a grid and thresholds are short binary fractions, so that no answer hangs on how an overlap is rounded.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from aicf.dialects import logical
from aicf.dialects.types import element_named
from tests.support.op_rows.row import Array, Draw, OperandsAndAttrs, Row

OVERLAPS = (0.0, 0.25, 0.5, 0.625, 0.75, 1.0)


def boxes_on_a_grid(random: np.random.Generator, shape: tuple[int, ...], *, centred: bool) -> Array:
    """Corners in any order, or centres and sizes, of which few are negative; few boxes hold a NaN."""
    boxes = random.integers(0, 9, (*shape, 4)) / 4
    if centred:
        boxes[..., 2:] = random.integers(-1, 9, (*shape, 2)) / 4
    boxes[random.random(shape) < 0.05, random.integers(4)] = np.nan
    return boxes


def scores_with_ties(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Few different numbers, some of them NaN, infinite or a zero of either sign."""
    return random.choice([np.nan, np.inf, -np.inf, -0.0, 0.0, 0.25, 0.5, 0.75, -1.0], shape)


def _boxes_and_scores(draw: Draw, dtype: str) -> OperandsAndAttrs:
    samples, classes, count = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 20))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    centred = draw(st.booleans())
    operands = [
        boxes_on_a_grid(random, (samples, count), centred=centred),
        scores_with_ties(random, (samples, classes, count)),
        np.asarray(draw(st.sampled_from(OVERLAPS))),
    ]
    if draw(st.booleans()):
        operands.append(np.asarray(draw(st.sampled_from((-1.0, 0.0, 0.5, np.nan)))))
    attributes = {"limit": draw(st.integers(1, count + 2)), "centred": centred}
    with np.errstate(invalid="ignore"):  # of a NaN to a type that has none, which the op refuses
        return [operand.astype(element_named(dtype).dtype) for operand in operands], attributes


def suppressed(
    boxes: Array, scores: Array, overlap: Array, floor: Array | None = None, *, limit: int, centred: bool
) -> Array:
    """The numbers of the kept boxes, -1 after the last."""
    samples, classes, count = scores.shape
    kept = np.full((samples, classes, min(count, limit)), -1)
    with np.errstate(invalid="ignore"):
        for sample in range(samples):
            clash = overlaps(boxes[sample], centred=centred) > overlap
            for category in range(classes):
                _fill(kept[sample, category], scores[sample, category], clash, floor)
    return kept


def _fill(kept: Array, scores: Array, clash: Array, floor: Array | None) -> None:
    left = scores > floor if floor is not None else scores == scores
    for round_ in range(len(kept)):
        if not left.any():
            return
        best = int(np.flatnonzero(left & (scores == scores[left].max()))[0])
        kept[round_] = best
        left = left & ~clash[best]
        left[best] = False


def overlaps(boxes: Array, *, centred: bool) -> Array:
    """``[N, N]``: what two boxes share over what they cover; 0 where they share nothing."""
    first, second = boxes[:, :2], boxes[:, 2:]
    low, high = (
        (first - second / 2, first + second / 2)
        if centred
        else (np.minimum(first, second), np.maximum(first, second))
    )
    sides = np.clip(np.minimum(high[:, None], high) - np.maximum(low[:, None], low), 0, None)
    shared = sides.prod(-1)
    area = (high - low).prod(-1)
    covered = area[:, None] + area - shared
    return np.where(shared > 0, shared / np.where(shared > 0, covered, 1), 0)


ROWS = (Row(logical.NonMaxSuppressionOp, _boxes_and_scores, suppressed, ("f64", "f32")),)
