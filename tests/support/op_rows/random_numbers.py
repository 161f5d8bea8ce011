"""Rows of the ops that give random numbers, by Philox on Python's integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from aicf.dialects import logical
from aicf.dialects.types import element_named
from tests.support.op_rows.row import FLOATS, Array, Draw, OperandsAndAttrs, Row, random_of, shape, values

SMALL = 1 << 32
DIGITS = {"f32": 24, "f16": 11, "bf16": 8}


def _word(seed: int, offset: int, index: int) -> int:
    """One word, unsigned: index mod 4 of counter offset + index/4."""
    counter = (offset + index % 2**64 // 4) % 2**64
    words, keys = [counter % SMALL, counter // SMALL, 0, 0], [seed % SMALL, seed % 2**64 // SMALL]
    for number in range(10):
        k0, k1 = (keys[0] + number * 0x9E3779B9) % SMALL, (keys[1] + number * 0xBB67AE85) % SMALL
        even, odd = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
        words = [odd // SMALL ^ words[1] ^ k0, odd % SMALL, even // SMALL ^ words[3] ^ k1, even % SMALL]
    return words[index % 4]


def _signed(word: int) -> int:
    return word - SMALL if word >> 31 else word


def _uniform(word: int, element: str) -> float:
    if element == "f64":
        return _signed(word) / SMALL + 0.5
    return word % 2 ** DIGITS[element] / 2 ** DIGITS[element]


def _normal(seed: int, offset: int, index: int, element: str) -> float:
    wide = "f64" if element == "f64" else "f32"
    u, v = (
        _uniform(_word(seed, offset, number), wide) for number in (index - index % 2, index - index % 2 + 1)
    )
    wave = math.sin if index % 2 else math.cos
    return math.sqrt(-2 * math.log1p(-u)) * wave(2 * math.pi * v)


def _key(draw: Draw) -> list[Array]:
    """Seed and offset, at the ends of their range too."""
    edges = st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)])
    return [np.array(draw(st.one_of(edges, st.integers(-(2**63), 2**63 - 1))), np.int64) for _ in range(2)]


def _philox(draw: Draw, dtype: str) -> OperandsAndAttrs:
    form = "bits" if dtype == "i32" else draw(st.sampled_from(["uniform", "normal"]))
    return _key(draw), {"form": form, "sizes": shape(draw), "element": dtype}


def _numbers(seed: Array, offset: Array, form: str, sizes: Sequence[int], element: str) -> Any:
    key = int(seed), int(offset)
    make = {
        "bits": lambda index: _signed(_word(*key, index)),
        "uniform": lambda index: _uniform(_word(*key, index), element),
        "normal": lambda index: _normal(*key, index, element),
    }[form]
    return np.array([make(index) for index in range(math.prod(sizes))]).reshape(sizes)


def _philox_word(draw: Draw, dtype: str) -> OperandsAndAttrs:
    random, sizes, end = random_of(draw), shape(draw), 2**63 if dtype == "i64" else 1
    return [random.integers(-end, end, sizes).astype(element_named(dtype).dtype) for _ in range(3)], {}


def _words(seed: Array, offset: Array, index: Array) -> Any:
    each = zip(seed.flat, offset.flat, index.flat, strict=True)
    return np.array([_signed(_word(int(s), int(o), int(i))) for s, o, i in each]).reshape(index.shape)


def _dropout(draw: Draw, dtype: str) -> OperandsAndAttrs:
    rate = draw(st.sampled_from([0.0, 0.1, 0.5, 0.9]))
    return [values(draw, dtype, shape(draw)), *_key(draw)], {"rate": rate}


def _dropped(x: Array, seed: Array, offset: Array, rate: float) -> Any:
    kept = _numbers(seed, offset, "uniform", x.shape, "f32") >= np.float32(rate)
    return np.where(kept, x / (1 - rate), 0)


ROWS = (
    Row(logical.PhiloxOp, _philox, _numbers, (*FLOATS, "i32")),
    Row(logical.PhiloxWordOp, _philox_word, _words, ("i64",)),
    Row(logical.DropoutOp, _dropout, _dropped, FLOATS),
)
