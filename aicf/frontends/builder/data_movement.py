"""Ops of the builder that move or repeat elements."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.dialects import logical
from aicf.frontends.builder.core import GraphCore, Shape, Value, positive_axis


class DataMovementOps(GraphCore):
    """One method an op."""

    def reshape(self, x: Value, shape: Shape, *, name: str | None = None) -> Value:
        """The same elements under another shape."""
        sizes = self._sizes(shape)
        return self._insert("reshape", name, lambda: logical.ReshapeOp(self._own(x), sizes))

    def transpose(self, x: Value, permutation: Sequence[int], *, name: str | None = None) -> Value:
        """Result dimension i is dimension ``permutation[i]`` of ``x``."""
        return self._insert("transpose", name, lambda: logical.TransposeOp(self._own(x), permutation))

    def broadcast_to(self, x: Value, shape: Shape, *, name: str | None = None) -> Value:
        """The value repeated to a shape by NumPy's rules."""
        return self._broadcast(x, self._sizes(shape), name)

    def slice(
        self,
        x: Value,
        starts: Sequence[int],
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        *,
        name: str | None = None,
    ) -> Value:
        """Per dimension ``sizes[i]`` elements from ``starts[i]``; size -1 takes the whole dimension."""
        return self._insert("slice", name, lambda: logical.SliceOp(self._own(x), starts, sizes, strides))

    def window(
        self,
        x: Value,
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        *,
        name: str | None = None,
    ) -> Value:
        """The windows that slide along the last ``len(sizes)`` dimensions: [N.., S..] becomes [N.., O.., sizes..]."""
        return self._insert("window", name, lambda: logical.WindowOp(self._own(x), sizes, strides, dilations))

    def concat(self, parts: Sequence[Value], axis: int, *, name: str | None = None) -> Value:
        """The values one after the other along an axis."""
        parts = self._parts(parts)
        if not parts:
            raise self._error("concat: nothing to concatenate; give at least one value")
        values = [self._own(part) for part in parts]
        return self._insert(
            "concat", name, lambda: logical.ConcatOp(values, positive_axis(axis, parts[0].rank))
        )
