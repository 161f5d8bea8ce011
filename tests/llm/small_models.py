"""Small random models of every family, made by the package transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY = 60
_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "rms_norm_eps": 2.0**-16,  # GGUF files have numbers in f32
    "layer_norm_epsilon": 2.0**-16,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_WINDOWS = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
    "rope_theta": 500.0,
}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 500.0}
_LONGROPE = {
    "rope_type": "longrope",
    "attention_factor": 1.25,
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.3],
    "long_factor": [1.5, 2.0, 4.0],
    "partial_rotary_factor": 0.75,
}
_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}

_NOT_OF_GPT2 = ("intermediate_size", "num_key_value_heads")

CONFIGS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama": ("llama", {"rope_parameters": _LLAMA3}),
    "llama-linear-biases": (
        "llama",
        {
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
            "attention_bias": True,
            "tie_word_embeddings": True,
        },
    ),
    "mistral": ("mistral", {"sliding_window": 6, "head_dim": 16}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"head_dim": 12, "rope_parameters": _YARN}),
    "gemma2": (
        "gemma2",
        {**_WINDOWS, "head_dim": 12, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 4.0,
         "final_logit_softcapping": 6.0, "tie_word_embeddings": True},
    ),
    "gemma3": (
        "gemma3_text",
        {**_WINDOWS, "head_dim": 16, "query_pre_attn_scalar": 12, "tie_word_embeddings": True,
         "rope_parameters": {
             "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 3000.0},
             "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
         }},
    ),
    "phi3": (
        "phi3",
        {"original_max_position_embeddings": 8, "rope_parameters": _LONGROPE},
    ),
    "gpt2": ("gpt2", {"n_inner": 40, "tie_word_embeddings": True}),
    "olmoe": ("olmoe", {**_EXPERTS}),
    "qwen2_moe": ("qwen2_moe", {**_EXPERTS, "shared_expert_intermediate_size": 20}),
    "qwen3_moe": ("qwen3_moe", {**_EXPERTS, "norm_topk_prob": True, "head_dim": 12}),
}  # fmt: skip
"""Name of a test to the `model_type` and what differs from the settings above."""


def settings_of(name: str) -> tuple[str, dict[str, Any]]:
    """The `model_type` of a model, and all its settings."""
    kind, settings = CONFIGS[name]
    without = _NOT_OF_GPT2 if kind == "gpt2" else ()
    return kind, {**{key: value for key, value in _COMMON.items() if key not in without}, **settings}


def small_model(name: str, seed: int, change: Callable[[Any], None] = lambda config: None) -> Any:
    """A model in float32, with random weights whose logits spread."""
    import torch
    import transformers

    kind, settings = settings_of(name)
    config = transformers.AutoConfig.for_model(kind, **settings)
    change(config)
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", experts_implementation="eager"
    )
    model = model.float().eval()
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            fan = parameter.shape[-1] if parameter.ndim > 1 else 4
            drawn = rng.standard_normal(parameter.shape) * 1.5 / np.sqrt(fan)
            parameter.copy_(torch.from_numpy(drawn + (0.5 if parameter.ndim == 1 else 0)))
    return model


def logits_of(model: Any, tokens: list[int]) -> np.ndarray:
    """f64[T, vocabulary]: what the model says follows each token, computed in float64."""
    import torch

    with torch.no_grad():
        return model.double()(torch.tensor([tokens])).logits[0].numpy()


def saved(model: Any, folder: Path, **options: Any) -> Path:
    """The model as a folder, without a tokenizer."""
    model.float().save_pretrained(folder, **options)
    return folder
