"""What a query sees by a position: one number for all queries, or each with one of its own."""

from __future__ import annotations

import numpy as np

import aicf

RNG = np.random.default_rng(337)
ROWS, KEYS, SIZE = 4, 12, 8


def test_queries_with_positions_of_their_own_see_by_their_own() -> None:
    """As the number that keys come before them is an input of the scores' shape, it is no position of all."""
    g = aicf.Graph("own_positions")
    q, k, v = (g.input(name, (2, rows, SIZE)) for name, rows in (("q", ROWS), ("k", KEYS), ("v", KEYS)))
    before = g.input("before", (2, ROWS, KEYS), "i64")
    columns, rows = (g.iota((2, ROWS, KEYS), axis, "i64") for axis in (2, 1))
    scores = g.matmul(q, k, transpose_b=True) * 0.25
    seen = g.where(columns <= rows + before, scores, float("-inf"))
    g.output(g.matmul(g.softmax(seen), v), "y")
    arrays = {name: RNG.standard_normal((2, rows, SIZE), np.float32) for name, rows in _SIZES.items()}
    arrays["before"] = RNG.integers(0, 8, (2, ROWS, KEYS))
    exact = 0.25 * arrays["q"].astype(np.float64) @ arrays["k"].swapaxes(1, 2)
    hidden = np.arange(KEYS) > np.arange(ROWS)[:, None] + arrays["before"]
    weights = np.where(hidden, 0, np.exp(exact))
    expected = weights / weights.sum(-1, keepdims=True) @ arrays["v"]
    np.testing.assert_allclose(aicf.compile(g, {}, "cpu").run(arrays)["y"], expected, rtol=1e-4, atol=1e-5)


_SIZES = {"q": ROWS, "k": KEYS, "v": KEYS}
