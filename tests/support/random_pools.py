"""Poolings drawn from a seed: one to three dimensions, every kind of window, NaN and infinities among the elements."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.frontends.builder import Graph, Value
from aicf.runtime.tensors import numpy_dtype
from tests.support.op_rows.pooling import starts_of

Array = NDArray[Any]

FLOATS = ("f32", "f16", "bf16", "f64")
INTEGERS = ("i64", "i32", "i16", "i8", "u8")
_CHANNELS = (1, 2, 3, 5, 8, 12, 16, 24)
_LONGEST, _LARGEST = 400, 2000
"""Elements of a drawn window and of a plane, at most: a simulated GPU is slow."""


@dataclass(frozen=True)
class DrawnPool:
    """One pooling.

    Args:
        op: Name of the builder's method.
        shape, dtype: Of the operand.
        windows: Arguments of the method, by name.
    """

    op: str
    shape: tuple[int, ...]
    dtype: str
    windows: dict[str, Any]

    def of(self, g: Graph, x: Value) -> Value:
        """The pooling of a value."""
        return getattr(g, self.op)(x, **self.windows)

    def values(self, seed: int) -> Array:
        """An operand below zero, so that a border of zeros would show; of floats some are NaN or infinite."""
        random = np.random.default_rng(seed)
        if self.dtype in INTEGERS:
            info = np.iinfo(numpy_dtype(self.dtype))
            return random.integers(max(info.min, -99), min(info.max, 99), self.shape).astype(info.dtype)
        found = random.standard_normal(self.shape) - 2.0
        odd = random.random(self.shape)
        found[odd < 0.01] = np.nan
        found[odd > 0.99] = -np.inf
        return found.astype(numpy_dtype(self.dtype))


def drawn_pool(seed: int) -> DrawnPool:
    """The pooling of a seed: every third one has a long window, every fifth is of integers."""
    random = Random(seed)
    dtype = random.choice(INTEGERS if seed % 5 == 4 else FLOATS)
    rank, ceil_mode = random.choice((1, 2, 2, 3)), random.random() < 0.3
    while True:
        axes = [_axis(random, rank, seed % 3 == 2, ceil_mode) for _ in range(rank)]
        if prod(axis[1] for axis in axes) <= _LONGEST and prod(axis[0] for axis in axes) <= _LARGEST:
            break
    names = ("sizes", "strides", "dilations", "low", "high")
    lists = zip(*(axis[1:] for axis in axes), strict=True)
    windows: dict[str, Any] = {name: list(one) for name, one in zip(names, lists, strict=True)}
    op = "max_pool" if dtype in INTEGERS or random.random() < 0.5 else "avg_pool"
    if op == "avg_pool":
        windows["count_include_pad"] = random.random() < 0.4
    channels = [count for count in _CHANNELS if count * prod(axis[0] for axis in axes) <= 4 * _LARGEST]
    shape = (random.choice((1, 1, 2)), random.choice(channels), *(axis[0] for axis in axes))
    return DrawnPool(op, shape, dtype, {**windows, "ceil_mode": ceil_mode})


def _axis(random: Random, rank: int, is_long: bool, ceil_mode: bool) -> tuple[int, ...]:
    """A size, and windows of which there is at least one. Some are larger than the operand, or lie beside it."""
    while True:
        whole = random.choice((1, 2, 3, 5, 7, 9, 13, 20) if rank > 1 else (1, 4, 9, 33, 70))
        size = random.randint(4, 21) if is_long else random.randint(1, 5)
        size = whole if random.random() < 0.15 else size
        stride, dilation = random.randint(1, 4), random.choice((1, 1, 1, 2, 3))
        low, high = (random.choice((0, 0, 1, 2, size)) for _ in range(2))
        if starts_of(whole, size, stride, dilation, low, high, ceil_mode):
            return whole, size, stride, dilation, low, high
