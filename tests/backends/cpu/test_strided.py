"""Copies whose lanes lie two to four elements apart, and farther: vectors are shuffled out of memory and into it."""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from aicf.dialects.types import element_named
from aicf.frontends.builder import Graph

TYPES = ("f64", "f32", "f16", "bf16", "i32", "u8", "i1")


@pytest.mark.parametrize("level", ["cpu:generic", "cpu:x86-64-v3", "cpu"])
@pytest.mark.parametrize("stride", [2, 3, 4, 5])
def test_elements_apart_are_read(stride: int, level: str) -> None:
    """Slices of every length about a vector, the last element of which is the last in memory."""
    g, sizes = Graph("read"), (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 70)
    arrays = {f"x{size}": np.arange((size - 1) * stride + 1, dtype=np.float32) for size in sizes}
    for size in sizes:
        x = g.input(f"x{size}", arrays[f"x{size}"].shape)
        g.output(g.slice(x, [0], [size], [stride]) + 1, f"y{size}")
    for size, found in zip(sizes, aicf.compile(g, target=level)(arrays), strict=True):
        np.testing.assert_array_equal(found, np.arange(size) * stride + 1)


@pytest.mark.parametrize("level", ["cpu:generic", "cpu:x86-64-v3", "cpu"])
@pytest.mark.parametrize("dtype", TYPES)
def test_elements_apart_are_written(dtype: str, level: str) -> None:
    """Each element several times: what lies between two of a vector is another one's."""
    g, random = Graph("write"), np.random.default_rng(0)
    counts = [(size, times) for size in (5, 16, 37) for times in (2, 3, 4, 5)]
    arrays = {
        f"x{size}_{times}": random.integers(0, 100, (3, size)).astype(element_named(dtype).dtype)
        for size, times in counts
    }
    for size, times in counts:
        x = g.input(f"x{size}_{times}", (3, size), dtype)
        apart = g.broadcast_to(g.reshape(x, (3, size, 1)), (3, size, times))
        g.output(g.reshape(apart, (3, size * times)), f"y{size}_{times}")
    for (size, times), found in zip(counts, aicf.compile(g, target=level)(arrays), strict=True):
        np.testing.assert_array_equal(found, np.repeat(arrays[f"x{size}_{times}"], times, 1))
