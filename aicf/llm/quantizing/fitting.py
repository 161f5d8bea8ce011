"""The scale, and the minimum, with which the codes of a part lie closest to its numbers: a least-squares search.

Each candidate of a scale gives codes, the nearest ones; the codes give the best scale and minimum by linear least
squares. Of all candidates, each as a block stores it, the one with the least squared error is taken, and made better by
two more rounds of nearest codes and least squares. llama.cpp searches in this way (`make_qx_quants` and
`make_qkx2_quants` of `ggml-quants.c`); here all elements of a part weigh the same.

Parts are columns here, x f32[elements, parts], so that NumPy adds up whole rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from aicf.dialects.block_schemes import Array

Store: TypeAlias = "Callable[[Array], Array]"
"""f32 factors to those that a block can hold of them, in f32."""

SHIFTS = np.arange(-9, 10, dtype=np.float32) / 10
"""A candidate each: what is added to the number of steps that the numbers of a part span."""
_ROUNDS = 2
_LARGEST_HALF = np.float32(65504)


class Fit(NamedTuple):
    """Factors of parts: an element is scale q + minimum. f32[parts] each."""

    scale: Array
    minimum: Array


@dataclass(frozen=True)
class Codes:
    """The whole numbers q, from `low` to `high`."""

    low: int
    high: int

    def nearest(self, x: Array, fit: Fit) -> Array:
        """The q of x, f32[elements, parts]; 0 where a scale is 0."""
        return np.clip(np.rint((x - fit.minimum) * _inverse(fit.scale)), self.low, self.high)


def stored_half(factor: Array) -> Array:
    """As an f16 holds it; what least squares put a little above the largest one becomes that."""
    return np.clip(factor, -_LARGEST_HALF, _LARGEST_HALF).astype(np.float16).astype(np.float32)


def unrounded(factor: Array) -> Array:
    """As it is: of factors that are rounded later."""
    return factor


def fit_scale(x: Array, codes: Codes, store: Store) -> Fit:
    """Scales of either sign; minima are 0.

    Args:
        x: f32[elements, parts].
        codes: Of which `low` has the larger magnitude: it is for the largest element.
        store: What a block holds of a scale.
    """
    largest: Array = np.copysign(np.abs(x).max(0), x.max(0) + x.min(0))
    zero = np.zeros_like(largest)

    def solved(q: Array) -> Fit:
        return Fit(store(_ratio(_sum(q * x), _sum(q * q))), zero)

    first = Fit(store(largest / np.float32(codes.low)), zero)
    tried = (codes.nearest(x, Fit(largest / (np.float32(codes.low) + shift), zero)) for shift in SHIFTS)
    return _searched(x, codes, first, tried, solved)


def fit_scale_and_minimum(x: Array, codes: Codes, store: Store, *, is_signed: bool = True) -> Fit:
    """Scales of 0 or more, and minima.

    Args:
        x: f32[elements, parts].
        codes: From 0 on.
        store: What a block holds of a scale and of a minimum.
        is_signed: Whether a minimum may be above 0.
    """
    lowest = x.min(0)
    lowest = lowest if is_signed else np.minimum(lowest, 0)
    above, span = x - lowest, x.max(0) - lowest

    def stored(scale: Array, minimum: Array) -> Fit:
        return Fit(store(np.maximum(scale, 0)), store(minimum))

    def solved(q: Array) -> Fit:
        scale, offset = _line(q, above)
        minimum = lowest + offset
        if is_signed:
            return stored(scale, minimum)
        through_zero = _ratio(_sum(q * x), _sum(q * q))
        return stored(np.where(minimum > 0, through_zero, scale), np.minimum(minimum, 0))

    first = stored(span / np.float32(codes.high), lowest)
    zero = np.zeros_like(span)
    tried = (codes.nearest(above, Fit(span / (np.float32(codes.high) + shift), zero)) for shift in SHIFTS)
    return _searched(x, codes, first, tried, solved)


def _searched(
    x: Array, codes: Codes, first: Fit, tried: Iterable[Array], solved: Callable[[Array], Fit]
) -> Fit:
    """The best factors: of `first` and those that are solved from the codes that are tried, and better ones near."""
    fit = _best(x, codes, first, map(solved, tried))
    for _ in range(_ROUNDS):
        fit = _best(x, codes, fit, [solved(codes.nearest(x, fit))])
    return fit


def _best(x: Array, codes: Codes, first: Fit, others: Iterable[Fit]) -> Fit:
    """Of each part the factors with the least squared error; the earliest of equal ones."""
    best, least = first, _error(x, codes, first)
    for fit in others:
        error = _error(x, codes, fit)
        is_better = error < least
        best = Fit(*(np.where(is_better, new, old) for new, old in zip(fit, best, strict=True)))
        least = np.where(is_better, error, least)
    return best


def _error(x: Array, codes: Codes, fit: Fit) -> Array:
    off = fit.scale * codes.nearest(x, fit) + fit.minimum - x
    return _sum(off * off)


def _line(q: Array, y: Array) -> tuple[Array, Array]:
    """Slope and offset of the line through points (q, y) with the least squared error; the mean if all q are equal."""
    q_mean, y_mean = q.mean(0), y.mean(0)
    q_off = q - q_mean
    slope = _ratio(_sum(q_off * (y - y_mean)), _sum(q_off * q_off))
    return slope, y_mean - slope * q_mean


def _sum(terms: Array) -> Array:
    return terms.sum(0)


def _ratio(numerator: Array, denominator: Array) -> Array:
    """The quotient; 0 where the denominator is."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator != 0)


def _inverse(scale: Array) -> Array:
    """1 / scale; 0 where that is 0, or too small for its inverse."""
    return _ratio(np.ones_like(scale), np.where(np.abs(scale) < _LEAST, 0, scale))


_LEAST = np.float32(2.0**-126)
