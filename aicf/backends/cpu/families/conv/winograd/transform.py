"""Code that multiplies by the small known matrices of Winograd's transforms, vectors at a time."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.families.conv.winograd.matrices import Matrix, column_pairs, row_pairs

Grid = list[list[Value]]
"""Rows of vectors."""


class Transform:
    """Multiplies a small matrix of known numbers with vectors, sharing what rows or columns of opposite sign do."""

    def __init__(self, em: Emitter, dtype: str, lanes: int, matrix: Matrix) -> None:
        self.em, self.dtype, self.lanes = em, dtype, lanes
        self.matrix = matrix
        self.rows = dict(row_pairs(matrix))
        self.columns = column_pairs(matrix)

    def apply(self, vectors: Sequence[Value]) -> list[Value]:
        """The products of all rows with `vectors`."""
        sums = {pair: self.em.b.fadd(*(vectors[at] for at in pair)) for pair in self.columns}
        differences = {pair: self.em.b.fsub(*(vectors[at] for at in pair)) for pair in self.columns}
        folded = {at for pair in self.columns for at in pair}
        found: list[Value] = []
        for number, row in enumerate(self.matrix):
            if number in self.rows:
                found += self.pair(vectors, number)
            elif number - 1 not in self.rows:
                terms = [(row[at], vector) for at, vector in enumerate(vectors) if at not in folded]
                for pair in self.columns:
                    x, y = (row[at] for at in pair)
                    terms.append((x, (sums if x == y else differences)[pair]))
                found.append(self.sum(terms))
        return found

    def both(self, grid: Grid) -> Grid:
        """``M grid M'``, of a grid of vectors."""
        by_columns = [self.apply(column) for column in zip(*grid, strict=True)]
        return [self.apply(row) for row in zip(*by_columns, strict=True)]

    def pair(self, vectors: Sequence[Value], first: int) -> list[Value]:
        """Two rows as the sum and the difference of their even and odd part."""
        upper, lower = self.matrix[first], self.matrix[first + 1]
        even = self.sum([(x, v) for x, y, v in zip(upper, lower, vectors, strict=True) if x == y])
        odd = [(x, v) for x, y, v in zip(upper, lower, vectors, strict=True) if x == -y]
        scale = next(x for x, _ in reversed(odd) if x)
        part = self.sum([(x / scale, v) for x, v in odd])
        return [self.sum([(Fraction(1), even), (sign * scale, part)]) for sign in (1, -1)]

    def sum(self, terms: Sequence[tuple[Fraction, Value]]) -> Value:
        """The sum of multiples, those by 1 first."""
        em = self.em
        ordered = sorted(
            (term for term in terms if term[0]), key=lambda term: abs(term[0]) != 1 or term[0] < 0
        )
        total: Value | None = None
        for number, vector in ordered:
            factor = em.const(self.dtype, self.lanes, float(number))
            if total is None:
                total = vector if number == 1 else em.b.fmul(vector, factor)
            elif abs(number) == 1:
                total = em.b.fadd(total, vector) if number == 1 else em.b.fsub(total, vector)
            else:
                total = em.fma(vector, factor, total)
        return total
