"""Rows of numbers to rows of blocks: the inverse of `aicf.dialects.block_schemes`.

How factors are found is in `fitting`; where bits go is the table that kernels read them by. Nothing is random, and
blocks do not depend on one another, so the same numbers give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from aicf.dialects.block_bits import BLOCK_BITS, RUN, Bits, Factor
from aicf.dialects.block_schemes import SCHEMES, Array, Scheme
from aicf.llm.quantizing.fitting import (
    Codes,
    Fit,
    fit_scale,
    fit_scale_and_minimum,
    stored_half,
    unrounded,
)

_CHUNK = 1 << 17
"""Elements that are encoded at a time: what is computed of them stays in cache."""

LARGEST = 65504.0
"""Of the numbers that an f16 holds, and so of elements and factors."""


class _Encoded(NamedTuple):
    """What blocks hold.

    Args:
        q: f32[elements of a part, blocks, parts].
        scale: f32[blocks], as a block stores it.
        scales: Whole numbers that it is multiplied by, f32[blocks, parts]; None if there are none.
        minimum, minima: Likewise.
    """

    q: Array
    scale: Array
    scales: Array | None = None
    minimum: Array | None = None
    minima: Array | None = None


def encode(scheme: Scheme, rows: Array) -> Array:
    """Rows in blocks.

    Args:
        scheme: Of `ENCODED`.
        rows: f32[..., columns], of magnitudes up to `LARGEST`; columns are a multiple of `scheme.length`.

    Returns:
        u8[..., bytes of a row].
    """
    blocks = rows.reshape(-1, scheme.length)
    out = np.empty((len(blocks), scheme.nbytes), np.uint8)
    step = _CHUNK // scheme.length
    for start in range(0, len(blocks), step):
        chunk = np.ascontiguousarray(blocks[start : start + step], np.float32)
        out[start : start + step] = _ENCODERS[scheme.name](chunk)
    return out.reshape(*rows.shape[:-1], -1)


def _in_parts(name: str, blocks: Array) -> Array:
    """f32[blocks, elements] as f32[elements of a part, all parts]."""
    return np.ascontiguousarray(blocks.reshape(-1, BLOCK_BITS[name].part).T)


def _signed(name: str, codes: Codes) -> Callable[[Array], Array]:
    """One part, with a scale."""

    def encoded(blocks: Array) -> Array:
        x = _in_parts(name, blocks)
        fit = fit_scale(x, codes, stored_half)
        return _packed(name, _Encoded(codes.nearest(x, fit)[:, :, None], fit.scale))

    return encoded


def _with_minimum(name: str, codes: Codes) -> Callable[[Array], Array]:
    """One part, with a scale and a minimum."""

    def encoded(blocks: Array) -> Array:
        x = _in_parts(name, blocks)
        fit = fit_scale_and_minimum(x, codes, stored_half)
        return _packed(name, _Encoded(codes.nearest(x, fit)[:, :, None], fit.scale, minimum=fit.minimum))

    return encoded


def _nested(name: str, codes: Codes) -> Callable[[Array], Array]:
    """Parts whose scales are multiples of -128 to 127 of that of the block."""

    def encoded(blocks: Array) -> Array:
        x = _in_parts(name, blocks)
        fit = fit_scale(x, codes, unrounded)
        scale, scales = _multiples(fit.scale.reshape(len(blocks), -1), -128, 127)
        q = codes.nearest(x, Fit((scale[:, None] * scales).reshape(-1), np.zeros_like(fit.minimum)))
        return _packed(name, _Encoded(q.reshape(-1, *scales.shape), scale, scales))

    return encoded


def _nested_with_minimum(name: str, codes: Codes) -> Callable[[Array], Array]:
    """Parts whose scales and minima are multiples of 0 to 63 of those of the block; minima are taken off."""

    def encoded(blocks: Array) -> Array:
        x = _in_parts(name, blocks)
        fit = fit_scale_and_minimum(x, codes, unrounded, is_signed=False)
        scale, scales = _multiples(fit.scale.reshape(len(blocks), -1), 0, 63)
        minimum, minima = _multiples(-fit.minimum.reshape(len(blocks), -1), 0, 63)
        stored = Fit((scale[:, None] * scales).reshape(-1), -(minimum[:, None] * minima).reshape(-1))
        q = codes.nearest(x, stored).reshape(-1, *scales.shape)
        return _packed(name, _Encoded(q, scale, scales, minimum, minima))

    return encoded


def _multiples(factors: Array, low: int, high: int) -> tuple[Array, Array]:
    """A factor of each block, as f16 holds it, and the whole numbers whose products with it are near those of parts.

    Args:
        factors: f32[blocks, parts].
        low, high: Of the whole numbers; the end of larger magnitude is for the largest factor.
    """
    largest = np.take_along_axis(factors, np.abs(factors).argmax(1, keepdims=True), 1)[:, 0]
    whole = stored_half(largest / np.float32(low or high))
    return whole, Codes(low, high).nearest(factors.T, Fit(whole, np.zeros_like(whole))).T


def _packed(name: str, encoded: _Encoded) -> Array:
    """u8[blocks, bytes of a block]."""
    bits = BLOCK_BITS[name]
    codes = (encoded.q + np.float32(bits.offset)).astype(np.uint8).transpose(1, 2, 0) ^ bits.flips
    codes = codes.reshape(len(codes), -1)
    blocks = np.zeros((len(codes), SCHEMES[name].nbytes), np.uint8)
    for run in range(codes.shape[1] // RUN):
        for field in bits.codes(run):
            _put(blocks, field, codes[:, run * RUN : (run + 1) * RUN])
    for factor, value, numbers in (
        (bits.scale, encoded.scale, encoded.scales),
        (bits.minimum, encoded.minimum, encoded.minima),
    ):
        if factor is not None and value is not None:
            _put_factor(blocks, factor, value, numbers)
    return blocks


def _put_factor(blocks: Array, factor: Factor, value: Array, numbers: Array | None) -> None:
    blocks[:, factor.byte : factor.byte + 2] = value.astype(np.float16).view(np.uint8).reshape(-1, 2)
    if numbers is None or factor.number is None:
        return
    stored = numbers.astype(np.int8).view(np.uint8)
    for part in range(stored.shape[1]):
        for field in factor.number(part):
            _put(blocks, field, stored[:, part : part + 1])


def _put(blocks: Array, bits: Bits, values: Array) -> None:
    """Writes a field of the values, u8[blocks, neighbours]."""
    field = values >> bits.to & ((1 << bits.width) - 1)
    if bits.by_bit:
        field = np.packbits(field, axis=1, bitorder="little")
    blocks[:, bits.byte : bits.byte + field.shape[1]] |= field << bits.shift


_ENCODERS: Mapping[str, Callable[[Array], Array]] = {
    "Q4_0": _signed("Q4_0", Codes(-8, 7)),
    "Q4_1": _with_minimum("Q4_1", Codes(0, 15)),
    "Q5_0": _signed("Q5_0", Codes(-16, 15)),
    "Q5_1": _with_minimum("Q5_1", Codes(0, 31)),
    "Q8_0": _signed("Q8_0", Codes(-127, 127)),
    "Q4_K": _nested_with_minimum("Q4_K", Codes(0, 15)),
    "Q5_K": _nested_with_minimum("Q5_K", Codes(0, 31)),
    "Q6_K": _nested("Q6_K", Codes(-32, 31)),
    "F32": lambda x: x.view(np.uint8),
    "F16": lambda x: x.astype(np.float16).view(np.uint8),
}
ENCODED = tuple(_ENCODERS)
"""Names of the schemes that rows can be encoded in."""


def bits_of(scheme: Scheme) -> float:
    """Bits of an element, its share of the factors included."""
    return 8 * scheme.nbytes / scheme.length
