"""Qwen 2: Llama with biases in queries, keys and values. Qwen 3: without them, and with norms of queries and keys.

Yang et al., Qwen2 Technical Report, 2024; Yang et al., Qwen3 Technical Report, 2025.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aicf.llm.families.llama import Llama

if TYPE_CHECKING:
    from aicf.frontends.builder import Graph, Value


class Qwen2(Llama):
    """Biases are where the source has them, as in Llama."""

    ARCHITECTURES = ("qwen2",)
    MODEL_TYPES = ("qwen2",)


class Qwen3(Llama):
    """Every head of queries and keys is normed before it is rotated."""

    ARCHITECTURES = ("qwen3",)
    MODEL_TYPES = ("qwen3",)

    def projections(self, graph: Graph, name: str, x: Value) -> tuple[Value, Value, Value]:
        query, key, value = super().projections(graph, name, x)
        query = self.norm(graph, f"{name}.attn_q_norm", query)
        return query, self.norm(graph, f"{name}.attn_k_norm", key), value
