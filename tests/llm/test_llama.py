"""Llama from a file against float64: logits of prompts and of single tokens, greedy tokens, the cache, bad files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import aicf
from aicf.errors import InputMismatch, InvalidIR
from aicf.frontends.gguf.reader import parsed
from aicf.llm.families.llama import Llama
from aicf.llm.loading import weights_of
from aicf.llm.model import LanguageModel
from aicf.llm.sources.gguf import GgufSource
from aicf.llm.text_runs import TextRuns
from aicf.llm.tokenizer import Tokenizer
from tests.llm.small_llama import SmallLlama, small_llama

RNG = np.random.default_rng(101)
PREFILL, CAPACITY = 8, 40
NO_END = cast(Tokenizer, SimpleNamespace(ends=()))
"""Only ids are asked for."""


def loaded(model: SmallLlama, target: str = "cpu") -> LanguageModel:
    family = Llama(GgufSource(parsed(model.file(), Path("small.gguf"))))
    graph = family.decoder("small", CAPACITY)
    weights = weights_of(family.source, graph) | family.states(CAPACITY)
    return LanguageModel(
        aicf.compile(graph, weights, target, dims=f"T=1,{PREFILL}"), NO_END, CAPACITY, PREFILL
    )


@pytest.fixture(scope="module")
def small() -> SmallLlama:
    return small_llama(RNG)


@pytest.fixture(scope="module")
def model(small: SmallLlama) -> LanguageModel:
    return loaded(small)


def prompt(length: int) -> list[int]:
    return RNG.integers(0, 80, length).tolist()


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 20, 39, 40])
def test_logits_of_a_prompt(model: LanguageModel, small: SmallLlama, length: int) -> None:
    """In chunks; the last one may be padded, and one at the end of the cache goes token by token."""
    tokens = prompt(length)
    np.testing.assert_allclose(model.logits(tokens), small.logits(tokens), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kv_heads", "is_tied"), [(1, False), (4, True)])
def test_heads_of_keys_and_tied_embeddings(kv_heads: int, is_tied: bool) -> None:
    small = small_llama(RNG, layers=1, kv_heads=kv_heads, is_tied=is_tied)
    model, tokens = loaded(small, "reference"), prompt(5)
    np.testing.assert_allclose(model.logits(tokens), small.logits(tokens), rtol=1e-4, atol=1e-4)


def test_greedy_tokens(model: LanguageModel, small: SmallLlama) -> None:
    tokens = prompt(11)
    assert list(model.tokens(tokens, max_tokens=20)) == small.greedy(tokens, 20)
    assert list(model.tokens(tokens, max_tokens=0)) == []


def test_what_the_cache_has_is_not_computed_again(
    model: LanguageModel, small: SmallLlama, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt that goes on as the last one did, or differs at its end, runs the rest alone."""
    tokens, runs = prompt(16), list[int]()
    model.logits(tokens)
    run = TextRuns.run
    monkeypatch.setattr(TextRuns, "run", lambda self, part: runs.append(len(part)) or run(self, part))
    for asked in ([*tokens, 3, 4], [*tokens[:12], 9], tokens[:12]):
        np.testing.assert_allclose(model.logits(asked), small.logits(asked), rtol=1e-4, atol=1e-4)
    assert runs == [2, 1, 1]


def test_the_end_of_a_text_is_not_told(small: SmallLlama, model: LanguageModel) -> None:
    tokens = prompt(6)
    first, second, *_ = small.greedy(tokens, 2)
    assert first != second
    ended = LanguageModel(
        model.executable, cast(Tokenizer, SimpleNamespace(ends=(second,))), CAPACITY, PREFILL
    )
    assert list(ended.tokens(tokens, max_tokens=9)) == [first]


def test_what_does_not_fit_is_told(model: LanguageModel) -> None:
    for tokens, most, message in (
        ([], 1, "the prompt is empty"),
        ([1], -1, "max_tokens is -1; it is a whole number, 0 or more"),
        ([1], True, "max_tokens is True"),
        ([1] * 30, 11, "the prompt has 30 tokens and 11 may follow; the cache has 40 positions"),
    ):
        with pytest.raises(InputMismatch, match=message):
            next(model.tokens(tokens, max_tokens=most))


def test_a_file_of_other_sizes_is_told(small: SmallLlama) -> None:
    def of(changed: SmallLlama, **fields: Any) -> Llama:
        return Llama(GgufSource(parsed(changed.file(**fields), Path("small.gguf"))))

    with pytest.raises(InvalidIR, match="field 'llama.block_count' is 0; it is 1 or more"):
        of(replace(small, layers=0))
    with pytest.raises(InvalidIR, match="no tensor 'token_embd.weight'"):
        weights = {name: array for name, array in small.weights.items() if name != "token_embd.weight"}
        of(replace(small, weights=weights))
    with pytest.raises(InvalidIR, match="field 'llama.embedding_length' is 'x', which is of another type"):
        of(small, **{"llama.embedding_length": "x"})
