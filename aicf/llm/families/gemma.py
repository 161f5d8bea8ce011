"""Gemma 2 and 3: norms on both sides of attention and MLP, scaled embeddings, layers with and without a window.

Gemma 2 caps scores and logits softly; Gemma 3 norms queries and keys instead, and turns local layers by other angles.
Gemma Team, Gemma 2, 2024; Gemma Team, Gemma 3 Technical Report, 2025.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aicf.llm.families.common import Step, attention, in_f32, in_type_of, linear, soft_cap
from aicf.llm.families.llama import Llama
from aicf.llm.sources.base import Source
from aicf.llm.sources.names import ATTENTION, EMBEDDINGS, MLP, Names, one_more

if TYPE_CHECKING:
    from aicf.frontends.builder import Graph, Value

_NORMS = {
    "blk.{}.attn_norm": "model.layers.{}.input_layernorm",
    "blk.{}.post_attention_norm": "model.layers.{}.post_attention_layernorm",
    "blk.{}.ffn_norm": "model.layers.{}.pre_feedforward_layernorm",
    "blk.{}.post_ffw_norm": "model.layers.{}.post_feedforward_layernorm",
}
_SCALES = ("output_norm", "blk.{}.attn_q_norm", "blk.{}.attn_k_norm", *_NORMS)
_WIDEST = 46, 62
"""Layers of Gemma 2 27B and of Gemma 3 27B, whose scores are scaled by the width of the model."""


class Gemma2(Llama):
    """See `Decoder`. GGUF files have 1 added to the scales of norms."""

    ARCHITECTURES = ("gemma2",)
    MODEL_TYPES = ("gemma2",)
    NAMES = Names({**EMBEDDINGS, **ATTENTION, **_NORMS, **MLP}, dict.fromkeys(_SCALES, one_more))
    ACTIVATIONS = ("gelu_pytorch_tanh",)
    PERIOD = 2

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        if source.flag("bidirectional", False):
            raise source.unsupported(
                "the model looks at tokens that follow; decoders that look back are read"
            )
        default = self.width // self.heads if self.layers in _WIDEST else self.head_width
        self.scale = source.number("query_scale", default) ** -0.5
        self.score_cap, self.logit_cap = (
            source.number(f"{kind}_logit_softcapping", 0) for kind in ("attn", "final")
        )

    def embed(self, step: Step, embedding: Value) -> Value:
        return super().embed(step, embedding) * self.width**0.5

    def layer(self, step: Step, number: int, x: Value) -> Value:
        graph, name = step.graph, f"blk.{number}"
        mixed = self.attention(step, number, self.norm(graph, f"{name}.attn_norm", x))
        x = x + self.norm(graph, f"{name}.post_attention_norm", mixed)
        made = self.mlp(graph, name, self.norm(graph, f"{name}.ffn_norm", x))
        return x + self.norm(graph, f"{name}.post_ffw_norm", made)

    def attention(self, step: Step, number: int, x: Value) -> Value:
        graph, name, window = step.graph, f"blk.{number}", self.windows[number]
        query, key, value = self.projections(graph, name, x)
        rotation = self.rotation(step, local=window is not None)
        query, key = rotation.apply(graph, query), rotation.apply(graph, key)
        cap = self.score_cap or None
        mixed = attention(step, number, query, key, value, window=window, scale=self.scale, cap=cap)
        return linear(graph, f"{name}.attn_output", mixed, self.width)

    def norm(self, graph: Graph, name: str, x: Value) -> Value:
        """Scales are f32 in every type: they are stored with 1 taken off, where bf16 has more digits."""
        return in_type_of(x, super().norm(graph, name, in_f32(x)))

    def mlp(self, graph: Graph, name: str, x: Value) -> Value:
        return self.gated_mlp(graph, name, x, gelu=True)

    def head(self, graph: Graph, x: Value, matrix: Value) -> Value:
        logits = super().head(graph, x, matrix)
        return soft_cap(graph, logits, self.logit_cap) if self.logit_cap else logits


class Gemma3(Gemma2):
    """See `Decoder`."""

    ARCHITECTURES = ("gemma3",)
    MODEL_TYPES = ("gemma3_text",)
    PERIOD = 6

    def projections(self, graph: Graph, name: str, x: Value) -> tuple[Value, Value, Value]:
        query, key, value = super().projections(graph, name, x)
        query = self.norm(graph, f"{name}.attn_q_norm", query)
        return query, self.norm(graph, f"{name}.attn_k_norm", key), value
