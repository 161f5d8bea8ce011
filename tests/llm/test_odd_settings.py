"""Settings that are not what they should be: a program or an error of one line, in bounded time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from aicf.errors import AicfError
from aicf.frontends.gguf.reader import parsed
from aicf.llm.families.decoder import Decoder
from aicf.llm.families.llama import Llama
from aicf.llm.families.moe import Olmoe
from aicf.llm.loading import weights_of
from aicf.llm.sources.folder import FolderSource
from aicf.llm.sources.gguf import GgufSource
from tests.llm.small_llama import small_llama
from tests.llm.test_folders import CONFIG, tensors

RNG = np.random.default_rng(151)
ODD: list[Any] = [
    0,
    -1,
    3,
    10**12,
    2**62,
    -0.5,
    1e300,
    float("inf"),
    "",
    "x",
    True,
    [],
    [1],
    [[1]],
    [True, False],
]
FIELDS = [
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "rope.freq_base",
    "rope.dimension_count",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.attn_factor",
]
KEYS = [
    *CONFIG,
    "head_dim",
    "sliding_window",
    "layer_types",
    "use_sliding_window",
    "rope_parameters",
    "num_experts",
]


def build(family: Decoder) -> None:
    weights_of(family.source, family.decoder("small", 8))


def check(make: Any, changed: Any) -> bool:
    """Whether it is a program; else it is one line."""
    try:
        build(make())
    except AicfError as error:
        assert "\n" not in str(error), changed
        return False
    return True


def test_fields_of_a_file() -> None:
    small, worked = small_llama(RNG, layers=1), 0
    for _ in range(200):
        chosen = RNG.choice(FIELDS, RNG.integers(1, 4), replace=False)
        odd = {f"llama.{name}": ODD[RNG.integers(len(ODD))] for name in chosen}
        if "llama.rope.scaling.factor" in odd:
            odd["llama.rope.scaling.type"] = str(RNG.choice(["linear", "yarn", "longrope", "llama3"]))
        file = small.file(**odd)
        worked += check(lambda file=file: Llama(GgufSource(parsed(file, Path("small.gguf")))), odd)
    assert 0 < worked < 100


@pytest.mark.parametrize("family", [Llama, Olmoe])
def test_keys_of_a_folder(family: type[Decoder], tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "model.safetensors")
    for _ in range(150):
        chosen = RNG.choice(KEYS, RNG.integers(1, 4), replace=False)
        odd = {str(name): ODD[RNG.integers(len(ODD))] for name in chosen}
        for name in ("rope_parameters", "rope_scaling"):
            if name in odd:
                kind = str(RNG.choice(["linear", "yarn", "longrope", "llama3", "default"]))
                names = [
                    "rope_theta",
                    "factor",
                    "low_freq_factor",
                    "high_freq_factor",
                    "short_factor",
                    "beta_fast",
                ]
                odd[name] = {"rope_type": kind, **{name: ODD[RNG.integers(len(ODD))] for name in names}}
        (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **odd}), "utf-8")
        check(lambda: family(FolderSource(tmp_path, family.NAMES)), odd)
