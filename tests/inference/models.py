"""Models for sessions, with random weights, and what they compute, told by NumPy in float64."""

from __future__ import annotations

import numpy as np

import aicf

RNG = np.random.default_rng(20)
WEIGHTS = {
    "fc.weight": RNG.normal(0, 0.3, (10, 24)).astype(np.float32),
    "fc.bias": RNG.normal(0, 1, 10).astype(np.float32),
}
SCORES = {"a.weight": RNG.normal(0, 0.3, (12, 24)).astype(np.float32)}


def classifier() -> aicf.Graph:
    """softmax(x W' + b) and its logits, for any number of rows N."""
    graph = aicf.Graph("classifier")
    x = graph.input("x", ("N", 24))
    logits = graph.linear(x, graph.param("fc.weight", (10, 24)), graph.param("fc.bias", (10,)), name="fc")
    graph.output(logits, "logits")
    graph.output(graph.softmax(logits, name="prob"), "probabilities")
    return graph


def classified(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logits and probabilities, in float64."""
    logits = x.astype(np.float64) @ WEIGHTS["fc.weight"].T.astype(np.float64) + WEIGHTS["fc.bias"]
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return logits, powers / powers.sum(1, keepdims=True)


def scores() -> aicf.Graph:
    """(q A') k' for any numbers of rows Q and K, twelve wide."""
    graph = aicf.Graph("scores")
    q, k = graph.input("q", ("Q", 24)), graph.input("k", ("K", 12))
    weighted = graph.input("scale", ("Q", 1))
    product = graph.linear(q, graph.param("a.weight", (12, 24)), name="a")
    graph.output(graph.mul(graph.matmul(product, graph.transpose(k, (1, 0)), name="qk"), weighted), "s")
    return graph


def scored(q: np.ndarray, k: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """In float64."""
    return (q.astype(np.float64) @ SCORES["a.weight"].T @ k.T.astype(np.float64)) * scale


def counter() -> aicf.Graph:
    """The sum of all rows so far, kept as state; of N rows at a time."""
    graph = aicf.Graph("counter")
    x, total = graph.input("x", ("N", 8)), graph.state("total", (8,))
    summed = graph.add(total, graph.reduce_sum(x, [0]))
    graph.update(total, summed)
    graph.output(summed, "sum")
    return graph


def rows(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal f32 numbers."""
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)
