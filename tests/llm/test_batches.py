"""Batches of texts against the texts one at a time, float64 and each other; caches that grow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicf.frontends.gguf.reader import parsed
from aicf.llm import LanguageModel, Sampling
from aicf.llm.batch_runs import Text
from aicf.llm.families.llama import Llama
from aicf.llm.loading import programs_of
from aicf.llm.programs import Sizes, batch_sizes
from aicf.llm.sources.gguf import GgufSource
from tests.llm.letters import letters
from tests.llm.small_llama import SmallLlama, small_llama

RNG = np.random.default_rng(331)
CONTEXT, PREFILL = 48, 8
INVARIANT = {"determinism": "batch_invariant"}


@pytest.fixture(scope="module")
def small() -> SmallLlama:
    return small_llama(RNG, layers=1)


def model_of(
    small: SmallLlama, policy: Mapping[str, str], *, first: int = CONTEXT, target: str = "cpu"
) -> LanguageModel:
    family = Llama(GgufSource(parsed(small.file(), Path("small.gguf"))))
    programs = programs_of(family, "small", CONTEXT, PREFILL, target, 1, None, policy)
    return LanguageModel(programs.of(Sizes(first)), letters(), CONTEXT, PREFILL, programs=programs)


@pytest.fixture(scope="module")
def model(small: SmallLlama) -> LanguageModel:
    return model_of(small, INVARIANT)


def texts_of(count: int, **settings: Any) -> list[Text]:
    """Prompts of mixed lengths with answers of mixed lengths, each with a seed of its own."""
    return [
        Text(
            RNG.integers(0, 80, int(RNG.integers(1, 20))).tolist(),
            int(RNG.integers(1, 28)),
            Sampling(**settings, seed=seed) if settings else Sampling(),
        )
        for seed in range(count)
    ]


def made_in_batches(model: LanguageModel, texts: list[Text], batch: int) -> list[list[int]]:
    found: dict[Text, list[int]] = {text: [] for text in texts}
    for text, token in model.tokens_batch(texts, batch=batch):
        found[text].append(token)
    return list(found.values())


def again(texts: list[Text]) -> list[Text]:
    return [Text(text.prompt, text.most, text.sampling) for text in texts]


def one_at_a_time(model: LanguageModel, texts: list[Text]) -> list[list[int]]:
    return [list(model.tokens(text.prompt, max_tokens=text.most, sampling=text.sampling)) for text in texts]


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 8])
def test_tokens_do_not_depend_on_the_batch(model: LanguageModel, batch: int) -> None:
    """Greedy and drawn, each with a penalty that looks at the tokens before."""
    drawn = {"temperature": 0.9, "top_k": 30, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.2}
    texts = texts_of(9) + texts_of(9, **drawn)
    RNG.shuffle(texts)
    assert made_in_batches(model, texts, batch) == one_at_a_time(model, texts)


def test_greedy_tokens_of_a_batch_are_those_of_float64(small: SmallLlama) -> None:
    """Also without the policy."""
    texts = texts_of(4)
    expected = [small.greedy(list(text.prompt), text.most) for text in texts]
    assert made_in_batches(model_of(small, {}), texts, 4) == expected


def test_bits_of_logits_do_not_depend_on_the_batch(model: LanguageModel) -> None:
    """The logits of one text, as the program for one token and those of batches of two sizes make them."""
    text, others = Text(RNG.integers(0, 80, 11).tolist(), 12, Sampling()), texts_of(3)
    for other in others:
        other.most = 12
    (tokens,) = one_at_a_time(model, [text])
    alone = model.logits([*text.prompt, *tokens[:-1]])
    for company in (others[:1], others):
        made = made_in_batches(model, [*again(company), text], 4)
        assert made[-1] == tokens
        sizes = batch_sizes(len(made), 23, CONTEXT)
        batch = model._programs.of(sizes)
        step = batch.attach(T=sizes.sequences)
        state = batch.state("history", "length")
        state["length"][len(company)] -= 1  # the last run again
        batch.set_state(state)
        limits = np.zeros(sizes.sequences, np.int64)
        limits[len(company)] = state["length"][len(company)] + 1
        feeds = {name: np.repeat(feed, sizes.sequences) for name, feed in Sampling().feeds().items()}
        step.fill({**feeds, "limit": limits})
        step.replay()
        np.testing.assert_array_equal(step["logits"][len(company)].view(np.int32), alone.view(np.int32))
        np.testing.assert_array_equal(
            batch.state("length")["length"][: len(company)], state["length"][: len(company)]
        )
