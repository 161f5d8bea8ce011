"""Shapes of the builder by other names: each method makes reshapes, slices, broadcasts or a concat."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.dialects import logical
from aicf.frontends.builder.core import Shape, Value, integers, positive_axis
from aicf.frontends.builder.derived import DerivedOps


class ShapeOps(DerivedOps):
    """A negative axis counts from the last."""

    def broadcast_to(self, x: Value, shape: Shape, *, name: str | None = None) -> Value:
        """The value repeated to a shape by NumPy's rules."""
        return self._broadcast(x, self._sizes(shape), name)

    def split(self, x: Value, sizes: Sequence[int], axis: int) -> list[Value]:
        """Consecutive slices of these sizes along an axis."""
        at, sizes = positive_axis(axis, x.rank), integers("sizes", sizes)
        if not 0 <= at < x.rank or sum(sizes) != x.shape[at]:
            raise self._error(f"split: sizes {sizes} along axis {axis} do not add up to that of {x.shape}")
        whole = [logical.WHOLE] * x.rank
        parts: list[Value] = []
        for number, size in enumerate(sizes):
            starts = [sum(sizes[:number]) if dim == at else 0 for dim in range(x.rank)]
            parts.append(self.slice(x, starts, [*whole[:at], size, *whole[at + 1 :]]))
        return parts

    def expand_dims(self, x: Value, axis: int, *, name: str | None = None) -> Value:
        """Adds a dimension of size 1 before dimension ``axis``; -1 adds one after the last."""
        at = positive_axis(axis, x.rank + 1)
        if not 0 <= at <= x.rank:
            raise self._error(
                f"expand_dims: axis {axis} is out of range; shape {x.shape} has {x.rank + 1} positions"
            )
        return self.reshape(x, [*x.shape[:at], 1, *x.shape[at:]], name=name)

    def squeeze(self, x: Value, axis: int, *, name: str | None = None) -> Value:
        """Without a dimension of size 1."""
        at = positive_axis(axis, x.rank)
        if not 0 <= at < x.rank or x.shape[at] != 1:
            raise self._error(f"squeeze: axis {axis} of shape {x.shape} is no dimension of size 1")
        return self.reshape(x, [*x.shape[:at], *x.shape[at + 1 :]], name=name)

    def stack(self, parts: Sequence[Value], axis: int = 0, *, name: str | None = None) -> Value:
        """Values of one shape side by side along a new dimension."""
        parts = self._parts(parts)
        if not parts:
            raise self._error("stack: nothing to stack; give at least one value")
        at = positive_axis(axis, parts[0].rank + 1)
        return self.concat([self.expand_dims(part, at) for part in parts], at, name=name)
