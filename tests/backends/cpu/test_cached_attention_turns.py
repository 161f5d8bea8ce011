"""Steps of a decoder on the CPU that turn their queries and their new key: against complex numbers in float64, and bit
by bit against rotations that are instructions of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import aicf
from aicf.backends.common.record import read_text
from aicf.compilation.compiled import CompiledModel
from aicf.dialects.emit import ResolvedOp
from aicf.frontends.builder import Graph, Value
from aicf.frontends.text import parse_module

Array = np.ndarray
CAPACITY = 70
STEP = "cached_attention_step"
APART = {"groups": [["query.total"], ["key.total"]]}
"""A policy by which rotations are instructions of their own."""


@dataclass(frozen=True)
class Step:
    """One token of each of `sequences` texts.

    Args:
        heads: Of keys.
        shared: Queries of a head of keys.
        half: Pairs of a head.
        angle_type: Of cosines and sines, and of what is computed with them.
        sequences: None of one text, whose cache has no dimension for it.
        is_state: Whether keys and values are states; else the new ones have memory of their own.
    """

    heads: int = 2
    shared: int = 3
    half: int = 10
    rotation: str = "halves"
    dtype: str = "f32"
    angle_type: str = "f32"
    sequences: int | None = None
    window: int | None = None
    is_state: bool = True

    @property
    def size(self) -> int:
        return 2 * self.half

    @property
    def type(self) -> np.dtype:
        return np.dtype(self.dtype.replace("f", "float"))

    def compiled(self, target: str = "cpu", threads: int = 1, policy: object = None) -> CompiledModel:
        graph, count = Graph("step"), self.sequences or 1
        position = graph.input("position", (count,), "i64")
        row = graph.input("row", (count,), "i64") if self.sequences else position
        factors = self.factors(graph, graph.input("angles", (count, self.half), self.angle_type))
        heads = {"query": self.heads * self.shared, "key": self.heads, "value": self.heads}
        query, key, value = (
            graph.input(name, (count, of, self.size), self.dtype) for name, of in heads.items()
        )
        query, key = self.turned(graph, "query", query, factors), self.turned(graph, "key", key, factors)
        keys, values = self.cached(graph, "keys", key, row), self.cached(graph, "values", value, row)
        query = graph.expand_dims(query, 2) if self.sequences else graph.transpose(query, (1, 0, 2))
        at = position if self.sequences else graph.reshape(position, ())
        found = graph.attention(
            query, keys, values, position=at, causal=True, window=self.window, name="mixed"
        )
        graph.output(graph.reshape(found, (count, self.heads * self.shared, self.size)), "y")
        states = {name: np.zeros(self.cache_shape, self.type) for name in ("keys", "values")}
        return aicf.compile(graph, states if self.is_state else {}, target, threads=threads, policy=policy)

    @property
    def cache_shape(self) -> tuple[int, ...]:
        own = (CAPACITY, self.heads, self.size)
        return (self.sequences, *own) if self.sequences else own

    def factors(self, graph: Graph, angles: Value) -> tuple[Value, Value]:
        """Cosines, and sines with those of the first of a pair negated, of the shape of the pairs of one head."""
        (count, _), neighbours = angles.shape, self.rotation == "neighbours"
        one, both = (
            ((count, 1, self.half, 1), (count, 1, self.half, 2))
            if neighbours
            else ((count, 1, 1, self.half), (count, 1, 2, self.half))
        )
        cosines, sines = (
            graph.broadcast_to(graph.reshape(of(angles), one), both) for of in (graph.cos, graph.sin)
        )
        is_first = graph.eq(graph.iota(both, 3 if neighbours else 2, "i32"), 0)
        return cosines, graph.where(is_first, graph.neg(sines), sines)

    def turned(self, graph: Graph, name: str, x: Value, factors: tuple[Value, Value]) -> Value:
        count, heads, _ = x.shape
        axis, pairs = (3, (self.half, 2)) if self.rotation == "neighbours" else (2, (2, self.half))
        x = graph.cast(graph.reshape(x, (count, heads, *pairs)), self.angle_type)
        turned = graph.mul(graph.flip(x, (axis,)), factors[1])
        both = graph.add(graph.mul(x, factors[0]), turned, name=f"{name}.total")
        return graph.reshape(graph.cast(both, self.dtype), (count, heads, self.size))

    def cached(self, graph: Graph, name: str, new: Value, row: Value) -> Value:
        """Keys or values with a new row, by heads."""
        add = graph.state if self.is_state else graph.input
        old = add(name, self.cache_shape, self.dtype)
        if self.sequences:
            one = (self.sequences, 1, self.heads, self.size)
            at = graph.broadcast_to(graph.reshape(row, (self.sequences, 1, 1, 1)), one)
            written = graph.scatter_elements(old, at, graph.reshape(new, one), 1)
        else:
            written = graph.scatter(old, row, new, mode="set")
        if self.is_state:
            graph.update(old, written)
        else:
            graph.output(written, f"new_{name}")
        return graph.transpose(written, (0, 2, 1, 3) if self.sequences else (1, 0, 2))

    def feeds(self, random: np.random.Generator, positions: Array, rows: Array) -> dict[str, Array]:
        count = self.sequences or 1
        heads = {"query": self.heads * self.shared, "key": self.heads, "value": self.heads}
        feeds = {
            name: random.standard_normal((count, of, self.size)).astype(self.type)
            for name, of in heads.items()
        }
        angles = random.uniform(-3, 3, (count, self.half)).astype(self.angle_type.replace("f", "float"))
        feeds |= {"position": positions, "angles": angles}
        if not self.is_state:
            feeds |= {
                name: random.standard_normal(self.cache_shape).astype(self.type)
                for name in ("keys", "values")
            }
        return feeds | ({"row": rows} if self.sequences else {})

    def expected(self, feeds: dict[str, Array], caches: tuple[Array, Array], rows: Array) -> Array:
        """What a step gives in float64; puts the new rows into `caches`, f64[sequences, capacity, heads, size]."""
        query, key = (
            turned(feeds[name].astype(np.float64), feeds["angles"].astype(np.float64), self.rotation)
            for name in ("query", "key")
        )
        results: list[Array] = []
        for number, (row, position) in enumerate(zip(rows, feeds["position"], strict=True)):
            if row < CAPACITY:
                caches[0][number, row], caches[1][number, row] = key[number], feeds["value"][number]
            first = max(0, position + 1 - self.window) if self.window else 0
            keys, values = (np.repeat(each[number, first : position + 1], self.shared, 1) for each in caches)
            scores = np.einsum("hd,nhd->hn", query[number], keys) * self.size**-0.5
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            results.append(np.einsum("hn,nhd->hd", weights / weights.sum(-1, keepdims=True), values))
        return np.stack(results)


def turned(x: Array, angles: Array, rotation: str) -> Array:
    """Pairs of the last dimension of x[count, heads, size] as complex numbers, turned."""
    half = angles.shape[-1]
    first, second = (x[..., :half], x[..., half:]) if rotation == "halves" else (x[..., 0::2], x[..., 1::2])
    found = (first + 1j * second) * np.exp(1j * angles)[:, None]
    parts = [found.real, found.imag]
    joined = np.concatenate(parts, -1) if rotation == "halves" else np.stack(parts, -1)
    return joined.reshape(x.shape)


def rotations(model: CompiledModel) -> list[str]:
    """Of the steps of a program."""
    ops = [op for op in parse_module(model.ir("emit")).walk() if isinstance(op, ResolvedOp)]
    return [read_text(op.attrs.data, "rotation") for op in ops if op.kind.data == STEP]


ONE = [(np.array([at]), np.array([at])) for at in (0, 1, 31, 32, CAPACITY - 1, 0)]
"""Positions and rows of a few tokens of one text, one after the other, and then the first again."""
SEVERAL = [
    (np.array([0, 33, 5]), np.array([0, 33, 5])),
    (np.array([1, 0, 6]), np.array([1, CAPACITY, 6])),  # the second is idle: it writes nothing
    (np.array([2, 34, 0]), np.array([2, 34, CAPACITY])),
]
"""Likewise of three."""


@pytest.mark.parametrize(
    ("step", "target", "threads", "error"),
    [
        (Step(), "cpu", 2, 3e-6),
        (Step(rotation="neighbours"), "cpu", 1, 3e-6),
        (Step(rotation="neighbours", half=32), "cpu:x86-64-v3", 1, 3e-6),
        (Step(half=9, window=17), "cpu:generic", 1, 3e-6),
        (Step(heads=3, shared=1), "cpu", 2, 3e-6),
        (Step(dtype="f16"), "cpu", 1, 4e-3),
        (Step(dtype="f64", angle_type="f64", rotation="neighbours"), "cpu", 1, 1e-12),
        (Step(sequences=3), "cpu", 2, 3e-6),
        (Step(sequences=3, rotation="neighbours", half=16), "cpu:x86-64-v3", 1, 3e-6),
    ],
    ids=str,
)
def test_queries_and_the_new_key_are_turned(step: Step, target: str, threads: int, error: float) -> None:
    random, model = np.random.default_rng(7), step.compiled(target, threads)
    assert rotations(model) == [step.rotation]
    kept = (step.sequences or 1, CAPACITY, step.heads, step.size)
    caches = np.zeros(kept), np.zeros(kept)
    for positions, rows in SEVERAL if step.sequences else ONE:
        feeds = step.feeds(random, positions, rows)
        expected = step.expected(feeds, caches, rows)
        np.testing.assert_allclose(model.run(feeds)["y"], expected, atol=error)
        for name, cache in zip(("keys", "values"), caches, strict=True):
            np.testing.assert_allclose(model.state(name)[name].reshape(kept), cache, atol=error)


@pytest.mark.parametrize("step", [Step(rotation="neighbours"), Step(dtype="f16"), Step(sequences=3)], ids=str)
def test_bits_are_those_of_rotations_on_their_own(step: Step) -> None:
    models = [step.compiled(threads=2), step.compiled(policy=APART)]
    assert [rotations(model) for model in models] == [[step.rotation], ["none"]]
    for positions, rows in SEVERAL if step.sequences else ONE:
        feeds = step.feeds(np.random.default_rng(int(positions[0])), positions, rows)
        one, other = (model.run(feeds)["y"].tobytes() for model in models)
        assert one == other
        one, other = ({name: array.tobytes() for name, array in model.state().items()} for model in models)
        assert one == other


def test_the_new_key_is_turned_into_memory_of_its_own() -> None:
    step = replace(Step(), is_state=False)
    model, random = step.compiled(threads=2), np.random.default_rng(11)
    assert rotations(model) == ["halves"]
    feeds = step.feeds(random, np.array([40]), np.array([40]))
    caches = feeds["keys"][None].astype(np.float64), feeds["values"][None].astype(np.float64)
    expected, found = step.expected(feeds, caches, np.array([40])), model.run(feeds)
    np.testing.assert_allclose(found["y"], expected, atol=3e-6)
    for name, cache in zip(("keys", "values"), caches, strict=True):
        np.testing.assert_allclose(found[f"new_{name}"], cache[0], atol=1e-6)
        kept = np.delete(found[f"new_{name}"], 40, 0)
        np.testing.assert_array_equal(kept, np.delete(feeds[name], 40, 0))


def test_what_is_turned_in_half_precision_is_turned_on_its_own() -> None:
    model = Step(dtype="f16", angle_type="f16").compiled()
    assert rotations(model) == ["none"]
    assert "cosines and sines that turn pairs are f32 here: cast them" in model.ir("emit")


def test_queries_of_two_tokens_are_turned_on_their_own() -> None:
    step, graph = Step(), Graph("two tokens")
    position, angles = graph.input("position", (1,), "i64"), graph.input("angles", (2, step.half))
    query = graph.input("query", (2, step.heads, step.size))
    key, value = (graph.input(name, (1, step.heads, step.size)) for name in ("key", "value"))
    query = step.turned(graph, "query", query, step.factors(graph, angles))
    key = step.turned(graph, "key", key, step.factors(graph, graph.slice(angles, (0, 0), (1, step.half))))
    keys, values = step.cached(graph, "keys", key, position), step.cached(graph, "values", value, position)
    at = graph.reshape(position, ())
    found = graph.attention(graph.transpose(query, (1, 0, 2)), keys, values, position=at, causal=True)
    graph.output(found, "y")
    states = {name: np.zeros(step.cache_shape, step.type) for name in ("keys", "values")}
    model = aicf.compile(graph, states, "cpu", threads=1)
    assert rotations(model) == ["none"]
    assert "the queries of 2 tokens are not turned here" in model.ir("emit")
