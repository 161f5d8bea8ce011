"""Llama, and what is built like it (SmolLM, Mistral): a decoder with rotary positions, grouped queries and gated MLPs.

Touvron et al., LLaMA, 2023; Jiang et al., Mistral 7B, 2023; Ainslie et al., GQA, 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aicf.llm.families.common import Step, attention, linear
from aicf.llm.families.decoder import Decoder
from aicf.llm.sources.base import Source
from aicf.llm.sources.names import ATTENTION, EMBEDDINGS, MLP, NORMS, Names

if TYPE_CHECKING:
    from aicf.frontends.builder import Graph, Value


class Llama(Decoder):
    """See `Decoder`."""

    ARCHITECTURES = ("llama",)
    MODEL_TYPES = ("llama", "mistral")
    NAMES = Names({**EMBEDDINGS, **ATTENTION, **NORMS, **MLP})

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.has_biases = source.has("blk.0.attn_q.bias")
        self.has_output_bias = source.has("blk.0.attn_output.bias")

    def layer(self, step: Step, number: int, x: Value) -> Value:
        graph, name = step.graph, f"blk.{number}"
        x = x + self.attention(step, number, self.norm(graph, f"{name}.attn_norm", x))
        return x + self.mlp(graph, name, self.norm(graph, f"{name}.ffn_norm", x))

    def attention(self, step: Step, number: int, x: Value) -> Value:
        """Attention of one layer: x[T, width] to the same."""
        graph, name, window = step.graph, f"blk.{number}", self.windows[number]
        query, key, value = self.projections(graph, name, x)
        rotation = self.rotation(step)
        query, key = rotation.apply(graph, query), rotation.apply(graph, key)
        mixed = attention(step, number, query, key, value, window=window)
        return linear(graph, f"{name}.attn_output", mixed, self.width, bias=self.has_output_bias)

    def projections(self, graph: Graph, name: str, x: Value) -> tuple[Value, Value, Value]:
        """Queries, [T, heads, head_width], keys and values, [T, kv_heads, head_width], of a layer."""
        query, key, value = (
            self.split(
                graph,
                linear(graph, f"{name}.attn_{part}", x, heads * self.head_width, bias=self.has_biases),
                heads,
            )
            for part, heads in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads))
        )
        return query, key, value

    def mlp(self, graph: Graph, name: str, x: Value) -> Value:
        """The MLP of a layer: x[T, width] to the same."""
        return self.gated_mlp(graph, name, x)
