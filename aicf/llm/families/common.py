"""What the families share: weights by name, norms, rotary positions, and attention over a cache of keys and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from aicf.llm.batch_state import NextTokens
from aicf.llm.families.caches import BatchCache, Cache, TextCache
from aicf.llm.token_state import NewTokens, token_states
from aicf.runtime.tensors import Array, numpy_dtype

if TYPE_CHECKING:
    from aicf.frontends.builder import Graph, Value

T = TypeVar("T")


def weight(graph: Graph, name: str, shape: Sequence[int], dtype: str) -> Value:
    """A parameter of the model."""
    return graph.param(name, tuple(shape), dtype)


def linear(graph: Graph, name: str, x: Value, to: int, *, bias: bool = False) -> Value:
    """A linear layer of weight `name.weight`, [to, from], and `name.bias`, [to]: x[..., from] to [..., to], all of one
    type."""
    width = x.shape[-1]
    assert isinstance(width, int)
    added = weight(graph, f"{name}.bias", (to,), x.dtype) if bias else None
    return graph.linear(x, weight(graph, f"{name}.weight", (to, width), x.dtype), added, name=name)


def rms_norm(graph: Graph, name: str, x: Value, epsilon: float) -> Value:
    """RMSNorm over the last dimension, with scale `name.weight`. Zhang and Sennrich, 2019."""
    width = x.shape[-1]
    assert isinstance(width, int)
    return graph.rms_norm(x, weight(graph, f"{name}.weight", (width,), x.dtype), epsilon=epsilon)


def layer_norm(graph: Graph, name: str, x: Value, epsilon: float) -> Value:
    """LayerNorm over the last dimension, with `name.weight` and `name.bias`. Ba, Kiros and Hinton, 2016."""
    width = x.shape[-1]
    assert isinstance(width, int)
    scale, bias = (weight(graph, f"{name}.{kind}", (width,), x.dtype) for kind in ("weight", "bias"))
    return graph.layer_norm(x, scale, bias, epsilon=epsilon)


def in_f32(x: Value) -> Value:
    """x, widened where it is narrower."""
    return x if x.dtype == "f32" else x.graph.cast(x, "f32")


def in_type_of(like: Value, x: Value) -> Value:
    """x in the element type of `like`."""
    return x if x.dtype == like.dtype else x.graph.cast(x, like.dtype)


def soft_cap(graph: Graph, x: Value, cap: float) -> Value:
    """`cap * tanh(x / cap)`: x, kept between -cap and cap."""
    return graph.tanh(x * (1 / cap)) * cap


@dataclass(frozen=True)
class Step:
    """What all layers of one step share.

    Args:
        graph: That is built.
        tokens: i64[T], the new tokens: of one text, or one of each sequence of a batch.
        rows: i64[T], their positions in the cache.
        context: Positions that the cache may grow to.
        cache: Of keys and values.
        new: The tokens, and what becomes of those that come next.
    """

    graph: Graph
    tokens: Value
    rows: Value
    context: int
    cache: Cache
    new: NewTokens | NextTokens
    _made: dict[str, Any] = field(default_factory=dict[str, Any])

    @staticmethod
    def of(graph: Graph, capacity: int, context: int) -> Step:
        """Adds the inputs and states of `NewTokens`."""
        new = NewTokens.of(graph, capacity)
        return Step(graph, new.tokens, new.rows, context, TextCache(graph, capacity, new), new)

    @staticmethod
    def of_batch(graph: Graph, capacity: int, context: int) -> Step:
        """Adds the inputs and states of `NextTokens`."""
        new = NextTokens.of(graph, capacity)
        return Step(graph, new.tokens, new.rows, context, BatchCache(graph, capacity, new), new)

    def last(self, x: Value) -> Value:
        """[1, width]: the row of x[T, width] of the last new token; of a batch x itself, where
        idle sequences have the first row of it."""
        return self.new.last(x)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What several layers share, made for the first of them."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    @property
    def position(self) -> Value:
        """How many positions of the cache come before the first token: i64; of a batch i64[T]."""
        if isinstance(self.new, NextTokens):
            return self.rows
        first = self.new.first
        return self.once("position", lambda: self.graph.reshape(first, ()))


def output_logits(step: Step, logits: Value) -> None:
    """Makes f32[1, vocabulary], and the token that is chosen by them, the results of the step; of a batch f32[T,
    vocabulary] and the tokens."""
    is_batch = isinstance(step.new, NextTokens)
    step.new.choose(logits if is_batch else step.graph.reshape(logits, (logits.shape[1],)))


@dataclass(frozen=True)
class Rotation:
    """The rotary positions of a step: each pair ``(a, b)`` of a head becomes ``(a, b) * cos + (b, a) * (-sin, sin)``,
    which is one pass over the elements. Angles, cosines and sines are f32, and so is what is computed with them: at
    the end of a long text bf16 has no more than whole turns. Su et al., RoFormer, 2021.

    Args:
        cosines: Of the angles of each position, in the shape of the pairs of one head.
        sines: Likewise, those of the first of a pair negated.
        are_neighbours: Whether elements 2 i and 2 i + 1 of a head are a pair, and pairs f32[T, 1, pairs, 2]; else i and
            i + pairs are, f32[T, 1, 2, pairs].
    """

    cosines: Value
    sines: Value
    are_neighbours: bool

    @staticmethod
    def of(step: Step, frequencies: Array, magnitude: float, *, are_neighbours: bool) -> Rotation:
        """Of the positions of a step.

        Args:
            step: That it is part of.
            frequencies: f32[pairs], by which the pairs turn from one position to the next.
            magnitude: What cosines and sines are multiplied by.
            are_neighbours: See above.
        """
        graph, pairs = step.graph, len(frequencies)
        constant = graph.constant(frequencies.reshape(1, -1), (1, pairs))
        angles = graph.mul(graph.reshape(graph.cast(step.rows, "f32"), ("T", 1)), constant)
        turned = [graph.cos(angles), graph.sin(angles)]
        if magnitude != 1:
            turned = [values * magnitude for values in turned]
        axis, one, both = (
            (3, ("T", 1, pairs, 1), ("T", 1, pairs, 2))
            if are_neighbours
            else (2, ("T", 1, 1, pairs), ("T", 1, 2, pairs))
        )
        cosines, sines = (graph.broadcast_to(graph.reshape(values, one), both) for values in turned)
        is_first = graph.eq(graph.iota(both, axis, "i32"), 0)
        return Rotation(cosines, graph.where(is_first, graph.neg(sines), sines), are_neighbours)

    def apply(self, graph: Graph, x: Value) -> Value:
        """Rotates the pairs of every head, and leaves elements after them as they are: x[T, heads, width]."""
        width, pairs = x.shape[-1], self.cosines.shape[2 if self.are_neighbours else 3]
        assert isinstance(width, int) and isinstance(pairs, int)
        if 2 * pairs == width:
            return self._rotated(graph, x, pairs)
        first, rest = graph.split(x, [2 * pairs, width - 2 * pairs], 2)
        return graph.concat([self._rotated(graph, first, pairs), rest], 2)

    def _rotated(self, graph: Graph, x: Value, pairs: int) -> Value:
        heads = x.shape[1]
        axis, shape = (3, ("T", heads, pairs, 2)) if self.are_neighbours else (2, ("T", heads, 2, pairs))
        paired = in_f32(graph.reshape(x, shape))
        turned = graph.mul(graph.flip(paired, (axis,)), self.sines)
        rotated = graph.mul(paired, self.cosines) + turned
        return in_type_of(x, graph.reshape(rotated, ("T", heads, 2 * pairs)))


def states(layers: int, capacity: int, kv_heads: int, head_width: int, dtype: str) -> dict[str, Array]:
    """Empty keys and values of every layer, [capacity, kv_heads, head_width] by name, and no tokens."""
    names = (f"{kind}.{layer}" for layer in range(layers) for kind in ("keys", "values"))
    shape = (capacity, kv_heads, head_width)
    return {**{name: np.zeros(shape, numpy_dtype(dtype)) for name in names}, **token_states(capacity)}


def attention(
    step: Step,
    layer: int,
    query: Value,
    key: Value,
    value: Value,
    *,
    window: int | None = None,
    scale: float | None = None,
    cap: float | None = None,
) -> Value:
    """Attention of the new tokens over the cache, which takes their keys and values first.

    Args:
        step: That it is part of.
        layer: Whose cache it is.
        query: [T, heads, head_width]; heads are a multiple of kv_heads.
        key, value: [T, kv_heads, head_width], of the type of the query, as the cache is.
        window: Positions that a token looks back, its own among them; None if it looks at all.
        scale: Of scores; 1 / sqrt(head_width) if None.
        cap: Soft cap of scores.

    Returns: [T, heads * head_width].
    """
    cache = step.cache
    keys, values = cache.append(f"keys.{layer}", key), cache.append(f"values.{layer}", value)
    mixed = step.graph.attention(
        cache.queries(query),
        keys,
        values,
        position=step.position,
        causal=True,
        window=window,
        scale=scale,
        softcap=cap,
        name=f"blk.{layer}.attention",
    )
    return cache.joined(mixed)
