"""A program with random numbers in every form, beside what fuses with them and in shapes that vectors do not divide."""

from __future__ import annotations

import numpy as np

from aicf.dialects.types import element_named
from aicf.frontends.builder import Graph

EXACT = ("bits", "uniform", "odd", "each", "dropped", "turned", "rows", "alone")
"""Outputs that are the same bits on every backend."""

KEYS = ((7, 0), (-3, -3), (2**63 - 1, 2**63 - 2))
"""Seed and offset; counters that pass 2^64 and 2^63 are among them."""


def random_numbers(dtype: str) -> Graph:
    """Numbers of a seed and an offset that are given at every run."""
    g = Graph("random_numbers")
    seed, offset = g.input("seed", (), "i64"), g.input("offset", (), "i64")
    x, y = g.input("x", (6, 4, 32), dtype), g.input("y", (5, 37), dtype)
    g.output(g.philox(seed, offset, (9, 64), "bits"), "bits")
    g.output(g.philox(seed, offset, (9, 64), dtype=dtype), "uniform")
    g.output(g.relu(g.dropout(y, seed, offset, 0.5)), "odd")
    g.output(g.philox_word(seed, g.input("offsets", (70,), "i64"), g.input("index", (70,), "i64")), "each")
    g.output(g.dropout(x, seed, offset, 0.5) + x, "dropped")
    g.output(g.relu(g.transpose(g.dropout(x, seed, offset, 0.5), [2, 0, 1])), "turned")
    kept = g.compare("ge", g.philox(seed, offset, (3, 300), dtype=dtype), 0.5)
    g.output(g.reduce_sum(g.cast(kept, "i32"), [1]), "rows")
    g.output(g.philox(seed, offset, (), dtype=dtype), "alone")
    g.output(g.philox(seed, offset, (5, 37), "normal", dtype), "normal")
    g.output(g.dropout(g.softmax(x), seed, offset, 0.1), "weights")
    return g


def random_inputs(dtype: str, seed: int, offset: int) -> dict[str, np.ndarray]:
    """Arrays for the program."""
    random, type_ = np.random.default_rng(5), element_named(dtype).dtype
    limits = np.iinfo(np.int64)
    return {
        "seed": np.array(seed),
        "offset": np.array(offset),
        "x": random.standard_normal((6, 4, 32)).astype(type_),
        "y": random.standard_normal((5, 37)).astype(type_),
        "offsets": random.integers(limits.min, limits.max, 70),
        "index": random.integers(limits.min, limits.max, 70),
    }


def assert_same_numbers(
    found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], tolerance: float
) -> None:
    """Equal bits, but for functions of floats."""
    assert found.keys() == wanted.keys()
    for name, array in found.items():
        assert array.shape == wanted[name].shape
        within = 0 if name in EXACT else tolerance * float(np.abs(wanted[name].astype(np.float64)).max())
        left, right = (value.astype(np.float64) for value in (array, wanted[name]))
        np.testing.assert_allclose(left, right, rtol=0, atol=within, err_msg=name)
