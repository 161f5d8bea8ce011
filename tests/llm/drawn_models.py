"""Small random models of every family without the package transformers, where it is not at hand: on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aicf.dialects.types import TensorInfo
from aicf.llm.families import family_of_model_type
from aicf.llm.families.decoder import Decoder
from aicf.llm.sources.base import Source
from aicf.llm.sources.folder import FolderSource
from tests.llm.small_models import settings_of


class DrawnSource(FolderSource):
    """Settings without tensors: those that a family asks for have the shapes that the settings say."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        Source.__init__(self, Path("drawn"), config["model_type"])
        self._config = config

    def has(self, name: str) -> bool:
        is_bias = name.endswith(("attn_q.bias", "attn_output.bias"))
        return is_bias and self._config.get("attention_bias", False)

    def shape(self, name: str) -> tuple[int, ...]:
        width, hidden = self._config["hidden_size"], self._config.get("moe_intermediate_size", 0)
        if name.endswith("shexp.weight"):
            return self._config["shared_expert_intermediate_size"], width
        if "exps" in name:
            return self._config["num_experts"], hidden, width
        return self._config["vocab_size"], width


def drawn_model(name: str) -> Decoder:
    """A model of `small_models.CONFIGS`."""
    kind, settings = settings_of(name)
    return family_of_model_type(kind, name)(DrawnSource({"model_type": kind, **settings}))


def drawn_weights(parameters: Mapping[str, TensorInfo], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random weights whose logits spread."""
    return {
        name: (
            rng.standard_normal(info.shape) * 1.5 / np.sqrt(info.shape[-1] if info.rank > 1 else 4)
            + 0.5 * (info.rank == 1)
        ).astype(info.element.dtype)
        for name, info in parameters.items()
    }
