"""Batches of texts against the texts one at a time, float64 and each other; caches that grow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicf.errors import InputMismatch
from aicf.frontends.gguf.reader import read_gguf
from aicf.llm import LanguageModel, Sampling
from aicf.llm.batch_runs import Text
from aicf.llm.families.llama import Llama
from aicf.llm.loading import programs_of
from aicf.llm.programs import Sizes, batch_sizes
from aicf.llm.sources.gguf import GgufSource
from aicf.llm.text_runs import TextRuns
from tests.llm.letters import letters
from tests.llm.small_llama import SmallLlama, small_llama

RNG = np.random.default_rng(331)
CONTEXT, PREFILL = 48, 8
INVARIANT = {"determinism": "batch_invariant"}


@pytest.fixture(scope="module")
def small() -> SmallLlama:
    return small_llama(RNG, layers=1)


def model_of(
    path: Path, policy: Mapping[str, str], *, first: int = CONTEXT, cache: Path | None = None
) -> LanguageModel:
    family = Llama(GgufSource(read_gguf(path)))
    programs = programs_of(family, "small", CONTEXT, PREFILL, "cpu", 1, cache, policy)
    return LanguageModel(programs.of(Sizes(first)), letters(), CONTEXT, PREFILL, programs=programs)


@pytest.fixture(scope="module")
def path(small: SmallLlama, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's file, in a folder where compiled programs go."""
    path = tmp_path_factory.mktemp("batches") / "small.gguf"
    path.write_bytes(small.file())
    return path


@pytest.fixture(scope="module")
def model(path: Path) -> LanguageModel:
    return model_of(path, INVARIANT, cache=path.parent / "cache")


@pytest.fixture(scope="module")
def free(path: Path) -> LanguageModel:
    """Without the policy, and with a cache that grows."""
    return model_of(path, {}, first=24)


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


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_tokens_do_not_depend_on_the_batch(model: LanguageModel, batch: int) -> None:
    """Greedy and drawn, each with a penalty that looks at the tokens before."""
    drawn = {"temperature": 0.9, "top_k": 30, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.2}
    texts = texts_of(9) + texts_of(9, **drawn)
    RNG.shuffle(texts)
    assert made_in_batches(model, texts, batch) == one_at_a_time(model, texts)


def test_greedy_tokens_of_a_batch_are_those_of_float64(free: LanguageModel, small: SmallLlama) -> None:
    texts = texts_of(4)
    expected = [small.greedy(list(text.prompt), text.most) for text in texts]
    assert made_in_batches(free, texts, 4) == expected


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


def test_a_cache_grows_while_a_text_is_made(
    free: LanguageModel, small: SmallLlama, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is computed again: every token is run once, in the small cache or in the large one."""
    runs, run = list[int](), TextRuns.run
    monkeypatch.setattr(TextRuns, "run", lambda self, part: runs.append(len(part)) or run(self, part))
    assert free.runs.held == 24
    prompt, small_bytes = RNG.integers(0, 80, 19).tolist(), free.stats.cache_bytes
    free.runs.known = []
    text = list(free.tokens(prompt, max_tokens=29))
    assert text == small.greedy(prompt, 29)
    assert free.runs.held == CONTEXT and free.stats.cache_bytes > 1.9 * small_bytes
    assert runs == [8, 8, 3] and free.stats.answer.tokens == 28
    runs.clear()
    longer = [*prompt, *text[:-2], 5]
    np.testing.assert_allclose(free.logits(longer), small.logits(longer), rtol=1e-4, atol=1e-4)
    assert runs == [1] and free.runs.reused == len(longer) - 1


def test_weights_are_there_once(model: LanguageModel) -> None:
    """What programs of other sizes read of the weights is the same memory, packed ahead or not."""
    first, batch = model.executable, model._programs.of(Sizes(CONTEXT, 4))
    assert first is not batch and first.prepared() and batch.prepared()
    packed = [array.ctypes.data for array in first.prepared().values()]
    assert packed == [array.ctypes.data for array in batch.prepared().values()]
    for name in first.weights.keys() - set(first.plan.mutable):
        assert np.shares_memory(first.weights[name], batch.weights[name])


def test_programs_of_batches_are_kept(
    model: LanguageModel, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found is not compiled, and has no copy of the weights beside that of the first programs."""
    texts = texts_of(2)
    expected = made_in_batches(model, texts, 2)
    cache = path.parent / "cache"
    programs, arrays = list(cache.glob("*.aicf")), list(cache.glob("*.arrays"))
    assert len(programs) > len(arrays) == 1
    monkeypatch.setattr("aicf.compilation.compiling.compile_source", None)
    again_loaded = model_of(path, INVARIANT, cache=cache)
    assert made_in_batches(again_loaded, again(texts), 2) == expected
    with pytest.raises(TypeError):
        model_of(path, {}, cache=cache)  # another policy, other programs


def test_texts_come_with_the_number_of_their_prompt(model: LanguageModel) -> None:
    """Each with its own settings, stop string and number of tokens; what waits for a stop string comes as well."""
    whole = "".join(model.generate("Once", max_tokens=20, temperature=1.1, seed=3))
    asked: list[Any] = [
        "hello",
        {"prompt": "Once", "max_tokens": 20, "temperature": 1.1, "seed": 3},
        {"prompt": "Once", "max_tokens": 20, "temperature": 1.1, "seed": 3, "stop": whole[6:8]},
        {"prompt": "Once", "max_tokens": 20, "temperature": 1.1, "seed": 3, "stop": whole[-1] + "never"},
        {"prompt": "none", "max_tokens": 0},
    ]
    made, order = [""] * len(asked), list[int]()
    for number, piece in model.generate_batch(asked, max_tokens=9):
        assert piece
        made[number] += piece
        order.append(number)
    hello = "".join(model.generate("hello", max_tokens=9))
    assert made == [hello, whole, whole[: whole.find(whole[6:8])], whole, ""]
    assert order[:8] != sorted(order[:8])  # none waits for the others


def test_a_prompt_that_begins_as_the_one_before_runs_the_rest(model: LanguageModel) -> None:
    shared = RNG.integers(0, 80, 15).tolist()
    texts = [Text([*shared, number, number], 3, Sampling()) for number in range(4)]
    model.runs.known = []
    made_in_batches(model, texts, 4)
    assert (model.stats.prompt.tokens, model.stats.reused) == (17 + 3 * 2, 3 * 15)
    assert model.stats.answer.tokens == 4 * 2


def test_runs_of_a_batch_that_are_queued_ahead(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a device: texts end while runs for them are queued."""
    texts = texts_of(4)
    alone = one_at_a_time(model, texts)
    monkeypatch.setattr(model.runs, "is_device", True)
    monkeypatch.setattr("aicf.llm.batch_runs.BatchRuns.is_device", True, raising=False)
    assert made_in_batches(model, texts, 4) == alone


@pytest.mark.parametrize(
    ("asked", "settings", "message"),
    [
        (["hello", 3], {}, "prompt 1: it is neither a text nor a dictionary with a text 'prompt'"),
        ([{"text": "hello"}], {}, "prompt 0: it is neither a text"),
        (["hello", ""], {}, "prompt 1: the prompt is empty"),
        (
            ["a", {"prompt": "b", "heat": 1}],
            {},
            "prompt 1: there is no setting 'heat'; there are temperature",
        ),
        (["a", "b"], {"top_p": 2}, "prompt 0: top_p is 2; it is a number, 0 to 1"),
        (["a", {"prompt": "b", "stop": ""}], {}, "prompt 1: a stop string is ''"),
        (
            ["a", "b" * 40],
            {"max_tokens": 9},
            "prompt 1: the prompt has 40 tokens and 9 may follow; the cache has 48",
        ),
        ("hello", {}, "the prompts are one text; give a list of texts, or use generate"),
        (["a"], {"batch": 0}, "batch is 0; it is a whole number, 1 to 32"),
        (["a"], {"batch": 33}, "batch is 33; it is a whole number, 1 to 32"),
        (["a"], {"batch": True}, "batch is True"),
    ],
)
def test_what_a_batch_cannot_be_is_told(
    model: LanguageModel, asked: Any, settings: Any, message: str
) -> None:
    with pytest.raises(InputMismatch, match=message) as caught:
        model.generate_batch(asked, **{"max_tokens": 5, **settings})
    assert "\n" not in str(caught.value)


def test_a_batch_ends_where_another_text_is_begun(model: LanguageModel) -> None:
    made = model.generate_batch(["one", "two"], max_tokens=9)
    next(made)
    list(model.generate("three", max_tokens=1))
    with pytest.raises(InputMismatch, match="another text was begun on this model"):
        list(made)
    assert list(model.generate_batch([])) == []
