"""The training steps that the GPU tests take, each a way of training with the network that needs it.

Sizes are small; the encoder computes in bf16 on f32 parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aicf.frontends.builder import Graph, Value
from aicf.training.forward import read_forward
from aicf.training.initial import first_values
from aicf.training.losses import CrossEntropyLoss
from aicf.training.optimizers import SGD, Adam
from aicf.training.schedules import Cosine
from aicf.training.step_graph import Recipe, write_step
from tests.gpu.programs import Program, random_arrays

CLASSES = 10
_ROWS = 48


@dataclass(frozen=True)
class Training:
    """A step and what it is compiled with.

    Args:
        model: Gives x to logits.
        recipe: Loss and optimizer.
        options: Of `aicf.compile`.
        tolerance: What losses may be off the reference, which rounds each value to its type in another order.
    """

    model: Callable[[], Graph]
    recipe: Recipe
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tolerance: float = 1e-5

    def program(self) -> Program:
        """The step with its first state, a random batch, and labels that are classes."""
        forward = read_forward(self.model())
        step = write_step(forward, self.recipe)
        module = step.graph.module()
        arrays = random_arrays(module, "train")
        arrays["y"] %= CLASSES
        return Program(module, {**arrays, **first_values(forward, 7, None), **step.start})


def network(dtype: str, rate: float = 0.0) -> Graph:
    """Three layers with ReLU and, with a rate, dropout: x [48, 64] to logits [48, 10]."""
    g = Graph("network")
    value = g.input("x", (_ROWS, 64), dtype)
    key = (g.meta("seed", (), "i64"), g.meta("step", (), "i64")) if rate else ()
    for layer, outputs in enumerate((100, 51, CLASSES), 1):
        if layer > 1:
            value = g.relu(value, name=f"relu{layer}")
        if layer > 1 and key:
            value = g.dropout(value, key[0], key[1] * 4096 + 2048 * (layer - 2), rate)
        value = _linear(g, value, f"fc{layer}", outputs)
    g.output(value, "logits")
    return g


def encoder() -> Graph:
    """A layer of a transformer's encoder in bf16 on f32 parameters, its rows of 64 classified: x [48, 64] in f32."""
    g = Graph("encoder")
    tokens, heads, depth = 24, 2, 32
    width = heads * depth
    x = g.cast(g.input("x", (_ROWS, width), "f32"), "bf16")
    rows = _norm(g, x, "norm1")
    q, k, v = (
        g.transpose(g.reshape(part, (_ROWS // tokens, tokens, heads, depth)), (0, 2, 1, 3))
        for part in (
            _linear(g, rows, "query", width),
            # A bias of the keys changes no weight of attention: its gradient would be rounding alone.
            g.linear(rows, _param(g, rows, "key.weight", (width, width)), name="key"),
            _linear(g, rows, "value", width),
        )
    )
    attended = g.transpose(g.attention(q, k, v, causal=True), (0, 2, 1, 3))
    x = x + _linear(g, g.reshape(attended, (_ROWS, width)), "out", width)
    up = g.gelu(_linear(g, _norm(g, x, "norm2"), "up", 4 * width))
    x = x + _linear(g, up, "down", width)
    g.output(g.cast(_linear(g, x, "head", CLASSES), "f32"), "logits")
    return g


def _linear(g: Graph, x: Value, name: str, outputs: int) -> Value:
    weight = _param(g, x, f"{name}.weight", (outputs, x.info.shape[-1]))
    return g.linear(x, weight, _param(g, x, f"{name}.bias", (outputs,)), name=name)


def _norm(g: Graph, x: Value, name: str) -> Value:
    scale, bias = (_param(g, x, f"{name}.{part}", x.info.shape[-1:]) for part in ("weight", "bias"))
    return g.layer_norm(x, scale, bias, name=name)


def _param(g: Graph, like: Value, name: str, shape: tuple[int, ...]) -> Value:
    """A parameter as its reader takes it; those of halves are f32."""
    param = g.param(name, shape, "f32" if like.dtype == "bf16" else like.dtype)
    return param if param.dtype == like.dtype else g.cast(param, like.dtype, name=f"{name}.low")


_LOSS = CrossEntropyLoss(label_smoothing=0.05)
_ADAM = Recipe(_LOSS, Adam(Cosine(1e-2, warmup=3, total=40)))

TRAININGS = {
    "adam": Training(partial(network, "f32"), _ADAM),
    "adam-host": Training(partial(network, "f32"), _ADAM, {"meta": "host"}),
    "adam-checked": Training(partial(network, "f32"), _ADAM, {"check_finite": True}),
    "nesterov-f64": Training(
        partial(network, "f64"),
        Recipe(_LOSS, SGD(0.05, momentum=0.9, nesterov=True, weight_decay=0.01), clip_norm=0.5),
        tolerance=1e-12,
    ),
    "parts": Training(partial(network, "f32"), Recipe(_LOSS, SGD(0.1, momentum=0.9), micro_batches=3)),
    "dropout": Training(partial(network, "f32", 0.25), _ADAM),
    "encoder": Training(encoder, Recipe(_LOSS, SGD(0.05, momentum=0.9)), tolerance=2e-3),
}
"""By what they are in the names of cases, after `train-`."""
