"""How a Hugging Face folder calls what families ask for: settings in one table, tensors in a table of each family."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from aicf.runtime.tensors import Array

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "block_count": ("num_hidden_layers", "n_layer"),
    "context_length": ("max_position_embeddings", "n_positions"),
    "embedding_length": ("hidden_size", "n_embd"),
    "feed_forward_length": ("intermediate_size", "n_inner"),
    "attention.head_count": ("num_attention_heads", "n_head"),
    "attention.head_count_kv": ("num_key_value_heads",),
    "attention.key_length": ("head_dim",),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "attention.layer_norm_epsilon": ("layer_norm_epsilon", "layer_norm_eps"),
    "attention.sliding_window": ("sliding_window",),
    "attention.sliding_window_pattern": ("sliding_window_pattern",),
    "attention.clamp_kqv": ("clip_qkv",),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "expert_count": ("num_experts", "num_local_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_weights_norm": ("norm_topk_prob",),
    # GGUF files have no such fields: what they would say follows from the architecture, or from the tensors
    "activation": ("hidden_activation", "hidden_act", "activation_function"),
    "positions": ("position_embedding_type",),
    "is_tied": ("tie_word_embeddings",),
    "layer_types": ("layer_types",),
    "use_sliding_window": ("use_sliding_window",),
    "max_window_layers": ("max_window_layers",),
    "query_scale": ("query_pre_attn_scalar",),
    "sparse_step": ("decoder_sparse_step",),
    "dense_layers": ("mlp_only_layers",),
    "bidirectional": ("use_bidirectional_attention",),
    "scale_by_layer": ("scale_attn_by_inverse_layer_idx",),
}
"""Name of a setting to the keys of `config.json` that may have it, the first one that is there."""

Change = Callable[[Array], Array]


def transposed(stored: Array) -> Array:
    """Of a layer that computes `x @ w`: ours compute `x @ w.T`."""
    return stored.T


def flattened(stored: Array) -> Array:
    """Of a matrix of one row: ours is a vector."""
    return stored.reshape(-1)


def one_more(stored: Array) -> Array:
    """Of a norm that scales by `1 + w`."""
    return np.float32(1) + stored.astype(np.float32)


@dataclass(frozen=True)
class Names:
    """Names of a family's tensors.

    Args:
        modules: Name of ours to the folder's, both without `.weight` or `.bias`. `{}` is the layer's number in both,
            and `{expert}` that of an expert, whose tensors ours stacks.
        changes: Of weights that the folder stores in another form, by our name.
        ignored: Modules of the folder that the program does without.
    """

    modules: Mapping[str, str]
    changes: Mapping[str, Change] = field(default_factory=dict[str, Change])
    ignored: tuple[str, ...] = ()

    def stored(self, name: str) -> tuple[str, Change | None]:
        """What the folder calls a tensor of ours, and what makes ours of it; `{expert}` stays.

        Raises KeyError: the family has no such tensor.
        """
        module, _, kind = name.rpartition(".")
        pattern = _LAYER.sub("blk.{}.", module)
        layer = _LAYER.match(module)
        found = self.modules[pattern]
        if layer is not None:
            found = found.replace("{}", layer[1])
        return f"{found}.{kind}", self.changes.get(pattern) if kind == "weight" else None


_LAYER = re.compile(r"blk\.(\d+)\.")

EMBEDDINGS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
ATTENTION = {
    f"blk.{{}}.{ours}": f"model.layers.{{}}.{theirs}"
    for ours, theirs in {
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
    }.items()
}
NORMS = {
    "blk.{}.attn_norm": "model.layers.{}.input_layernorm",
    "blk.{}.ffn_norm": "model.layers.{}.post_attention_layernorm",
}
MLP = {f"blk.{{}}.ffn_{part}": f"model.layers.{{}}.mlp.{part}_proj" for part in ("gate", "up", "down")}
EXPERTS = {
    f"blk.{{}}.ffn_{part}_exps": f"model.layers.{{}}.mlp.experts.{{expert}}.{part}_proj"
    for part in ("gate", "up", "down")
} | {"blk.{}.ffn_gate_inp": "model.layers.{}.mlp.gate"}
"""What most families call their tensors; each takes the tables that fit."""
