"""Small models that are trained in tests, as graphs of the builder."""

from __future__ import annotations

import numpy as np

from aicf import Graph

INPUTS, HIDDEN, CLASSES = 6, 8, 3


def classifier(rows: int | str = 8, dtype: str = "f64") -> Graph:
    """A layer of 8 with ReLU between 6 inputs and 3 classes: input `x`, output `logits`."""
    graph = Graph("classifier")
    x = graph.input("x", (rows, INPUTS), dtype)
    w1, b1 = (graph.param("fc1.weight", (HIDDEN, INPUTS), dtype), graph.param("fc1.bias", (HIDDEN,), dtype))
    w2, b2 = (graph.param("fc2.weight", (CLASSES, HIDDEN), dtype), graph.param("fc2.bias", (CLASSES,), dtype))
    hidden = graph.relu(graph.linear(x, w1, b1, name="fc1"))
    graph.output(graph.linear(hidden, w2, b2, name="fc2"), "logits")
    return graph


def batches(
    count: int, rows: int = 8, dtype: str = "f64", seed: int = 0
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random samples [rows, 6] with labels."""
    random = np.random.default_rng(seed)
    numpy_dtype = {"f64": np.float64, "f32": np.float32}[dtype]
    return [
        (random.normal(size=(rows, INPUTS)).astype(numpy_dtype), random.integers(0, CLASSES, rows))
        for _ in range(count)
    ]
