"""ONNX ops of object detectors: which boxes are kept. As many rows as are found; see ``compacting``."""

from __future__ import annotations

from math import prod

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import ElementType, tensor_info
from aicf.passes.onnx.ops.base import Array, Counted, Node, Result, row
from aicf.passes.onnx.ops.compacting import compacted, coordinates
from aicf.passes.onnx.ops.elementwise import compare
from aicf.semantics import kept_boxes

_LIMIT, _OVERLAP, _FLOOR = 2, 3, 4
"""The operands after boxes and scores."""


@row("NonMaxSuppression", since=10)
def _non_max_suppression(node: Node) -> Result:
    """``[found, 3]``: sample, class and box, the boxes of each class by falling scores."""
    (samples, boxes, _), classes = node.shape(0), node.shape(1)[1]
    limit = int(node.value(_LIMIT, "max_output_boxes_per_class").reshape(-1)[0]) if node.has(_LIMIT) else 0
    centred = node.attributes.flag("center_point_box")
    if prod((samples, classes, boxes, max(limit, 0))) == 0:
        return np.empty((0, 3), np.int64)
    if (known := _known(node)) is not None:
        return _rows(kept_boxes(*known, limit=min(limit, boxes), centred=centred))
    element = node.element(0)
    kept = node.apply(
        logical.NonMaxSuppressionOp,
        node.operand(0),
        node.operand(1),
        _number(node, _OVERLAP, element),
        *([_number(node, _FLOOR, element)] if node.has(_FLOOR) else []),
        limit=min(limit, boxes),
        centred=centred,
        name="kept",
    )
    return _found(node, kept)


def _known(node: Node) -> tuple[Array, Array, Array, Array | None] | None:
    """Boxes, scores and thresholds, if none of them is computed at run time."""
    boxes, scores = node.known(0), node.known(1)
    overlap, floor = (node.known(index) if node.has(index) else None for index in (_OVERLAP, _FLOOR))
    computed = (node.has(_OVERLAP) and overlap is None) or (node.has(_FLOOR) and floor is None)
    if boxes is None or scores is None or computed:
        return None
    overlap = np.zeros((), boxes.dtype) if overlap is None else overlap.reshape(())
    return boxes, scores, overlap, None if floor is None else floor.reshape(())


def _rows(kept: Array) -> Array:
    """``[found, 3]`` of the boxes of each class, which end in -1."""
    rows = np.argwhere(kept >= 0)
    rows[:, 2] = kept[kept >= 0]
    return rows.astype(np.int64)


def _number(node: Node, index: int, element: ElementType) -> SSAValue:
    """A threshold, of rank 0; 0 for one that is not given."""
    if not node.has(index):
        return node.full(0.0, (), element)
    return node.reshape(node.operand(index), (), f"number{index}")


def _found(node: Node, kept: SSAValue) -> Counted:
    sizes = tensor_info(kept.type).shape
    boxes = node.reshape(kept, (prod(sizes), 1), "boxes")
    rows = node.concat([*coordinates(node, sizes, (0, 1)), boxes], 1, "places")
    holds = compare(node, "ge", node.reshape(kept, (prod(sizes),), "flat"), 0)
    return Counted(*compacted(node, holds, rows))
