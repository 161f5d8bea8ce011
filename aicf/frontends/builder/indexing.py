"""Ops of the builder that know places, and the conveniences around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from aicf.dialects import logical
from aicf.dialects.logical import ScatterMode
from aicf.errors import quoted
from aicf.frontends.builder.core import (
    GraphCore,
    Operand,
    Shape,
    Value,
    integers,
    positive_axes,
    positive_axis,
)
from aicf.frontends.builder.data_movement import DataMovementOps
from aicf.frontends.builder.elementwise import ElementwiseOps

PadMode = Literal["constant", "edge", "reflect"]
PAD_MODES: tuple[PadMode, ...] = ("constant", "edge", "reflect")


class IndexingOps(ElementwiseOps, DataMovementOps, GraphCore):
    """One method an op; a negative axis counts from the last."""

    def iota(self, shape: Shape, axis: int = 0, dtype: str = "i32", *, name: str | None = None) -> Value:
        """Each element is its place along an axis."""
        sizes = self._sizes(shape)
        return self._insert(
            "iota", name, lambda: logical.IotaOp(positive_axis(axis, len(sizes)), sizes, dtype)
        )

    def pad(
        self,
        x: Value,
        low: Sequence[int],
        high: Sequence[int],
        value: Operand = 0,
        mode: PadMode = "constant",
        *,
        name: str | None = None,
    ) -> Value:
        """``low[i]`` elements in front and ``high[i]`` behind along dimension i.

        They are ``value``, a number or a value of rank 0; with mode "edge" the nearest element, with "reflect" the
        elements mirrored at the edge, which is not repeated.
        """
        if mode not in PAD_MODES:
            raise self._error(f"pad: mode is {quoted(mode)}; use one of {', '.join(PAD_MODES)}")
        if mode == "constant":
            fill = value if isinstance(value, Value) else self.constant(value, (), x.dtype)
            return self._insert("pad", name, lambda: logical.PadOp(self._own(x), self._own(fill), low, high))
        low, high = integers("low", low), integers("high", high)
        if len(low) != x.rank or len(high) != x.rank:
            raise self._error(f"pad: low and high have one amount for each of the {x.rank} dimensions")
        for axis, (before, after) in enumerate(zip(low, high, strict=True)):
            if before or after:
                x = self.gather(x, self._border_places(x, axis, before, after, mode), axis, name=name)
        return x

    def _border_places(self, x: Value, axis: int, before: int, after: int, mode: PadMode) -> Value:
        """Where along an axis each element of the padded tensor comes from."""
        size = x.shape[axis]
        if not isinstance(size, int):
            raise self._error(f"pad: mode {mode} needs a known size along dimension {axis}, got {size}")
        most = size - 1 if mode == "reflect" else None
        if min(before, after) < 0 or (most is not None and max(before, after) > most):
            bound = "not negative" if most is None else f"from 0 to {most}"
            raise self._error(
                f"pad: amounts {before} and {after} along dimension {axis}; with mode {mode} they are {bound}"
            )
        place = self.sub(self.iota([before + size + after]), before)
        if mode == "edge":
            return self.max(place, 0)
        inside = self.max(place, self.neg(place))
        return self.min(inside, self.sub(2 * (size - 1), inside))

    def gather(self, x: Value, indices: Value, axis: int = 0, *, name: str | None = None) -> Value:
        """Slices of ``x`` along an axis, one for each index, as ``numpy.take``; out of range is clamped."""
        return self._insert(
            "gather",
            name,
            lambda: logical.GatherOp(self._own(x), self._own(indices), positive_axis(axis, x.rank)),
        )

    def gather_elements(self, x: Value, indices: Value, axis: int, *, name: str | None = None) -> Value:
        """Elements of ``x`` that indices of the result's shape name along an axis, as ``torch.gather``."""
        return self._insert(
            "gather_elements",
            name,
            lambda: logical.GatherElementsOp(self._own(x), self._own(indices), positive_axis(axis, x.rank)),
        )

    def scatter(
        self, x: Value, indices: Value, updates: Value, mode: ScatterMode = "set", *, name: str | None = None
    ) -> Value:
        """``x`` with update i combined into its row ``indices[i]``."""
        values = [self._own(value) for value in (x, indices, updates)]
        return self._insert("scatter", name, lambda: logical.ScatterOp(*values, mode=mode))

    def scatter_elements(
        self,
        x: Value,
        indices: Value,
        updates: Value,
        axis: int,
        mode: ScatterMode = "set",
        *,
        name: str | None = None,
    ) -> Value:
        """``x`` with each update combined into the element that its index names along an axis."""
        values = [self._own(value) for value in (x, indices, updates)]
        return self._insert(
            "scatter_elements",
            name,
            lambda: logical.ScatterElementsOp(*values, axis=positive_axis(axis, x.rank), mode=mode),
        )

    def scatter_nd(
        self, x: Value, indices: Value, updates: Value, mode: ScatterMode = "set", *, name: str | None = None
    ) -> Value:
        """``x`` with slices combined into it at the places in the last dimension of ``indices``."""
        values = [self._own(value) for value in (x, indices, updates)]
        return self._insert("scatter_nd", name, lambda: logical.ScatterNdOp(*values, mode=mode))

    def topk(
        self,
        x: Value,
        k: int,
        axis: int = -1,
        *,
        largest: bool = True,
        name: str | None = None,
    ) -> tuple[Value, Value]:
        """The ``k`` largest (or smallest) elements along an axis in order, and their places (i64)."""
        at = positive_axis(axis, x.rank)
        places = self._insert(
            "topk_indices",
            None if name is None else f"{name}.indices",
            lambda: logical.TopkIndicesOp(self._own(x), at, k, smallest=not largest),
        )
        return self.gather_elements(x, places, at, name=name), places

    def flip(self, x: Value, axes: Sequence[int], *, name: str | None = None) -> Value:
        """The order along axes reversed."""
        return self._insert("flip", name, lambda: logical.FlipOp(self._own(x), positive_axes(axes, x.rank)))

    def tile(self, x: Value, repeats: Sequence[int], *, name: str | None = None) -> Value:
        """``x`` repeated ``repeats[i]`` times along dimension i."""
        return self._insert("tile", name, lambda: logical.TileOp(self._own(x), repeats))

    def one_hot(
        self,
        indices: Value,
        depth: int,
        axis: int = -1,
        on: Operand = 1,
        off: Operand = 0,
        dtype: str = "f32",
        *,
        name: str | None = None,
    ) -> Value:
        """``on`` at each index along a new dimension of ``depth`` elements, ``off`` elsewhere; ``dtype`` is that of
        Python numbers."""
        fills = [
            value if isinstance(value, Value) else self.constant(value, (), dtype) for value in (on, off)
        ]
        values = [self._own(value) for value in (indices, *fills)]
        at = positive_axis(axis, indices.rank + 1)
        return self._insert("one_hot", name, lambda: logical.OneHotOp(*values, axis=at, depth=depth))

    def where(self, condition: Value, x: Operand, y: Operand, *, name: str | None = None) -> Value:
        """``select`` under NumPy's name."""
        return self.select(condition, x, y, name=name)

    def split(self, x: Value, sizes: Sequence[int], axis: int) -> list[Value]:
        """Slices of these sizes along an axis, one behind the other."""
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
        """A dimension of size 1 in front of dimension ``axis``; -1 adds one behind the last."""
        at = positive_axis(axis, x.rank + 1)
        if not 0 <= at <= x.rank:
            raise self._error(
                f"expand_dims: axis {axis} is out of range; shape {x.shape} has {x.rank + 1} places"
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
