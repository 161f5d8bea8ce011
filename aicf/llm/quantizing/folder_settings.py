"""The settings of a folder's model as fields of a GGUF file.

Which shares of experts add up to 1 has no field here: llama.cpp goes by the architecture.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import numpy as np

from aicf.dialects.block_schemes import Array
from aicf.errors import quoted
from aicf.frontends.gguf.reader import Field
from aicf.llm.families import rope
from aicf.llm.families.decoder import Decoder
from aicf.llm.sources.base import Source
from aicf.support.whole_numbers import is_whole

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
SETTINGS: Mapping[str, str] = {**dict.fromkeys(_WHOLE, "I"), **dict.fromkeys(_NUMBERS, "f")}
"""Name of a setting to the code of its type."""

_OF_EXPERTS: Mapping[str, tuple[str, int]] = {
    "expert_feed_forward_length": ("blk.0.ffn_gate_exps.weight", 1),
    "expert_shared_feed_forward_length": ("blk.0.ffn_gate_shexp.weight", 0),
}
"""Fields that are a size of a tensor: its name, and the dim."""

_SCALINGS: Mapping[str, Mapping[str, str]] = {
    "linear": {"scaling.factor": "factor"},
    "yarn": {
        "scaling.factor": "factor",
        "scaling.original_context_length": "original_max_position_embeddings",
    },
    "longrope": {"scaling.original_context_length": "original_max_position_embeddings"},
}
"""By `rope_type`, fields and what they are called in `rope_parameters`."""
_LONGROPE = ("longrope", "su")


def settings_of(model: Decoder, architecture: str) -> Stated:
    """The fields that say what the settings say.

    Raises:
        InvalidIR: a setting is no number of its field.
        UnsupportedOp: rotary positions are scaled in a way that is not read.
    """
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
    for name, (tensor, dim) in _OF_EXPERTS.items():
        if source.has(tensor):
            stated[f"{architecture}.{name}"] = "I", source.shape(tensor)[dim]
    if any(model.windows) and not all(model.windows):
        are_local = [window is not None for window in model.windows]
        stated[f"{architecture}.attention.sliding_window_pattern"] = "?", are_local
    if not any(model.windows):
        stated.pop(f"{architecture}.attention.sliding_window", None)
    stated[f"{architecture}.vocab_size"] = "I", model.vocabulary
    stated |= {f"{architecture}.rope.{name}": value for name, value in _rope(model).items()}
    for name, (code, value) in stated.items():
        if code in _LEGAL and not _LEGAL[code](value):
            called = source.called(name.removeprefix(f"{architecture}."))
            raise source.error(f"{called} is {quoted(value)}; a GGUF file has a {_CALLED[code]} there")
    return stated


def _is_u32(value: object) -> bool:
    return is_whole(value, least=0) and cast("int", value) < 1 << 32


def _is_f32(value: object) -> bool:
    most = float(np.finfo(np.float32).max)
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= most


_LEGAL: Mapping[str, Callable[[object], bool]] = {"I": _is_u32, "f": _is_f32}
_CALLED: Mapping[str, str] = {"I": "whole number of 32 bits", "f": "float of 32 bits"}
"""By code of a type: whether a value is of it, and what messages call it."""


def values_of(stated: Stated) -> dict[str, Field]:
    """The values as they are read back: floats are f32."""
    return {
        name: float(np.float32(value)) if code == "f" else value for name, (code, value) in stated.items()
    }


def _rope(model: Decoder) -> Stated:
    """Fields of rotary positions, without their common start."""
    source = model.source
    for capacity in (1, sys.maxsize):  # LongRoPE has numbers for either
        for is_local in (True, False):
            turned, magnitude = rope.frequencies(source, model.head_width, capacity, local=is_local)
    given = _parameters(source)
    base = float(given["rope_theta"])
    stated: Stated = {"dimension_count": ("I", 2 * len(turned)), "freq_base": ("f", base)}
    local = float(source.rope_parameters(local=True)["rope_theta"])
    if local != base:
        stated["freq_base_swa"] = "f", local
    kind = "longrope" if given["rope_type"] in _LONGROPE else given["rope_type"]
    if kind in ("linear", "yarn"):
        stated["scaling.type"] = "s", kind
    for name, key in _SCALINGS.get(kind, {}).items():
        if key in given:
            stated[name] = "I" if key.startswith("original") else "f", given[key]
    if kind == "longrope":
        stated["scaling.attn_factor"] = "f", magnitude
    elif kind == "yarn":
        stated["scaling.attn_factor"] = "f", magnitude / rope.yarn_growth(given.get("factor", 1.0))
    return stated


def rope_tensors(model: Decoder) -> dict[str, Array]:
    """Tensors of a file that say how rotary positions are scaled: by numbers for each pair.

    Args:
        model: Whose settings `settings_of` has checked.
    """
    source = model.source
    given = _parameters(source)
    if given["rope_type"] == "llama3":
        scaled, _ = rope.frequencies(source, model.head_width, 1, local=False)
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
