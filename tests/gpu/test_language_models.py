"""Language models on the GPU: draws against their meaning, tokens against float64, and runs that follow each other."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicf
from aicf.frontends.gguf.reader import parsed
from aicf.llm import LanguageModel, Sampling, Text
from aicf.llm.draw import CUDA
from aicf.llm.draw.meaning import draw
from aicf.llm.families.llama import Llama
from aicf.llm.loading import ProgramOptions, programs_of, weights_of
from aicf.llm.programs import Sizes
from aicf.llm.sources.gguf import GgufSource
from aicf.runtime.tensors import numpy_dtype
from aicf.testing import check_kernel
from tests.llm import test_packed_weights as packed
from tests.llm.letters import letters
from tests.llm.small_llama import SmallLlama, small_llama
from tests.llm.test_draw import program, settings
from tests.llm.test_sampling import compiled, expected

pytestmark = pytest.mark.gpu

RNG = np.random.default_rng(229)
CAPACITY, COUNT = 64, 5000
HALVES = small_llama(RNG, layers=2, heads=4, kv_heads=2, head_width=64)


@pytest.mark.parametrize("filters", [(0, 1, 0), (40, 1, 0), (0, 0.9, 0), (40, 0.9, 0.05), (0, 0, 1)])
@pytest.mark.parametrize("count", [1, 777, 49152, 128256])
def test_a_draw(count: int, filters: tuple[int, float, float]) -> None:
    weights = RNG.integers(0, 1 << 30, count).astype(np.int32)
    check_kernel(CUDA, weights, RNG.random(1), *settings(*filters), bounds=True, runs=4)


def test_draws_of_all_sizes_of_weights() -> None:
    exe = aicf.compile(program(COUNT), {}, "cuda")
    for number in range(2000):
        weights = RNG.integers(-5, 2 ** int(RNG.integers(1, 31)), COUNT).astype(np.int32)
        if number % 3 == 0:
            weights = RNG.choice(weights[:9], COUNT)
        shares = RNG.choice([0, 1, *RNG.random(2)], 2)
        operands = [weights, RNG.random(1), *settings(int(RNG.integers(0, COUNT + 9)), *shares)]
        assert exe(*operands) == draw(*operands)


@pytest.fixture(scope="module")
def small() -> SmallLlama:
    return small_llama(RNG, layers=1)


@pytest.fixture(scope="module")
def model(small: SmallLlama) -> LanguageModel:
    return compiled(small, CAPACITY, "cuda")


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"temperature": 1.0},
        {"temperature": 0.9, "top_k": 30, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.3},
    ],
)
def test_tokens_are_those_of_float64(model: LanguageModel, small: SmallLlama, chosen: Any) -> None:
    """Up to the end of the cache, in runs that the host reads while others are queued."""
    sampling, known = Sampling(**chosen), RNG.integers(0, 80, 9).tolist()
    for token in model.tokens(known, max_tokens=CAPACITY - 9, sampling=sampling):
        assert token == expected(small, known, sampling)
        known.append(token)
    assert len(known) == CAPACITY


def test_a_cache_that_grows_and_a_batch(small: SmallLlama) -> None:
    """What the smaller cache holds is copied on the device, and so are the rows of prompts to their places."""
    family = Llama(GgufSource(parsed(small.file(), Path("small.gguf"))))
    programs = programs_of(family, "small", ProgramOptions(CAPACITY, 8, "cuda"))
    model = LanguageModel(programs.of(Sizes(24)), letters(), CAPACITY, 8, programs=programs)
    prompt = RNG.integers(0, 80, 19).tolist()
    assert list(model.tokens(prompt, max_tokens=40)) == small.greedy(prompt, 40)
    assert model.runs.held == CAPACITY
    texts = [Text(RNG.integers(0, 80, length).tolist(), 9, Sampling()) for length in (3, 12, 20)]
    made: dict[Text, list[int]] = {text: [] for text in texts}
    for text, token in model.tokens_batch(texts):
        made[text].append(token)
    assert list(made.values()) == [small.greedy([*text.prompt], 9) for text in texts]


def test_packed_weights() -> None:
    """Logits of a prompt and of tokens after it, with matrices that stay in blocks."""
    blocks, file = packed.stored_in_blocks(small_llama(RNG, layers=1))
    model = packed.compiled(blocks, file, "cuda")
    tokens = RNG.integers(0, 80, 11).tolist()
    np.testing.assert_allclose(model.logits(tokens), blocks.logits(tokens), rtol=1e-4, atol=1e-4)
    assert list(model.tokens(tokens, max_tokens=5)) == blocks.greedy(tokens, 5)


def test_packed_weights_of_a_model_in_bf16() -> None:
    """Norms, gates and residuals are part of the products; the first run has several rows, those after it one."""
    blocks, file = packed.stored_in_blocks(small_llama(RNG, layers=2, heads=4, kv_heads=2, head_width=64))
    model = packed.compiled(blocks, file, "cuda", "bf16")
    products = re.findall(r'emit\.resolved "(matmul_blocks\w*)"', model.executable.ir("emit"))
    assert set(products) == {"matmul_blocks_fused"}
    tokens = RNG.integers(0, 80, 11).tolist()
    wanted = blocks.logits(tokens)
    assert np.abs(model.logits(tokens) - wanted).max() < 0.1 * wanted.std()


def test_a_text_that_is_left_early_changes_nothing(model: LanguageModel) -> None:
    """The device was ahead of the host when the first text was left."""
    whole = list(model.tokens([1, 2, 3], max_tokens=50))
    for taken in (1, 2, 5, 9, 20):
        tokens = model.tokens([1, 2, 3], max_tokens=50)
        assert [next(tokens) for _ in range(taken)] == whole[:taken]
        ended = LanguageModel(model.executable, letters(whole[taken]), CAPACITY, 8)
        end = whole.index(whole[taken])
        assert list(ended.tokens([1, 2, 3], max_tokens=50)) == whole[:end]
    assert list(model.tokens([1, 2, 3], max_tokens=50)) == whole


def test_logits(model: LanguageModel, small: SmallLlama) -> None:
    tokens = RNG.integers(0, 80, 21).tolist()
    np.testing.assert_allclose(model.logits(tokens), small.logits(tokens), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_half_precision(dtype: str) -> None:
    """Logits after a prompt in parts and after tokens that follow it, whose queries and keys attention turns itself."""
    family = Llama(GgufSource(parsed(HALVES.file(), Path("small.gguf"))))
    graph = family.decoder("small", CAPACITY, dtype)
    weights = weights_of(family.source, graph) | family.states(CAPACITY, dtype)
    executable = aicf.compile(graph, weights, "cuda", dims="T=1,8")
    step = executable.ir("emit")
    assert 'rotation = "neighbours"' in step and '"cuda.cached_attention"' in step
    model = LanguageModel(executable, letters(), CAPACITY, 8)
    rounded = {
        name: array.astype(numpy_dtype(dtype)).astype(np.float32) for name, array in HALVES.weights.items()
    }
    exact, tokens = replace(HALVES, weights=rounded), RNG.integers(0, 80, 24).tolist()
    counts = (21, 22, 23, 24)
    found, wanted = (np.stack([each.logits(tokens[:count]) for count in counts]) for each in (model, exact))
    # bf16 has three bits less than f16. Logits of single prompts are up to three times as far off as most; of four that
    # are within the limit together, each one is within twice the limit.
    assert np.sqrt(np.mean((found - wanted) ** 2)) / wanted.std() < {"bf16": 4.8e-2, "f16": 6e-3}[dtype]
