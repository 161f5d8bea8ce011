"""Random programs that hold what the passes before `fuse-epilogues` fuse, and the kinds they must become.

Random are sizes, how operands are laid out, which optional parts there are, and their order; the values are uniform.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from aicf.dialects.types import element_named
from aicf.frontends.builder import Graph, Value

Array = NDArray


@dataclass
class FusedProgram:
    """A module, an array per argument, and the kinds of instructions that its fused parts are."""

    module: ModuleOp
    inputs: dict[str, Array]
    kinds: set[str]


@dataclass
class _Writer:
    random: np.random.Generator
    dtype: str
    graph: Graph = field(default_factory=lambda: Graph("fused"))
    inputs: dict[str, Array] = field(default_factory=dict)

    def chance(self, probability: float = 0.5) -> bool:
        return bool(self.random.random() < probability)

    def size(self, low: int = 2, high: int = 6) -> int:
        return int(self.random.integers(low, high))

    def argument(self, name: str, *shape: int) -> Value:
        make = self.graph.input if name.startswith("x") else self.graph.param
        name = f"{name}{len(self.inputs)}"
        self.inputs[name] = self.random.uniform(-1, 1, shape).astype(element_named(self.dtype).dtype)
        return make(name, shape, self.dtype)

    def weight(self, inputs: int, outputs: int) -> Callable[[Value], Value]:
        """A product with a new weight, transposed or not."""
        if self.chance():
            weight = self.argument("w", outputs, inputs)
            return lambda x: self.graph.linear(x, weight)
        weight = self.argument("w", inputs, outputs)
        return lambda x: self.graph.matmul(x, weight)

    def norm(self, x: Value, size: int) -> Value:
        """A layer_norm, or a norm by the root of the mean square in primitive ops."""
        if self.chance():
            return self.graph.layer_norm(x, self.argument("s", size), self.argument("t", size))
        square = self.graph.reduce_mean(x * x, [-1], keepdims=True)
        return x * self.graph.rsqrt(square + 1e-3) * self.argument("s", size)


def _heads(w: _Writer, rows: int, heads: int, depth: int, batch: int) -> Value:
    """[batch, heads, rows, depth]: as it is, or from [batch, rows, heads * depth] by views."""
    if w.chance(0.3):
        return w.argument("x", batch, heads, rows, depth)
    flat = w.argument("x", batch, rows, heads * depth)
    return w.graph.transpose(w.graph.reshape(flat, (batch, rows, heads, depth)), [0, 2, 1, 3])


def _attend(w: _Writer, q: Value, k: Value, v: Value, mask_shape: tuple[int, ...]) -> Value:
    """softmax(q k^T * scale + mask) v, with what is optional drawn at random."""
    if w.chance(0.3):
        q, k = q * 0.75, 0.625 * k if w.chance() else k
    if w.chance():
        scores = w.graph.matmul(q, k, transpose_b=True)
    else:
        scores = w.graph.matmul(q, w.graph.transpose(k, [0, 1, 3, 2]))
    if w.chance(0.7):
        scores = scores * 0.375 if w.chance() else scores / 1.5
    if w.chance(0.7):
        mask = w.argument("x", *mask_shape)
        scores = scores + mask if w.chance() else mask + scores
    return w.graph.matmul(w.graph.softmax(scores), v)


def _attention(w: _Writer) -> set[str]:
    batch, heads, rows, columns, depth, width = (w.size() for _ in range(6))
    q = _heads(w, rows, heads, depth, batch)
    k, v = _heads(w, columns, heads, depth, batch), _heads(w, columns, heads, width, batch)
    shapes = ((batch, heads, rows, columns), (batch, 1, 1, columns), (rows, columns), (columns,))
    y = _attend(w, q, k, v, shapes[int(w.random.integers(4))])
    if w.chance(0.7):
        y = w.graph.reshape(w.graph.transpose(y, [0, 2, 1, 3]), (batch, rows, heads * width))
    w.graph.output(y, "y")
    if w.chance(0.3):
        w.graph.output(y + y if w.chance() else w.graph.exp(y), "z")
    return {"attention"}


def _attention_step(w: _Writer) -> set[str]:
    """New tokens' queries attend to keys and values after one row of both, in memory by tokens, is written."""
    rows, tokens, heads, size = (w.size() for _ in range(4))
    index = w.graph.input("index", (1,), "i64")
    w.inputs["index"] = w.random.integers(-tokens, tokens + 1, 1)

    def by_heads(x: Value, rows: int) -> Value:
        return w.graph.transpose(w.graph.reshape(x, (rows, heads, size)), (1, 0, 2))

    def written() -> Value:
        state, row = w.argument("x", tokens, heads * size), w.argument("x", 1, heads * size)
        return w.graph.scatter(state + state if w.chance(0.3) else state, index, row)

    queries, keys, values = by_heads(w.argument("x", rows, heads * size), rows), written(), written()
    scores = w.graph.matmul(queries, by_heads(keys, tokens), transpose_b=True) * 0.375
    if w.chance(0.3):
        scores = scores + w.argument("x", 1, tokens)
    y = w.graph.matmul(w.graph.softmax(scores), by_heads(values, tokens))
    if w.chance(0.7):
        y = w.graph.reshape(w.graph.transpose(y, (1, 0, 2)), (rows, heads * size))
    w.graph.output(y, "y")
    w.graph.output(keys, "keys")
    w.graph.output(values * 2.0 if w.chance(0.3) else values, "values")
    return {"attention_step"}


def _cached_attention(w: _Writer) -> set[str]:
    """New tokens attend to a cache after their keys and values are written into it, from a position on."""
    groups, size = w.size(), w.size()
    tokens = 1 + w.size()
    capacity = tokens + w.size()
    position = w.graph.input("position", (), "i64")
    w.inputs["position"] = np.asarray(w.random.integers(0, capacity - tokens + 1), np.int64)
    rows = w.graph.iota((tokens,), 0, "i64") + w.graph.reshape(position, (1,))

    def cached() -> Value:
        state, new = w.argument("x", capacity, groups, size), w.argument("x", tokens, groups, size)
        written = w.graph.scatter(state, rows, new)
        w.graph.output(written, f"cache{len(w.inputs)}")
        return w.graph.transpose(written, (1, 0, 2))

    queries = w.graph.transpose(w.argument("x", tokens, groups, size), (1, 0, 2))
    y = w.graph.attention(
        queries,
        cached(),
        cached(),
        position=position,
        causal=True,
        scale=0.375,
        window=w.size() if w.chance(0.3) else None,
        softcap=2.0 if w.chance(0.3) else None,
    )
    w.graph.output(w.graph.reshape(w.graph.transpose(y, (1, 0, 2)), (tokens, groups * size)), "y")
    return {"cached_attention"}


def _turned_step(w: _Writer) -> set[str]:
    """One token with groups of queries and rotary positions, whose key and value are written into a cache first."""
    heads, shared, half, capacity = (w.size() for _ in range(4))
    position = w.graph.input("position", (), "i64")
    w.inputs["position"] = np.asarray(w.random.integers(0, capacity), np.int64)
    pairs, axis, neighbours = ((2, half), 2, False) if w.chance() else ((half, 2), 3, True)
    graph, element = w.graph, w.argument("x", 1).dtype
    wide_type = "f64" if element == "f64" else "f32"
    angles = graph.constant(w.random.uniform(-3, 3, half), (half,), wide_type)
    one = graph.reshape(angles, (1, 1, half, 1) if neighbours else (1, 1, 1, half))
    cosines, sines = (graph.broadcast_to(of(one), (1, 1, *pairs)) for of in (graph.cos, graph.sin))
    is_first = graph.eq(graph.iota((1, 1, *pairs), axis, "i32"), 0)
    sines = graph.where(is_first, graph.neg(sines), sines)

    def turned(x: Value, count: int) -> Value:
        wide = graph.cast(graph.reshape(x, (1, count, *pairs)), wide_type)
        both = graph.mul(wide, cosines) + graph.mul(graph.flip(wide, (axis,)), sines)
        return graph.reshape(graph.cast(both, element), (1, count, 2 * half))

    def cached(name: str, new: Value) -> Value:
        row = graph.reshape(position, (1,))
        written = graph.scatter(w.argument("x", capacity, heads, 2 * half), row, new)
        graph.output(written, name)
        return graph.transpose(written, (1, 0, 2))

    key, value = (w.argument("x", 1, heads, 2 * half) for _ in range(2))
    query = turned(w.argument("x", 1, heads * shared, 2 * half), heads * shared)
    keys, values = cached("keys", turned(key, heads)), cached("values", value)
    y = graph.attention(
        graph.transpose(query, (1, 0, 2)), keys, values, position=position, causal=True, scale=0.375
    )
    graph.output(
        graph.relu(graph.reshape(graph.transpose(y, (1, 0, 2)), (1, heads * shared * 2 * half))), "y"
    )
    return {"cached_attention_step"}


def _gated(w: _Writer) -> set[str]:
    rows, inner, columns = w.size(), w.size(), w.size()
    x = w.argument("x", rows, inner)
    kind = "gemm_gated"
    if w.chance():
        x, kind = w.norm(x + x if w.chance() else x, inner), "norm_gated"
    weights = [w.argument("w", inner, columns) for _ in range(2)]
    one, other = (w.graph.matmul(x, weight) for weight in weights)
    if w.chance():
        one = one + w.argument("b", columns)
    if w.chance():
        one, other = other, one
    y = w.graph.silu(one) * other
    w.graph.output(y + w.argument("x", rows, columns) if w.chance() else y, "y")
    return {kind}


def _norm_product(w: _Writer) -> set[str]:
    rows, inner = w.size(), w.size()
    columns = inner if w.chance() else w.size()
    shape = (rows, inner) if w.chance() else (2, rows, inner)
    x = w.argument("x", *shape)
    normal = w.norm(x, inner)
    y = w.weight(inner, columns)(normal)
    if w.chance():
        y = w.graph.gelu(y + w.argument("b", columns))
    w.graph.output(y + x if columns == inner and w.chance() else y, "y")
    if w.chance():
        w.graph.output(w.graph.exp(w.weight(inner, columns + 1)(normal)), "z")
    return {"norm_gemm"}


def _queries_keys_values(w: _Writer) -> set[str]:
    batch, rows, heads, depth = w.size(1, 3), w.size(), w.size(), w.size()
    width = heads * depth
    x = w.argument("x", batch, rows, width)
    residual = x
    if w.chance():
        x = w.norm(x, width)
    with_bias = w.chance(0.7)

    def project() -> Value:
        bias = w.argument("b", width) if with_bias else None
        y = w.graph.linear(x, w.argument("w", width, width), bias)
        return w.graph.transpose(w.graph.reshape(y, (batch, rows, heads, depth)), [0, 2, 1, 3])

    q, k, v = (project() for _ in range(3))
    y = _attend(w, q, k, v, (batch, 1, 1, rows))
    y = w.graph.reshape(w.graph.transpose(y, [0, 2, 1, 3]), (batch, rows, width))
    y = w.weight(width, width)(y) + residual
    w.graph.output(w.norm(y, width) if w.chance() else y, "y")
    return {"attention", "gemm_multi"}


def _product_norm(w: _Writer) -> set[str]:
    rows, inner, columns = w.size(), w.size(), w.size()
    x = w.argument("x", *((rows, inner) if w.chance() else (2, rows, inner)))
    y = w.weight(inner, columns)(x)
    if w.chance():
        y = y + w.argument("b", columns)
    if w.chance():
        y = w.graph.gelu(y)
    if w.chance():
        y = y + w.argument("x", rows, columns)
    normal = w.graph.softmax(y) if w.chance(0.3) else w.norm(y, columns)
    w.graph.output(w.graph.exp(normal) if w.chance(0.3) else normal, "z")
    if w.chance():
        w.graph.output(y, "y")
    return {"gemm_norm"}


def _several_results(w: _Writer) -> set[str]:
    """Values that several others read, and callers too, with products between them that would close cycles."""
    g, rows, columns = w.graph, w.size(), w.size()
    x = w.argument("x", rows, columns)
    values = [x, g.tanh(x), x * 0.5]
    square = w.argument("w", columns, columns)

    def recent() -> Value:
        return values[int(w.random.integers(max(0, len(values) - 5), len(values)))]

    for number in range(int(w.random.integers(6, 14))):
        match int(w.random.integers(6)):
            case 0:
                values.append(g.tanh(recent()))
            case 1:
                values.append(g.tanh(recent() + recent()))
            case 2:
                values.append(recent() * recent())
            case 3:
                values.append(
                    g.softmax(recent())
                    if w.chance()
                    else recent() - g.reduce_mean(recent(), [1], keepdims=True)
                )
            case 4:
                values.append(g.tanh(g.matmul(recent(), square)))
            case _:
                g.output(g.reduce_sum(recent(), [int(w.chance(0.8))], keepdims=w.chance()), f"sum{number}")
        if w.chance(0.4):
            g.output(values[-1], f"y{number}")
    for number, value in enumerate((values[1], values[2], values[-1])):
        g.output(value, f"z{number}")
    return set()


FAMILIES = {
    "attention": _attention,
    "attention_step": _attention_step,
    "cached_attention": _cached_attention,
    "turned_step": _turned_step,
    "gated": _gated,
    "norm_product": _norm_product,
    "queries_keys_values": _queries_keys_values,
    "product_norm": _product_norm,
    "several_results": _several_results,
}
"""Name to the writer of a program, which gives the kinds that must be in it on a target that has kernels for them."""


def fused_program(family: str, seed: int, dtype: str = "f32") -> FusedProgram:
    """A program of a family; everything follows from the seed.

    Args:
        family: A key of `FAMILIES`.
        seed: Decides everything.
        dtype: f16, f32 or f64.
    """
    w = _Writer(np.random.default_rng(seed), dtype)
    kinds = FAMILIES[family](w)
    return FusedProgram(w.graph.module(), w.inputs, kinds)
