"""What the training benchmark trains: networks made with the Python builder, with their loss and optimizer.

No framework is imported here: the same steps are compiled where there is no GPU. Parameter names are those of the
PyTorch modules in `torch_rivals`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf import Graph, Value

Array = NDArray[Any]
Parameters = Mapping[str, Value]
LEARNING_RATE = 1e-3
DECAY = 1e-2
"""Of AdamW; the default of `torch.optim.AdamW`."""


@dataclass(frozen=True)
class EncoderConfig:
    """Sizes of the encoder: pre-norm layers, then the mean over the tokens and a linear layer."""

    layers: int = 2
    hidden: int = 256
    heads: int = 4
    inner: int = 1024
    tokens: int = 128
    batch: int = 32
    classes: int = 10
    epsilon: float = 1e-5


ENCODER = EncoderConfig()


@dataclass(frozen=True)
class Workload:
    """A network with the data of one step.

    Args:
        network: Logits [batch, classes] of x, by the parameters.
        config: The network's sizes: of the layers of a classifier, or an encoder's.
        parameters: Shapes of the parameters, f32, by name.
        x_shape: Of x, batch first.
        x_dtype: Of x, and what the network computes in.
        decay: Of the weights, decoupled (AdamW); 0 is Adam.
        tf32: Whether products of f32 may round their operands to TF32.
    """

    network: Callable[[Graph, Value, Parameters], Value]
    config: Sequence[int] | EncoderConfig
    parameters: Mapping[str, Sequence[int]]
    x_shape: Sequence[int]
    classes: int = 10
    x_dtype: str = "f32"
    decay: float = 0.0
    tf32: bool = False


def classifier(sizes: Sequence[int]) -> Callable[[Graph, Value, Parameters], Value]:
    """Linear layers `fc1`, `fc2` and so on, with ReLU between them."""

    def network(graph: Graph, x: Value, of: Parameters) -> Value:
        for i in range(1, len(sizes)):
            x = graph.linear(x, of[f"fc{i}.weight"], of[f"fc{i}.bias"], name=f"fc{i}")
            if i < len(sizes) - 1:
                x = graph.relu(x, name=f"relu{i}")
        return x

    return network


def classifier_parameters(sizes: Sequence[int]) -> dict[str, Sequence[int]]:
    """Shapes by name."""
    shapes: dict[str, Sequence[int]] = {}
    for i, (inputs, outputs) in enumerate(pairwise(sizes), 1):
        shapes |= {f"fc{i}.weight": (outputs, inputs), f"fc{i}.bias": (outputs,)}
    return shapes


def encoder_parameters(config: EncoderConfig) -> dict[str, Sequence[int]]:
    """Shapes by name."""
    hidden, inner = config.hidden, config.inner
    linear = {
        "qkv": (3 * hidden, hidden),
        "out": (hidden, hidden),
        "up": (inner, hidden),
        "down": (hidden, inner),
    }
    shapes: dict[str, Sequence[int]] = {}
    for i in range(config.layers):
        for norm in ("norm1", "norm2"):
            shapes |= {f"layers.{i}.{norm}.{part}": (hidden,) for part in ("weight", "bias")}
        for name, shape in linear.items():
            shapes |= {f"layers.{i}.{name}.weight": shape, f"layers.{i}.{name}.bias": shape[:1]}
    return shapes | {"head.weight": (config.classes, hidden), "head.bias": (config.classes,)}


def encoder(config: EncoderConfig) -> Callable[[Graph, Value, Parameters], Value]:
    """The network, in bf16: each f32 parameter is cast where it is read."""

    def network(graph: Graph, x: Value, of: Parameters) -> Value:
        low = {name: graph.cast(value, "bf16", name=f"{name}.low") for name, value in of.items()}

        def linear(x: Value, name: str) -> Value:
            return graph.linear(x, low[f"{name}.weight"], low[f"{name}.bias"], name=name)

        def norm(x: Value, name: str) -> Value:
            scale, bias = low[f"{name}.weight"], low[f"{name}.bias"]
            return graph.layer_norm(x, scale, bias, epsilon=config.epsilon, name=name)

        for layer in (f"layers.{i}" for i in range(config.layers)):
            attended = _attention(graph, linear(norm(x, f"{layer}.norm1"), f"{layer}.qkv"), config, layer)
            x = graph.add(x, linear(attended, f"{layer}.out"), name=f"{layer}.attended")
            up = graph.gelu(linear(norm(x, f"{layer}.norm2"), f"{layer}.up"), name=f"{layer}.gelu")
            x = graph.add(x, linear(up, f"{layer}.down"), name=f"{layer}.residual")
        return linear(graph.reduce_mean(x, [1], name="pooled"), "head")

    return network


def _attention(graph: Graph, qkv: Value, config: EncoderConfig, name: str) -> Value:
    """Queries, keys and values side by side in qkv [batch, tokens, 3 hidden] to [batch, tokens, hidden]."""
    batch, tokens, hidden = config.batch, config.tokens, config.hidden
    size = hidden // config.heads
    parts = graph.reshape(qkv, (batch, tokens, 3, config.heads, size), name=f"{name}.heads")
    parts = graph.transpose(parts, (2, 0, 3, 1, 4), name=f"{name}.parts")
    shape = (batch, config.heads, tokens, size)
    query, key, value = (
        graph.reshape(graph.slice(parts, (i, 0, 0, 0, 0), (1, *shape), name=f"{name}.{part}"), shape)
        for i, part in enumerate(("query", "key", "value"))
    )
    attended = graph.attention(query, key, value, scale=1 / sqrt(size), name=f"{name}.attention")
    return graph.reshape(graph.transpose(attended, (0, 2, 1, 3)), (batch, tokens, hidden))


MLP = (784, 512, 512, 10)
DIGITS = (64, 128, 64, 10)


def _mlp(sizes: Sequence[int], batch: int, **options: Any) -> Workload:
    return Workload(
        classifier(sizes), sizes, classifier_parameters(sizes), (batch, sizes[0]), sizes[-1], **options
    )


WORKS: dict[str, Workload] = {
    "digits": _mlp(DIGITS, 64),
    "mlp_64": _mlp(MLP, 64, tf32=True),
    "mlp_1024": _mlp(MLP, 1024, tf32=True),
    "encoder": Workload(
        encoder(ENCODER),
        ENCODER,
        encoder_parameters(ENCODER),
        (ENCODER.batch, ENCODER.tokens, ENCODER.hidden),
        ENCODER.classes,
        x_dtype="bf16",
        decay=DECAY,
    ),
}
"""The rows of the benchmark by name."""


def random_parameters(work: Workload, seed: int = 0) -> dict[str, Array]:
    """What training starts with: uniform within the root of the inputs' reciprocal, norms and biases near 1 and 0."""
    random = np.random.default_rng(seed)
    values: dict[str, Array] = {}
    for name, shape in work.parameters.items():
        bound = 1 / sqrt(shape[-1])
        values[name] = random.uniform(-bound, bound, shape).astype(np.float32)
        if "norm" in name and name.endswith("weight"):
            values[name] += 1
    return values


def random_batch(work: Workload, seed: int) -> tuple[Array, Array]:
    """x, f32, and labels of it that can be learned, i64 [batch]: classes have means of their own, apart by what
    the means over the dimensions between leave of the noise."""
    random = np.random.default_rng([seed, 1])
    means = np.random.default_rng(1).standard_normal((work.classes, work.x_shape[-1]))
    labels = random.integers(0, work.classes, work.x_shape[0])
    between = (slice(None), *[None] * (len(work.x_shape) - 2))
    apart = 0.5 / sqrt(prod(work.x_shape[1:-1]))
    x = random.standard_normal(work.x_shape) + apart * means[labels][between]
    return x.astype(np.float32), labels.astype(np.int64)
