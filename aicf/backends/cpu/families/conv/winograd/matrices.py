"""The matrices of Winograd's minimal filtering F(t x t, 3 x 3), and how few operations multiply by them. Exact numbers,
no code.

A convolution of a tile is a product of polynomials, evaluated at points and interpolated: A. Toom and S. Cook's way,
minimal after S. Winograd, "Arithmetic Complexity of Computations", 1980. In two dimensions a tile of the result is
``A' [(G g G') * (B' d B)] A`` with a window `g` and a tile `d` of the input, elementwise at ``*``.

The points decide the error. Those of F(4x4) are not the usual 0, 1, -1, 2, -2 but 0, 5/8, -5/8, 3/2, -3/2, whose
powers lie closer to 1: in f32 sums of 64 to 512 channels then have 2 times the error of direct ones and not 4 to 5
times. All numbers of A and B are binary fractions, so that only G, which is multiplied in f64 ahead of time, rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

TAPS = 3
"""Rows and columns of a window."""
OUTPUT_TILES = (2, 4)
"""Rows and columns of a tile of the result."""

_POINTS = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(5, 8), Fraction(-5, 8), Fraction(3, 2), Fraction(-3, 2)),
}
"""By tile; infinity is the last one of each. They come in pairs of opposite sign, which share operations."""

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class Transforms:
    """The matrices of a tile.

    Args:
        input: B', square.
        weight: G, a column for each tap.
        output: A', a row for each pixel of the tile.
    """

    input: Matrix
    weight: Matrix
    output: Matrix

    @property
    def size(self) -> int:
        """Rows and columns of a tile of the input."""
        return len(self.input)


@lru_cache
def transforms(tile: int) -> Transforms:
    """The matrices of F(tile x tile, 3 x 3)."""
    points, none = _POINTS[tile], Fraction(0)
    apart = [(point, [other for other in points if other != point]) for point in points]
    inputs = [(*_with_roots(others), none) for _, others in apart]
    weights = [
        tuple(point**power / _value(others, point) for power in range(TAPS)) for point, others in apart
    ]
    weights.append(tuple(Fraction(power == TAPS - 1) for power in range(TAPS)))
    outputs = [(*(point**power for point in points), Fraction(power == tile - 1)) for power in range(tile)]
    return Transforms((*inputs, _with_roots(points)), tuple(weights), tuple(outputs))


def _with_roots(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """The coefficients of the product of all ``x - root``, of x^0 first."""
    found = [Fraction(1)]
    for root in roots:
        found = [
            low - root * high for low, high in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)
        ]
    return tuple(found)


def _value(roots: Sequence[Fraction], at: Fraction) -> Fraction:
    """The product of all ``at - root``."""
    found = Fraction(1)
    for root in roots:
        found *= at - root
    return found


def row_pairs(matrix: Matrix) -> list[tuple[int, int]]:
    """Neighbouring rows that are even + odd and even - odd, with no column in both parts and some in each."""
    found: list[tuple[int, int]] = []
    for first in range(len(matrix) - 1):
        pairs = list(zip(matrix[first], matrix[first + 1], strict=True))
        if all(abs(x) == abs(y) for x, y in pairs) and any(x == -y != 0 for x, y in pairs):
            found.append((first, first + 1))
    return found


def column_pairs(matrix: Matrix) -> list[tuple[int, int]]:
    """Neighbouring columns whose numbers differ in sign alone."""
    return row_pairs(tuple(zip(*matrix, strict=True)))
