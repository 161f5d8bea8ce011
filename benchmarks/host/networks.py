"""The networks that are timed on the CPU: each as a PyTorch module, as a program for AICF and in NumPy.

The module is the definition: its weights, its ONNX export and its eager output serve all rivals. Weights have
PyTorch's names everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import erf
from torch import Tensor, nn
from torch.nn import functional

import aicf

Graph, Value = aicf.Graph, aicf.Value
Floats = NDArray[np.float32]
Weights = dict[str, Floats]


@dataclass(frozen=True)
class Network:
    """One network at one size.

    Attributes:
        module: Makes the PyTorch module, with random weights.
        inputs: Shape of each input by name; the module takes them in this order. All are f32.
        outputs: Names of the module's results.
        graph: Adds the same network to a graph, from input values to output values.
        numpy: The same on arrays, from the weights and the inputs to the outputs.
    """

    name: str
    module: Callable[[], nn.Module]
    inputs: dict[str, tuple[int, ...]]
    outputs: tuple[str, ...]
    graph: Callable[..., tuple[Value, ...]]
    numpy: Callable[..., tuple[Floats, ...]]

    def build(self) -> Graph:
        """The network as a logical program."""
        graph = Graph("network")
        values = [graph.input(name, shape) for name, shape in self.inputs.items()]
        for name, value in zip(self.outputs, self.graph(graph, *values), strict=True):
            graph.output(value, name)
        return graph


def linear(graph: Graph, x: Value, name: str, outputs: int) -> Value:
    """``nn.Linear`` of that name."""
    inputs = x.shape[-1]
    weight = graph.param(f"{name}.weight", (outputs, inputs))
    return graph.linear(x, weight, graph.param(f"{name}.bias", (outputs,)))


def norm(graph: Graph, x: Value, name: str) -> Value:
    """``nn.LayerNorm`` of that name over the last dimension."""
    width = x.shape[-1:]
    return graph.layer_norm(x, graph.param(f"{name}.weight", width), graph.param(f"{name}.bias", width))


def np_linear(w: Weights, x: Floats, name: str) -> Floats:
    """``nn.Linear`` of that name."""
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def np_norm(w: Weights, x: Floats, name: str) -> Floats:
    """``nn.LayerNorm`` of that name."""
    x = x - x.mean(-1, keepdims=True)
    x *= 1 / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5))
    return x * w[f"{name}.weight"] + w[f"{name}.bias"]


def np_gelu(x: Floats) -> Floats:
    """GELU by erf."""
    return x * np.float32(0.5) * (1 + erf(x * np.float32(0.5**0.5)))


def np_softmax(x: Floats) -> Floats:
    """Along rows."""
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def np_heads(x: Floats, heads: int) -> Floats:
    """``[tokens, width]`` to ``[heads, tokens, width / heads]``."""
    return x.reshape(len(x), heads, -1).transpose(1, 0, 2)


def np_attend(q: Floats, k: Floats, v: Floats) -> Floats:
    """Attention of ``[heads, tokens, size]`` each, as ``[tokens, heads * size]``."""
    weights = np_softmax(q @ k.transpose(0, 2, 1) * np.float32(q.shape[-1] ** -0.5))
    return (weights @ v).transpose(1, 0, 2).reshape(q.shape[1], -1)


class MlpModule(nn.Module):
    """Linear layers with an activation between them, and what comes last."""

    def __init__(self, sizes: tuple[int, ...], activation: nn.Module, last: nn.Module):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.activation, self.last = activation, last

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.last(self.layers[-1](x))


def digits_graph(graph: Graph, x: Value) -> tuple[Value, ...]:
    """64-128-64-10 with ReLU and softmax."""
    for number, width in enumerate((128, 64)):
        x = graph.relu(linear(graph, x, f"layers.{number}", width))
    return (graph.softmax(linear(graph, x, "layers.2", 10)),)


def mlp_graph(graph: Graph, x: Value) -> tuple[Value, ...]:
    """512-2048-512 with GELU."""
    return (linear(graph, graph.gelu(linear(graph, x, "layers.0", 2048)), "layers.1", 512),)


def np_digits(w: Weights, x: Floats) -> tuple[Floats, ...]:
    """See `digits_graph`."""
    for number in range(2):
        x = np.maximum(np_linear(w, x, f"layers.{number}"), 0)
    return (np_softmax(np_linear(w, x, "layers.2")),)


def np_mlp(w: Weights, x: Floats) -> tuple[Floats, ...]:
    """See `mlp_graph`."""
    return (np_linear(w, np_gelu(np_linear(w, x, "layers.0")), "layers.1"),)


class EncoderBlock(nn.Module):
    """A post-norm transformer encoder block, as BERT has it."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out, self.up, self.down = (
            nn.Linear(width, width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def split(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], self.heads, -1).transpose(0, 1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        weights = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1)
        context = (weights @ v).transpose(0, 1).reshape(x.shape)
        x = self.norm1(x + self.out(context))
        return self.norm2(x + self.down(functional.gelu(self.up(x))))


def heads_of(graph: Graph, x: Value, heads: int) -> Value:
    """``[tokens, width]`` to ``[heads, tokens, width / heads]``."""
    tokens, width = (int(size) for size in x.shape)
    return graph.transpose(graph.reshape(x, (tokens, heads, width // heads)), (1, 0, 2))


def attend(graph: Graph, q: Value, k: Value, v: Value) -> Value:
    """Attention of ``[heads, tokens, size]`` each, as ``[tokens, heads * size]``."""
    heads, tokens, size = (int(n) for n in q.shape)
    scores = graph.mul(graph.matmul(q, k, transpose_b=True), size**-0.5)
    context = graph.matmul(graph.softmax(scores), v)
    return graph.reshape(graph.transpose(context, (1, 0, 2)), (tokens, heads * size))


def encoder_graph(heads: int, graph: Graph, x: Value) -> tuple[Value, ...]:
    """See `EncoderBlock`."""
    width = int(x.shape[-1])
    q, k, v = (heads_of(graph, linear(graph, x, name, width), heads) for name in ("query", "key", "value"))
    x = norm(graph, graph.add(x, linear(graph, attend(graph, q, k, v), "out", width)), "norm1")
    inner = graph.gelu(linear(graph, x, "up", 4 * width))
    return (norm(graph, graph.add(x, linear(graph, inner, "down", width)), "norm2"),)


def np_encoder(heads: int, w: Weights, x: Floats) -> tuple[Floats, ...]:
    """See `EncoderBlock`."""
    q, k, v = (np_heads(np_linear(w, x, name), heads) for name in ("query", "key", "value"))
    x = np_norm(w, x + np_linear(w, np_attend(q, k, v), "out"), "norm1")
    return (np_norm(w, x + np_linear(w, np_gelu(np_linear(w, x, "up")), "down"), "norm2"),)


class DecoderStep(nn.Module):
    """One token through a pre-norm GPT-2 block; keys and values of the tokens before it are given, and given back."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out, self.up, self.down = (
            nn.Linear(width, width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def split(self, x: Tensor) -> Tensor:
        return x.reshape(1, self.heads, -1).transpose(0, 1)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = self.norm1(x)
        keys = torch.cat([keys[:, 1:], self.split(self.key(h))], 1)
        values = torch.cat([values[:, 1:], self.split(self.value(h))], 1)
        q = self.split(self.query(h))
        weights = torch.softmax(q @ keys.transpose(-1, -2) * q.shape[-1] ** -0.5, -1)
        x = x + self.out((weights @ values).transpose(0, 1).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh")), keys, values


def decoder_graph(heads: int, graph: Graph, x: Value, keys: Value, values: Value) -> tuple[Value, ...]:
    """See `DecoderStep`."""
    width = int(x.shape[-1])
    h = norm(graph, x, "norm1")
    tokens, size = (int(n) for n in keys.shape[1:])

    def shifted(cache: Value, name: str) -> Value:
        new = heads_of(graph, linear(graph, h, name, width), heads)
        return graph.concat([graph.slice(cache, [0, 1, 0], [heads, tokens - 1, size]), new], 1)

    keys, values = shifted(keys, "key"), shifted(values, "value")
    q = heads_of(graph, linear(graph, h, "query", width), heads)
    x = graph.add(x, linear(graph, attend(graph, q, keys, values), "out", width))
    inner = graph.gelu(linear(graph, norm(graph, x, "norm2"), "up", 4 * width), "tanh")
    return graph.add(x, linear(graph, inner, "down", width)), keys, values


def np_decoder(heads: int, w: Weights, x: Floats, keys: Floats, values: Floats) -> tuple[Floats, ...]:
    """See `DecoderStep`."""
    h = np_norm(w, x, "norm1")
    keys = np.concatenate([keys[:, 1:], np_heads(np_linear(w, h, "key"), heads)], 1)
    values = np.concatenate([values[:, 1:], np_heads(np_linear(w, h, "value"), heads)], 1)
    x = x + np_linear(w, np_attend(np_heads(np_linear(w, h, "query"), heads), keys, values), "out")
    up = np_linear(w, np_norm(w, x, "norm2"), "up")
    inner = (
        up
        * np.float32(0.5)
        * (1 + np.tanh(np.float32((2 / np.pi) ** 0.5) * (up + np.float32(0.044715) * up * up * up)))
    )
    return x + np_linear(w, inner, "down"), keys, values


class RowChain(nn.Module):
    """layer_norm, GELU, softmax along rows."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(functional.gelu(self.norm(x)), -1)


def chain_graph(graph: Graph, x: Value) -> tuple[Value, ...]:
    """See `RowChain`."""
    return (graph.softmax(graph.gelu(norm(graph, x, "norm"))),)


def np_chain(w: Weights, x: Floats) -> tuple[Floats, ...]:
    """See `RowChain`."""
    return (np_softmax(np_gelu(np_norm(w, x, "norm"))),)


class Product(nn.Module):
    """A product of two inputs."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b


def product_graph(graph: Graph, a: Value, b: Value) -> tuple[Value, ...]:
    """See `Product`."""
    return (graph.matmul(a, b),)


def biased_graph(graph: Graph, x: Value) -> tuple[Value, ...]:
    """512 to 2048 with bias and GELU."""
    return (graph.gelu(linear(graph, x, "layers.0", 2048)),)


def np_product(w: Weights, a: Floats, b: Floats) -> tuple[Floats, ...]:
    """See `Product`."""
    return (a @ b,)


def np_biased(w: Weights, x: Floats) -> tuple[Floats, ...]:
    """See `biased_graph`."""
    return (np_gelu(np_linear(w, x, "layers.0")),)


_DIGITS = partial(MlpModule, (64, 128, 64, 10), nn.ReLU(), nn.Softmax(-1))
_CACHE = (12, 512, 64)

NETWORKS = (
    Network(
        "encoder block, 128 x 256, 4 heads",
        partial(EncoderBlock, 256, 4),
        {"x": (128, 256)},
        ("y",),
        partial(encoder_graph, 4),
        partial(np_encoder, 4),
    ),
    Network(
        "GPT-2 small block, one token, 512 cached",
        partial(DecoderStep, 768, 12),
        {"x": (1, 768), "keys": _CACHE, "values": _CACHE},
        ("y", "new_keys", "new_values"),
        partial(decoder_graph, 12),
        partial(np_decoder, 12),
    ),
    Network(
        "layer_norm, GELU, softmax, 4096 x 1024",
        partial(RowChain, 1024),
        {"x": (4096, 1024)},
        ("y",),
        chain_graph,
        np_chain,
    ),
    Network(
        "mlp 128 x 512-2048-512, GELU",
        partial(MlpModule, (512, 2048, 512), nn.GELU(), nn.Identity()),
        {"x": (128, 512)},
        ("y",),
        mlp_graph,
        np_mlp,
    ),
    *(
        Network(f"digits, batch {batch}", _DIGITS, {"x": (batch, 64)}, ("y",), digits_graph, np_digits)
        for batch in (1, 32, 256)
    ),
    Network(
        "matmul 1024 x 1024 x 1024",
        Product,
        {"a": (1024, 1024), "b": (1024, 1024)},
        ("y",),
        product_graph,
        np_product,
    ),
    Network(
        "linear 256 x 512 x 2048, GELU",
        partial(MlpModule, (512, 2048), nn.Identity(), nn.GELU()),
        {"x": (256, 512)},
        ("y",),
        biased_graph,
        np_biased,
    ),
)
"""What is timed."""
