"""The settings of a folder's model as fields of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from aicf.dialects.block_schemes import Array
from aicf.frontends.gguf.reader import Field
from aicf.llm.families import rope
from aicf.llm.families.decoder import Decoder
from aicf.llm.sources.base import Source

Stated: TypeAlias = "dict[str, tuple[str, Any]]"
"""Fields by name: the code of a type, as `aicf.frontends.gguf.writer.field` takes it, and the value."""

_WHOLE = (
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.sliding_window",
    "expert_count",
    "expert_used_count",
)
_NUMBERS = (
    "attention.layer_norm_rms_epsilon",
    "attention.layer_norm_epsilon",
    "attention.clamp_kqv",
    "attn_logit_softcapping",
    "final_logit_softcapping",
)
_TRUTHS = ("expert_weights_norm",)
SETTINGS: Mapping[str, str] = {
    **dict.fromkeys(_WHOLE, "I"),
    **dict.fromkeys(_NUMBERS, "f"),
    **dict.fromkeys(_TRUTHS, "?"),
}
"""Name of a setting to the code of its type."""

_SCALINGS: Mapping[str, Mapping[str, str]] = {
    "linear": {"scaling.factor": "factor"},
    "yarn": {
        "scaling.factor": "factor",
        "scaling.original_context_length": "original_max_position_embeddings",
        "scaling.attn_factor": "attention_factor",
    },
    "longrope": {
        "scaling.original_context_length": "original_max_position_embeddings",
        "scaling.attn_factor": "attention_factor",
    },
}
"""By `rope_type`, fields and what they are called in `rope_parameters`."""
_LONGROPE = ("longrope", "su")


def settings_of(model: Decoder, architecture: str) -> Stated:
    """The fields that say what the settings say."""
    source = model.source
    stated: Stated = {
        "general.architecture": ("s", architecture),
        "general.name": ("s", source.path.resolve().name),
    }
    found = {name: value for name in SETTINGS if (value := source.setting(name)) is not None}
    if "attention.key_length" in found:
        found["attention.value_length"] = found["attention.key_length"]
    for name, value in found.items():
        stated[f"{architecture}.{name}"] = SETTINGS.get(name, "I"), value
    if any(model.windows) and not all(model.windows):
        are_local = [window is not None for window in model.windows]
        stated[f"{architecture}.attention.sliding_window_pattern"] = "?", are_local
    if not any(model.windows):
        stated.pop(f"{architecture}.attention.sliding_window", None)
    stated[f"{architecture}.vocab_size"] = "I", model.vocabulary
    stated |= {
        f"{architecture}.rope.{name}": value for name, value in _rope(source, model.head_width).items()
    }
    return stated


def values_of(stated: Stated) -> dict[str, Field]:
    """The values as they are read back: floats are f32."""
    return {
        name: float(np.float32(value)) if code == "f" else value for name, (code, value) in stated.items()
    }


def _rope(source: Source, head_width: int) -> Stated:
    """Fields of rotary positions, without their common start."""
    given = _parameters(source)
    width = int(head_width * given.get("partial_rotary_factor", 1.0))
    stated: Stated = {"dimension_count": ("I", width)}
    if "rope_theta" in given:
        stated["freq_base"] = "f", given["rope_theta"]
    local = source.rope_parameters(local=True).get("rope_theta")
    if local is not None and local != given.get("rope_theta"):
        stated["freq_base_swa"] = "f", local
    kind = "longrope" if given["rope_type"] in _LONGROPE else given["rope_type"]
    if kind in ("linear", "yarn"):
        stated["scaling.type"] = "s", kind
    for name, key in _SCALINGS.get(kind, {}).items():
        if key in given:
            stated[name] = "I" if key.startswith("original") else "f", given[key]
    return stated


def rope_tensors(source: Source, head_width: int) -> dict[str, Array]:
    """Tensors of a file that say how rotary positions are scaled: by numbers for each pair."""
    given = _parameters(source)
    if given["rope_type"] == "llama3":
        scaled, _ = rope.frequencies(source, head_width, 1, local=False)
        bare = float(given["rope_theta"]) ** -(np.arange(0, 2 * len(scaled), 2) / (2 * len(scaled)))
        return {"rope_freqs.weight": (bare / scaled).astype(np.float32)}
    if given["rope_type"] in _LONGROPE:
        return {
            f"rope_factors_{kind}.weight": np.asarray(given[f"{kind}_factor"], np.float32)
            for kind in ("long", "short")
        }
    return {}


def _parameters(source: Source) -> dict[str, Any]:
    """What the folder states of rotary positions."""
    given = source.rope_parameters(local=False)
    return {"rope_type": "default", **{name: value for name, value in given.items() if value is not None}}
