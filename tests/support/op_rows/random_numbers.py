"""Random numbers by Philox4x32-10, in Python's integers, as the paper has it (Salmon and others, 2011)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from aicf.dialects import logical
from tests.support.op_rows.row import FLOATS, Array, Draw, Drawn, Row, random_of, shape, values

WORD, WORDS = 2**32, 2**64
DIGITS = {"f64": 32, "f32": 24, "f16": 11, "bf16": 8}


def _key(draw: Draw) -> list[Array]:
    return [np.array(number) for number in random_of(draw).integers(-(2**63), 2**63, 2)]


def _philox(draw: Draw, dtype: str) -> Drawn:
    form = "bits" if dtype == "i32" else draw(st.sampled_from(("uniform", "normal")))
    return _key(draw), {"form": form, "sizes": list(shape(draw, 0)), "element": dtype}


def _philox_word(draw: Draw, dtype: str) -> Drawn:
    sizes = shape(draw, 0)
    return [values(draw, dtype, sizes) for _ in range(3)], {}


def _dropout(draw: Draw, dtype: str) -> Drawn:
    return [values(draw, dtype, shape(draw, 0)), *_key(draw)], {
        "rate": draw(st.sampled_from((0.0, 0.25, 0.9)))
    }


def _word(seed: int, offset: int, index: int) -> int:
    """Word index mod 4 of counter offset + index/4, without a sign."""
    seed, index = seed % WORDS, index % WORDS
    counter = (offset + index // 4) % WORDS
    words = [counter % WORD, counter // WORD, 0, 0]
    key = [seed % WORD, seed // WORD]
    for _ in range(10):
        first, second = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
        words = [
            second // WORD ^ words[1] ^ key[0],
            second % WORD,
            first // WORD ^ words[3] ^ key[1],
            first % WORD,
        ]
        key = [(key[0] + 0x9E3779B9) % WORD, (key[1] + 0xBB67AE85) % WORD]
    return words[index % 4]


def _uniform(word: int, element: str) -> float:
    if element == "f64":
        return (word ^ WORD // 2) / WORD
    return word % 2 ** DIGITS[element] / 2 ** DIGITS[element]


def _numbers(seed: Array, offset: Array, form: str, sizes: Sequence[int], element: str) -> Array:
    key, count = (int(seed), int(offset)), math.prod(sizes)
    words = [_word(*key, index) for index in range(count + count % 2)]
    if form == "bits":
        made = np.array(words, np.uint32).astype(np.int32)
    elif form == "uniform":
        made = np.array([_uniform(word, element) for word in words])
    else:
        uniforms = [_uniform(word, element if element == "f64" else "f32") for word in words]
        pairs = zip(uniforms[::2], uniforms[1::2], strict=True)
        made = np.array([number for u, v in pairs for number in _normal_pair(u, v)])
    return made[:count].reshape(sizes)


def _normal_pair(u: float, v: float) -> tuple[float, float]:
    radius = math.sqrt(-2 * math.log(1 - u))
    return radius * math.cos(2 * math.pi * v), radius * math.sin(2 * math.pi * v)


def _each_word(seed: Array, offset: Array, index: Array) -> Array:
    triples = zip(seed.ravel().tolist(), offset.ravel().tolist(), index.ravel().tolist(), strict=True)
    return np.array([_word(*triple) for triple in triples], np.uint32).astype(np.int32).reshape(seed.shape)


def _kept(x: Array, seed: Array, offset: Array, rate: float) -> Array:
    numbers = _numbers(seed, offset, "uniform", x.shape, "f32")
    return np.where(numbers >= np.float32(rate), x / (1 - rate), 0.0)


ROWS = (
    Row(logical.PhiloxOp, _philox, _numbers, (*FLOATS, "i32")),
    Row(logical.PhiloxWordOp, _philox_word, _each_word, ("i64",)),
    Row(logical.DropoutOp, _dropout, _kept),
)
