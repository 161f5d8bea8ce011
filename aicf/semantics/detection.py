"""Meanings of the ops of object detectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.semantics.base import Array, Meaning


def _non_max_suppression(op: logical.NonMaxSuppressionOp, operands: Sequence[Array]) -> Array:
    """In the type of the boxes itself: whether an overlap is too large follows from its last bit."""
    dtype = tensor_info(op.boxes.type).element.dtype
    boxes, scores, overlap, *floor = (operand.astype(dtype) for operand in operands)
    numbers = (overlap, floor[0] if floor else None)
    return kept_boxes(boxes, scores, *numbers, limit=op.info.shape[2], centred=op.centred is not None)


def kept_boxes(
    boxes: Array, scores: Array, overlap: Array, floor: Array | None, *, limit: int, centred: bool
) -> Array:
    """``[B, C, limit]`` (i64) as `logical.non_max_suppression` has it, of operands of one type of floats."""
    kept = np.full((*scores.shape[:2], limit), -1, np.int64)
    for sample, category in np.ndindex(*scores.shape[:2]):
        order = _order(scores[sample, category], floor)
        found = _kept(_corners(boxes[sample], centred), order, overlap, limit)
        kept[sample, category, : len(found)] = found
    return kept


def _order(scores: Array, floor: Array | None) -> list[int]:
    """The boxes that may be kept, by falling scores and rising indices."""
    allowed = ~np.isnan(scores) if floor is None else scores > floor
    order = np.argsort(-scores, kind="stable")
    return order[allowed[order]].tolist()


def _corners(boxes: Array, centred: bool) -> Array:
    """``[boxes, 2, 2]``: the low corner and the high one."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if centred:
        half = second / 2
        return np.stack([first - half, first + half], 1)
    is_low = first < second
    return np.stack([np.where(is_low, first, second), np.where(is_low, second, first)], 1)


def _kept(corners: Array, order: Sequence[int], overlap: Array, limit: int) -> list[int]:
    kept: list[int] = []
    for box in order:
        if len(kept) == limit:
            break
        if not any(_overlaps(corners[box], corners[other], overlap) for other in kept):
            kept.append(box)
    return kept


def _overlaps(a: Array, b: Array, overlap: Array) -> bool:
    """Whether two boxes share area, and more of it than is allowed; of a NaN nothing is true."""
    sides = np.minimum(a[1], b[1]) - np.maximum(a[0], b[0])
    if not (sides > 0).all():
        return False
    shared = sides[0] * sides[1]
    both = _area(a) + _area(b) - shared
    return bool(shared / both > overlap)


def _area(corners: Array) -> Array:
    sides = corners[1] - corners[0]
    return sides[0] * sides[1]


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.NonMaxSuppressionOp: _non_max_suppression,
}
