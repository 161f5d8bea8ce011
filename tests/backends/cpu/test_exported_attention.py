"""Attention as PyTorch's exporter writes it, on the CPU against float64 NumPy.

The root of the scale multiplies queries and keys, heads are joined around the transposition of keys, the mask is added,
and probabilities that are NaN become 0: those of rows that see no key, and those of rows with a score that is NaN.
"""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
import pytest

import aicf
from aicf.frontends.builder import Graph, Value

Array = np.ndarray
BATCH, HEADS, QUERIES, KEYS, SIZE = 2, 3, 37, 45, 16
SIZES = {"q": QUERIES, "k": KEYS, "v": KEYS}
LOWEST = float(np.finfo(np.float32).min)
DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
WITHIN = {"f32": 3e-6, "f64": 1e-14, "f16": 4e-3, "bf16": 3e-2}
TARGETS = {
    "cpu": ("cpu", None),
    "portable": ("cpu", '{"kernels": {"attention": "cpu.attention_portable"}}'),
    "reference": ("reference:typed", None),
}
"""Name to a target and a policy."""


def rows_hidden(value: float) -> Array:
    """A mask of every score that hides some keys with `value`, and all of those of some queries."""
    rng = np.random.default_rng(7)
    hidden = rng.random((BATCH, 1, QUERIES, KEYS)) < 0.3
    hidden[0, 0, 5:9] = hidden[1, 0, -1] = True
    return np.where(hidden, value, 0.0)


MASKS = {
    "none": None,
    "rows that see nothing": rows_hidden(-np.inf),
    "rows of the lowest number": rows_hidden(LOWEST / 2),
    "padding": np.where(np.arange(KEYS) < np.array([KEYS, 20])[:, None], 0.0, -np.inf)[:, None, None],
    "numbers of each head": np.random.default_rng(8).standard_normal((1, HEADS, QUERIES, KEYS)),
    "causal": np.where(np.arange(KEYS) > np.arange(QUERIES)[:, None], -np.inf, 0.0),
}


def expected_of(q: Array, k: Array, v: Array, mask: Array | None) -> Array:
    """What PyTorch says scaled_dot_product_attention is, of the exporter: queries, keys, values by tokens."""
    q, k, v = (np.swapaxes(value.astype(np.float64), 1, 2) for value in (q, k, v))
    with np.errstate(invalid="ignore"):
        scores = q @ np.swapaxes(k, -1, -2) * SIZE**-0.5 + (0.0 if mask is None else mask)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights = weights / weights.sum(-1, keepdims=True)
        return np.swapaxes(np.where(np.isnan(weights), 0.0, weights) @ v, 1, 2)


def exported(mask: Array | None, dtype: str, transposed: bool = True) -> Graph:
    """The graph, whose mask is a parameter if there is one."""
    graph = Graph("exported")
    q, k, v = (
        graph.transpose(graph.input(name, (BATCH, rows, HEADS, SIZE), dtype), (0, 2, 1, 3))
        for name, rows in SIZES.items()
    )
    root = SIZE**-0.25
    if transposed:
        columns = graph.transpose(graph.reshape(k, (BATCH * HEADS, KEYS, SIZE)), (0, 2, 1))
        scores = graph.matmul(q * root, graph.reshape(columns, (BATCH, HEADS, SIZE, KEYS)) * root)
    else:
        scores = graph.matmul(q * root, root * k, transpose_b=True)
    if mask is not None:
        scores = scores + graph.param("mask", mask.shape, dtype)
    y = graph.matmul(without_nan(graph, graph.softmax(scores)), v)
    graph.output(graph.transpose(y, (0, 2, 1, 3)), "y")
    return graph


def without_nan(graph: Graph, x: Value) -> Value:
    return graph.where(graph.is_nan(x), 0.0, x)


def inputs(dtype: str, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal((BATCH, rows, HEADS, SIZE)).astype(DTYPES[dtype])
        for name, rows in SIZES.items()
    }


def kinds_of(exe: aicf.CompiledModel) -> list[str]:
    (program,) = exe.plan.programs
    return [node.kind for node in program.graph.nodes]


@cache
def compiled(
    mask: str, dtype: str, target: str, transposed: bool = True, threads: int = 1
) -> aicf.CompiledModel:
    """One instruction that computes all of it."""
    given, (mask_kind, policy) = MASKS[mask], TARGETS[target]
    weights = {} if given is None else {"mask": given.astype(DTYPES[dtype])}
    exe = aicf.compile(exported(given, dtype, transposed), weights, mask_kind, policy=policy, threads=threads)
    assert kinds_of(exe) == ["attention"]
    return exe


def check(exe: aicf.CompiledModel, feeds: dict[str, Array], mask: str, dtype: str) -> None:
    found = np.asarray(exe(**feeds)).astype(np.float64)
    expected = expected_of(feeds["q"], feeds["k"], feeds["v"], MASKS[mask])
    np.testing.assert_allclose(found, expected, WITHIN[dtype], 2 * WITHIN[dtype])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask: str, target: str) -> None:
    check(compiled(mask, "f32", target), inputs("f32"), mask, "f32")


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
def test_other_types(dtype: str) -> None:
    mask = "rows that see nothing"
    check(compiled(mask, dtype, "cpu"), inputs(dtype), mask, dtype)


@pytest.mark.parametrize("mask", ["none", "rows that see nothing"])
def test_keys_by_rows_and_threads(mask: str) -> None:
    check(compiled(mask, "f32", "cpu", False, 2), inputs("f32"), mask, "f32")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mask", ["none", "rows that see nothing"])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("operand", ["q", "k", "v"])
def test_no_numbers(operand: str, number: float, mask: str, target: str) -> None:
    """NaN and infinities of queries, keys and values; from keys they reach all rows of a head."""
    feeds = inputs("f32")
    feeds[operand][0, 3, 1, 2] = number
    check(compiled(mask, "f32", target), feeds, mask, "f32")


def test_without_the_guard_nan_stays() -> None:
    """The kernel gives zeros only where the program asks for them."""
    graph = Graph("plain")
    q, k, v = (graph.input(name, (20, 8)) for name in "qkv")
    mask = graph.input("mask", (20, 20))
    graph.output(graph.matmul(graph.softmax(graph.matmul(q, k, transpose_b=True) + mask), v), "y")
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal((20, 8)).astype(np.float32) for name in "qkv"}
    feeds["mask"] = np.zeros((20, 20), np.float32)
    feeds["mask"][4] = -np.inf
    policy = '{"kernels": {"attention": "cpu.attention_portable"}}'
    exe = aicf.compile(graph, {}, "cpu", policy=policy)
    assert kinds_of(exe) == ["attention"]
    found = np.asarray(exe(**feeds))
    assert np.isnan(found[4]).all() and np.isfinite(np.delete(found, 4, 0)).all()


@pytest.mark.parametrize("target", ["cpu", "reference:typed"])
def test_two_masks(target: str) -> None:
    """T5 adds a bias of each head and then a mask of all; several layers add the same two."""
    graph, hidden = Graph("t5"), np.where(rows_hidden(1.0) == 1, LOWEST, 0.0)
    q, k, v = (graph.input(name, (BATCH, HEADS, rows, SIZE)) for name, rows in SIZES.items())
    bias = graph.param("bias", (1, HEADS, QUERIES, KEYS))
    mask = graph.param("mask", hidden.shape)
    for layer in range(2):
        scores = graph.matmul(q * (layer + 1.0), k, transpose_b=True)
        graph.output(graph.matmul(graph.softmax(scores + bias + mask), v), f"y{layer}")
    rng = np.random.default_rng(3)
    shapes = {name: (BATCH, HEADS, rows, SIZE) for name, rows in SIZES.items()}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    weights = {
        "bias": rng.standard_normal((1, HEADS, QUERIES, KEYS)).astype(np.float32),
        "mask": hidden.astype(np.float32),
    }
    exe = aicf.compile(graph, weights, target)
    assert sorted(kinds_of(exe)) == ["attention", "attention", "generated"]
    found = exe(**feeds)
    for layer in range(2):
        scores = (layer + 1) * feeds["q"].astype(np.float64) @ np.swapaxes(feeds["k"], -1, -2)
        scores = scores + weights["bias"] + weights["mask"].astype(np.float64)
        chosen = np.exp(scores - scores.max(-1, keepdims=True))
        expected = chosen / chosen.sum(-1, keepdims=True) @ feeds["v"]
        visible = (hidden == 0).any(-1)[..., None]  # where all is hidden, what is left of the scores differs
        np.testing.assert_allclose(
            np.where(visible, found[layer], 0), np.where(visible, expected, 0), 1e-5, 1e-5
        )
