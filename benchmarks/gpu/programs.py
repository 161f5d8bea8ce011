"""The programs of the GPU benchmark, made with the Python builder; parameter names are those of the PyTorch modules.

No framework is imported here: the same programs are compiled where there is no GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.func import FuncOp

from aicf import Graph, Value
from aicf.dialects.logical import ScatterMode
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.workload import argument_attrs
from aicf.runtime.tensors import numpy_dtype


@dataclass(frozen=True)
class EncoderConfig:
    """Sizes of a BERT encoder; the defaults are BERT-base."""

    layers: int = 12
    hidden: int = 768
    heads: int = 12
    intermediate: int = 3072
    epsilon: float = 1e-12
    dtype: str = "f16"


def mlp_chain(
    layers: int = 12, hidden: int = 768, inner: int = 3072, tokens: int = 1, dtype: str = "f16"
) -> Graph:
    """Pre-norm blocks `x + down(gelu(up(layer_norm(x))))`: x and y [tokens, hidden]."""
    graph = Graph("mlp_chain")
    x = graph.input("x", (tokens, hidden), dtype)
    for i in range(layers):
        normal = _layer_norm(graph, x, f"{i}.norm", hidden, 1e-5, dtype)
        up = graph.gelu(_linear(graph, normal, f"{i}.up", inner, hidden, dtype), name=f"{i}.gelu")
        x = graph.add(_linear(graph, up, f"{i}.down", hidden, inner, dtype), x, name=f"{i}.residual")
    graph.output(x, "y")
    return graph


def bert_encoder(batch: int, tokens: int, config: EncoderConfig | None = None) -> Graph:
    """`transformers`' BertEncoder without a mask, attention in matmuls and softmax: x and y [batch, tokens, hidden]."""
    config = config or EncoderConfig()
    graph = Graph("bert_encoder")
    x = graph.input("x", (batch, tokens, config.hidden), config.dtype)
    for i in range(config.layers):
        x = _bert_layer(graph, x, f"layer.{i}", config)
    graph.output(x, "y")
    return graph


def _bert_layer(graph: Graph, x: Value, name: str, config: EncoderConfig) -> Value:
    hidden, inner, dtype = config.hidden, config.intermediate, config.dtype
    context = _attention(graph, x, f"{name}.attention.self", config)
    projected = _linear(graph, context, f"{name}.attention.output.dense", hidden, hidden, dtype)
    x = _layer_norm(graph, projected + x, f"{name}.attention.output.LayerNorm", hidden, config.epsilon, dtype)
    up = graph.gelu(_linear(graph, x, f"{name}.intermediate.dense", inner, hidden, dtype))
    down = _linear(graph, up, f"{name}.output.dense", hidden, inner, dtype)
    return _layer_norm(graph, down + x, f"{name}.output.LayerNorm", hidden, config.epsilon, dtype)


def _attention(graph: Graph, x: Value, name: str, config: EncoderConfig) -> Value:
    batch, tokens, hidden = x.shape
    size = config.hidden // config.heads
    query, key, value = (
        graph.transpose(
            graph.reshape(
                _linear(graph, x, f"{name}.{part}", config.hidden, config.hidden, config.dtype),
                (batch, tokens, config.heads, size),
            ),
            (0, 2, 1, 3),
        )
        for part in ("query", "key", "value")
    )
    scores = graph.matmul(query, key, transpose_b=True, name=f"{name}.scores") * (1 / sqrt(size))
    context = graph.matmul(graph.softmax(scores, name=f"{name}.softmax"), value, name=f"{name}.context")
    return graph.reshape(graph.transpose(context, (0, 2, 1, 3)), (batch, tokens, hidden))


def gemm_bias_relu(m: int, n: int, k: int, dtype: str = "bf16") -> Graph:
    """relu(x w^T + bias): x [m, k], w [n, k], y [m, n]."""
    graph = Graph("gemm_bias_relu")
    x = graph.input("x", (m, k), dtype)
    graph.output(graph.relu(_linear(graph, x, "fc", n, k, dtype)), "y")
    return graph


def gemm(m: int, n: int, k: int, dtype: str = "bf16") -> Graph:
    """x w^T: x [m, k], w [n, k], y [m, n]."""
    graph = Graph("gemm")
    x = graph.input("x", (m, k), dtype)
    graph.output(graph.linear(x, graph.param("fc.weight", (n, k), dtype), name="fc"), "y")
    return graph


def swiglu(tokens: int, hidden: int, inner: int, dtype: str = "bf16") -> Graph:
    """silu(x gate^T) * (x up^T): x [tokens, hidden], gate and up [inner, hidden], y [tokens, inner]."""
    graph = Graph("swiglu")
    x = graph.input("x", (tokens, hidden), dtype)
    gate = graph.linear(x, graph.param("gate.weight", (inner, hidden), dtype), name="gate")
    up = graph.linear(x, graph.param("up.weight", (inner, hidden), dtype), name="up")
    graph.output(graph.silu(gate) * up, "y")
    return graph


def pointwise(rows: int, columns: int, dtype: str = "f32") -> Graph:
    """gelu(x * 0.5 + 1) with the tanh form: x and y [rows, columns]."""
    graph = Graph("pointwise")
    x = graph.input("x", (rows, columns), dtype)
    graph.output(graph.gelu(x * 0.5 + 1.0, approximate="tanh"), "y")
    return graph


def softmax(rows: int, columns: int, dtype: str = "f32") -> Graph:
    """softmax over the last dimension: x and y [rows, columns]."""
    graph = Graph("softmax")
    graph.output(graph.softmax(graph.input("x", (rows, columns), dtype)), "y")
    return graph


def layer_norm(rows: int, columns: int, dtype: str = "f32") -> Graph:
    """layer_norm over the last dimension: x and y [rows, columns]."""
    graph = Graph("layer_norm")
    x = graph.input("x", (rows, columns), dtype)
    graph.output(_layer_norm(graph, x, "norm", columns, 1e-5, dtype), "y")
    return graph


def attention(batch: int, heads: int, tokens: int, size: int, causal: bool, dtype: str = "f16") -> Graph:
    """Queries, keys and values side by side in x [3, batch, heads, tokens, size]; y [batch, heads, tokens, size]."""
    graph = Graph("attention")
    shape = (batch, heads, tokens, size)
    x = graph.input("x", (3, *shape), dtype)
    q, k, v = (
        graph.reshape(graph.slice(x, (i, 0, 0, 0, 0), (1, *shape), name=name), shape)
        for i, name in enumerate(("query", "key", "value"))
    )
    graph.output(graph.attention(q, k, v, causal=causal), "y")
    return graph


def gpt2(layers: int, tokens: int = 512, hidden: int = 768, heads: int = 12, dtype: str = "f16") -> Graph:
    """One token through GPT-2 blocks: x and y [1, hidden]; keys and values of all tokens [tokens, hidden] are state.

    The token's own replace those at `position`, and it attends to all: on a ring what `DecoderStep` of the CPU's
    networks computes with a window that moves.
    """
    graph = Graph("gpt2")
    x = graph.input("x", (1, hidden), dtype)
    position = graph.input("position", (1,), "i64")
    for i in range(layers):
        normal = _layer_norm(graph, x, f"{i}.norm1", hidden, 1e-5, dtype)
        qkv = _linear(graph, normal, f"{i}.qkv", 3 * hidden, hidden, dtype)
        query, key, value = (
            graph.slice(qkv, (0, number * hidden), (1, hidden), name=f"{i}.{name}")
            for number, name in enumerate(("query", "key", "value"))
        )
        keys, values = (
            _written(graph, graph.state(f"{i}.{name}", (tokens, hidden), dtype), position, row)
            for name, row in (("keys", key), ("values", value))
        )
        attended = graph.attention(*(_heads(graph, rows, heads) for rows in (query, keys, values)))
        context = graph.reshape(graph.transpose(attended, (1, 0, 2)), (1, hidden))
        x = graph.add(x, _linear(graph, context, f"{i}.out", hidden, hidden, dtype), name=f"{i}.attended")
        normal = _layer_norm(graph, x, f"{i}.norm2", hidden, 1e-5, dtype)
        up = graph.gelu(_linear(graph, normal, f"{i}.up", 4 * hidden, hidden, dtype), "tanh")
        x = graph.add(x, _linear(graph, up, f"{i}.down", hidden, 4 * hidden, dtype), name=f"{i}.residual")
    graph.output(x, "y")
    return graph


def _written(graph: Graph, state: Value, position: Value, row: Value) -> Value:
    """The new value of a state: `row` at `position`."""
    new = graph.scatter(state, position, row)
    graph.update(state, new)
    return new


def _heads(graph: Graph, rows: Value, heads: int) -> Value:
    """``[tokens, width]`` to ``[heads, tokens, width / heads]``."""
    tokens, width = (int(size) for size in rows.shape)
    return graph.transpose(graph.reshape(rows, (tokens, heads, width // heads)), (1, 0, 2))


def gather(rows: int, columns: int, dtype: str = "f32") -> Graph:
    """Rows of x at the indices i [rows]: x and y [rows, columns]."""
    graph = Graph("gather")
    x = graph.input("x", (rows, columns), dtype)
    graph.output(graph.gather(x, graph.param("i", (rows,), "i64")), "y")
    return graph


def scatter(rows: int, columns: int, mode: ScatterMode, dtype: str = "f32") -> Graph:
    """Rows of u written over those of x at the indices i [rows], or added to them: x, u and y [rows, columns]. Indices
    come with every call: what follows from them is computed in it."""
    graph = Graph("scatter")
    x, u = graph.input("x", (rows, columns), dtype), graph.param("u", (rows, columns), dtype)
    graph.output(graph.scatter(x, graph.input("i", (rows,), "i64"), u, mode), "y")
    return graph


def topk(rows: int, columns: int, k: int, dtype: str = "f32") -> Graph:
    """The k largest of each row: x [rows, columns], y [rows, k]."""
    graph = Graph("topk")
    graph.output(graph.topk(graph.input("x", (rows, columns), dtype), k)[0], "y")
    return graph


def cumsum(*shape: int, dtype: str = "f32") -> Graph:
    """Running sums along the last dimension: x and y of one shape."""
    graph = Graph("cumsum")
    graph.output(graph.cumsum(graph.input("x", shape, dtype), len(shape) - 1), "y")
    return graph


def pad(rows: int, columns: int, width: int, dtype: str = "f32") -> Graph:
    """x [rows, columns] with a border of so many columns on either side of y [rows, columns + 2 width]."""
    graph = Graph("pad")
    graph.output(graph.pad(graph.input("x", (rows, columns), dtype), (0, width), (0, width), 0.5), "y")
    return graph


PROGRAMS: dict[str, Callable[[], Graph]] = {
    "mlp_chain": mlp_chain,
    "bert_1x128": lambda: bert_encoder(1, 128),
    "bert_8x128": lambda: bert_encoder(8, 128),
    "gemm_bias_relu_4096": lambda: gemm_bias_relu(4096, 4096, 4096),
    "gemm_4096": lambda: gemm(4096, 4096, 4096),
    "gemm_8192": lambda: gemm(8192, 8192, 8192),
    "swiglu_2048": lambda: swiglu(2048, 4096, 11008),
    "pointwise_256MB": lambda: pointwise(16384, 4096),
    "softmax_256MB": lambda: softmax(16384, 4096),
    "layer_norm_256MB": lambda: layer_norm(16384, 4096),
    "attention_512": lambda: attention(8, 12, 512, 64, causal=False),
    "attention_512_causal": lambda: attention(8, 12, 512, 64, causal=True),
    "gpt2_block": lambda: gpt2(1),
    "gpt2_12_blocks": lambda: gpt2(12),
    "gather_256MB": lambda: gather(65536, 1024),
    "scatter_set_256MB": lambda: scatter(65536, 1024, "set"),
    "scatter_add_256MB": lambda: scatter(65536, 1024, "add"),
    "topk_256MB": lambda: topk(16384, 4096, 32),
    "topk_long_256MB": lambda: topk(8, 1 << 23, 64),
    "cumsum_256MB": lambda: cumsum(16384, 4096),
    "cumsum_long_256MB": lambda: cumsum(1 << 26),
    "pad_256MB": lambda: pad(16384, 4096, 64),
}
"""The rows of the benchmark by name."""

PINNED: dict[str, dict[str, str]] = {
    row: {"wgmma": "cuda.gemm_wgmma", "cublaslt": "cuda.cublaslt"} for row in ("gemm_4096", "gemm_8192")
}
"""Rows whose product also runs on kernels that the compiler is told, by the names that a result has for them."""


def artifacts(folder: Path, row: str) -> dict[str, Path]:
    """Where the compiled program of a row is: as the compiler chose, and with each pinned kernel."""
    labels = {"aicf": "", **{label: f".{label}" for label in PINNED.get(row, {})}}
    return {label: folder / f"{row}{suffix}.aicf" for label, suffix in labels.items()}


def commit_file(folder: Path, row: str) -> Path:
    """Where the commit that the artifacts of a row were compiled from is noted."""
    return folder / f"{row}.commit"


def _linear(graph: Graph, x: Value, name: str, outputs: int, inputs: int, dtype: str) -> Value:
    weight = graph.param(f"{name}.weight", (outputs, inputs), dtype)
    return graph.linear(x, weight, graph.param(f"{name}.bias", (outputs,), dtype), name=name)


def _layer_norm(graph: Graph, x: Value, name: str, size: int, epsilon: float, dtype: str) -> Value:
    scale, bias = (graph.param(f"{name}.{part}", (size,), dtype) for part in ("weight", "bias"))
    return graph.layer_norm(x, scale, bias, epsilon=epsilon, name=name)


def blank_weights(graph: Graph) -> dict[str, NDArray[Any]]:
    """Zeros for every parameter and state, to compile with: shapes and types decide everything, values nothing."""
    weights: dict[str, NDArray[Any]] = {}
    for function in (op for op in graph.module().body.block.ops if isinstance(op, FuncOp)):
        for index, argument in enumerate(function.args):
            attributes = argument_attrs(function, index)
            if attributes["logical.role"].data in ("param", "state"):
                info = tensor_info(argument.type)
                weights[attributes["logical.name"].data] = np.zeros(
                    info.sizes, numpy_dtype(info.element.name)
                )
    return weights
