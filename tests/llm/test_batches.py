"""Batches of texts against the texts one at a time, float64 and each other; caches that grow."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicf.errors import InputMismatch
from aicf.frontends.gguf.reader import read_gguf
from aicf.llm import LanguageModel, Sampling, Text
from aicf.llm.batch_runs import BatchRuns
from aicf.llm.families.llama import Llama
from aicf.llm.loading import ProgramOptions, programs_of
from aicf.llm.programs import Programs, Sizes, batch_sizes
from aicf.llm.sources.gguf import GgufSource
from aicf.llm.text_runs import TextRuns
from tests.frontends.gguf.writer import Stored
from tests.llm.letters import letters
from tests.llm.small_llama import SmallLlama, small_llama

RNG = np.random.default_rng(331)
CONTEXT, PREFILL = 48, 8
INVARIANT = {"determinism": "batch_invariant"}


@pytest.fixture(scope="module")
def small() -> SmallLlama:
    return small_llama(RNG, layers=1)


def model_of(
    path: Path,
    policy: Mapping[str, str],
    *,
    target: str = "cpu",
    first: int = CONTEXT,
    cache: Path | None = None,
) -> LanguageModel:
    family = Llama(GgufSource(read_gguf(path)))
    programs = programs_of(
        family, "small", ProgramOptions(CONTEXT, PREFILL, target, cache_dir=cache, policy=policy)
    )
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


@pytest.fixture(scope="module")
def halves(small: SmallLlama, tmp_path_factory: pytest.TempPathFactory) -> tuple[SmallLlama, LanguageModel]:
    """A model whose file is in f16 and whose cache grows, in f32."""
    stored = {name: array.astype(np.float16) for name, array in small.weights.items()}
    tensors = {
        name: Stored(tuple(reversed(array.shape)), 1, array.tobytes()) for name, array in stored.items()
    }
    path = tmp_path_factory.mktemp("halves") / "small.gguf"
    path.write_bytes(small.file(tensors))
    rounded = replace(small, weights={name: array.astype(np.float32) for name, array in stored.items()})
    return rounded, model_of(path, {}, target="reference", first=24)


def test_converted_weights_are_there_once(halves: tuple[SmallLlama, LanguageModel]) -> None:
    """Programs in f32 cannot read those of a file in f16 where they lie."""
    small, model = halves
    first, grown = (model._programs.of(Sizes(capacity)) for capacity in (24, CONTEXT))
    assert first is not grown
    for name in small.weights:
        assert np.shares_memory(first.weights[name], grown.weights[name]), name


def test_a_cache_that_fails_to_grow_stays_as_it_was(
    halves: tuple[SmallLlama, LanguageModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next text makes it grow all the same, and the former programs are gone then, with their cache."""
    small, model = halves
    tokens = RNG.integers(0, 80, 30).tolist()
    with monkeypatch.context() as patched:
        patched.setattr(Programs, "of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.logits(tokens)
    assert model.runs.held == 24
    former = weakref.ref(model.executable)
    np.testing.assert_allclose(model.logits(tokens), small.logits(tokens), rtol=1e-4, atol=1e-4)
    assert model.runs.held == CONTEXT
    gc.collect()
    assert former() is None


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


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
    texts[0].most = 28  # for which several runs are queued at once
    alone, queued, queue = one_at_a_time(model, texts), list[int](), BatchRuns._queue

    def counted(runs: BatchRuns) -> None:
        queue(runs)
        queued.append(runs._queued)

    monkeypatch.setattr(BatchRuns, "is_device", True)
    monkeypatch.setattr(BatchRuns, "_queue", counted)
    assert made_in_batches(model, texts, 4) == alone
    assert queued[:4] == [1, 2, 4, 8]


def test_a_text_may_be_asked_for_again(model: LanguageModel) -> None:
    """Alone as well, after it was over in a batch or alone."""
    texts = texts_of(2)
    texts[0].most = 7
    alone = one_at_a_time(model, texts)
    for text in texts:
        text.is_over = True
    assert made_in_batches(model, texts, 2) == alone
    for text in texts:
        text.is_over = True
    assert made_in_batches(model, texts, 1) == alone
    assert all(text.is_over for text in texts)


def test_what_waits_comes_when_its_text_ends(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of texts one at a time: the end of the first does not wait for that of the second."""
    whole = list(model.tokens(model.tokenizer.encode("Once"), max_tokens=6))
    at = next(at for at in range(1, 6) if whole[at] not in whole[:at])
    monkeypatch.setattr(model, "tokenizer", letters(whole[at]))
    said = model.tokenizer.decode(whole[:at])
    asked = [{"prompt": "Once", "stop": said[-1] + "never"}, {"prompt": "hello"}]
    numbers = [number for number, _ in model.generate_batch(asked, batch=1, max_tokens=9)]
    assert 0 in numbers[:-1] and numbers[-1] == 1


def test_numbers_of_numpy_are_numbers(model: LanguageModel) -> None:
    prompt, most = RNG.integers(0, 80, 5).tolist(), np.int64(3)
    expected = list(model.tokens(prompt, max_tokens=3))
    assert list(model.tokens(prompt, max_tokens=most)) == expected
    for count in (1, 2):
        texts = [Text(prompt, most, Sampling()) for _ in range(count)]
        assert made_in_batches(model, texts, 2) == [expected] * count


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
        (
            {"prompt": "hello"},
            {},
            "the prompts are {'prompt': 'hello'}; give a list of texts or dictionaries",
        ),
        (None, {}, "the prompts are None; give a list"),
        ([{"prompt": "b", "stop": None}], {}, "prompt 0: stop is None; give a text or a list of texts"),
        (["a"], {"stop": 5}, "prompt 0: stop is 5; give a text or a list of texts"),
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
