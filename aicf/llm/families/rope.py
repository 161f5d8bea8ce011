"""The frequencies of rotary positions, and how models scale them to reach more positions than they were trained on.

Su et al., RoFormer, 2021. Chen et al., Extending Context Window by Positional Interpolation, 2023 (linear). Peng et
al., YaRN, 2023. Ding et al., LongRoPE, 2024. The Llama 3 Herd of Models, 2024.

Parameters are named as `rope_parameters` of Hugging Face's configurations. Files of llama.cpp have more: `width`,
`divisors`, and `attn_factor`, by which YaRN's own magnitude is multiplied, where `attention_factor` replaces it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aicf.errors import quoted
from aicf.llm.sources.base import Source
from aicf.runtime.tensors import Array


def frequencies(source: Source, head_width: int, capacity: int, *, local: bool) -> tuple[Array, float]:
    """Angles by which pairs turn from one position to the next, f32[width / 2], and what cosines and sines are
    multiplied by.

    Args:
        source: Of the model.
        head_width: Of a head; a model may rotate less of it.
        capacity: Positions of the cache.
        local: Whether they are for layers with a sliding window.

    Raises:
        InvalidIR: a parameter is missing, or no number.
        UnsupportedOp: they are scaled in another way.
    """
    stated = {name: value for name, value in source.rope_parameters(local=local).items() if value is not None}
    kind = stated.get("rope_type", "default")
    if not isinstance(kind, str) or kind not in _SCALINGS:
        raise source.unsupported(
            f"rotary positions are scaled by {quoted(kind)}; those that are read: {', '.join(_SCALINGS)}"
        )
    try:
        width = int(stated.get("width", head_width * stated.get("partial_rotary_factor", 1.0)))
        if width % 2 or not 0 < width <= head_width:
            raise source.error(f"rotary positions turn {width} of the {head_width} elements of a head")
        base = _positive(stated["rope_theta"]) ** -(np.arange(0, width, 2) / width)
        with np.errstate(all="ignore"):  # told below
            scaled, magnitude = _SCALINGS[kind](
                base, {**_defaults(source, stated), **stated, "capacity": capacity}
            )
    except KeyError as error:
        raise source.error(f"rotary positions of type '{kind}' need {error}; make the model again") from None
    except (TypeError, ValueError, ArithmeticError) as error:
        raise source.error(f"the parameters of rotary positions are no numbers that fit: {error}") from None
    if scaled.shape != (width // 2,) or not np.isfinite([*scaled, magnitude]).all():
        raise source.error(
            f"rotary positions of type '{kind}' have no finite angle for each of {width // 2} pairs"
        )
    return scaled.astype(np.float32), magnitude


def _positive(value: Any) -> float:
    if not float(value) > 0:
        raise ValueError(f"the base is {quoted(value)}")
    return float(value)


def _defaults(source: Source, stated: Mapping[str, Any]) -> Mapping[str, Any]:
    """The factor, where it is not stated, is by how many times the model has more positions than before."""
    original = stated.get("original_max_position_embeddings")
    return {} if original is None else {"factor": source.size("context_length") / original}


def _default(base: Array, _: Mapping[str, Any]) -> tuple[Array, float]:
    return base, 1.0


def _linear(base: Array, stated: Mapping[str, Any]) -> tuple[Array, float]:
    """Positions are divided by the factor."""
    return base / stated["factor"], 1.0


def _divided(base: Array, stated: Mapping[str, Any]) -> tuple[Array, float]:
    """By numbers that the file has: what Llama 3 becomes in a GGUF file."""
    return base / stated["divisors"], 1.0


def _llama3(base: Array, stated: Mapping[str, Any]) -> tuple[Array, float]:
    """Long waves are divided by the factor, short ones stay, and those between are mixed."""
    low, high = stated["low_freq_factor"], stated["high_freq_factor"]
    turns = stated["original_max_position_embeddings"] * base / (2 * np.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return base * (kept + (1 - kept) / stated["factor"]), 1.0


def _yarn(base: Array, stated: Mapping[str, Any]) -> tuple[Array, float]:
    """Pairs that turn rarely within the original context are divided by the factor, those that turn often stay."""
    width, factor = 2 * len(base), stated["factor"]
    theta, original = stated["rope_theta"], stated["original_max_position_embeddings"]

    def pair_that_turns(turns: float) -> float:
        return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = (
        pair_that_turns(stated.get(name) or turns) for name, turns in (("beta_fast", 32), ("beta_slow", 1))
    )
    if stated.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    divided = np.clip((np.arange(len(base)) - first) / max(last - first, 0.001), 0, 1)
    return base * (1 - divided + divided / factor), _yarn_magnitude(stated)


def _yarn_magnitude(stated: Mapping[str, Any]) -> float:
    factor = stated["factor"]
    if "attention_factor" in stated:
        return float(stated["attention_factor"])
    if stated.get("mscale") and stated.get("mscale_all_dim"):
        return yarn_growth(factor, stated["mscale"]) / yarn_growth(factor, stated["mscale_all_dim"])
    return yarn_growth(factor) * stated.get("attn_factor", 1.0)


def yarn_growth(factor: float, scale: float = 1.0) -> float:
    """What YaRN multiplies cosines and sines by where a model does not say: by how far it stretches positions."""
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _longrope(base: Array, stated: Mapping[str, Any]) -> tuple[Array, float]:
    """Divided by searched numbers: other ones if the cache has more positions than the model was trained on."""
    original = stated["original_max_position_embeddings"]
    divisors = stated["long_factor" if stated["capacity"] > original else "short_factor"]
    if "attention_factor" in stated:
        magnitude = float(stated["attention_factor"])
    else:
        factor = stated["factor"]
        magnitude = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return base / np.asarray(divisors, np.float64), magnitude


_SCALINGS: dict[str, Callable[[Array, Mapping[str, Any]], tuple[Array, float]]] = {
    "default": _default,
    "none": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,
    "divided": _divided,
}
"""By `rope_type`."""
