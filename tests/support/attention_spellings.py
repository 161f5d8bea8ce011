"""Attention as models write it: each spelling once, for a builder graph and for float64 NumPy.

A spelling takes ops with the builder's names. `NumpyOps` has those that are needed, so that what a spelling means
follows from NumPy alone. `x` is `[B, T, D]` unless a spelling is of `[T, B, D]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
HEADS, SIZE = 3, 8
D = HEADS * SIZE
SCALE = SIZE**-0.5


class NumpyOps:
    """The ops of the builder on arrays, in float64."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        self.values = {name: value.astype(np.float64) for name, value in values.items()}
        self.result: Array | None = None

    def input(self, name: str, shape: Sequence[int]) -> Array:
        assert self.values[name].shape == tuple(shape)
        return self.values[name]

    param = input

    def linear(self, x: Array, weight: Array, bias: Array | float = 0.0) -> Array:
        return x @ weight.T + bias

    def matmul(self, a: Array, b: Array, transpose_b: bool = False) -> Array:
        return a @ (np.swapaxes(b, -1, -2) if transpose_b else b)

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        return x.reshape(shape)

    def transpose(self, x: Array, order: Sequence[int]) -> Array:
        return x.transpose(order)

    def slice(self, x: Array, starts: Sequence[int], sizes: Sequence[int]) -> Array:
        return x[tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))]

    def split(self, x: Array, sizes: Sequence[int], axis: int) -> list[Array]:
        return np.split(x, np.cumsum(sizes)[:-1], axis)

    def broadcast_to(self, x: Array, shape: Sequence[int]) -> Array:
        return np.broadcast_to(x, shape)

    def iota(self, shape: Sequence[int], axis: int) -> Array:
        return np.indices(shape)[axis]

    def where(self, condition: Array, yes: Array, no: float) -> Array:
        return np.where(condition, yes, no)

    def softmax(self, x: Array) -> Array:
        weights = np.exp(x - x.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    def output(self, value: Array, name: str) -> None:
        assert name == "y"
        self.result = value


def _taken(g: Any, x: Any, axis: int, index: int) -> Any:
    """`x` at an index along an axis, without it, as unbind gives it."""
    starts, sizes = [0] * len(x.shape), list(x.shape)
    starts[axis], sizes[axis] = index, 1
    rest = [size for dim, size in enumerate(x.shape) if dim != axis]
    return g.reshape(g.slice(x, starts, sizes), rest)


def _fused(g: Any, *lead: int) -> Any:
    return g.linear(g.input("x", (*lead, D)), g.param("w", (3 * D, D)), g.param("b", (3 * D,)))


def _by_heads(g: Any, x: Any, b: int, t: int, heads: int = HEADS) -> Any:
    return g.transpose(g.reshape(x, (b, t, heads, SIZE)), (0, 2, 1, 3))


def _attended(g: Any, q: Any, k: Any, v: Any) -> Any:
    return g.matmul(g.softmax(g.matmul(q, g.transpose(k, (0, 1, 3, 2))) * SCALE), v)


def _given(g: Any, heads: Any, b: int, t: int) -> None:
    """The heads side by side again."""
    count = heads.shape[1]
    g.output(g.reshape(g.transpose(heads, (0, 2, 1, 3)), (b, t, count * SIZE)), "y")


def timm(g: Any, b: int, t: int) -> None:
    """reshape, permute(2, 0, 3, 1, 4), unbind(0)."""
    y = g.transpose(g.reshape(_fused(g, b, t), (b, t, 3, HEADS, SIZE)), (2, 0, 3, 1, 4))
    _given(g, _attended(g, *(_taken(g, y, 0, each) for each in range(3))), b, t)


def timm_scaled_queries(g: Any, b: int, t: int) -> None:
    """The same with the factor on the queries."""
    y = g.transpose(g.reshape(_fused(g, b, t), (b, t, 3, HEADS, SIZE)), (2, 0, 3, 1, 4))
    q, k, v = (_taken(g, y, 0, each) for each in range(3))
    _given(g, g.matmul(g.softmax(g.matmul(q * SCALE, k, transpose_b=True)), v), b, t)


def unbound_in_the_middle(g: Any, b: int, t: int) -> None:
    """reshape [B, T, 3, H, S], select along 2, transpose."""
    y = g.reshape(_fused(g, b, t), (b, t, 3, HEADS, SIZE))
    q, k, v = (g.transpose(_taken(g, y, 2, each), (0, 2, 1, 3)) for each in range(3))
    _given(g, _attended(g, q, k, v), b, t)


def split_heads_last(g: Any, b: int, t: int) -> None:
    """view [B, T, H, 3 * S], transpose, split of the last dimension."""
    y = g.transpose(g.reshape(_fused(g, b, t), (b, t, HEADS, 3 * SIZE)), (0, 2, 1, 3))
    _given(g, _attended(g, *g.split(y, [SIZE] * 3, 3)), b, t)


def nano_gpt(g: Any, b: int, t: int) -> None:
    """split, view, transpose; what comes later is hidden by coordinates."""
    q, k, v = (_by_heads(g, x, b, t) for x in g.split(_fused(g, b, t), [D] * 3, 2))
    scores = g.matmul(q, k, transpose_b=True) * SCALE
    seen = g.iota((t, t), 1) <= g.iota((t, t), 0)
    scores = g.where(g.broadcast_to(seen, scores.shape), scores, float("-inf"))
    _given(g, g.matmul(g.softmax(scores), v), b, t)


def bert(g: Any, b: int, t: int) -> None:
    """Three linears, and a mask of the keys."""
    x = g.input("x", (b, t, D))
    q, k, v = (
        _by_heads(g, g.linear(x, g.param(f"w{n}", (D, D)), g.param(f"b{n}", (D,))), b, t) for n in "qkv"
    )
    scores = g.matmul(q, g.transpose(k, (0, 1, 3, 2))) / SIZE**0.5 + g.input("mask", (b, 1, 1, t))
    _given(g, g.matmul(g.softmax(scores), v), b, t)


GROUPS, PER_GROUP = 2, 2


def _grouped(g: Any, b: int, t: int) -> tuple[Any, Any, Any]:
    """Queries, keys and values of one product: more heads of queries than of the others."""
    x, (kv, queries) = g.input("x", (b, t, D)), (GROUPS * SIZE, GROUPS * PER_GROUP * SIZE)
    q, k, v = g.split(g.linear(x, g.param("w", (queries + 2 * kv, D))), [queries, kv, kv], 2)
    return q, _by_heads(g, k, b, t, GROUPS), _by_heads(g, v, b, t, GROUPS)


def repeated_heads(g: Any, b: int, t: int) -> None:
    """Grouped queries: each head of keys and values repeated by expand and reshape."""
    q, *rest = _grouped(g, b, t)
    wide, joined = (b, GROUPS, PER_GROUP, t, SIZE), (b, GROUPS * PER_GROUP, t, SIZE)
    k, v = (g.reshape(g.broadcast_to(g.reshape(x, (b, GROUPS, 1, t, SIZE)), wide), joined) for x in rest)
    _given(g, _attended(g, _by_heads(g, q, b, t, GROUPS * PER_GROUP), k, v), b, t)


def grouped_dims(g: Any, b: int, t: int) -> None:
    """Grouped queries with a dimension of their own, keys and values broadcast by the products."""
    q, *rest = _grouped(g, b, t)
    q = g.transpose(g.reshape(q, (b, t, GROUPS, PER_GROUP, SIZE)), (0, 2, 3, 1, 4))
    k, v = (g.reshape(x, (b, GROUPS, 1, t, SIZE)) for x in rest)
    heads = g.matmul(g.softmax(g.matmul(q, k, transpose_b=True) * SCALE), v)
    g.output(g.reshape(g.transpose(heads, (0, 3, 1, 2, 4)), (b, t, GROUPS * PER_GROUP * SIZE)), "y")


def one_head_of_keys(g: Any, b: int, t: int) -> None:
    """Multi-query attention: one head of keys and values for all."""
    x = g.input("x", (b, t, D))
    q, k, v = g.split(g.linear(x, g.param("w", ((HEADS + 2) * SIZE, D))), [D, SIZE, SIZE], 2)
    k, v = (_by_heads(g, each, b, t, 1) for each in (k, v))
    _given(g, _attended(g, _by_heads(g, q, b, t), k, v), b, t)


def tokens_first(g: Any, b: int, t: int) -> None:
    """[T, B, D]: batch and heads joined, products of three dimensions."""
    q, k, v = (
        g.transpose(g.reshape(x, (t, b * HEADS, SIZE)), (1, 0, 2))
        for x in g.split(_fused(g, t, b), [D] * 3, 2)
    )
    heads = g.matmul(g.softmax(g.matmul(q * SCALE, g.transpose(k, (0, 2, 1)))), v)
    g.output(g.reshape(g.transpose(heads, (1, 0, 2)), (t, b, D)), "y")


def multihead_attention(g: Any, b: int, t: int) -> None:
    """torch.nn.MultiheadAttention: [T, B, D], unflatten, joined and taken apart again."""
    y = g.transpose(g.reshape(_fused(g, t, b), (1, t, b, 3, D)), (3, 1, 2, 0, 4))
    y = g.reshape(y, (3, t, b, D))
    q, k, v = (
        g.reshape(
            g.transpose(g.reshape(_taken(g, y, 0, each), (t, b * HEADS, SIZE)), (1, 0, 2)),
            (b, HEADS, t, SIZE),
        )
        for each in range(3)
    )
    heads = _attended(g, q, k, v)
    g.output(g.reshape(g.transpose(heads, (2, 0, 1, 3)), (t * b, D)), "y")


def joined_heads(g: Any, b: int, t: int) -> None:
    """[B * H, T, S] for the products, with a mask that is repeated for all heads."""
    q, k, v = (
        g.reshape(_by_heads(g, x, b, t), (b * HEADS, t, SIZE)) for x in g.split(_fused(g, b, t), [D] * 3, 2)
    )
    mask = g.reshape(g.broadcast_to(g.input("mask", (b, 1, 1, t)), (b, HEADS, t, t)), (b * HEADS, t, t))
    heads = g.matmul(g.softmax(g.matmul(q * SCALE, g.transpose(k, (0, 2, 1))) + mask), v)
    _given(g, g.reshape(heads, (b, HEADS, t, SIZE)), b, t)


SPELLINGS: Mapping[str, Callable[[Any, int, int], None]] = {
    each.__name__: each
    for each in (
        timm,
        timm_scaled_queries,
        unbound_in_the_middle,
        split_heads_last,
        nano_gpt,
        bert,
        repeated_heads,
        grouped_dims,
        one_head_of_keys,
        tokens_first,
        multihead_attention,
        joined_heads,
    )
}
