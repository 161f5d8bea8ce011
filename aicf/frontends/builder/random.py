"""Ops of the builder that give random numbers."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.dialects.logical import PhiloxForm
from aicf.frontends.builder.core import GraphCore, Shape, Value


class RandomOps(GraphCore):
    """One method an op; seed and offset are i64 values of rank 0, or Python integers, which become constants."""

    def _scalar(self, value: Value | int) -> Value:
        return value if isinstance(value, Value) else self.constant(value, (), "i64")

    def philox(
        self,
        seed: Value | int,
        offset: Value | int,
        shape: Shape,
        form: PhiloxForm = "uniform",
        dtype: str | None = None,
        *,
        name: str | None = None,
    ) -> Value:
        """Random numbers: "uniform" in [0, 1) or "normal", by default in f32, or "bits", which are i32."""
        element = dtype or ("i32" if form == "bits" else "f32")
        key = [self._own(self._scalar(value)) for value in (seed, offset)]
        return self._insert(
            "philox", name, lambda: logical.PhiloxOp(key[0], key[1], form, self._sizes(shape), element)
        )

    def philox_word(
        self, seed: Value | int, offset: Value | int, index: Value, *, name: str | None = None
    ) -> Value:
        """The word of each index in the stream of a seed and an offset."""
        key = [self._broadcast(self._scalar(value), index.info.sizes) for value in (seed, offset)]
        return self._insert(
            "philox_word",
            name,
            lambda: logical.PhiloxWordOp(self._own(key[0]), self._own(key[1]), self._own(index)),
        )

    def dropout(
        self, x: Value, seed: Value | int, offset: Value | int, rate: float, *, name: str | None = None
    ) -> Value:
        """``x / (1 - rate)`` with a random part of the elements, ``rate`` on average, set to 0."""
        key = [self._own(self._scalar(value)) for value in (seed, offset)]
        return self._insert("dropout", name, lambda: logical.DropoutOp(self._own(x), key[0], key[1], rate))
