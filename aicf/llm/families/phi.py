"""Phi 3 and 4: Llama with one product for queries, keys and values, one for both halves of the MLP, and LongRoPE.

Abdin et al., Phi-3 Technical Report, 2024; Abdin et al., Phi-4 Technical Report, 2024.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aicf.llm.families.common import linear
from aicf.llm.families.llama import Llama
from aicf.llm.sources.names import EMBEDDINGS, NORMS, Names

if TYPE_CHECKING:
    from aicf.frontends.builder import Graph, Value


class Phi3(Llama):
    """A model may rotate only the first part of every head."""

    ARCHITECTURES = ("phi3",)
    MODEL_TYPES = ("phi3",)
    NAMES = Names(
        {
            **EMBEDDINGS,
            **NORMS,
            "blk.{}.attn_qkv": "model.layers.{}.self_attn.qkv_proj",
            "blk.{}.attn_output": "model.layers.{}.self_attn.o_proj",
            "blk.{}.ffn_up": "model.layers.{}.mlp.gate_up_proj",
            "blk.{}.ffn_down": "model.layers.{}.mlp.down_proj",
        }
    )

    def projections(self, graph: Graph, name: str, x: Value) -> tuple[Value, Value, Value]:
        heads = (self.heads, self.kv_heads, self.kv_heads)
        joint = linear(graph, f"{name}.attn_qkv", x, sum(heads) * self.head_width)
        parts = graph.split(joint, [count * self.head_width for count in heads], 1)
        query, key, value = (self.split(graph, part, count) for part, count in zip(parts, heads, strict=True))
        return query, key, value

    def mlp(self, graph: Graph, name: str, x: Value) -> Value:
        hidden = self.source.size("feed_forward_length")
        gate, up = graph.split(linear(graph, f"{name}.ffn_up", x, 2 * hidden), [hidden, hidden], 1)
        return linear(graph, f"{name}.ffn_down", graph.silu(gate) * up, self.width)
