"""Which elements of the operands and of the sums of mma.sync each lane of a warp holds. Tiles are of any number of
16 rows and 8 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_GROUP, _PLACE = np.arange(32)[:, None] // 4, np.arange(32)[:, None] % 4
"""Of each lane: which of the rows of A and of the columns of B it holds, and which words of them."""


def in_order(brought: Mapping[int, Any]) -> list[Any]:
    """What the lanes of a warp bring, by their numbers."""
    return [brought[number] for number in sorted(brought)]


def operands(
    a: Sequence[Sequence[int]], b: Sequence[Sequence[int]], types: tuple[Any, Any], wide: Any
) -> tuple[Array, Array]:
    """A of [rows, k] and B of [k, columns], in the type `wide`.

    Args:
        a: The registers of each lane, of 32 bits: four for every 16 rows.
        b: The same, two for every 8 columns.
        types: Of the elements of A and of B; a register holds several.
        wide: What holds both.
    """
    left, right = _elements(a, types[0]), _elements(b, types[1])
    per_word = np.arange(left.shape[2])
    first = per_word.size * _PLACE
    number = np.arange(left.shape[1])
    rows = 16 * (number // 4) + _GROUP + 8 * (number % 2)
    depths = first + 4 * per_word.size * (number % 4 // 2)
    found_a = np.empty((4 * left.shape[1], 8 * per_word.size), wide)
    found_a[rows[:, :, None], depths[:, :, None] + per_word] = left
    number = np.arange(right.shape[1])
    columns = 8 * (number // 2) + _GROUP
    depths = first + 4 * per_word.size * (number % 2)
    found_b = np.empty((8 * per_word.size, 4 * right.shape[1]), wide)
    found_b[depths[:, :, None] + per_word, columns[:, :, None]] = right
    return found_a, found_b


def _elements(words: Sequence[Sequence[int]], dtype: Any) -> Array:
    """[lanes, registers, elements of a register]."""
    registers = np.array(words, np.uint32)
    return registers.view(dtype).reshape(*registers.shape, -1)


def held(tile: Array) -> Array:
    """[lanes, sums of a lane] of a tile [rows, columns]: two neighbours of two rows for every 16 rows and 8 columns,
    columns first."""
    rows, columns = tile.shape[0] // 16, tile.shape[1] // 8
    parts = tile.reshape(rows, 2, 8, columns, 4, 2)
    return parts.transpose(2, 4, 0, 3, 1, 5).reshape(32, -1)


def transposed(rows: Sequence[Sequence[int]], count: int) -> list[tuple[int, ...]]:
    """What each lane is told of matrices of 8 x 8 halves: two neighbours of a column, of four matrices for each offset.

    Args:
        rows: Of four words, those of a lane one after the other.
        count: Rows of a lane.
    """
    halves = np.array(rows, np.uint32).view(np.uint16).reshape(4, 4, 2, count, 8)
    # [matrix, pair of rows, row of a pair, offset, column] -> [column, pair of rows, offset, matrix, row of a pair]
    told = np.ascontiguousarray(halves.transpose(4, 1, 3, 0, 2)).view(np.uint32)
    return [tuple(own) for own in told.reshape(32, 4 * count).tolist()]
