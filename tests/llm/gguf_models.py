"""Models of transformers as GGUF files, made by the package gguf in the way of llama.cpp's converter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

ARCHITECTURES = {
    "mistral": "llama",
    "gemma3_text": "gemma3",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
}
"""What files call the architecture of a `model_type`, where it differs."""


def written(model: Any, path: Path, more: Callable[[Any], None] = lambda writer: None) -> Path:
    """The model as a file, without a tokenizer; `more` may write one."""
    import gguf

    config = model.config
    name = ARCHITECTURES.get(config.model_type, config.model_type)
    writer = gguf.GGUFWriter(path, name)
    _write_settings(writer, config)
    more(writer)
    numbers = {text: number for number, text in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(numbers[name], config.num_hidden_layers)
    for stored, array in _stored(model, name).items():
        found = names.get_name(stored, try_suffixes=(".weight", ".bias"))
        assert found is not None, stored
        writer.add_tensor(found, array)
    for stored, array in _rope_tensors(config).items():
        writer.add_tensor(stored, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_settings(writer: Any, config: Any) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    if config.model_type == "gpt2":
        writer.add_feed_forward_length(config.n_inner)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if getattr(config, "head_dim", None) is not None:
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if getattr(config, "sliding_window", None) is not None:
        writer.add_sliding_window(config.sliding_window)
    if config.model_type == "gemma3_text":
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
    for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, cap, None) is not None:
            getattr(writer, f"add_{cap}")(getattr(config, cap))
    if hasattr(config, "num_experts_per_tok"):
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    _write_rope(writer, config)


def _write_rope(writer: Any, config: Any) -> None:
    import gguf

    stated: Mapping[str, Any] = config.rope_parameters
    if "full_attention" in stated:
        writer.add_rope_freq_base_swa(stated["sliding_attention"]["rope_theta"])
        stated = stated["full_attention"]
    writer.add_rope_freq_base(stated["rope_theta"])
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_rope_dimension_count(int(width * stated.get("partial_rotary_factor", 1)))
    if stated["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(stated["rope_type"]))
        writer.add_rope_scaling_factor(stated["factor"])
    if stated["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(stated["original_max_position_embeddings"])
    if stated["rope_type"] == "longrope":
        writer.add_rope_scaling_orig_ctx_len(stated["original_max_position_embeddings"])
        writer.add_rope_scaling_attn_factors(stated["attention_factor"])


def _rope_tensors(config: Any) -> dict[str, np.ndarray]:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    stated = getattr(config, "rope_parameters", None) or {}
    if stated.get("rope_type") == "llama3":
        scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, None)
        width = 2 * len(scaled)
        bare = stated["rope_theta"] ** -(np.arange(0, width, 2) / width)
        return {"rope_freqs.weight": (bare / scaled.numpy()).astype(np.float32)}
    if stated.get("rope_type") == "longrope":
        return {
            f"rope_factors_{kind}.weight": np.array(stated[f"{kind}_factor"], np.float32)
            for kind in ("long", "short")
        }
    return {}


def _stored(model: Any, architecture: str) -> dict[str, np.ndarray]:
    """Tensors as a file has them, under the names of transformers."""
    config, tensors = model.config, {}
    for name, tensor in model.float().state_dict().items():
        array = tensor.numpy().copy()
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if architecture == "llama" and "q_proj" in name:
            array = _permuted(array, config.num_attention_heads)
        elif architecture == "llama" and "k_proj" in name:
            array = _permuted(array, config.num_key_value_heads)
        elif architecture.startswith("gemma") and name.endswith("norm.weight"):
            array += 1
        elif architecture == "gpt2" and array.ndim == 2 and ".h." in name:
            array = np.ascontiguousarray(array.T)
        elif name.endswith("shared_expert_gate.weight"):
            array = array[0]
        if name.endswith("experts.gate_up_proj"):
            gate, up = np.split(array, 2, axis=1)
            tensors[name.replace("gate_up_proj", "gate_proj.weight")] = np.ascontiguousarray(gate)
            tensors[name.replace("gate_up_proj", "up_proj.weight")] = np.ascontiguousarray(up)
        elif name.endswith("experts.down_proj"):
            tensors[f"{name}.weight"] = array
        else:
            tensors[name] = array
    return tensors


def _permuted(array: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a head in the order 0, half, 1, half + 1, ..., so that neighbours are a pair."""
    return array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
