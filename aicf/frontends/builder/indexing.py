"""Ops of the builder that know indices and take numbers for values: iota, pad, one_hot, topk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from aicf.dialects import logical
from aicf.errors import quoted
from aicf.frontends.builder.core import Operand, Shape, Value, integers, positive_axis
from aicf.frontends.builder.derived import DerivedOps

PadMode = Literal["constant", "edge", "reflect"]
PAD_MODES: tuple[PadMode, ...] = ("constant", "edge", "reflect")


class IndexingOps(DerivedOps):
    """A negative axis counts from the last."""

    def iota(self, shape: Shape, axis: int = 0, dtype: str = "i32", *, name: str | None = None) -> Value:
        """Each element is its index along an axis."""
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
        """Adds ``low[i]`` elements before and ``high[i]`` after ``x`` along dimension i.

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
                x = self.gather(x, self._border_indices(x, axis, before, after, mode), axis, name=name)
        return x

    def _border_indices(self, x: Value, axis: int, before: int, after: int, mode: PadMode) -> Value:
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
        position = self.sub(self.iota([before + size + after]), before)
        if mode == "edge":
            return self.max(position, 0)
        inside = self.max(position, self.neg(position))
        return self.min(inside, self.sub(2 * (size - 1), inside))

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

    def topk(
        self,
        x: Value,
        k: int,
        axis: int = -1,
        *,
        largest: bool = True,
        name: str | None = None,
    ) -> tuple[Value, Value]:
        """The ``k`` largest (or smallest) elements along an axis in order, and their indices (i64)."""
        indices = self.topk_indices(
            x, axis, k, smallest=not largest, name=None if name is None else f"{name}.indices"
        )
        return self.gather_elements(x, indices, axis, name=name), indices
