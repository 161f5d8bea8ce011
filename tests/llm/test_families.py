"""Every family from a folder against transformers in float64: logits of a prompt, in chunks, and of tokens after it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import aicf
from aicf.frontends.gguf.reader import read_gguf
from aicf.llm.families import family_of_architecture, family_of_model_type
from aicf.llm.families.decoder import Decoder
from aicf.llm.loading import weights_of
from aicf.llm.model import LanguageModel
from aicf.llm.sources.folder import FolderSource, model_type
from aicf.llm.sources.gguf import GgufSource
from aicf.llm.tokenizer import Tokenizer
from tests.llm.gguf_models import written
from tests.llm.small_models import CONFIGS, VOCABULARY, logits_of, saved, small_model

pytest.importorskip("transformers")
pytestmark = pytest.mark.peers

RNG = np.random.default_rng(107)
PREFILL, CAPACITY = 8, 40
NO_END = cast(Tokenizer, SimpleNamespace(ends=()))
"""Only ids are asked for."""


def opened(folder: Path) -> Decoder:
    family = family_of_model_type(model_type(folder), str(folder))
    return family(FolderSource(folder, family.NAMES))


def loaded(family: Decoder, target: str = "reference") -> LanguageModel:
    graph, prefill = family.decoder("small", CAPACITY), min(PREFILL, family.prefill or PREFILL)
    weights = weights_of(family.source, graph) | family.states(CAPACITY)
    made = aicf.compile(graph, weights, target, dims={"T": sorted({1, prefill})})
    return LanguageModel(made, NO_END, CAPACITY, prefill)


def prompt(length: int) -> list[int]:
    return RNG.integers(0, VOCABULARY, length).tolist()


def check(model: LanguageModel, peer: object) -> None:
    """A prompt of a chunk and a padded part of one, and three tokens after it."""
    tokens = prompt(14)
    expected = logits_of(peer, tokens)
    assert expected.std() > 0.3
    for count in (11, 12, 13, 14):
        np.testing.assert_allclose(
            model.logits(tokens[:count]), expected[count - 1], rtol=2e-4, atol=2e-4, err_msg=str(count)
        )


@pytest.mark.parametrize("name", CONFIGS)
def test_logits(name: str, tmp_path: Path) -> None:
    peer = small_model(name, seed=109)
    check(loaded(opened(saved(peer, tmp_path))), peer)


def opened_file(path: Path) -> Decoder:
    source = GgufSource(read_gguf(path))
    return family_of_architecture(source.architecture, str(path))(source)


@pytest.mark.parametrize("name", ["llama", "llama-linear-biases"])
def test_logits_of_a_file(name: str, tmp_path: Path) -> None:
    """Files of Llama have their queries and keys in another order."""
    peer = small_model(name, seed=113)
    check(loaded(opened_file(written(peer, tmp_path / "small.gguf"))), peer)


def scale_by_width(config: Any) -> None:
    """Files do not say how Gemma scales its scores."""
    if hasattr(config, "query_pre_attn_scalar"):
        config.query_pre_attn_scalar = config.head_dim


@pytest.mark.parametrize("name", [name for name in CONFIGS if CONFIGS[name][0] not in ("llama", "mistral")])
def test_a_file_gives_the_program_and_weights_of_the_folder(name: str, tmp_path: Path) -> None:
    """A file that the package gguf wrote, with its names and fields, says what the folder says."""
    peer = small_model(name, seed=127, change=scale_by_width)
    families = opened(saved(peer, tmp_path)), opened_file(written(peer, tmp_path / "small.gguf"))
    graphs = [family.decoder("small", CAPACITY) for family in families]
    programs = [str(graph.module()) for graph in graphs]
    assert programs[0] == programs[1]
    weights = [weights_of(family.source, graph) for family, graph in zip(families, graphs, strict=True)]
    for stored, array in weights[0].items():
        np.testing.assert_array_equal(array, weights[1][stored], err_msg=stored)
