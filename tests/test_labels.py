"""Labels of a cross-entropy that are no class: NaN where they are, in the loss and its gradient, and nowhere else.

PyTorch raises on a CPU and stops a GPU; a replayed program has nobody to raise to, and `check_finite` finds the NaN.
"""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from aicf.frontends.builder import Graph

LABELS = np.array([0, 4, -1, 5, -100, 3, 2**31 - 1])
"""Two classes, three that are none, one that is ignored, and another class; there are five."""
OUTSIDE = np.array([False, False, True, True, False, False, True])
IGNORED = np.array([False, False, False, False, True, False, False])


def _step(dtype: str, smoothing: float) -> Graph:
    g = Graph("step")
    x, labels = g.param("x", (7, 5)), g.input("labels", (7,), dtype)
    g.output(g.cross_entropy(x, labels, reduction="none", label_smoothing=smoothing), "each")
    total = g.cross_entropy(x, labels, reduction="sum", label_smoothing=smoothing, name="total")
    g.output(g.gradient(total, x), "dx")
    return g


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize(("dtype", "smoothing"), [("i64", 0.0), ("i32", 0.1)])
def test_only_their_samples_are_no_numbers(target: str, dtype: str, smoothing: float) -> None:
    x = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    step = aicf.compile(_step(dtype, smoothing), weights={"x": x}, target=target)
    found = step.run({"labels": LABELS.astype({"i64": np.int64, "i32": np.int32}[dtype])})
    assert np.array_equal(np.isnan(found["each"]), OUTSIDE)
    assert np.array_equal(np.isnan(found["dx"]), np.repeat(OUTSIDE[:, None], 5, 1))
    assert np.all(found["each"][IGNORED] == 0) and np.all(found["dx"][IGNORED] == 0)
    counted = ~OUTSIDE & ~IGNORED
    wanted = np.full((3, 5), smoothing / 5)
    wanted[np.arange(3), LABELS[counted]] += 1 - smoothing
    logarithms = x - np.logaddexp.reduce(x.astype(np.float64), axis=1, keepdims=True)
    np.testing.assert_allclose(found["each"][counted], -np.sum(wanted * logarithms[counted], 1), rtol=1e-5)
    np.testing.assert_allclose(found["dx"][counted], np.exp(logarithms[counted]) - wanted, atol=1e-6)
