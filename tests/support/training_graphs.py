"""Training steps of small networks as builder graphs: the loss, and its gradient by every parameter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from aicf.dialects import logical
from aicf.frontends.builder import Graph, Value

Array = NDArray[Any]


class Step:
    """A training step under construction: `graph` with parameters that it keeps account of."""

    def __init__(self, name: str, dtype: str = "f32") -> None:
        self.graph = Graph(name)
        self.dtype = dtype
        self.params: dict[str, Value] = {}
        self.feeds: dict[str, Array] = {}
        self._random = np.random.default_rng(7)

    def input(self, name: str, *shape: int) -> Value:
        """A random input."""
        self.feeds[name] = self._numbers(shape, 1.0)
        return self.graph.input(name, shape, self.dtype)

    def labels(self, count: int, classes: int) -> Value:
        """Random classes, one a sample."""
        self.feeds["labels"] = self._random.integers(0, classes, count)
        return self.graph.input("labels", (count,), "i64")

    def param(self, name: str, *shape: int, around: float = 0.0) -> Value:
        """A random parameter."""
        self.feeds[name] = around + self._numbers(shape, 1 / math.sqrt(shape[-1]))
        self.params[name] = self.graph.param(name, shape, self.dtype)
        return self.params[name]

    def linear(self, x: Value, size: int, name: str) -> Value:
        """A linear layer with its parameters."""
        weight = self.param(f"{name}.weight", size, int(x.shape[-1]))
        return self.graph.linear(x, weight, self.param(f"{name}.bias", size), name=name)

    def norm(self, x: Value, name: str) -> Value:
        """A layer norm of the last dimension with its parameters."""
        size = int(x.shape[-1])
        scale = self.param(f"{name}.weight", size, around=1.0)
        return self.graph.layer_norm(x, scale, self.param(f"{name}.bias", size), name=name)

    def finish(self, loss: Value) -> ModuleOp:
        """The program: all gradients of `loss`."""
        graph = self.graph
        graph.output(loss, "loss")
        for name, param in list(self.params.items()):
            gradient = graph._insert("gradient", None, lambda p=param: logical.GradientOp(loss.ssa, p.ssa))
            graph.output(gradient, f"{name}.d")
        return graph.module()

    def _numbers(self, shape: tuple[int, ...], scale: float) -> Array:
        wide = self._random.normal(size=shape) * scale
        return wide.astype({"f32": np.float32, "f64": np.float64}[self.dtype])


Program = tuple[ModuleOp, Mapping[str, Array]]


def mlp(batch: int = 16, hidden: int = 24) -> Program:
    """Three linear layers with ReLU and GELU between, cross-entropy."""
    step = Step("mlp")
    x, labels = step.input("x", batch, 12), step.labels(batch, 5)
    a = step.graph.relu(step.linear(x, hidden, "fc1"), name="a")
    b = step.graph.gelu(step.linear(a, hidden, "fc2"), name="b")
    return step.finish(step.graph.cross_entropy(step.linear(b, 5, "fc3"), labels, name="loss")), step.feeds


def encoder(
    batch: int = 2, tokens: int = 16, width: int = 32, heads: int = 4, layers: int = 2, dropout: float = 0.0
) -> Program:
    """Pre-norm encoder layers with attention written out, mean of the tokens, cross-entropy."""
    step = Step("encoder")
    graph, size = step.graph, width // heads
    x, labels = step.input("x", batch, tokens, width), step.labels(batch, 5)

    def split(value: Value, name: str) -> Value:
        parts = graph.reshape(value, (batch, tokens, heads, size))
        return graph.transpose(parts, (0, 2, 1, 3), name=name)

    def dropped(value: Value, offset: int, name: str) -> Value:
        return graph.dropout(value, 11, offset, dropout, name=name) if dropout else value

    for layer in range(layers):
        at = f"layer{layer}"
        normal = step.norm(x, f"{at}.norm1")
        q, k, v = (split(step.linear(normal, width, f"{at}.{name}"), f"{at}.{name}.heads") for name in "qkv")
        scores = graph.matmul(q, k, transpose_b=True, name=f"{at}.scores") * (1 / math.sqrt(size))
        weights = dropped(graph.softmax(scores, 3, name=f"{at}.weights"), 1000 * layer, f"{at}.dropped")
        heads_out = graph.transpose(graph.matmul(weights, v, name=f"{at}.mixed"), (0, 2, 1, 3))
        joined = graph.reshape(heads_out, (batch, tokens, width))
        x = graph.add(x, step.linear(joined, width, f"{at}.out"), name=f"{at}.attended")
        up = graph.gelu(step.linear(step.norm(x, f"{at}.norm2"), 4 * width, f"{at}.up"), name=f"{at}.act")
        x = graph.add(x, step.linear(up, width, f"{at}.down"), name=f"{at}.fed")
    pooled = graph.reduce_mean(x, (1,), name="pooled")
    return step.finish(graph.cross_entropy(step.linear(pooled, 5, "head"), labels, name="loss")), step.feeds
