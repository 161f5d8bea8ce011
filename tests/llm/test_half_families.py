"""Families in bf16 against transformers in bf16: both are compared with float64 on the same rounded weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf.llm.loading import weights_of
from aicf.llm.model import LanguageModel
from tests.llm.letters import letters
from tests.llm.small_models import VOCABULARY, logits_of, saved, small_model

pytest.importorskip("transformers")

from tests.llm.test_families import opened

pytestmark = pytest.mark.peers

RNG = np.random.default_rng(311)
PREFILL, CAPACITY = 8, 40


@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen2_moe", "gpt2"])
def test_logits_are_no_further_off_than_those_of_transformers(name: str, tmp_path: Path) -> None:
    """And the likeliest token is that of transformers, but where its two best logits lie within that error."""
    import torch

    peer = small_model(name, seed=17).bfloat16()
    tokens = RNG.integers(0, VOCABULARY, 14).tolist()
    with torch.no_grad():
        theirs = peer(torch.tensor([tokens])).logits[0].float().numpy()
    family = opened(saved(peer, tmp_path))
    graph, prefill = family.decoder("small", CAPACITY, "bf16"), min(PREFILL, family.prefill or PREFILL)
    weights = weights_of(family.source, graph) | family.states(CAPACITY, "bf16")
    made = aicf.compile(graph, weights, "reference", dims={"T": sorted({1, prefill})})
    model = LanguageModel(made, letters(), CAPACITY, prefill)
    expected = logits_of(peer, tokens)
    ours = np.stack([model.logits(tokens[: count + 1]) for count in range(14)])
    errors = [np.sqrt(np.mean((found - expected) ** 2)) for found in (ours, theirs)]
    assert errors[0] < 1.25 * errors[1] < 0.1 * expected.std()
    best = np.sort(theirs, 1)
    is_clear = best[:, -1] - best[:, -2] > 4 * errors[1]
    assert is_clear.sum() > 4
    np.testing.assert_array_equal(ours.argmax(1)[is_clear], theirs.argmax(1)[is_clear])
