"""What the families share: weights by name, norms, rotary positions, and attention over a cache of keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from aicf.runtime.tensors import Array

if TYPE_CHECKING:
    from aicf.frontends.builder import Graph, Value

TOKENS, POSITION, LAST, LOGITS = "tokens", "position", "last", "logits"
"""Inputs and output of a decoder."""

_HIDDEN = -1e30
"""What a score is where a query may not look."""


def weight(graph: Graph, name: str, shape: Sequence[int]) -> Value:
    """A parameter of the model: f32 of the shape."""
    return graph.param(name, tuple(shape))


def linear(graph: Graph, name: str, x: Value, to: int) -> Value:
    """A linear layer of weight `name.weight`, [to, from]: f32[..., from] to f32[..., to]."""
    width = x.shape[-1]
    assert isinstance(width, int)
    return graph.linear(x, weight(graph, f"{name}.weight", (to, width)), name=name)


def rms_norm(graph: Graph, name: str, x: Value, epsilon: float) -> Value:
    """RMSNorm over the last dimension, with scale `name.weight`. Zhang and Sennrich, 2019."""
    width = x.shape[-1]
    assert isinstance(width, int)
    return graph.rms_norm(x, weight(graph, f"{name}.weight", (width,)), epsilon=epsilon)


def _no_masks() -> dict[int | None, Value]:
    return {}


@dataclass(frozen=True)
class Step:
    """What all layers of one step share.

    Args:
        graph: That is built.
        tokens: i64[T], the new tokens.
        rows: i64[T], their positions in the cache.
        capacity: Positions of the cache.
    """

    graph: Graph
    tokens: Value
    rows: Value
    capacity: int
    _masks: dict[int | None, Value] = field(default_factory=_no_masks)

    @staticmethod
    def of(graph: Graph, capacity: int) -> Step:
        """Adds the inputs `tokens`, i64[T], and `position`, i64[1]: how many tokens came before."""
        tokens, position = graph.input(TOKENS, ("T",), "i64"), graph.input(POSITION, (1,), "i64")
        rows = graph.add(graph.iota(("T",), 0, "i64"), position)
        return Step(graph, tokens, rows, capacity)

    def last(self, x: Value) -> Value:
        """f32[1, width]: the row of x[T, width] that the input `last`, i64[1], names."""
        return self.graph.gather(x, self.graph.input(LAST, (1,), "i64"), name="last")

    def mask(self) -> Value:
        """f32[T, capacity]: 0 where a token may look, its own position and those before. One for all layers."""
        if None not in self._masks:
            graph = self.graph
            columns = graph.iota(("T", self.capacity), 1, "i64")
            visible = graph.le(columns, graph.reshape(self.rows, ("T", 1)))
            self._masks[None] = graph.where(visible, graph.constant(0.0), _HIDDEN)
        return self._masks[None]


def output_logits(graph: Graph, logits: Value) -> None:
    """Makes f32[1, vocabulary] the result of the step."""
    graph.output(graph.reshape(logits, (logits.shape[1],)), LOGITS)


def rotary_frequencies(width: int, base: float) -> Array:
    """f32[width / 2]: the angle by which each pair turns from one position to the next. Su et al., RoFormer, 2021."""
    return (base ** -(np.arange(0, width, 2) / width)).astype(np.float32)


@dataclass(frozen=True)
class Rotation:
    """Cosines and sines of the angles of each position: f32[T, 1, width / 2]."""

    cosines: Value
    sines: Value

    @staticmethod
    def of(step: Step, frequencies: Array) -> Rotation:
        """Of the positions of a step."""
        graph, shape = step.graph, ("T", 1, len(frequencies))
        constant = graph.constant(frequencies.reshape(1, -1), (1, len(frequencies)))
        angles = graph.mul(graph.reshape(graph.cast(step.rows, "f32"), ("T", 1)), constant)
        return Rotation(graph.reshape(graph.cos(angles), shape), graph.reshape(graph.sin(angles), shape))

    def of_neighbours(self, graph: Graph, x: Value) -> Value:
        """Rotates elements 2 i and 2 i + 1 of every head, as pairs: f32[T, heads, width]."""
        *_, heads, width = x.shape
        assert isinstance(width, int)
        pairs = graph.reshape(x, ("T", heads, width // 2, 2))
        parts = [
            graph.reshape(graph.slice(pairs, (0, 0, 0, part), (-1, -1, -1, 1)), ("T", heads, width // 2))
            for part in (0, 1)
        ]
        return graph.reshape(graph.stack(self._turned(graph, *parts), 3), ("T", heads, width))

    def _turned(self, graph: Graph, real: Value, imaginary: Value) -> list[Value]:
        return [
            graph.sub(graph.mul(real, self.cosines), graph.mul(imaginary, self.sines)),
            graph.add(graph.mul(real, self.sines), graph.mul(imaginary, self.cosines)),
        ]


def states(layers: int, capacity: int, kv_heads: int, head_width: int) -> dict[str, Array]:
    """Empty keys and values of every layer: f32[capacity, kv_heads, head_width] by name."""
    names = (f"{kind}.{layer}" for layer in range(layers) for kind in ("keys", "values"))
    return {name: np.zeros((capacity, kv_heads, head_width), np.float32) for name in names}


def attention(step: Step, layer: int, query: Value, key: Value, value: Value) -> Value:
    """Attention of the new tokens over the cache, which takes their keys and values first.

    Args:
        step: That it is part of.
        layer: Whose cache it is.
        query: f32[T, heads, head_width]; heads are a multiple of kv_heads.
        key, value: f32[T, kv_heads, head_width].

    Returns: f32[T, heads * head_width].
    """
    graph = step.graph
    _, heads, width = query.shape
    assert isinstance(heads, int) and isinstance(width, int)
    keys, values = _cached(step, f"keys.{layer}", key), _cached(step, f"values.{layer}", value)
    rows = graph.transpose(query, (1, 0, 2))
    mixed = graph.attention(rows, keys, values, step.mask(), name=f"blk.{layer}.attention")
    return graph.reshape(graph.transpose(mixed, (1, 0, 2)), ("T", heads * width))


def _cached(step: Step, name: str, new: Value) -> Value:
    """A state with new rows, for this run and the next: f32[kv_heads, capacity, head_width]."""
    _, heads, width = new.shape
    state = step.graph.state(name, (step.capacity, heads, width))
    updated = step.graph.scatter(state, step.rows, new)
    step.graph.update(state, updated)
    return step.graph.transpose(updated, (1, 0, 2))
