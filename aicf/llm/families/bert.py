"""BERT, as encoders of sentences use it: every token looks at all others, and their mean stands for the sentence.

Devlin, Chang, Lee and Toutanova, BERT, 2019; Reimers and Gurevych, Sentence-BERT, 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aicf.llm.families.common import layer_norm, linear, weight
from aicf.llm.sources.base import Source
from aicf.llm.sources.names import Names

if TYPE_CHECKING:
    from aicf.frontends.builder import Graph, Value

TOKENS, COUNT, EMBEDDING = "tokens", "count", "embedding"
"""Inputs and output of an encoder."""


class Bert:
    """An encoder.

    Args:
        source: That has its settings and weights.

    Raises:
        InvalidIR: a setting or the embedding is missing, or contradicts others.
        UnsupportedOp: a setting asks for what the family does not do.
    """

    MODEL_TYPES = ("bert",)
    NAMES = Names(
        {
            "token_embd": "embeddings.word_embeddings",
            "position_embd": "embeddings.position_embeddings",
            "token_types": "embeddings.token_type_embeddings",
            "token_embd_norm": "embeddings.LayerNorm",
            **{
                f"blk.{{}}.{ours}": f"encoder.layer.{{}}.{theirs}"
                for ours, theirs in {
                    "attn_q": "attention.self.query",
                    "attn_k": "attention.self.key",
                    "attn_v": "attention.self.value",
                    "attn_output": "attention.output.dense",
                    "attn_output_norm": "attention.output.LayerNorm",
                    "ffn_up": "intermediate.dense",
                    "ffn_down": "output.dense",
                    "layer_output_norm": "output.LayerNorm",
                }.items()
            },
        },
        ignored=("pooler.dense",),
    )

    def __init__(self, source: Source) -> None:
        self.source = source
        self.layers, self.width = source.size("block_count"), source.size("embedding_length")
        self.heads, self.hidden = source.size("attention.head_count"), source.size("feed_forward_length")
        self.context, self.epsilon = (
            source.size("context_length"),
            source.number("attention.layer_norm_epsilon"),
        )
        self.vocabulary, self.types = (
            source.shape(f"{name}.weight")[0] for name in ("token_embd", "token_types")
        )
        if self.width % self.heads:
            raise source.error(f"{self.heads} heads do not share a width of {self.width} evenly")
        for name, only in (("activation", "gelu"), ("positions", "absolute")):
            stated = source.setting(name)
            if stated not in (None, only):
                raise source.unsupported(f"{source.called(name)} is '{stated}'; what is read: {only}")

    def encoder(self, name: str, *, is_mean: bool) -> Graph:
        """The program of one sentence: its tokens in, a vector of length 1 out.

        Inputs are `tokens`, i64[T], and `count`, i64[1]: how many of them count, as those after them only fill the
        program's size. The output is `embedding`, f32[width].

        Args:
            name: Of the graph.
            is_mean: Whether the mean of all tokens stands for the sentence, else the first one.
        """
        from aicf.frontends.builder import Graph

        graph = Graph(name)
        tokens, count = graph.input(TOKENS, ("T",), "i64"), graph.input(COUNT, (1,), "i64")
        counts = graph.iota(("T",), 0, "i64") < count
        mask = graph.broadcast_to(counts, ("T", "T"))
        x = self._embedded(graph, tokens)
        for layer in range(self.layers):
            x = self._layer(graph, f"blk.{layer}", x, mask)
        if is_mean:
            shares = graph.where(counts, 1.0 / graph.cast(count, "f32"), 0.0)
            pooled = graph.matmul(shares, x)
        else:
            pooled = graph.gather(x, graph.constant(0, (), "i64"))
        length = graph.sqrt(graph.reduce_sum(pooled * pooled, [0], keepdims=True))
        graph.output(pooled / graph.max(length, 1e-12), EMBEDDING)
        return graph

    def _embedded(self, graph: Graph, tokens: Value) -> Value:
        words, types = (
            weight(graph, f"{name}.weight", (count, self.width), "f32")
            for name, count in (("token_embd", self.vocabulary), ("token_types", self.types))
        )
        table = weight(graph, "position_embd.weight", (self.context, self.width), "f32")
        positions = graph.gather(table, graph.iota(("T",), 0, "i64"), name="positions")
        first_type = graph.slice(types, (0, 0), (1, -1))
        x = graph.gather(words, tokens, name="words") + positions + first_type
        return layer_norm(graph, "token_embd_norm", x, self.epsilon)

    def _layer(self, graph: Graph, name: str, x: Value, mask: Value) -> Value:
        mixed = self._attention(graph, name, x, mask)
        x = layer_norm(graph, f"{name}.attn_output_norm", x + mixed, self.epsilon)
        up = graph.gelu(linear(graph, f"{name}.ffn_up", x, self.hidden, bias=True))
        down = linear(graph, f"{name}.ffn_down", up, self.width, bias=True)
        return layer_norm(graph, f"{name}.layer_output_norm", x + down, self.epsilon)

    def _attention(self, graph: Graph, name: str, x: Value, mask: Value) -> Value:
        shape = ("T", self.heads, self.width // self.heads)
        query, key, value = (
            graph.transpose(
                graph.reshape(linear(graph, f"{name}.attn_{part}", x, self.width, bias=True), shape),
                (1, 0, 2),
            )
            for part in "qkv"
        )
        mixed = graph.attention(query, key, value, mask, name=f"{name}.attention")
        joined = graph.reshape(graph.transpose(mixed, (1, 0, 2)), ("T", self.width))
        return linear(graph, f"{name}.attn_output", joined, self.width, bias=True)
