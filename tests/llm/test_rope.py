"""Angles of rotary positions against transformers, for every way to scale them, in both forms of a configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from aicf.llm.families.llama import Llama
from aicf.llm.families.rope import frequencies
from aicf.llm.sources.folder import FolderSource

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.peers

WIDTH, CONTEXT = 32, 4096
YARN = {"rope_type": "yarn", "original_max_position_embeddings": 512}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
LONG = {
    "rope_type": "longrope",
    "original_max_position_embeddings": 512,
    "short_factor": np.linspace(1, 2, WIDTH // 2).tolist(),
    "long_factor": np.linspace(1, 9, WIDTH // 2).tolist(),
}


def ours(folder: Path, config: dict[str, Any], capacity: int) -> tuple[np.ndarray, float]:
    stated = {"model_type": "llama", "max_position_embeddings": CONTEXT, **config}
    (folder / "config.json").write_text(json.dumps(stated), "utf-8")
    save_file({"model.embed_tokens.weight": np.zeros((1, 1), np.float32)}, folder / "model.safetensors")
    return frequencies(FolderSource(folder, Llama.NAMES), WIDTH, capacity, local=False)


def theirs(parameters: dict[str, Any], length: int) -> tuple[np.ndarray, float]:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = transformers.LlamaConfig(
        hidden_size=WIDTH, num_attention_heads=1, max_position_embeddings=CONTEXT, rope_parameters=parameters
    )
    angles, magnitude = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, None, seq_len=length)
    return angles.numpy(), magnitude


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 2.5},
        LLAMA3,
        {**YARN, "factor": 8.0},
        {**YARN, "factor": 8.0, "beta_fast": 16, "beta_slow": 2, "truncate": False},
        {**YARN, "factor": 8.0, "attention_factor": 0.7},
        {**YARN, "factor": 8.0, "mscale": 0.8, "mscale_all_dim": 0.6},
        {**YARN, "factor": None},
        LONG,
        {**LONG, "attention_factor": 1.3},
    ],
    ids=lambda scaling: "-".join(map(str, scaling.values()))[:40],
)
@pytest.mark.parametrize("length", [300, 2000])
def test_angles(scaling: dict[str, Any], length: int, tmp_path: Path) -> None:
    expected = theirs({**scaling, "rope_theta": 50000.0}, length)
    current = {"rope_parameters": {**scaling, "rope_theta": 50000.0}}
    former = {
        "rope_theta": 50000.0,
        "rope_scaling": {("type" if name == "rope_type" else name): value for name, value in scaling.items()},
    }
    for config in (current, former):
        found = ours(tmp_path, config, length)
        np.testing.assert_allclose(found[0], expected[0], rtol=3e-6)
        assert found[1] == pytest.approx(expected[1], rel=1e-6)
