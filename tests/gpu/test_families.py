"""Every family of language models on the GPU against the reference backend: a prompt in chunks, and tokens after it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import aicf
from aicf.llm import LanguageModel
from aicf.llm.loading import parameters_of
from aicf.llm.tokenizer import Tokenizer
from tests.llm.drawn_models import drawn_model, drawn_weights
from tests.llm.small_models import CONFIGS, VOCABULARY

pytestmark = pytest.mark.gpu

RNG = np.random.default_rng(157)
PREFILL, CAPACITY = 8, 40
NO_END = cast(Tokenizer, SimpleNamespace(ends=()))
"""Only ids are asked for."""


def loaded(name: str, weights: dict[str, Any], target: str) -> LanguageModel:
    family = drawn_model(name)
    graph, prefill = family.decoder("small", CAPACITY), family.prefill or PREFILL
    if not weights:
        weights |= drawn_weights(parameters_of(graph), RNG)
    given = weights | family.states(CAPACITY)
    made = aicf.compile(graph, given, target, dims={"T": sorted({1, prefill})})
    return LanguageModel(made, NO_END, CAPACITY, prefill)


@pytest.mark.parametrize("name", CONFIGS)
def test_logits(name: str) -> None:
    weights: dict[str, Any] = {}
    models = [loaded(name, weights, target) for target in ("reference", "cuda")]
    tokens = RNG.integers(0, VOCABULARY, 14).tolist()
    for count in (11, 12, 13, 14):
        expected, found = (model.logits(tokens[:count]) for model in models)
        assert expected.std() > 0.3
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
