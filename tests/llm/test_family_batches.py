"""Batches of families whose layers differ from Llama's: windows and soft caps, and LongRoPE."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from aicf.llm import LanguageModel, Sampling, Text
from aicf.llm.families import family_of_model_type
from aicf.llm.loading import ProgramOptions, programs_of
from aicf.llm.programs import Sizes
from aicf.llm.sources.folder import FolderSource, model_type
from aicf.llm.tokenizer import Tokenizer
from tests.llm.small_models import VOCABULARY, logits_of, saved, small_model

pytest.importorskip("transformers")
pytestmark = pytest.mark.peers

RNG = np.random.default_rng(353)
CONTEXT, FIRST, PREFILL = 24, 16, 4


@pytest.mark.parametrize("name", ["gemma2", "phi3"])
def test_greedy_tokens_of_a_batch_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """Of three texts beside an idle place, longer than what LongRoPE leaves unscaled: it follows the context, not the
    smaller cache that prompts are read into."""
    peer = small_model(name, seed=11)
    saved(peer, tmp_path)
    kind = family_of_model_type(model_type(tmp_path), str(tmp_path))
    family = kind(FolderSource(tmp_path, kind.NAMES))
    prefill = min(PREFILL, family.prefill or PREFILL)
    programs = programs_of(family, "small", ProgramOptions(CONTEXT, prefill, "reference"))
    no_end = cast(Tokenizer, SimpleNamespace(ends=()))
    model = LanguageModel(programs.of(Sizes(FIRST)), no_end, CONTEXT, prefill, programs=programs)
    texts = [Text(RNG.integers(0, VOCABULARY, length).tolist(), 6, Sampling()) for length in (9, 10, 14)]
    found: dict[Text, list[int]] = {text: [*text.prompt] for text in texts}
    for text, token in model.tokens_batch(texts):
        two = np.sort(logits := logits_of(peer, found[text])[-1])[-2:]
        assert token == np.argmax(logits) or two[1] - two[0] < 1e-3
        found[text].append(token)
    assert [len(tokens) for tokens in found.values()] == [15, 16, 20]
