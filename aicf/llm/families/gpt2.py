"""GPT-2: learned positions, LayerNorm, heads that share nothing, and an MLP without a gate.

Radford, Wu, Child, Luan, Amodei and Sutskever, Language Models are Unsupervised Multitask Learners, 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aicf.llm.families.common import Step, attention, layer_norm, linear, weight
from aicf.llm.families.decoder import Decoder
from aicf.llm.sources.base import Source
from aicf.llm.sources.names import Names, transposed

if TYPE_CHECKING:
    from aicf.frontends.builder import Graph, Value

_LAYERS = {
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}


class Gpt2(Decoder):
    """See `Decoder`. Folders store the matrices of layers transposed."""

    ARCHITECTURES = ("gpt2",)
    MODEL_TYPES = ("gpt2",)
    NAMES = Names(
        {
            "token_embd": "transformer.wte",
            "position_embd": "transformer.wpe",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
            "blk.{}.attn_norm": "transformer.h.{}.ln_1",
            "blk.{}.ffn_norm": "transformer.h.{}.ln_2",
            **{f"blk.{{}}.{ours}": f"transformer.h.{{}}.{theirs}" for ours, theirs in _LAYERS.items()},
        },
        {f"blk.{{}}.{ours}": transposed for ours in _LAYERS},
    )
    ACTIVATIONS = ("gelu_new", "gelu_pytorch_tanh")
    EPSILON = "attention.layer_norm_epsilon"

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        if source.flag("scale_by_layer", False):
            raise source.unsupported(f"{source.called('scale_by_layer')} is true; what is read: false")

    def embed(self, step: Step, embedding: Value) -> Value:
        positions = weight(step.graph, "position_embd.weight", (self.context, self.width), embedding.dtype)
        return super().embed(step, embedding) + step.graph.gather(positions, step.rows, name="positions")

    def norm(self, graph: Graph, name: str, x: Value) -> Value:
        return layer_norm(graph, name, x, self.epsilon)

    def layer(self, step: Step, number: int, x: Value) -> Value:
        graph, name = step.graph, f"blk.{number}"
        x = x + self.attention(step, number, self.norm(graph, f"{name}.attn_norm", x))
        hidden = self.source.size("feed_forward_length", 4 * self.width)
        up = linear(graph, f"{name}.ffn_up", self.norm(graph, f"{name}.ffn_norm", x), hidden, bias=True)
        return x + linear(graph, f"{name}.ffn_down", graph.gelu(up, "tanh"), self.width, bias=True)

    def attention(self, step: Step, number: int, x: Value) -> Value:
        """Attention of one layer: x[T, width] to the same."""
        graph, name = step.graph, f"blk.{number}"
        joint = linear(graph, f"{name}.attn_qkv", x, 3 * self.width, bias=True)
        parts = (self.split(graph, part, self.heads) for part in graph.split(joint, [self.width] * 3, 1))
        mixed = attention(step, number, *parts)
        return linear(graph, f"{name}.attn_output", mixed, self.width, bias=True)
