"""Attention on the CPU against float64 NumPy: masks, causal blocks, grouped heads, shares of threads."""

from __future__ import annotations

import numpy as np
import pytest

import aicf

Array = np.ndarray
CASES = {
    "plain": ((2,), 4, 4, 33, 33, 16, None, None),
    "causal": ((1,), 4, 4, 128, 128, 64, 0, None),
    "causal, blocks with a remainder": ((), 2, 2, 131, 131, 8, 0, None),
    "grouped, causal": ((2,), 4, 2, 70, 70, 32, 0, None),
    "one head of keys": ((2,), 4, 1, 40, 40, 8, 0, "flags"),
    "keys in front": ((), 8, 2, 64, 128, 16, 64, None),
    "added mask": ((2,), 4, 2, 17, 40, 16, None, "added"),
    "flags and keys in front": ((2,), 4, 2, 65, 90, 16, 25, "flags"),
}


def expected_of(q: Array, k: Array, v: Array, mask: Array | None, past: int | None) -> Array:
    q, k, v = (value.astype(np.float64) for value in (q, k, v))
    repeats = q.shape[-3] // k.shape[-3]
    k, v = np.repeat(k, repeats, -3), np.repeat(v, repeats, -3)
    scores = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if past is not None:
        columns, rows = np.arange(scores.shape[-1]), np.arange(scores.shape[-2])
        scores = np.where(columns <= rows[:, None] + past, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def inputs_of(name: str, dtype: str) -> tuple[dict[str, Array], int | None]:
    batch, heads, groups, m, n, d, past, mask = CASES[name]
    rng = np.random.default_rng(len(name))
    shapes = {"q": (*batch, heads, m, d), "k": (*batch, groups, n, d), "v": (*batch, groups, n, d + 8)}
    feeds = {key: rng.standard_normal(shape).astype(dtype) for key, shape in shapes.items()}
    if mask == "added":
        feeds["mask"] = rng.standard_normal((heads, m, n)).astype(dtype)
    if mask == "flags":
        feeds["mask"] = rng.random((1, m, n)) < 0.8
        feeds["mask"][..., 0] = True
    return feeds, past


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v3", "reference"])
@pytest.mark.parametrize("name", CASES)
def test_attention(name: str, target: str) -> None:
    feeds, past = inputs_of(name, "float32")
    check(feeds, past, "f32", target, 1, 2e-6)


@pytest.mark.parametrize("name", ["causal", "grouped, causal", "flags and keys in front"])
def test_threads_share_what_they_attend_to(name: str) -> None:
    feeds, past = inputs_of(name, "float32")
    check(feeds, past, "f32", "cpu", 2, 2e-6)


def test_double_precision() -> None:
    feeds, past = inputs_of("flags and keys in front", "float64")
    check(feeds, past, "f64", "cpu", 1, 1e-14)


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v3", "reference"])
@pytest.mark.parametrize("name", ["added mask", "flags and keys in front"])
@pytest.mark.parametrize("hidden", ["some", "all"])
def test_queries_without_a_key_give_zeros(name: str, hidden: str, target: str) -> None:
    """With the word for it; without, they give NaN, and others what they give in any case."""
    feeds, past = inputs_of(name, "float32")
    empty = np.zeros(feeds["q"].shape[-2], bool)
    empty[[0, 5, -1] if hidden == "some" else ...] = True
    feeds["mask"][..., empty, :] = False if feeds["mask"].dtype == bool else -np.inf
    zeros, plain = (attended(feeds, past, "f32", target, 1, empty_as_zero=flag) for flag in (True, False))
    assert (zeros[..., empty, :] == 0).all() and np.isnan(plain[..., empty, :]).all()
    np.testing.assert_array_equal(zeros[..., ~empty, :], plain[..., ~empty, :])
    with np.errstate(invalid="ignore"):
        expected = expected_of(feeds["q"], feeds["k"], feeds["v"], feeds["mask"], past)
    np.testing.assert_allclose(zeros, np.where(empty[:, None], 0.0, expected), atol=2e-6)


def check(
    feeds: dict[str, Array], past: int | None, dtype: str, target: str, threads: int, error: float
) -> None:
    found = attended(feeds, past, dtype, target, threads)
    expected = expected_of(feeds["q"], feeds["k"], feeds["v"], feeds.get("mask"), past)
    assert np.abs(found - expected).max() <= error * np.abs(expected).max()


def attended(
    feeds: dict[str, Array],
    past: int | None,
    dtype: str,
    target: str,
    threads: int,
    *,
    empty_as_zero: bool = False,
) -> Array:
    graph = aicf.Graph("attention")
    values = [
        graph.input(name, array.shape, "i1" if array.dtype == bool else dtype)
        for name, array in feeds.items()
    ]
    y = graph.attention(*values, causal=past is not None, past=past or 0, empty_as_zero=empty_as_zero)
    graph.output(y, "y")
    return np.asarray(aicf.compile(graph, {}, target, threads=threads)(**feeds))
