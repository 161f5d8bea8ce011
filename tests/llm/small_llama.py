"""Small random Llamas as GGUF files, and what they compute in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from tests.frontends.gguf.writer import Stored, gguf


@dataclass(frozen=True)
class SmallLlama:
    """Sizes, and weights by the names of a file: f32, linear layers as [to, from]."""

    layers: int
    heads: int
    kv_heads: int
    head_width: int
    hidden: int
    vocabulary: int
    is_tied: bool
    weights: dict[str, np.ndarray]
    epsilon: float = 1e-5
    base: float = 10000.0
    context: int = 64

    @property
    def width(self) -> int:
        return self.heads * self.head_width

    def file(self, tensors: Mapping[str, Stored] = MappingProxyType({}), **more: Any) -> bytes:
        """The model as a GGUF file, with some tensors stored in another way."""
        fields = {
            "general.architecture": "llama",
            "llama.block_count": self.layers,
            "llama.context_length": self.context,
            "llama.embedding_length": self.width,
            "llama.feed_forward_length": self.hidden,
            "llama.attention.head_count": self.heads,
            "llama.attention.head_count_kv": self.kv_heads,
            "llama.attention.layer_norm_rms_epsilon": self.epsilon,
            "llama.rope.freq_base": self.base,
            **more,
        }
        plain = {
            name: Stored(tuple(reversed(array.shape)), 0, array.tobytes())
            for name, array in self.weights.items()
        }
        return gguf(fields, {**plain, **tensors})

    def logits(self, tokens: list[int]) -> np.ndarray:
        """f64[vocabulary] after the last of the tokens, computed from all of them."""
        w = {name: array.astype(np.float64) for name, array in self.weights.items()}
        x, count = w["token_embd.weight"][tokens], len(tokens)
        for layer in range(self.layers):
            part = {name: w[f"blk.{layer}.{name}.weight"] for name in LAYER}
            h = self.norm(x, part["attn_norm"])
            query, key = (
                self.rotated((h @ part[f"attn_{name}"].T).reshape(count, -1, self.head_width))
                for name in "qk"
            )
            value = (h @ part["attn_v"].T).reshape(count, -1, self.head_width)
            shared = self.heads // self.kv_heads
            key, value = (np.repeat(array, shared, axis=1) for array in (key, value))
            scores = np.einsum("ihd,jhd->hij", query, key) / np.sqrt(self.head_width)
            scores[:, np.triu(np.ones((count, count), bool), 1)] = -np.inf
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            x = x + np.einsum("hij,jhd->ihd", weights, value).reshape(count, -1) @ part["attn_output"].T
            h = self.norm(x, part["ffn_norm"])
            gate = h @ part["ffn_gate"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ part["ffn_up"].T)) @ part["ffn_down"].T
        head = w["token_embd.weight" if self.is_tied else "output.weight"]
        return self.norm(x, w["output_norm.weight"])[-1] @ head.T

    def norm(self, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + self.epsilon) * scale

    def rotated(self, x: np.ndarray) -> np.ndarray:
        """Each pair of neighbours as a complex number, turned by its angle."""
        frequencies = self.base ** (-np.arange(0, self.head_width, 2) / self.head_width)
        angles = np.arange(len(x))[:, None, None] * frequencies
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
        return np.stack([turned.real, turned.imag], -1).reshape(x.shape)

    def greedy(self, tokens: list[int], count: int) -> list[int]:
        """The likeliest tokens, each computed from all before it."""
        known = list(tokens)
        for _ in range(count):
            known.append(int(np.argmax(self.logits(known))))
        return known[len(tokens) :]


LAYER = (
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_norm",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
)


def small_llama(
    rng: np.random.Generator,
    *,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    head_width: int = 16,
    is_tied: bool = False,
) -> SmallLlama:
    """Random weights whose logits spread."""
    hidden, vocabulary = 96, 80
    width, kv_width = heads * head_width, kv_heads * head_width
    shapes = {
        "attn_norm": (width,),
        "attn_q": (width, width),
        "attn_k": (kv_width, width),
        "attn_v": (kv_width, width),
        "attn_output": (width, width),
        "ffn_norm": (width,),
        "ffn_gate": (hidden, width),
        "ffn_up": (hidden, width),
        "ffn_down": (width, hidden),
    }
    named = {f"blk.{layer}.{name}.weight": shapes[name] for layer in range(layers) for name in LAYER}
    named |= {"token_embd.weight": (vocabulary, width), "output_norm.weight": (width,)}
    if not is_tied:
        named["output.weight"] = (vocabulary, width)
    weights = {
        name: (rng.standard_normal(shape) / (1 if len(shape) == 1 else np.sqrt(shape[1]) / 2)).astype(
            np.float32
        )
        for name, shape in named.items()
    }
    return SmallLlama(layers, heads, kv_heads, head_width, hidden, vocabulary, is_tied, weights)
