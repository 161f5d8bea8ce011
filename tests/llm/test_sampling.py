"""Tokens that a program draws against float64 with the same random numbers, settings, stop strings and statistics."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicf
from aicf.errors import CaptureError, InputMismatch
from aicf.frontends.gguf.reader import parsed
from aicf.llm import LanguageModel, Sampling, perplexity
from aicf.llm.families.llama import Llama
from aicf.llm.loading import weights_of
from aicf.llm.sources.gguf import GgufSource
from aicf.llm.stopping import until_stop
from aicf.semantics.random import philox_word
from tests.llm.letters import letters
from tests.llm.small_llama import SmallLlama, small_llama

RNG = np.random.default_rng(223)
CAPACITY = 48


@pytest.fixture(scope="module")
def small() -> SmallLlama:
    return small_llama(RNG, layers=1)


def compiled(small: SmallLlama, capacity: int, target: str = "cpu") -> LanguageModel:
    """A small model as programs for 1 and 8 tokens, with letters as tokens."""
    family = Llama(GgufSource(parsed(small.file(), Path("small.gguf"))))
    graph = family.decoder("small", capacity)
    weights = weights_of(family.source, graph) | family.states(capacity)
    return LanguageModel(aicf.compile(graph, weights, target, dims="T=1,8"), letters(), capacity, 8)


@pytest.fixture(scope="module")
def model(small: SmallLlama) -> LanguageModel:
    return compiled(small, CAPACITY)


def prompt(length: int) -> list[int]:
    return RNG.integers(0, 80, length).tolist()


def expected(small: SmallLlama, known: list[int], sampling: Sampling) -> int:
    """The token after those known, step by step as `Sampling` says, in float64."""
    logits = small.logits(known)
    for token in set(known):
        logits[token] *= sampling.repetition_penalty ** (-1 if logits[token] > 0 else 1)
    if not sampling.temperature:
        return int(np.argmax(logits))
    p = np.exp((logits - logits.max()) / sampling.temperature)
    if sampling.top_k:
        p[p < np.sort(p)[::-1][min(sampling.top_k, len(p)) - 1]] = 0
    order = np.argsort(-p)
    before = np.cumsum(p[order]) - p[order]
    p[order[before >= sampling.top_p * p.sum()]] = 0
    p[p < sampling.min_p * p.max()] = 0
    word = philox_word(*(np.array([each]) for each in (sampling.seed, len(known), 0)))
    return int(np.argmax(np.cumsum(p) > (word[0] * 2.0**-32 + 0.5) * p.sum()))


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1.0},
        {"temperature": 0.7, "top_k": 9, "seed": 5},
        {"temperature": 1.5, "top_p": 0.8, "seed": 2**62},
        {"temperature": 1.2, "min_p": 0.1},
        {"temperature": 0.9, "top_k": 30, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.3},
        {"repetition_penalty": 1.5, "top_k": 2, "top_p": 0.1},
    ],
)
def test_tokens_are_those_of_float64(model: LanguageModel, small: SmallLlama, settings: Any) -> None:
    """Each token is asked for with all tokens before it, as the program chose them."""
    sampling, known = Sampling(**settings), prompt(9)
    for token in model.tokens(known, max_tokens=24, sampling=sampling):
        assert token == expected(small, known, sampling)
        known.append(token)
    assert len(known) == 33


def test_draws_follow_the_probabilities(model: LanguageModel, small: SmallLlama) -> None:
    """Over seeds, the token after a prompt: a chi-square test against the softmax of the logits in float64."""
    tokens = prompt(7)
    logits = small.logits(tokens) / 2.0
    p = np.exp(logits - logits.max())
    p /= p.sum()
    drawn = [
        next(model.tokens(tokens, max_tokens=1, sampling=Sampling(temperature=2.0, seed=seed)))
        for seed in range(2000)
    ]
    found, wanted = np.bincount(drawn, minlength=80), 2000 * p
    often = wanted >= 5
    parts = [np.append(each[often], each[~often].sum()) for each in (found, wanted)]
    degrees = int(often.sum())
    assert ((parts[0] - parts[1]) ** 2 / parts[1]).sum() < degrees + 5 * math.sqrt(2 * degrees)


def test_a_seed_gives_the_same_text_again(model: LanguageModel) -> None:
    """Also after other generations, and where a part of the prompt is in the cache; another seed gives another."""

    def made(seed: int) -> str:
        return "".join(model.generate("A B C", max_tokens=30, temperature=1.5, seed=seed))

    first = made(1)
    assert made(2) != first
    assert "".join(model.generate("A B", max_tokens=2)) and made(1) == first


def test_replays_follow_each_other_without_the_host(model: LanguageModel, small: SmallLlama) -> None:
    """All tokens by one call: each run takes the token and the position of the run before it."""
    tokens = prompt(5)
    first = next(model.tokens(tokens, max_tokens=1))
    step = model.executable.attach(T=1)
    step.fill({**Sampling().feeds(), "tokens": np.zeros(1, np.int64)})
    step.fill({"start": np.array([-1]), "count": np.array([0])})
    step.replay(20)
    made = model.executable.state("history")["history"][5:26].tolist()
    assert made == small.greedy(tokens, 21) and made[0] == first
    assert model.executable.state("length")["length"] == 25
    model.runs.known = tokens  # what is after them was not made by the model


def test_runs_that_are_queued_ahead(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a device: the host reads the tokens of several runs at once, and may leave a text with runs to spare."""
    whole = list(model.tokens([1, 2, 3], max_tokens=45))
    monkeypatch.setattr(model.runs, "is_device", True)
    queued = list[int]()
    step = model.runs.step(1)
    replay = step.replay
    monkeypatch.setattr(step, "replay", lambda n=1: queued.append(n) or replay(n))
    assert list(model.tokens([1, 2, 3], max_tokens=45)) == whole
    assert queued == [
        1,
        *(1, 2, 4, 8, 16, 13),
    ]  # the last token of the prompt, then those that follow the first one
    for taken in (1, 2, 5, 9, 20):
        tokens = model.tokens([1, 2, 3], max_tokens=45)
        assert [next(tokens) for _ in range(taken)] == whole[:taken]
        prompt = [1, 2, 3, *whole[: taken - 1]]
        assert list(model.tokens(prompt, max_tokens=9)) == whole[taken - 1 : taken + 8]


def test_the_answer_ends_before_a_stop_string(model: LanguageModel) -> None:
    text = "".join(model.generate("hello", max_tokens=20))
    for stop in (text[3:5], [text[4:7], "never there", text[6:8]], text[0]):
        at = min(text.find(each) for each in ([stop] if isinstance(stop, str) else stop) if each in text)
        assert "".join(model.generate("hello", max_tokens=20, stop=stop)) == text[:at]


def test_what_may_begin_a_stop_string_waits() -> None:
    pieces = list(until_stop(iter(["ab", "c", "ab", "d", "xy", "abc"]), ("abd", "zz")))
    assert pieces == ["abc"] and list(until_stop(["a", "b"], ("abc",))) == ["ab"]
    assert list(until_stop(["", "a", "b"], ())) == ["a", "b"]


def test_half_a_character_at_the_end_of_an_answer(model: LanguageModel) -> None:
    tokens = list(model.tokens([1, 2, 3], max_tokens=4))
    broken = LanguageModel(model.executable, letters(broken=tokens), CAPACITY, 8)
    assert "".join(broken.generate("bcd", max_tokens=4)) == "\ufffd" * 4


def test_statistics_are_those_of_the_last_generation(model: LanguageModel) -> None:
    text = "0123456789" * 2
    for prompt_tokens, reused in ((20, 0), (1, 19)):
        model.runs.known = model.runs.known if reused else []
        list(model.generate(text, max_tokens=11))
        stats = model.stats
        assert (stats.prompt.tokens, stats.reused, stats.answer.tokens) == (prompt_tokens, reused, 10)
    assert stats.answer.per_second == stats.answer.tokens / stats.answer.seconds
    keys_and_values = 2 * CAPACITY * 2 * 16 * 4
    assert stats.cache_bytes == keys_and_values + 8 * (CAPACITY + 1) + 8
    assert str(stats).count("\n") == 2 and "20 reused" not in str(stats)


def test_perplexity(model: LanguageModel, small: SmallLlama) -> None:
    """In windows, each of which begins anew."""
    text = "perplexity of a text in windows"
    ids, losses = model.tokenizer.encode(text), list[float]()
    for start in range(0, len(ids), 12):
        part = ids[start : start + 12]
        for end in range(1, len(part)):
            logits = small.logits(part[:end])
            losses.append(np.log(np.exp(logits - logits[part[end]]).sum()))
    assert perplexity(model, text, window=12) == pytest.approx(np.exp(np.mean(losses)), rel=1e-4)
    for wrong, message in (
        ({"text": "a"}, "the text has 1 tokens"),
        ({"window": 49}, "window is 49; the cache"),
    ):
        with pytest.raises(InputMismatch, match=message):
            perplexity(model, **{"text": text, **wrong})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -0.5}, "temperature is -0.5; it is a number, 0 or more"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": "hot"}, "temperature is 'hot'; it is a number"),
        ({"top_p": 1.5}, "top_p is 1.5; it is a number, 0 to 1"),
        ({"min_p": True}, "min_p is True"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0; it is a number, above 0"),
        ({"top_k": -1}, "top_k is -1; it is a whole number, 0 or more"),
        ({"top_k": 2.5}, "top_k is 2.5"),
        ({"seed": 1 << 63}, "seed is 9223372036854775808; it is a whole number, 0 or more, below 2\\^63"),
        ({"stop": ["a", ""]}, "a stop string is ''"),
        ({"max_tokens": -3}, "max_tokens is -3; it is a whole number, 0 or more"),
        ({"heat": 1}, "there is no setting 'heat'; there are temperature, top_k"),
        ({"temperature": 10**400}, "temperature is 1000.*; it is a number, 0 or more"),
        ({"temperature": 1e300}, "temperature is 1e\\+300; it is a number, 0 or more"),
        ({"repetition_penalty": 1e-50}, "repetition_penalty is 1e-50; it is a number, above 0"),
        (
            {"max_tokens": 44},
            "the prompt has 5 tokens and 44 may follow; the cache has 48 positions; ask for fewer tokens, or load the",
        ),
    ],
)
def test_settings_out_of_range_are_told(model: LanguageModel, settings: Any, message: str) -> None:
    with pytest.raises(InputMismatch, match=message) as caught:
        model.generate("hello", **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("token", [-1, 80, 10**6, 1.0, True, "a"])
def test_tokens_outside_the_vocabulary_are_told(model: LanguageModel, token: Any) -> None:
    for asked in (model.tokens, model.logits):
        with pytest.raises(InputMismatch, match=r"token .* is not in the vocabulary; ids are 0 to 79$"):
            asked([3, token])


def test_a_temperature_that_f32_rounds_to_0_takes_the_likeliest_token(
    model: LanguageModel, small: SmallLlama
) -> None:
    tokens, sampling = prompt(6), Sampling(temperature=1e-50, top_k=3, seed=4)
    assert list(model.tokens(tokens, max_tokens=5, sampling=sampling)) == small.greedy(tokens, 5)


def test_a_text_ends_where_another_one_is_begun(model: LanguageModel, small: SmallLlama) -> None:
    """An iterator that nobody has asked yet has begun nothing, and one that is done disturbs nobody."""
    one, other = prompt(5), prompt(6)
    first, second, asked_late = (model.tokens(tokens, max_tokens=4) for tokens in (one, other, one))
    assert next(first) == small.greedy(one, 1)[0]
    assert next(second) == small.greedy(other, 1)[0]
    with pytest.raises(
        InputMismatch, match="another text was begun on this model; finish one before the next"
    ):
        next(first)
    assert list(second) == small.greedy(other, 4)[1:] and list(asked_late) == small.greedy(one, 4)
    third = model.tokens(one, max_tokens=4)
    next(third)
    model.logits(other)
    with pytest.raises(InputMismatch, match="another text was begun"):
        next(third)


def test_no_tokens_are_asked_for(model: LanguageModel) -> None:
    assert list(model.generate("hello", max_tokens=0)) == []


def test_logits_that_are_no_numbers_are_told(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = model.executable.state("keys.0")["keys.0"]
    list(model.tokens([1, 2, 3, 4], max_tokens=1))
    model.executable.set_state({"keys.0": np.full_like(keys, np.nan)})
    with pytest.raises(CaptureError, match="a logit is not a number"):
        list(model.tokens([1, 2, 3, 5], max_tokens=1))
    model.executable.set_state({"keys.0": keys})
    model.runs.known = []
