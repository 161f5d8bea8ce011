"""Matrices that stay in blocks: the logits of a small Llama in float64, and what becomes of a program's parameters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

import aicf
from aicf.dialects.block_schemes import BLOCK_SCHEMES
from aicf.dialects.types import tensor_info
from aicf.frontends.gguf.reader import GgufFile, parsed
from aicf.llm.families.llama import Llama
from aicf.llm.loading import weights_of
from aicf.llm.model import LanguageModel
from aicf.llm.packed_weights import keep_packed, reads_blocks
from aicf.llm.sources.gguf import GgufSource
from aicf.llm.tokenizer import Tokenizer
from aicf.passes.support.interface import arguments_of, functions
from tests.frontends.gguf.writer import Stored
from tests.llm.small_llama import SmallLlama, small_llama

RNG = np.random.default_rng(223)
PREFILL, CAPACITY = 8, 24
NO_END = cast(Tokenizer, SimpleNamespace(ends=()))


def quantised(array: np.ndarray) -> np.ndarray:
    """A matrix in blocks of Q8_0: u8[rows, bytes of a row]."""
    blocks = array.reshape(-1, 32)
    scales = (np.abs(blocks).max(1, keepdims=True) / 127).astype(np.float16)
    codes = np.rint(blocks / scales.astype(np.float32)).astype(np.int8)
    return np.hstack([scales.view(np.uint8), codes.view(np.uint8)]).reshape(len(array), -1)


def stored_in_blocks(model: SmallLlama) -> tuple[SmallLlama, GgufFile]:
    """A model whose matrices are those that its file has in blocks."""
    scheme = BLOCK_SCHEMES["Q8_0"]
    packed = {name: quantised(array) for name, array in model.weights.items() if array.ndim == 2}
    widened = {name: scheme.rows(rows) for name, rows in packed.items()}
    stored = {
        name: Stored(tuple(reversed(widened[name].shape)), scheme.number, rows.tobytes())
        for name, rows in packed.items()
    }
    data = model.file(tensors=stored)
    return replace(model, weights={**model.weights, **widened}), parsed(data, Path("small.gguf"))


def compiled(small: SmallLlama, file: GgufFile, target: str, element: str = "f32") -> LanguageModel:
    """A model whose matrices stay in blocks, on a target that multiplies rows of `element` with them."""
    assert reads_blocks(target, element)
    family = Llama(GgufSource(file))
    packed = family.source.packed()
    assert sorted(packed) == sorted(name for name, array in small.weights.items() if array.ndim == 2)
    graph = family.decoder("small", CAPACITY, element)
    module = graph.module()
    keep_packed(module, packed)
    weights = weights_of(family.source, graph, packed) | family.states(CAPACITY, element)
    found = aicf.compile(module, weights, target, dims=f"T=1,{PREFILL}")
    assert "of_blocks" in found.ir("emit") and "with the widened weight" not in found.ir("emit")
    return LanguageModel(found, NO_END, CAPACITY, PREFILL)


@pytest.mark.parametrize("is_tied", [False, True])
def test_logits_of_packed_weights(is_tied: bool) -> None:
    """No product widens its weight: not of one token, and not of several."""
    small, file = stored_in_blocks(small_llama(RNG, layers=1, is_tied=is_tied))
    model = compiled(small, file, "cpu")
    tokens = RNG.integers(0, 80, 11).tolist()
    np.testing.assert_allclose(model.logits(tokens), small.logits(tokens), rtol=1e-4, atol=1e-4)
    assert list(model.tokens(tokens, max_tokens=5)) == small.greedy(tokens, 5)


def test_parameters_become_rows_of_bytes() -> None:
    g = aicf.Graph("linear")
    x, w, b = g.input("x", (2, 64)), g.param("w", (3, 64)), g.param("b", (3,))
    g.output(g.linear(x, w, b), "y")
    module = g.module()
    keep_packed(module, {"w": BLOCK_SCHEMES["Q8_0"], "absent": BLOCK_SCHEMES["Q4_0"]})
    module.verify()
    (function,) = functions(module)
    types = {name: str(tensor_info(argument.type)) for name, argument in arguments_of(function).items()}
    assert types == {"x": "2x64xf32", "w": "3x68xu8", "b": "3xf32"}


def test_narrow_parameters_are_widened_to_their_type() -> None:
    g = aicf.Graph("linear")
    x, w = g.input("x", (2, 64), "bf16"), g.param("w", (3, 64), "bf16")
    g.output(g.linear(x, w), "y")
    module = g.module()
    keep_packed(module, {"w": BLOCK_SCHEMES["Q8_0"]})
    module.verify()
    names = [op.name for op in module.walk()]
    start = names.index("logical.dequantize_blocks")
    assert names[start : start + 3] == ["logical.dequantize_blocks", "logical.cast", "logical.linear"]


@pytest.mark.parametrize(
    ("target", "element", "does"),
    [
        ("cpu", "f32", True),
        ("cpu:x86-64-v3", "f32", True),
        ("cpu", "bf16", False),
        ("cuda:sm_90a", "f32", True),
        ("cuda:sm_90a", "bf16", True),
        ("cuda:sm_80", "f16", True),
    ],
)
def test_which_targets_read_blocks(target: str, element: str, does: bool) -> None:
    assert reads_blocks(target, element) == does
