"""ONNX ops of object detectors whose result has as many rows as are found: they need operands that are known."""

from __future__ import annotations

import numpy as np

from aicf.passes.support.onnx_ops.base import Array, Node, Result, row


@row("NonMaxSuppression", since=10)
def _non_max_suppression(node: Node) -> Result:
    """``[found, 3]``: batch, class and box, the boxes of each class by falling scores.

    How many there are follows from the numbers, so this row computes on the spot.
    """
    boxes, scores = node.value(0, "boxes"), node.value(1, "scores")
    limit = int(node.value(2, "max_output_boxes_per_class").reshape(-1)[0]) if node.has(2) else 0
    overlap = float(node.value(3, "iou_threshold").reshape(-1)[0]) if node.has(3) else 0.0
    least = float(node.value(4, "score_threshold").reshape(-1)[0]) if node.has(4) else -np.inf
    centred = bool(node.attributes.int("center_point_box", 0))
    found = [
        (batch, category, box)
        for batch, category in np.ndindex(*scores.shape[:2])
        for box in _kept(_corners(boxes[batch], centred), scores[batch, category], limit, overlap, least)
    ]
    return np.array(found, np.int64).reshape(-1, 3)


def _corners(boxes: Array, centred: bool) -> Array:
    """``[boxes, 2, 2]``: low and high along two dimensions, of boxes given as corners or as centre and size."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if centred:
        first, second = first - second / 2, first + second / 2
    return np.stack([np.minimum(first, second), np.maximum(first, second)], 1)


def _kept(corners: Array, scores: Array, limit: int, overlap: float, least: float) -> list[int]:
    """Boxes of one class by falling scores, without those that overlap one before too much."""
    kept: list[int] = []
    for box in np.argsort(-scores, kind="stable").tolist():
        if len(kept) >= limit or not scores[box] > least:
            break
        if all(_overlap(corners[box], corners[other]) <= overlap for other in kept):
            kept.append(box)
    return kept


def _overlap(a: Array, b: Array) -> float:
    """Intersection over union; 0 where one of them has no area."""
    sides = np.minimum(a[1], b[1]) - np.maximum(a[0], b[0])
    if sides.min() <= 0:
        return 0.0
    shared = float(sides.prod())
    return shared / (float((a[1] - a[0]).prod() + (b[1] - b[0]).prod()) - shared)
