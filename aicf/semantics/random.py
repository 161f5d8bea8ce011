"""Meanings of the ops that give random numbers, all made of Philox4x32-10."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.dialects.types import ElementType, element_named
from aicf.semantics.base import Array, Meaning, coefficient, composite_element

UNIFORM_DIGITS: Mapping[str, int] = {"f32": 24, "f16": 11, "bf16": 8}
"""Low bits of a word that make a uniform number: the digits of the type. f64 takes the whole word."""
WORD_BITS = 32
TWO_PI = 2 * math.pi

_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox4x32(counter: Sequence[Array], key: Sequence[Array]) -> list[Array]:
    """Four words of a counter of four words and a key of two, by the ten rounds of Salmon and others, 2011.

    Words are u64, in which a product does not overflow.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        even, odd = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (odd >> _HALF) ^ c1 ^ k0, odd & _LOW, (even >> _HALF) ^ c3 ^ k1, even & _LOW
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW, (k1 + _KEY_STEPS[1]) & _LOW
    return [c0, c1, c2, c3]


def philox_word(seed: Array, offset: Array, index: Array) -> Array:
    """Word ``index mod 4`` of the counter ``offset + index/4``, as i32; the operands are i64 and broadcast."""
    seed, offset, index = (array.astype(np.uint64) for array in (seed, offset, index))
    counter = offset + index // np.uint64(4)
    words = philox4x32(
        [counter & _LOW, counter >> _HALF, counter & np.uint64(0), counter & np.uint64(0)],
        [seed & _LOW, seed >> _HALF],
    )
    return np.choose((index % np.uint64(4)).astype(np.intp), words).astype(np.uint32).astype(np.int32)


def _numbering(shape: Sequence[int]) -> NDArray[np.int64]:
    """The row-major number of each element."""
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


def uniform(words: Array, element: ElementType) -> Array:
    """Numbers in [0, 1) of words, exact in the element type."""
    if element.name == "f64":
        return words * 2.0**-WORD_BITS + 0.5
    digits = UNIFORM_DIGITS[element.name]
    return (words & ((1 << digits) - 1)) * 2.0**-digits


def _philox(op: logical.PhiloxOp, operands: Sequence[Array]) -> Array:
    seed, offset = operands
    index = _numbering(op.info.shape)
    match op.form.data:
        case "normal":
            return _normal(seed, offset, index, composite_element(op.info.element))
        case "uniform":
            return uniform(philox_word(seed, offset, index), op.info.element)
        case _:
            return philox_word(seed, offset, index)


def _normal(seed: Array, offset: Array, index: NDArray[np.int64], element: ElementType) -> Array:
    """Box and Muller, 1958; the sine is the cosine of the angle less a quarter turn."""
    u, v = (uniform(philox_word(seed, offset, number), element) for number in (index & ~1, index | 1))
    turn = v - (index & 1) * 0.25
    return np.sqrt(-2 * np.log(1 - u)) * np.cos(coefficient(TWO_PI, element) * turn)


def _dropout(op: logical.DropoutOp, operands: Sequence[Array]) -> Array:
    x, seed, offset = operands
    rate = op.rate.value.data
    scaled = x * coefficient(1 / (1 - rate), composite_element(op.info.element))
    number = uniform(philox_word(seed, offset, _numbering(x.shape)), element_named("f32"))
    return np.where(number >= np.float32(rate), scaled, 0)


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.PhiloxOp: _philox,
    logical.PhiloxWordOp: lambda op, operands: philox_word(*operands),
    logical.DropoutOp: _dropout,
}
