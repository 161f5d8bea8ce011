"""Strided bytes against sets of addresses: parts that meet are never said to be apart, and rows hold what they say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aicf.passes.analysis.strided import StridedBytes

STEPS = (0, 1, 2, 3, 4, 6, 8, 12, 24, -1, -4)


def addresses(start: int, dims: Sequence[tuple[int, int]], run: int = 1) -> set[int]:
    found = np.full((), start)
    for size, step in (*dims, (run, 1)):
        found = np.add.outer(found, np.arange(size) * step)
    return set(found.ravel().tolist())


def random_bytes(rng: np.random.Generator) -> tuple[StridedBytes, set[int]]:
    """Elements of one byte anywhere, and their addresses."""
    rank, start = int(rng.integers(1, 4)), int(rng.integers(30, 60))
    shape = [int(size) for size in rng.integers(1, 5, rank)]
    strides = [int(step) for step in rng.choice(STEPS, rank)]
    taken = addresses(start, list(zip(shape, strides, strict=True)))
    return StridedBytes.of(min(taken), shape, strides, 1), taken


def test_what_is_said_to_be_apart_shares_no_byte():
    rng = np.random.default_rng(0)
    apart = known = 0
    for _ in range(3000):
        (one, mine), (other, its) = random_bytes(rng), random_bytes(rng)
        assert one.meets(other) or not mine & its
        assert not one.holds(other) or its <= mine
        apart += not mine & its
        known += not one.meets(other)
    assert known > 0.85 * apart > 100


def test_rows_hold_the_same_bytes():
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(1000):
        one, taken = random_bytes(rng)
        for length in (2, 3, 4, 6, 8, 12, 24):
            if (rows := one.rows(length)) is not None:
                found += 1
                dims = [(size, step * length) for size, step in rows.dims]
                columns = rows.columns
                start = rows.first * length + columns.start
                assert addresses(start, [*dims, *columns.dims], columns.run) == taken
    assert found > 500


def test_columns_and_blocks_of_one_buffer_are_apart():
    """What concatenations give: columns of rows, channels of images, and the four blocks of a matrix."""
    left, right = (StridedBytes.of(at * 4, (8, 3), (7, 1), 4) for at in (0, 3))
    assert not left.meets(right) and left.meets(StridedBytes.of(8, (8, 3), (7, 1), 4))
    one, other = (StridedBytes.of(at * 4, (2, 3, 5, 5), (200, 25, 5, 1), 4) for at in (0, 75))
    assert not one.meets(other)
    blocks = [
        StridedBytes.of(4 * (56 * i + 4 * j), (4, 7, 4), (112, 8, 1), 4) for i in (0, 1) for j in (0, 1)
    ]
    assert not any(a.meets(b) for a in blocks for b in blocks if a is not b)
