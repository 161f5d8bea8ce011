"""The programs of the GPU benchmark in JAX, compiled by XLA: functions of the weights (by name) and of x."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

# The other rivals need memory too.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp

Weights = Mapping[str, jax.Array]
Function = Callable[[Weights, jax.Array], jax.Array]


def _linear(weights: Weights, name: str, x: jax.Array) -> jax.Array:
    y = x @ weights[f"{name}.weight"].T
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def _layer_norm(weights: Weights, name: str, x: jax.Array, epsilon: float) -> jax.Array:
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    normal = centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + epsilon)
    return (normal * weights[f"{name}.weight"] + weights[f"{name}.bias"]).astype(x.dtype)


def chain(weights: Weights, x: jax.Array) -> jax.Array:
    """Twelve pre-norm blocks; x and the result [tokens, hidden]."""
    for i in range(12):
        up = _linear(weights, f"{i}.up", _layer_norm(weights, f"{i}.norm", x, 1e-5))
        x = x + _linear(weights, f"{i}.down", jax.nn.gelu(up, approximate=False))
    return x


def bert(weights: Weights, x: jax.Array) -> jax.Array:
    """BERT-base's encoder; x and the result [batch, tokens, 768]. Attention is JAX's own."""
    for i in range(12):
        name = f"layer.{i}"
        query, key, value = (
            _linear(weights, f"{name}.attention.self.{part}", x).reshape(*x.shape[:2], 12, 64)
            for part in ("query", "key", "value")
        )
        context = jax.nn.dot_product_attention(query, key, value).reshape(x.shape)
        projected = _linear(weights, f"{name}.attention.output.dense", context)
        x = _layer_norm(weights, f"{name}.attention.output.LayerNorm", projected + x, 1e-12)
        up = jax.nn.gelu(_linear(weights, f"{name}.intermediate.dense", x), approximate=False)
        down = _linear(weights, f"{name}.output.dense", up)
        x = _layer_norm(weights, f"{name}.output.LayerNorm", down + x, 1e-12)
    return x


def fc(weights: Weights, x: jax.Array) -> jax.Array:
    """A product, with ReLU if it has a bias; x [rows, inputs], the result [rows, outputs]."""
    y = _linear(weights, "fc", x)
    return jax.nn.relu(y) if "fc.bias" in weights else y


def swiglu(weights: Weights, x: jax.Array) -> jax.Array:
    """silu(gate(x)) * up(x); x [tokens, hidden], the result [tokens, inner]."""
    return jax.nn.silu(_linear(weights, "gate", x)) * _linear(weights, "up", x)


def attention(x: jax.Array, causal: bool) -> jax.Array:
    """x [3, batch, heads, tokens, size], the result [batch, heads, tokens, size], by cuDNN's kernel."""
    query, key, value = (part.swapaxes(1, 2) for part in x)
    y = jax.nn.dot_product_attention(query, key, value, is_causal=causal, implementation="cudnn")
    return y.swapaxes(1, 2)


def gpt2(weights: Weights, x: jax.Array, layers: int) -> jax.Array:
    """Blocks of GPT-2 for one token; x and the result [1, 768]. The new state is used and not given back."""
    for i in range(layers):
        normal = _layer_norm(weights, f"{i}.norm1", x, 1e-5)
        query, key, value = jnp.split(_linear(weights, f"{i}.qkv", normal), 3, -1)
        keys, values = (
            weights[f"{i}.{name}"].at[weights["position"]].set(row)
            for name, row in (("keys", key), ("values", value))
        )
        query, keys, values = (part.reshape(-1, 12, 64) for part in (query, keys, values))
        scores = jnp.einsum("qhd,khd->hqk", query, keys) * 64**-0.5
        context = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores, -1), values).reshape(x.shape)
        x = x + _linear(weights, f"{i}.out", context)
        up = _linear(weights, f"{i}.up", _layer_norm(weights, f"{i}.norm2", x, 1e-5))
        x = x + _linear(weights, f"{i}.down", jax.nn.gelu(up, approximate=True))
    return x


FUNCTIONS: dict[str, Function] = {
    "mlp_chain": chain,
    "bert_1x128": bert,
    "bert_8x128": bert,
    "gemm_bias_relu_4096": fc,
    "gemm_4096": fc,
    "gemm_8192": fc,
    "swiglu_2048": swiglu,
    "pointwise_256MB": lambda weights, x: jax.nn.gelu(x * 0.5 + 1.0, approximate=True),
    "softmax_256MB": lambda weights, x: jax.nn.softmax(x, -1),
    "layer_norm_256MB": lambda weights, x: _layer_norm(weights, "norm", x, 1e-5),
    "attention_512": lambda weights, x: attention(x, False),
    "attention_512_causal": lambda weights, x: attention(x, True),
    "gpt2_block": lambda weights, x: gpt2(weights, x, 1),
    "gpt2_12_blocks": lambda weights, x: gpt2(weights, x, 12),
    "gather_256MB": lambda weights, x: jnp.take(x, weights["i"], 0, mode="clip"),
    "scatter_set_256MB": lambda weights, x: x.at[weights["i"]].set(weights["u"]),
    "scatter_add_256MB": lambda weights, x: x.at[weights["i"]].add(weights["u"]),
    "topk_256MB": lambda weights, x: jax.lax.top_k(x, 32)[0],
    "topk_long_256MB": lambda weights, x: jax.lax.top_k(x, 64)[0],
    "cumsum_256MB": lambda weights, x: jnp.cumsum(x, -1),
    "cumsum_long_256MB": lambda weights, x: jnp.cumsum(x, -1),
    "pad_256MB": lambda weights, x: jnp.pad(x, ((0, 0), (64, 64)), constant_values=0.5),
}


def compiled(
    name: str, weights: Mapping[str, Any], x: Any
) -> tuple[Callable[[], jax.Array], Callable[[], None]]:
    """The row's program on arrays of NumPy, and what waits for the calls made so far."""
    function = jax.jit(FUNCTIONS[name])
    placed = {key: jnp.asarray(value) for key, value in weights.items()}
    input_ = jnp.asarray(x)
    latest = function(placed, input_).block_until_ready()

    def call() -> jax.Array:
        nonlocal latest
        latest = function(placed, input_)
        return latest

    def wait() -> None:
        latest.block_until_ready()

    return call, wait
