"""Mixtures of experts: OLMoE, Qwen 2 MoE and Qwen 3 MoE. A router chooses a few MLPs for each token.

Only the chosen experts are computed: their matrices are gathered, and each token has products of its own. So a run
takes one token, a prompt as well: for many tokens the gathered matrices would be larger than all experts are.

Shazeer et al., Outrageously Large Neural Networks, 2017; Muennighoff et al., OLMoE, 2024.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aicf.llm.families.common import in_f32, in_type_of, linear, weight
from aicf.llm.families.llama import Llama
from aicf.llm.families.qwen import Qwen3
from aicf.llm.sources.base import Source
from aicf.llm.sources.names import ATTENTION, EMBEDDINGS, EXPERTS, NORMS, Names, flattened

if TYPE_CHECKING:
    from aicf.frontends.builder import Graph, Value


class Experts(Llama):
    """Llama with experts in place of its MLP."""

    ARCHITECTURES = ()
    MODEL_TYPES = ()
    NAMES = Names({**EMBEDDINGS, **ATTENTION, **NORMS, **EXPERTS})
    NORMED = False
    """Whether the weights of chosen experts add up to 1, if the source does not say."""

    prefill = 1

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.experts, self.chosen = source.size("expert_count"), source.size("expert_used_count")
        self.is_normed = source.flag("expert_weights_norm", self.NORMED)
        if source.size("sparse_step", 1) != 1 or source.setting("dense_layers"):
            raise source.unsupported(
                "some layers have no experts; models with experts in every layer are read"
            )
        if self.chosen > self.experts:
            raise source.error(f"{self.chosen} of {self.experts} experts should be chosen")

    def mlp(self, graph: Graph, name: str, x: Value) -> Value:
        probabilities = graph.softmax(in_f32(linear(graph, f"{name}.ffn_gate_inp", x, self.experts)))
        shares, indices = graph.topk(probabilities, self.chosen)
        if self.is_normed:
            shares = shares / graph.reduce_sum(shares, [1], keepdims=True)
        hidden = self.source.shape(f"{name}.ffn_gate_exps.weight")[1]
        rows = graph.reshape(x, ("T", 1, self.width, 1))
        gate, up = (
            graph.matmul(self._chosen(graph, name, part, indices, hidden, rows), rows)
            for part in ("gate", "up")
        )
        active = graph.silu(gate) * up
        down = graph.matmul(self._chosen(graph, name, "down", indices, self.width, active), active)
        made = in_f32(graph.reshape(down, ("T", self.chosen, self.width)))
        return in_type_of(x, graph.reduce_sum(made * graph.expand_dims(shares, 2), [1]))

    def _chosen(self, graph: Graph, name: str, part: str, indices: Value, to: int, columns: Value) -> Value:
        """[T, chosen, to, of]: the matrices of each token's experts, for columns [T, ..., of, 1]."""
        name, of = f"{name}.ffn_{part}_exps", columns.shape[-2]
        assert isinstance(of, int)
        matrices = weight(graph, f"{name}.weight", (self.experts, to, of), columns.dtype)
        return graph.gather(matrices, indices, name=name)


class Olmoe(Experts):
    """Queries and keys are normed as a whole, before they are split into heads."""

    ARCHITECTURES = ("olmoe",)
    MODEL_TYPES = ("olmoe",)

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        if source.setting("attention.clamp_kqv"):
            raise source.unsupported(f"{source.called('attention.clamp_kqv')} is set; what is read: none")

    def projections(self, graph: Graph, name: str, x: Value) -> tuple[Value, Value, Value]:
        query, key, value = (
            linear(graph, f"{name}.attn_{part}", x, heads * self.head_width)
            for part, heads in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads))
        )
        query = self.norm(graph, f"{name}.attn_q_norm", query)
        key = self.norm(graph, f"{name}.attn_k_norm", key)
        return (
            self.split(graph, query, self.heads),
            self.split(graph, key, self.kv_heads),
            self.split(graph, value, self.kv_heads),
        )


class Qwen2Moe(Experts):
    """One more expert takes every token, through a gate of its own."""

    ARCHITECTURES = ("qwen2moe",)
    MODEL_TYPES = ("qwen2_moe",)
    NAMES = Names(
        {
            **Experts.NAMES.modules,
            **{
                f"blk.{{}}.ffn_{part}_shexp": f"model.layers.{{}}.mlp.shared_expert.{part}_proj"
                for part in ("gate", "up", "down")
            },
            "blk.{}.ffn_gate_inp_shexp": "model.layers.{}.mlp.shared_expert_gate",
        },
        {"blk.{}.ffn_gate_inp_shexp": flattened},
    )

    def mlp(self, graph: Graph, name: str, x: Value) -> Value:
        hidden = self.source.shape(f"{name}.ffn_gate_shexp.weight")[0]
        gate, up = (linear(graph, f"{name}.ffn_{part}_shexp", x, hidden) for part in ("gate", "up"))
        shared = linear(graph, f"{name}.ffn_down_shexp", graph.silu(gate) * up, self.width)
        row = graph.reshape(
            weight(graph, f"{name}.ffn_gate_inp_shexp.weight", (self.width,), x.dtype), (1, self.width)
        )
        return super().mlp(graph, name, x) + graph.sigmoid(graph.linear(x, row)) * shared


class Qwen3Moe(Experts, Qwen3):
    """Attention of Qwen 3."""

    ARCHITECTURES = ("qwen3moe",)
    MODEL_TYPES = ("qwen3_moe",)
    NORMED = True
