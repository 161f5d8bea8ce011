"""Llama, and what is built like it (SmolLM, Mistral): a decoder with rotary positions, grouped queries and gated MLPs.

Touvron et al., LLaMA, 2023; Su et al., RoFormer, 2021; Ainslie et al., GQA, 2023; Shazeer, GLU Variants, 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aicf.frontends.builder import Graph, Value
from aicf.frontends.gguf.reader import GgufFile
from aicf.runtime.tensors import Array

TOKENS, POSITION, LAST, LOGITS = "tokens", "position", "last", "logits"
"""Inputs and output of a decoder."""


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
        shape = (capacity, self.kv_heads, self.head_width)
        names = (f"{kind}.{layer}" for layer in range(self.layers) for kind in ("keys", "values"))
        return {name: np.zeros(shape, np.float32) for name in names}

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
        graph = Graph(name)
        tokens, position = graph.input(TOKENS, ("T",), "i64"), graph.input(POSITION, (1,), "i64")
        rows = graph.add(graph.iota(("T",), 0, "i64"), position)
        embedding = graph.param("token_embd.weight", (self.vocabulary, self.width))
        x = graph.gather(embedding, tokens, name="embedding")
        rotation, first = self._rotation(graph, rows), graph.reshape(position, ())
        for layer in range(self.layers):
            x = graph.add(x, self._attention(graph, layer, x, rows, rotation, first, capacity))
            x = graph.add(x, self._mlp(graph, layer, x))
        last = graph.gather(x, graph.input(LAST, (1,), "i64"), name="last")
        last = self._norm(graph, "output_norm.weight", last)
        head = embedding if is_tied else graph.param("output.weight", (self.vocabulary, self.width))
        graph.output(graph.reshape(graph.linear(last, head, name="head"), (self.vocabulary,)), LOGITS)
        return graph

    def _norm(self, graph: Graph, name: str, x: Value) -> Value:
        return graph.rms_norm(x, graph.param(name, (self.width,)), epsilon=self.epsilon)

    def _linear(self, graph: Graph, name: str, x: Value, to: int, of: int) -> Value:
        return graph.linear(x, graph.param(f"{name}.weight", (to, of)), name=name)

    def _rotation(self, graph: Graph, rows: Value) -> tuple[Value, Value]:
        """What rotates the pairs of a head, f32[T, 1, head_width / 2, 2]: cosines of the angles of each position, and
        minus and plus their sines."""
        values = self.rope_base ** -(np.arange(0, self.head_width, 2) / self.head_width)
        frequencies = graph.constant(
            values.astype(np.float32).reshape(1, -1, 1), (1, self.head_width // 2, 1)
        )
        angles = graph.mul(graph.reshape(graph.cast(rows, "f32"), ("T", 1, 1)), frequencies)
        one, both = (("T", 1, self.head_width // 2, count) for count in (1, 2))
        cosines, sines = (
            graph.broadcast_to(graph.reshape(angle, one), both)
            for angle in (graph.cos(angles), graph.sin(angles))
        )
        is_first = graph.eq(graph.iota(both, 3, "i32"), 0)
        return cosines, graph.where(is_first, graph.neg(sines), sines)

    def _rotated(self, graph: Graph, x: Value, heads: int, rotation: tuple[Value, Value]) -> Value:
        """Rotates the pairs of neighbours of every head, as GGUF files order them: f32[T, heads, head_width].

        ``(a, b)`` becomes ``(a, b) * cos + (b, a) * (-sin, sin)``, which is one pass over the elements.
        """
        pairs = graph.reshape(x, ("T", heads, self.head_width // 2, 2))
        cosines, sines = rotation
        rotated = graph.add(graph.mul(pairs, cosines), graph.mul(graph.flip(pairs, (3,)), sines))
        return graph.reshape(rotated, ("T", heads, self.head_width))

    def _attention(
        self,
        graph: Graph,
        layer: int,
        x: Value,
        rows: Value,
        rotation: tuple[Value, Value],
        position: Value,
        capacity: int,
    ) -> Value:
        name, width = f"blk.{layer}", self.heads * self.head_width
        normed, kv_width = self._norm(graph, f"{name}.attn_norm.weight", x), self.kv_heads * self.head_width
        query = self._linear(graph, f"{name}.attn_q", normed, width, self.width)
        key = self._linear(graph, f"{name}.attn_k", normed, kv_width, self.width)
        value = self._linear(graph, f"{name}.attn_v", normed, kv_width, self.width)
        query = self._rotated(graph, query, self.heads, rotation)
        key = self._rotated(graph, key, self.kv_heads, rotation)
        value = graph.reshape(value, ("T", self.kv_heads, self.head_width))
        keys = self._cached(graph, f"keys.{layer}", rows, key, capacity)
        values = self._cached(graph, f"values.{layer}", rows, value, capacity)
        heads = graph.attention(
            graph.transpose(query, (1, 0, 2)),
            keys,
            values,
            position=position,
            causal=True,
            name=f"{name}.attention",
        )
        joined = graph.reshape(graph.transpose(heads, (1, 0, 2)), ("T", width))
        return self._linear(graph, f"{name}.attn_output", joined, self.width, width)

    def _cached(self, graph: Graph, name: str, rows: Value, new: Value, capacity: int) -> Value:
        """A state with new rows, for this run and the next: f32[kv_heads, capacity, head_width]."""
        state = graph.state(name, (capacity, self.kv_heads, self.head_width))
        updated = graph.scatter(state, rows, new)
        graph.update(state, updated)
        return graph.transpose(updated, (1, 0, 2))

    def _mlp(self, graph: Graph, layer: int, x: Value) -> Value:
        name = f"blk.{layer}"
        normed = self._norm(graph, f"{name}.ffn_norm.weight", x)
        gate = self._linear(graph, f"{name}.ffn_gate", normed, self.hidden, self.width)
        up = self._linear(graph, f"{name}.ffn_up", normed, self.hidden, self.width)
        return self._linear(
            graph, f"{name}.ffn_down", graph.mul(graph.silu(gate), up), self.width, self.hidden
        )
