"""Ranges against NumPy."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import aicf
from aicf.calibration.histograms import BINS, Histogram
from tests.calibration.models import TARGET, chain, chain_samples, chain_weights

WEIGHTS, SAMPLES = chain_weights(), chain_samples(512)


def operands() -> dict[str, np.ndarray]:
    """What each product reads, in float64."""
    value = SAMPLES.astype(np.float64)
    found: dict[str, np.ndarray] = {}
    for number in (1, 2, 3):
        found[f"fc{number}"] = value
        value = np.maximum(value @ WEIGHTS[f"fc{number}.weight"].T + WEIGHTS[f"fc{number}.bias"], 0)
    return found


@cache
def ranges(method: str, **options) -> dict[str, tuple[float, float]]:
    found = aicf.calibrate(chain(), SAMPLES, method=method, weights=WEIGHTS, target=TARGET, **options)
    return {product: pair for product, (pair,) in found.policy.precision.ranges.items()}


def test_minmax_is_the_smallest_and_the_largest():
    for product, (low, high) in ranges("minmax").items():
        value = operands()[product]
        np.testing.assert_allclose((low, high), (value.min(), value.max()), rtol=1e-5, atol=1e-7)


def test_percentiles_are_those_of_numpy_to_a_few_bins():
    for product, (low, high) in ranges("percentile", percentile=98.0).items():
        value = operands()[product]
        bin_ = (value.max() - value.min()) / BINS
        np.testing.assert_allclose((low, high), np.percentile(value, [1, 99]), atol=4 * bin_)


def test_percentiles_of_symmetric_integers_are_of_magnitudes():
    for product, (low, high) in ranges("percentile", percentile=98.0, activations="symmetric").items():
        value = operands()[product]
        bin_ = np.abs(value).max() / BINS
        assert high == pytest.approx(np.percentile(np.abs(value), 98), abs=5 * bin_)
        assert low == pytest.approx(max(value.min(), -high), abs=5 * bin_)


def test_entropy_cuts_off_outliers_of_a_distribution():
    values = np.random.default_rng(0).normal(size=400_000)
    values[:10] = 40.0
    histogram = Histogram(float(values.min()), 40.0)
    histogram.add(values)
    low, high = histogram.least_divergence("symmetric")
    assert 2.5 < high < 6 and low == pytest.approx(-high, abs=1.5)
    uniform = Histogram(-1.0, 1.0)
    uniform.add(np.random.default_rng(0).uniform(-1, 1, 400_000))
    assert uniform.least_divergence("symmetric")[1] > 0.95


def test_values_that_are_all_equal_have_their_own_range():
    histogram = Histogram(2.0, 2.0)
    histogram.add(np.full(10, 2.0))
    assert histogram.percentiles(99.0, "asymmetric") == (2.0, 2.0) == histogram.least_divergence("symmetric")
