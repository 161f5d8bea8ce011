"""Ops of object detectors of the builder."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.frontends.builder.core import GraphCore, Value


class DetectionOps(GraphCore):
    """One method an op."""

    def non_max_suppression(
        self,
        boxes: Value,
        scores: Value,
        overlap: Value,
        floor: Value | None = None,
        *,
        limit: int,
        centred: bool = False,
        name: str | None = None,
    ) -> Value:
        """The boxes that are kept of each class, best first, ``[B, C, min(N, limit)]`` in i64; -1 behind the last.

        boxes: two corners of each, or with ``centred`` centre and size, ``[B, N, 4]``; scores: ``[B, C, N]``; overlap:
        the largest that two kept boxes of a class may have, of rank 0; floor: kept boxes have a higher score, of rank
        0.
        """
        operands = (self._own(boxes), self._own(scores), self._own(overlap))
        least = None if floor is None else self._own(floor)
        return self._insert(
            "non_max_suppression",
            name,
            lambda: logical.NonMaxSuppressionOp(*operands, least, limit=limit, centred=centred),
        )
