"""Llama, and what is built like it (SmolLM, Mistral): a decoder with rotary positions, grouped queries and gated MLPs.

Touvron et al., LLaMA, 2023; Su et al., RoFormer, 2021; Ainslie et al., GQA, 2023; Shazeer, GLU Variants, 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aicf.frontends.gguf.reader import GgufFile
from aicf.llm.families.common import (
    Rotation,
    Step,
    attention,
    linear,
    output_logits,
    rms_norm,
    rotary_frequencies,
    states,
    weight,
)
from aicf.runtime.tensors import Array

if TYPE_CHECKING:
    from aicf.frontends.builder import Graph, Value


@dataclass(frozen=True)
class Llama:
    """Sizes of a model.

    Args:
        layers: Of the decoder.
        width: Of the residual stream.
        heads, kv_heads: Of queries, and of keys and values.
        head_width: Of a head.
        hidden: Of the MLP.
        vocabulary: How many tokens there are.
        epsilon: Of the norms.
        rope_base: Base of the rotary frequencies.
        context: Positions that the model was made for.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    hidden: int
    vocabulary: int
    epsilon: float
    rope_base: float
    context: int

    @staticmethod
    def of(file: GgufFile) -> Llama:
        """The sizes that a file states. Raises InvalidIR if one is missing or no size."""

        def size(name: str) -> int:
            value = file.field(f"llama.{name}", int)
            if isinstance(value, bool) or value < 1:
                raise file.error(f"field 'llama.{name}' is {value}; it is 1 or more")
            return value

        heads, width = size("attention.head_count"), size("embedding_length")
        optional: Any = file.fields.get
        base = optional("llama.rope.freq_base", 10000.0)
        return Llama(
            layers=size("block_count"),
            width=width,
            heads=heads,
            kv_heads=optional("llama.attention.head_count_kv", heads),
            head_width=optional("llama.attention.key_length", width // heads),
            hidden=size("feed_forward_length"),
            vocabulary=file.tensor("token_embd.weight").shape[0],
            epsilon=file.field("llama.attention.layer_norm_rms_epsilon", float),
            rope_base=float(base),
            context=size("context_length"),
        )

    def states(self, capacity: int) -> dict[str, Array]:
        """Empty keys and values of every layer: f32[capacity, kv_heads, head_width] by name."""
        return states(self.layers, capacity, self.kv_heads, self.head_width)

    def decoder(self, name: str, capacity: int, *, is_tied: bool) -> Graph:
        """The program of one step: the new tokens in, the logits of what follows the last of them out.

        Inputs are `tokens`, i64[T]; `position`, i64[1]: how many tokens came before; and `last`, i64[1]: which of the
        tokens is the last one, as those after it only fill the program's size. Keys and values of `capacity` positions
        are its state.

        Args:
            name: Of the graph.
            capacity: Positions.
            is_tied: Whether the embedding also makes the logits.
        """
        from aicf.frontends.builder import Graph

        graph = Graph(name)
        step = Step.of(graph, capacity)
        embedding = weight(graph, "token_embd.weight", (self.vocabulary, self.width))
        x = graph.gather(embedding, step.tokens, name="embedding")
        rotation = Rotation.of(step, rotary_frequencies(self.head_width, self.rope_base))
        for layer in range(self.layers):
            x = graph.add(x, self._attention(step, layer, x, rotation))
            x = graph.add(x, self._mlp(graph, layer, x))
        last = rms_norm(graph, "output_norm", step.last(x), self.epsilon)
        head = embedding if is_tied else weight(graph, "output.weight", (self.vocabulary, self.width))
        output_logits(graph, graph.linear(last, head, name="head"))
        return graph

    def _attention(self, step: Step, layer: int, x: Value, rotation: Rotation) -> Value:
        graph, name = step.graph, f"blk.{layer}"
        normed = rms_norm(graph, f"{name}.attn_norm", x, self.epsilon)
        query, key, value = (
            graph.reshape(
                linear(graph, f"{name}.attn_{part}", normed, heads * self.head_width),
                ("T", heads, self.head_width),
            )
            for part, heads in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads))
        )
        query, key = (rotation.of_neighbours(graph, part) for part in (query, key))
        mixed = attention(step, layer, query, key, value)
        return linear(graph, f"{name}.attn_output", mixed, self.width)

    def _mlp(self, graph: Graph, layer: int, x: Value) -> Value:
        name = f"blk.{layer}"
        normed = rms_norm(graph, f"{name}.ffn_norm", x, self.epsilon)
        gate = linear(graph, f"{name}.ffn_gate", normed, self.hidden)
        up = linear(graph, f"{name}.ffn_up", normed, self.hidden)
        return linear(graph, f"{name}.ffn_down", graph.mul(graph.silu(gate), up), self.width)
