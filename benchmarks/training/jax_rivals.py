"""The training steps in JAX, compiled by XLA, the old state given up for the new one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

# The other rivals need memory too.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
from works import LEARNING_RATE, Array, EncoderConfig, Workload

Weights = Mapping[str, jax.Array]
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8

# Of f32 products, as the other rivals have it; products of bf16 are not concerned.
jax.config.update("jax_default_matmul_precision", "tensorfloat32")


def _linear(weights: Weights, name: str, x: jax.Array) -> jax.Array:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def _classifier(weights: Weights, x: jax.Array, layers: int) -> jax.Array:
    for i in range(1, layers + 1):
        x = _linear(weights, f"fc{i}", x)
        if i < layers:
            x = jax.nn.relu(x)
    return x


def _layer_norm(weights: Weights, name: str, x: jax.Array, epsilon: float) -> jax.Array:
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    normal = centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + epsilon)
    return (normal * weights[f"{name}.weight"] + weights[f"{name}.bias"]).astype(x.dtype)


def _encoder(weights: Weights, x: jax.Array, config: EncoderConfig) -> jax.Array:
    for name in (f"layers.{i}" for i in range(config.layers)):
        qkv = _linear(weights, f"{name}.qkv", _layer_norm(weights, f"{name}.norm1", x, config.epsilon))
        parts = qkv.reshape(*x.shape[:2], 3, config.heads, -1)
        attended = jax.nn.dot_product_attention(*(parts[:, :, i] for i in range(3)))
        x = x + _linear(weights, f"{name}.out", attended.reshape(x.shape))
        up = _linear(weights, f"{name}.up", _layer_norm(weights, f"{name}.norm2", x, config.epsilon))
        x = x + _linear(weights, f"{name}.down", jax.nn.gelu(up, approximate=False))
    return _linear(weights, "head", x.mean(1))


def _loss(weights: Weights, x: jax.Array, y: jax.Array, work: Workload) -> jax.Array:
    if isinstance(work.config, EncoderConfig):
        low = {name: value.astype(x.dtype) for name, value in weights.items()}
        logits = _encoder(low, x, work.config).astype(jnp.float32)
    else:
        logits = _classifier(weights, x, len(work.config) - 1)
    logarithms = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(logarithms, y[:, None], 1).mean()


class JaxTrainer:
    """Trains a work; `loss` is that of the last step.

    Args:
        work: What is trained.
        parameters: What it starts with.
    """

    def __init__(self, work: Workload, parameters: Mapping[str, Array]) -> None:
        self.work = work
        self.step_of = jax.jit(lambda state, x, y: _stepped(work, state, x, y), donate_argnums=0)
        self.restart(parameters)
        self.loss = jnp.zeros(())

    def restart(self, parameters: Mapping[str, Array]) -> None:
        """Everything as before the first step."""
        zeros = {name: jnp.zeros_like(value) for name, value in parameters.items()}
        weights = {name: jnp.array(value) for name, value in parameters.items()}
        others = {name: jnp.zeros_like(value) for name, value in parameters.items()}
        self.state: Any = (weights, zeros, others, jnp.zeros((), jnp.int32))

    def feed(self, x: Array, y: Array) -> None:
        """What is learned next."""
        self.x = jnp.array(x, {"f32": jnp.float32, "bf16": jnp.bfloat16}[self.work.x_dtype])
        self.y = jnp.array(y, jnp.int32)

    def step(self) -> None:
        """One step, queued."""
        self.state, self.loss = self.step_of(self.state, self.x, self.y)

    def wait(self) -> None:
        """Until the device is idle."""
        jax.block_until_ready((self.state, self.loss))


def _stepped(work: Workload, state: Any, x: jax.Array, y: jax.Array) -> tuple[Any, jax.Array]:
    weights, means, squares, count = state
    loss, gradients = jax.value_and_grad(_loss)(weights, x, y, work)
    count = count + 1
    step = count.astype(jnp.float32)
    new: tuple[dict[str, jax.Array], ...] = ({}, {}, {})
    for name, weight in weights.items():
        gradient = gradients[name]
        mean = BETA1 * means[name] + (1 - BETA1) * gradient
        square = BETA2 * squares[name] + (1 - BETA2) * gradient * gradient
        root = jnp.sqrt(square / (1 - BETA2**step)) + EPSILON
        shrunk = weight * (1 - LEARNING_RATE * work.decay)
        values = (shrunk - LEARNING_RATE * mean / (1 - BETA1**step) / root, mean, square)
        for part, value in zip(new, values, strict=True):
            part[name] = value
    return (*new, count), loss
