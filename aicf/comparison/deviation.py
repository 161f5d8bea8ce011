"""How far the outputs of an engine are from a reference."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from aicf.comparison.results import Deviation
from aicf.runtime.tensors import Array


def deviation_from(reference: Mapping[str, Array], outputs: Mapping[str, Array]) -> Deviation:
    """The worst output, by its relative difference. Outputs are compared in their order: names may differ in an output
    that is also an input.
    """
    pairs = zip(reference.values(), outputs.items(), strict=True)
    found = [Deviation(name, *_difference(wanted, got)) for wanted, (name, got) in pairs]
    return max(found, key=lambda each: each.relative)


def _difference(wanted: Array, found: Array) -> tuple[float, float]:
    if wanted.shape != found.shape:
        return math.inf, math.inf
    if not wanted.size:
        return 0.0, 0.0
    a, b = wanted.astype(np.float64), found.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(np.where(finite, 0, a), np.where(np.isfinite(b), 0, b), equal_nan=True):
        return math.inf, math.inf
    largest = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    scale = float(np.abs(a[finite]).max(initial=0.0))
    return largest, largest / scale if scale else largest
