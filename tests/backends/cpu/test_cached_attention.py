"""Attention over a cache on the CPU against float64 NumPy: positions, windows, caps, grouped heads, threads."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import aicf

Array = np.ndarray


@dataclass(frozen=True)
class Case:
    """Sizes of an attention of `tokens` new tokens over a cache of `capacity` positions."""

    heads: int
    groups: int
    tokens: int
    capacity: int
    size: int
    window: int | None = None
    softcap: float | None = None
    batch: tuple[int, ...] = ()


CASES = {
    "a step": Case(9, 3, 1, 100, 64),
    "a step, a head of keys for each": Case(4, 4, 1, 70, 20),
    "a chunk": Case(6, 2, 37, 100, 32),
    "more queries than a block": Case(2, 2, 70, 150, 8),
    "a window": Case(4, 2, 5, 200, 16, window=33),
    "a capped step": Case(8, 2, 1, 90, 16, softcap=2.0),
    "a capped window": Case(4, 2, 40, 90, 16, window=12, softcap=0.5),
    "a position for each sequence": Case(4, 2, 1, 64, 16, batch=(3,)),
    "a chunk of several sequences": Case(4, 2, 9, 64, 16, batch=(3,)),
    "a cache smaller than a tile": Case(2, 2, 3, 7, 8),
}


def inputs_of(case: Case, dtype: str = "float32") -> dict[str, Array]:
    """Random queries, keys and values."""
    rng = np.random.default_rng(case.capacity + case.tokens)
    shapes = {
        "q": (*case.batch, case.heads, case.tokens, case.size),
        "k": (*case.batch, case.groups, case.capacity, case.size),
        "v": (*case.batch, case.groups, case.capacity, case.size + 4),
    }
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


def positions_of(case: Case) -> list[Array]:
    """The first, the last, and those around the end of a tile of keys."""
    last = case.capacity - case.tokens
    found = sorted({position for position in (0, 3, 31, 32, last) if position <= last})
    if case.batch:
        return [np.array(found[:3], np.int64)]
    return [np.array(position, np.int64) for position in found]


def program_of(
    case: Case, dtype: str = "f32", target: str = "cpu", threads: int = 1, integer: str = "i64"
) -> aicf.CompiledModel:
    graph = aicf.Graph("cached")
    feeds = inputs_of(case)
    values = [graph.input(name, array.shape, dtype) for name, array in feeds.items()]
    position = graph.input("position", case.batch, integer)
    y = graph.attention(
        *values, position=position, causal=True, window=case.window, softcap=case.softcap, name="y"
    )
    graph.output(y, "y")
    return aicf.compile(graph, {}, target, threads=threads)


def expected_of(case: Case, feeds: dict[str, Array], position: Array) -> Array:
    q, k, v = (value.astype(np.float64) for value in feeds.values())
    k, v = (np.repeat(value, case.heads // case.groups, -3) for value in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) * case.size**-0.5
    if case.softcap is not None:
        scores = case.softcap * np.tanh(scores / case.softcap)
    last = np.arange(case.tokens)[:, None] + position.reshape(*case.batch, 1, 1, 1)
    keys = np.arange(case.capacity)
    hidden = keys > last
    if case.window is not None:
        hidden |= keys <= last - case.window
    scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def filled(case: Case, feeds: dict[str, Array], position: Array, rest: float) -> dict[str, Array]:
    """The inputs with `rest` in every row of keys and values that no query sees."""
    changed = dict(feeds)
    end = position.reshape(*case.batch, 1, 1, 1) + case.tokens
    unseen = np.arange(case.capacity)[:, None] >= end
    for name in ("k", "v"):
        changed[name] = np.where(unseen, np.array(rest, feeds[name].dtype), feeds[name])
    return changed


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_seen_is_not_read(name: str) -> None:
    """Keys and values after the last one that is seen may be anything, even NaN."""
    case = CASES[name]
    feeds, program = inputs_of(case), program_of(case)
    assert '"cached_attention"' in program.ir("emit")
    for position in positions_of(case):
        found = program(**filled(case, feeds, position, np.nan), position=position)
        np.testing.assert_allclose(found, expected_of(case, feeds, position), atol=3e-6)


@pytest.mark.parametrize("name", ["a step", "a chunk", "a capped window"])
@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "cpu:generic", "reference"])
def test_other_levels(name: str, target: str) -> None:
    case = CASES[name]
    feeds, program, position = inputs_of(case), program_of(case, target=target), positions_of(case)[-2]
    found = program(**feeds, position=position)
    np.testing.assert_allclose(found, expected_of(case, feeds, position), atol=3e-6)


@pytest.mark.parametrize(
    "case", [Case(4, 1, 1, 100, 60), Case(1, 1, 3, 100, 29, softcap=2.0)], ids=["a step", "a chunk"]
)
def test_bits_do_not_depend_on_the_capacity_or_on_threads(case: Case) -> None:
    """Of many keys all threads are predicted to be faster than one: blocks of rows differ then, sums do not."""
    feeds, position = inputs_of(case), positions_of(case)[-2]
    first = program_of(case)(**feeds, position=position)
    for capacity, threads in ((1000, 1), (60_000, 2), (60_000, 4)):
        program = program_of(replace(case, capacity=capacity), threads=threads)
        (launch,) = program.plan.programs[0].launches
        assert launch.record["threads"] == threads
        found = program(**longer(feeds, capacity), position=position)
        np.testing.assert_array_equal(found, first)


def longer(feeds: dict[str, Array], capacity: int) -> dict[str, Array]:
    """The inputs with more rows of keys and values, which no query sees."""
    after = capacity - feeds["k"].shape[-2]
    rows = {
        name: np.full((*feeds[name].shape[:-2], after, feeds[name].shape[-1]), 7.0) for name in ("k", "v")
    }
    more = {name: np.concatenate([feeds[name], rows[name]], -2).astype(np.float32) for name in rows}
    return {**feeds, **more}


@pytest.mark.parametrize("dtype", ["f16", "f64"])
def test_other_types(dtype: str) -> None:
    """Tiles of halves are widened on the way; a position may be i32."""
    case = CASES["a chunk"]
    feeds = inputs_of(case, dtype.replace("f", "float"))
    program, position = program_of(case, dtype, integer="i32"), np.array(40, np.int32)
    found = program(**filled(case, feeds, position, np.nan), position=position)
    error = {"f16": 2e-3, "f64": 1e-13}[dtype]
    np.testing.assert_allclose(found, expected_of(case, feeds, position), atol=error)


def test_positions_out_of_range_see_all_or_nothing() -> None:
    case = CASES["a step"]
    feeds, program = inputs_of(case), program_of(case)
    for position in (case.capacity, 1 << 40):
        found = program(**feeds, position=np.array(position))
        np.testing.assert_allclose(found, expected_of(case, feeds, np.array(position)), atol=3e-6)
    for position in (-1, -(1 << 40)):
        assert np.isnan(program(**feeds, position=np.array(position))).all()


@pytest.mark.peers
@pytest.mark.parametrize("name", ["a step", "a chunk", "a window"])
def test_pytorch_gives_the_same(name: str) -> None:
    torch = pytest.importorskip("torch")
    case = CASES[name]
    feeds, position = inputs_of(case), positions_of(case)[-1]
    q, k, v = (torch.from_numpy(array) for array in feeds.values())
    distance = torch.arange(case.tokens)[:, None] + int(position) - torch.arange(case.capacity)
    seen = (distance >= 0) & (distance < (case.window or case.capacity))
    expected = torch.nn.functional.scaled_dot_product_attention(
        q[None], k[None], v[None], seen, enable_gqa=True
    )[0]
    found = program_of(case)(**feeds, position=position)
    np.testing.assert_allclose(found, expected.numpy(), atol=3e-6)
