"""Small models to calibrate, with weights and samples, the same ones each time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from aicf.frontends.builder import Graph

TARGET = "reference"
"""Compiles fastest. What depends on kernels is tested on `cpu`."""

Arrays = dict[str, np.ndarray]


def chain(sizes: tuple[int, ...] = (16, 24, 24, 8), rows: int | str = "N") -> Graph:
    """Linear layers `fc1`, `fc2`, ... with relu between them."""
    g = Graph("chain")
    value = g.input("x", (rows, sizes[0]))
    for number, (before, after) in enumerate(pairwise(sizes), 1):
        weight = g.param(f"fc{number}.weight", (after, before))
        value = g.linear(value, weight, g.param(f"fc{number}.bias", (after,)), name=f"fc{number}")
        value = g.relu(value) if number < len(sizes) - 1 else value
    g.output(value, "y")
    return g


def chain_weights(sizes: tuple[int, ...] = (16, 24, 24, 8), seed: int = 0) -> Arrays:
    random = np.random.default_rng(seed)
    weights: Arrays = {}
    for number, (before, after) in enumerate(pairwise(sizes), 1):
        scale = np.sqrt(2 / before)
        weights[f"fc{number}.weight"] = (random.normal(size=(after, before)) * scale).astype(np.float32)
        weights[f"fc{number}.bias"] = (random.normal(size=after) * 0.1).astype(np.float32)
    return weights


def chain_samples(count: int = 64, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 16)).astype(np.float32)


def outlier_weights(factor: float = 2000.0) -> Arrays:
    """`fc2` reads a channel `factor` times as large as the others, which its weight takes back: integers of all
    channels with one scale lose the others. The layers compute what those of `chain_weights` do.
    """
    weights = chain_weights()
    weights["fc1.weight"][3] *= factor
    weights["fc1.bias"][3] *= factor
    weights["fc2.weight"][:, 3] /= factor
    return weights


def conv_net() -> Graph:
    """Convolutions with a residual connection and one with groups, then a linear layer."""
    g = Graph("conv_net")
    same = {"low": [1, 1], "high": [1, 1]}
    x = g.input("x", ("N", 4, 8, 8))
    first = g.relu(g.conv(x, g.param("c1", (8, 4, 3, 3)), g.param("b1", (8,)), name="conv1", **same))
    each = g.relu(g.conv(first, g.param("c2", (8, 1, 3, 3)), groups=8, name="conv2", **same))
    joined = g.relu(first + g.conv(each, g.param("c3", (8, 8, 3, 3)), name="conv3", **same))
    g.output(g.linear(g.reduce_mean(joined, [2, 3]), g.param("w", (5, 8)), name="fc"), "y")
    return g


def conv_weights() -> Arrays:
    random = np.random.default_rng(5)
    shapes = {"c1": (8, 4, 3, 3), "b1": (8,), "c2": (8, 1, 3, 3), "c3": (8, 8, 3, 3), "w": (5, 8)}
    return {
        name: (random.normal(size=shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype(np.float32)
        for name, shape in shapes.items()
    }


def attention() -> Graph:
    """Attention of two heads between linear layers: two products of activations alone."""
    g = Graph("attention")
    x = g.input("x", ("N", 6, 16))
    q, k, v = (g.linear(x, g.param(f"{name}.w", (16, 16)), name=name) for name in "qkv")

    def heads(value):
        return g.transpose(g.reshape(value, ("N", 6, 2, 8)), [0, 2, 1, 3])

    scores = g.matmul(heads(q), g.transpose(heads(k), [0, 1, 3, 2]), name="scores")
    context = g.matmul(g.softmax(scores, -1), heads(v), name="context")
    joined = g.reshape(g.transpose(context, [0, 2, 1, 3]), ("N", 6, 16))
    g.output(x + g.linear(joined, g.param("o.w", (16, 16)), name="o"), "y")
    return g


def attention_weights() -> Arrays:
    random = np.random.default_rng(6)
    return {f"{name}.w": (random.normal(size=(16, 16)) / 4).astype(np.float32) for name in "qkvo"}
