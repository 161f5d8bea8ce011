"""Pads before poolings and convolutions on the CPU: no instruction of their own; against float64 NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import aicf
from aicf.frontends.builder import Graph, Value

Array = np.ndarray
SHAPE, SIZE = (2, 3, 9, 11), (3, 3)
LOW, HIGH = (0, 0, 1, 2), (0, 0, 3, 1)
WEIGHT = np.random.default_rng(1).standard_normal((5, 3, *SIZE)).astype(np.float32)


def windows(x: Array, beyond: float, own: int = 0) -> Array:
    own_amounts = (0, 0, own, own)
    around = [(low + more, high + more) for low, high, more in zip(LOW, HIGH, own_amounts, strict=True)]
    padded = np.pad(x.astype(np.float64), around, constant_values=beyond)
    return sliding_window_view(padded, SIZE, (2, 3))[:, :, ::2, ::2]


def max_pool(graph: Graph, x: Value) -> Value:
    padded = graph.pad(x, LOW, HIGH, float("-inf"))
    return graph.max_pool(padded, SIZE, (2, 2), low=(1, 1), high=(1, 1))


def avg_pool(graph: Graph, x: Value) -> Value:
    return graph.avg_pool(graph.pad(x, LOW, HIGH), SIZE, (2, 2))


def conv(graph: Graph, x: Value) -> Value:
    weight = graph.param("w", WEIGHT.shape)
    return graph.conv(graph.pad(x, LOW, HIGH), weight, strides=(2, 2), low=(1, 1), high=(1, 1))


CASES: dict[str, tuple[Callable[[Graph, Value], Value], Callable[[Array], Array]]] = {
    "pool, maximum": (max_pool, lambda x: windows(x, -np.inf, 1).max((-2, -1))),
    "pool, mean": (avg_pool, lambda x: windows(x, 0).mean((-2, -1))),
    "conv": (conv, lambda x: np.einsum("nchwij,mcij->nmhw", windows(x, 0, 1), WEIGHT)),
}


@pytest.mark.parametrize("target", ["cpu", "reference:typed"])
@pytest.mark.parametrize("name", CASES)
def test_a_pad_is_padding(name: str, target: str) -> None:
    build, oracle = CASES[name]
    graph = Graph("padded")
    graph.output(build(graph, graph.input("x", SHAPE)), "y")
    exe = aicf.compile(graph, {"w": WEIGHT} if name == "conv" else {}, target)
    if target == "cpu":
        (program,) = exe.plan.programs
        assert [node.kind for node in program.graph.nodes] == [name.partition(",")[0]]
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    np.testing.assert_allclose(exe(x), oracle(x), 1e-5, 1e-5)
