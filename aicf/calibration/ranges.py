"""From what runs show of the operands of products to ranges and smoothing factors of a policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.calibration.histograms import Histogram
from aicf.calibration.observe_products import LARGEST, SMALLEST, VALUE, WEIGHT
from aicf.calibration.observed_names import Observed, observed_in
from aicf.runtime.tensors import Array

Vector = NDArray[Any]
Ranges = dict[str, tuple[tuple[float, float], ...]]
_DIGITS = 7
"""Of numbers in a policy, as f32 has them."""


@dataclass
class Statistics:
    """The smallest and largest numbers of all samples, f32: scalars, or vectors with an element for each channel.

    Args:
        smallest, largest: Of each operand that depends on inputs.
        weights: Largest magnitudes, of each weight.
    """

    smallest: dict[Observed, Vector] = field(default_factory=dict[Observed, Vector])
    largest: dict[Observed, Vector] = field(default_factory=dict[Observed, Vector])
    weights: dict[Observed, Vector] = field(default_factory=dict[Observed, Vector])

    def add(self, outputs: Mapping[str, Array]) -> None:
        """Takes in the results of one run."""
        for each, array in observed_in(outputs).items():
            key = replace(each, kind="")
            if each.kind == SMALLEST:
                self.smallest[key] = np.minimum(self.smallest.get(key, array), array)
            elif each.kind == LARGEST:
                self.largest[key] = np.maximum(self.largest.get(key, array), array)
            elif each.kind == WEIGHT:
                self.weights[key] = array

    @property
    def products(self) -> list[str]:
        """The products in text order."""
        return list(dict.fromkeys(each.product for each in self.smallest))

    def smoothing(self, alpha: float) -> dict[str, Vector]:
        """A factor for each input channel of products with a weight: `operand ** alpha / weight ** (1 - alpha)`, of
        the largest magnitudes of both. Products that read one value have the same factors, so that it is rounded once.

        Source: G. Xiao et al., "SmoothQuant", 2023.
        """
        weights = {each.product: vector for each, vector in self.weights.items()}
        groups: dict[int, list[Observed]] = {}
        for each in self.smallest:
            if each.product in weights:
                groups.setdefault(each.group, []).append(each)
        found: dict[str, Vector] = {}
        for members in groups.values():
            first = members[0]
            operand = np.maximum(np.abs(self.smallest[first]), np.abs(self.largest[first]))
            weight = np.max([weights[each.product] for each in members], axis=0)
            factors = _factors(operand.astype(np.float64), weight.astype(np.float64), alpha)
            found.update({each.product: factors for each in members})
        return found

    def limits(self, smoothing: Mapping[str, Vector]) -> dict[Observed, tuple[float, float]]:
        """The smallest and the largest number of each operand, divided by its smoothing factors."""
        found: dict[Observed, tuple[float, float]] = {}
        for each, smallest in self.smallest.items():
            factors = smoothing.get(each.product, 1.0)
            low, high = np.min(smallest / factors), np.max(self.largest[each] / factors)
            found[each] = float(low), float(high)
        return found


def _factors(operand: Vector, weight: Vector, alpha: float) -> Vector:
    """A channel of zeros on either side is left as it is."""
    usable = (operand > 0) & (weight > 0)
    safe = np.where(usable, operand, 1.0), np.where(usable, weight, 1.0)
    return np.array([shortened(each) for each in safe[0] ** alpha / safe[1] ** (1 - alpha)])


def histograms(
    limits: Mapping[Observed, tuple[float, float]],
    smoothing: Mapping[str, Vector],
    runs: Iterable[Mapping[str, Array]],
) -> dict[Observed, Histogram]:
    """The distribution of each operand over all runs, which have the operands themselves among their results.

    Products that read one value and are smoothed alike have one histogram.
    """
    made: dict[tuple[int, bytes, int], Histogram] = {}
    keys: dict[Observed, tuple[int, bytes, int]] = {}
    for each, (low, high) in limits.items():
        factors = smoothing.get(each.product)
        keys[each] = each.group, b"" if factors is None else factors.tobytes(), each.axis
        made.setdefault(keys[each], Histogram(low, high))
    for outputs in runs:
        values = {each.group: array for each, array in observed_in(outputs).items() if each.kind == VALUE}
        for (group, factors, axis), histogram in made.items():
            histogram.add(_smoothed(values[group], factors, axis))
    return {each: made[key] for each, key in keys.items()}


def _smoothed(value: Array, factors: bytes, axis: int) -> Array:
    if not factors:
        return value
    shape = [1] * value.ndim
    shape[axis] = value.shape[axis]
    return value / np.frombuffer(factors, np.float64).reshape(shape)


def by_product(limits: Mapping[Observed, tuple[float, float]]) -> Ranges:
    """The ranges as a policy has them: of each product, in the order of its operands."""
    found: dict[str, list[tuple[float, float]]] = {}
    for each in sorted(limits, key=lambda each: each.index):
        low, high = limits[each]
        found.setdefault(each.product, []).append((shortened(low), shortened(high)))
    return {product: tuple(found[product]) for product in sorted(found)}


def shortened(number: float) -> float:
    """A number with as many digits as a policy has."""
    return float(f"{number:.{_DIGITS}g}")
