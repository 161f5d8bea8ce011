"""Models in half precision: logits against float64, the types of caches and weights, and which type is taken."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import aicf
from aicf.errors import InputMismatch
from aicf.frontends.gguf.reader import parsed
from aicf.llm.families.llama import Llama
from aicf.llm.loading import load, parameters_of, type_of, weights_of
from aicf.llm.model import LanguageModel
from aicf.llm.sources.gguf import GgufSource
from tests.llm.letters import letters
from tests.llm.small_llama import SmallLlama, small_llama
from tests.llm.test_packed_weights import stored_in_blocks

RNG = np.random.default_rng(307)
PREFILL, CAPACITY = 4, 16
TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
SMALL = small_llama(RNG, layers=1)


def rounded(model: SmallLlama, dtype: str) -> SmallLlama:
    """A model with the weights of a type."""
    weights = {name: array.astype(TYPES[dtype]).astype(np.float32) for name, array in model.weights.items()}
    return SmallLlama(**{**vars(model), "weights": weights})


def source_of(model: SmallLlama) -> GgufSource:
    return GgufSource(parsed(model.file(), Path("small.gguf")))


@pytest.mark.parametrize(("dtype", "target"), [("bf16", "cpu"), ("f16", "reference")])
def test_logits_are_those_of_rounded_weights(dtype: str, target: str) -> None:
    """Off by what passes between the ops of a layer: a few roundings of 2^-9 or 2^-12 to nearest."""
    family = Llama(source_of(SMALL))
    graph = family.decoder("small", CAPACITY, dtype)
    assert {info.element.name for info in parameters_of(graph).values()} == {dtype}
    weights = weights_of(family.source, graph) | family.states(CAPACITY, dtype)
    executable = aicf.compile(graph, weights, target, dims=f"T=1,{PREFILL}")
    model = LanguageModel(executable, letters(), CAPACITY, PREFILL)
    tokens = RNG.integers(0, 80, 9).tolist()
    found, expected = model.logits(tokens), rounded(SMALL, dtype).logits(tokens)
    assert found.dtype == np.float32
    error = np.sqrt(np.mean((found - expected) ** 2)) / expected.std()
    assert error < {"bf16": 2e-2, "f16": 3e-3}[dtype]
    assert executable.state("keys.0")["keys.0"].dtype == TYPES[dtype]


def test_weights_of_a_type_are_those_of_the_file_rounded_to_nearest() -> None:
    source = source_of(SMALL)
    for name, array in SMALL.weights.items():
        for dtype, of in TYPES.items():
            np.testing.assert_array_equal(source.array(name, dtype), array.astype(of))


@pytest.mark.parametrize(("target", "in_blocks", "dtype"), [
    ("cpu", False, "f32"), ("cuda:sm_90a", False, "bf16"), ("cuda", True, "f32"), ("reference", False, "f32"),
])  # fmt: skip
def test_the_type_if_nobody_says(target: str, in_blocks: bool, dtype: str) -> None:
    source = GgufSource(stored_in_blocks(SMALL)[1]) if in_blocks else source_of(SMALL)
    assert type_of(source, target) == dtype


def test_another_type_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputMismatch, match=r"dtype is 'int8'; a model computes in f32, bf16, f16"):
        load(tmp_path / "gone", dtype="int8")
