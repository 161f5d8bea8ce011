"""Steps of a decoder on the CPU: the token's key and value are written by the attention that reads them."""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from aicf.compilation.compiled import CompiledModel
from aicf.dialects.emit import ResolvedOp
from aicf.frontends.text import parse_module

Array = np.ndarray
CAPACITY, SIZE = 70, 20
RNG = np.random.default_rng(263)


def step(heads: int, groups: int, target: str = "cpu", threads: int = 1, dtype: str = "f32") -> CompiledModel:
    """One token: keys and values are states of the program, the row of the token goes to `position`."""
    graph = aicf.Graph("step")
    query = graph.input("query", (heads, 1, SIZE), dtype)
    position = graph.input("position", (1,), "i64")
    caches = []
    for name in ("keys", "values"):
        row = graph.input(name[:-1], (1, groups, SIZE), dtype)
        state = graph.state(name, (CAPACITY, groups, SIZE), dtype)
        written = graph.scatter(state, position, row, mode="set", name=f"{name}.written")
        graph.update(state, written)
        caches.append(graph.transpose(written, (1, 0, 2)))
    at = graph.reshape(position, ())
    graph.output(graph.attention(query, *caches, position=at, causal=True, name="mixed"), "y")
    states = {name: random((CAPACITY, groups, SIZE), dtype) for name in ("keys", "values")}
    return aicf.compile(graph, states, target, threads=threads)


def random(shape: tuple[int, ...], dtype: str = "f32") -> Array:
    return RNG.standard_normal(shape).astype(dtype.replace("f", "float"))


def attended(query: Array, keys: Array, values: Array, position: int) -> Array:
    """In float64, of the keys up to the position."""
    repeats = query.shape[0] // keys.shape[1]
    k, v = (np.repeat(each[: position + 1].astype(np.float64), repeats, 1) for each in (keys, values))
    scores = np.einsum("hqd,nhd->hqn", query.astype(np.float64), k) * SIZE**-0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqn,nhd->hqd", weights / weights.sum(-1, keepdims=True), v)


def kinds(model: CompiledModel) -> list[str]:
    return [op.kind.data for op in parse_module(model.ir("emit")).walk() if isinstance(op, ResolvedOp)]


def run_steps(model: CompiledModel, heads: int, groups: int, dtype: str, error: float) -> None:
    """A few tokens, one after the other, and then the first position again."""
    wanted = {name: np.array(array) for name, array in model.state().items()}
    for position in (0, 1, 31, 32, CAPACITY - 1, 0):
        feeds = {"query": random((heads, 1, SIZE), dtype)}
        for name in ("keys", "values"):
            feeds[name[:-1]] = random((1, groups, SIZE), dtype)
            wanted[name][position] = feeds[name[:-1]][0]
        found = model.run({**feeds, "position": np.array([position])})["y"]
        expected = attended(feeds["query"], wanted["keys"], wanted["values"], position)
        np.testing.assert_allclose(found, expected, atol=error)
        for name, array in model.state().items():
            np.testing.assert_array_equal(array, wanted[name])


@pytest.mark.parametrize(
    ("target", "threads", "dtype", "error"),
    [("cpu", 2, "f32", 3e-6), ("cpu:x86-64-v3", 1, "f32", 3e-6), ("cpu", 1, "f16", 2e-3)],
)
def test_the_row_is_written_on_the_way(target: str, threads: int, dtype: str, error: float) -> None:
    model = step(4, 4, target, threads, dtype)
    assert kinds(model) == ["cached_attention_step"]
    run_steps(model, 4, 4, dtype, error)


def test_heads_that_share_keys_see_the_row() -> None:
    run_steps(step(6, 2), 6, 2, "f32", 3e-6)


def test_an_index_beyond_the_ends_writes_nothing() -> None:
    model = step(4, 4)
    before = {name: np.array(array) for name, array in model.state().items()}
    for position in (CAPACITY, 1 << 40, -CAPACITY - 1):
        feeds = {"query": random((4, 1, SIZE)), "key": random((1, 4, SIZE)), "value": random((1, 4, SIZE))}
        model.run({**feeds, "position": np.array([position])})
        for name, array in model.state().items():
            np.testing.assert_array_equal(array, before[name])


def test_keys_that_are_no_state_are_copied() -> None:
    """Where the old keys are read again, the new ones have memory of their own."""
    graph = aicf.Graph("copied")
    query, position = graph.input("query", (4, 1, SIZE)), graph.input("position", (1,), "i64")
    caches = []
    for name in ("keys", "values"):
        row, old = graph.input(name[:-1], (1, 4, SIZE)), graph.input(name, (CAPACITY, 4, SIZE))
        written = graph.scatter(old, position, row, mode="set", name=f"{name}.written")
        graph.output(written, f"new_{name}")
        caches.append(graph.transpose(written, (1, 0, 2)))
    at = graph.reshape(position, ())
    graph.output(graph.attention(query, *caches, position=at, causal=True, name="mixed"), "y")
    model = aicf.compile(graph, {}, "cpu", threads=2)
    assert "cached_attention_step" in kinds(model)
    feeds = {name: random((CAPACITY, 4, SIZE)) for name in ("keys", "values")}
    feeds |= {"query": random((4, 1, SIZE)), "key": random((1, 4, SIZE)), "value": random((1, 4, SIZE))}
    found = model.run({**feeds, "position": np.array([40])})
    wanted = {name: np.array(feeds[name]) for name in ("keys", "values")}
    for name, array in wanted.items():
        array[40] = feeds[name[:-1]][0]
        np.testing.assert_array_equal(found[f"new_{name}"], array)
    expected = attended(feeds["query"], wanted["keys"], wanted["values"], 40)
    np.testing.assert_allclose(found["y"], expected, atol=3e-6)


def test_batch_elements_that_share_keys_do_not_write_them() -> None:
    """One thread would copy the old row over the new one that another reads, so the row is written before."""
    graph = aicf.Graph("shared")
    query, position = graph.input("query", (5, 2, SIZE)), graph.input("position", (1,), "i64")
    caches = []
    for name in ("keys", "values"):
        row, old = graph.input(name[:-1], (1, 1, SIZE)), graph.input(name, (CAPACITY, 1, SIZE))
        written = graph.scatter(old, position, row, mode="set", name=f"{name}.written")
        graph.output(written, f"new_{name}")
        caches.append(graph.transpose(written, (1, 0, 2)))
    at = graph.reshape(position, ())
    graph.output(graph.attention(query, *caches, position=at, causal=True, name="mixed"), "y")
    model = aicf.compile(graph, {}, "cpu", threads=2)
    assert "cached_attention_step" not in kinds(model)
    assert "batch elements share keys or values" in model.ir("emit")
