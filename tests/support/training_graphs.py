"""Training steps of small networks as builder graphs: the loss, and a step of AdamW by every parameter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from aicf.frontends.builder import Graph, Value

Array = NDArray[Any]
Program = tuple[ModuleOp, Mapping[str, Array]]
"""A module and a value for each of its arguments."""


class Step:
    """A training step under construction: `graph`, with the parameters and a random value of every argument.

    Args:
        compute: The type in which linear layers compute: their operands are cast to it, as in mixed precision.
    """

    def __init__(self, name: str, compute: str = "f32") -> None:
        self.graph = Graph(name)
        self.compute = compute
        self.params: dict[str, Value] = {}
        self.feeds: dict[str, Array] = {}
        self._random = np.random.default_rng(7)

    def input(self, name: str, *shape: int) -> Value:
        """A random input."""
        self.feeds[name] = self._numbers(shape, 1.0)
        return self.graph.input(name, shape)

    def labels(self, count: int, classes: int) -> Value:
        """Random classes, one a sample."""
        self.feeds["labels"] = self._random.integers(0, classes, count)
        return self.graph.input("labels", (count,), "i64")

    def param(self, name: str, *shape: int, around: float = 0.0) -> Value:
        """A random parameter."""
        self.feeds[name] = self._numbers(shape, 1 / math.sqrt(shape[-1])) + np.float32(around)
        self.params[name] = self.graph.param(name, shape)
        return self.params[name]

    def linear(self, x: Value, size: int, name: str) -> Value:
        """A linear layer with its parameters."""
        weight, bias = self.param(f"{name}.weight", size, int(x.shape[-1])), self.param(f"{name}.bias", size)
        return self.graph.linear(self._cast(x), self._cast(weight), self._cast(bias), name=name)

    def norm(self, x: Value, name: str) -> Value:
        """A layer norm of the last dimension with its parameters."""
        size = int(x.shape[-1])
        scale = self.param(f"{name}.weight", size, around=1.0)
        return self.graph.layer_norm(x, scale, self.param(f"{name}.bias", size), name=name)

    def finish(self, loss: Value) -> Program:
        """The program: the loss, and the new parameters, states and number of the step."""
        graph = self.graph
        number, rate = graph.meta("step", (), "i64"), graph.meta("rate", ())
        self.feeds |= {"step": np.array(3), "rate": np.array(0.01, np.float32)}
        graph.output(loss, "loss")
        now = graph.step_inc(number)
        for name, param in self.params.items():
            states = [self._state(f"{name}.{mean}", param) for mean in ("exp_avg", "exp_avg_sq")]
            gradient = graph.gradient(loss, param, name=f"{name}.gradient")
            new = graph.adamw(param, gradient, rate, now, states, name=f"{name}.new")
            for old, value in zip((param, *states), new, strict=True):
                graph.update(old, value)
        graph.update(number, now)
        return graph.module(), self.feeds

    def _cast(self, x: Value) -> Value:
        return x if x.dtype == self.compute else self.graph.cast(x, self.compute)

    def _state(self, name: str, like: Value) -> Value:
        """A state of a parameter's shape; running means of squares are not negative."""
        self.feeds[name] = np.abs(self._numbers(tuple(map(int, like.shape)), 0.1))
        return self.graph.state(name, like.shape)

    def _numbers(self, shape: tuple[int, ...], scale: float) -> Array:
        return (self._random.normal(size=shape) * scale).astype(np.float32)


def mlp(batch: int = 16, hidden: int = 24, layers: int = 2) -> Program:
    """Linear layers with ReLU and GELU after them in turn, and a last one; cross-entropy."""
    step = Step("mlp")
    x, labels = step.input("x", batch, 12), step.labels(batch, 5)
    for layer in range(layers):
        activation = step.graph.gelu if layer % 2 else step.graph.relu
        x = activation(step.linear(x, hidden, f"fc{layer}"), name=f"act{layer}")
    return step.finish(step.graph.cross_entropy(step.linear(x, 5, "head"), labels, name="loss"))


def encoder(
    batch: int = 2, tokens: int = 16, width: int = 32, heads: int = 4, layers: int = 2, dropout: float = 0.0
) -> Program:
    """Encoder layers that normalise first, with attention written out; the mean of the tokens, cross-entropy."""
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
        mixed = graph.transpose(graph.matmul(weights, v, name=f"{at}.mixed"), (0, 2, 1, 3))
        joined = graph.reshape(mixed, (batch, tokens, width))
        x = graph.add(x, step.linear(joined, width, f"{at}.out"), name=f"{at}.attended")
        up = graph.gelu(step.linear(step.norm(x, f"{at}.norm2"), 4 * width, f"{at}.up"), name=f"{at}.act")
        x = graph.add(x, step.linear(up, width, f"{at}.down"), name=f"{at}.fed")
    pooled = graph.reduce_mean(x, (1,), name="pooled")
    return step.finish(graph.cross_entropy(step.linear(pooled, 5, "head"), labels, name="loss"))


def attention(heads: int = 2, tokens: int = 6, size: int = 8, compute: str = "f32") -> Program:
    """The attention op, causal, of three products of one input; a mean square."""
    step = Step("attention", compute)
    x, target = step.input("x", heads, tokens, size), step.input("target", heads, tokens, size)
    q, k, v = (step.linear(x, size, name) for name in "qkv")
    mixed = step.graph.attention(q, k, v, causal=True, name="mixed")
    if compute != "f32":
        mixed = step.graph.cast(mixed, "f32")
    return step.finish(step.graph.mse_loss(step.norm(mixed, "norm"), target, name="loss"))
