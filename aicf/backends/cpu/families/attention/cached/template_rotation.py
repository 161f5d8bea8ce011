"""Code that turns one row by its position: ``pairs * cosines + swapped pairs * sines``, as the ops say it, with each
product and the sum rounded, so that it has the bits of a rotation that is an instruction of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from aicf.backends.common.rotation import HALVES, Pairs
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value


@dataclass(frozen=True)
class PairsAt:
    """Pairs of one row, or their cosines or sines, from an address on."""

    address: Value
    lies: Pairs

    def load(self, em: Emitter, lanes: int, member: int, first: Value, active: int) -> Value:
        """The first (0) or second (1) elements of `active` pairs from pair `first` on; other lanes are zero."""
        lies = self.lies
        start = em.moved(
            em.address(self.address, member * lies.half, lies.dtype), first, lies.pair, lies.dtype
        )
        return em.load_strided(start, lies.pair, lies.dtype, lanes, active)


@dataclass(frozen=True)
class RowTarget:
    """Where a turned row goes: `step` elements from one to the next, of a type that holds those of the row."""

    address: Value
    step: int
    dtype: str


@dataclass(frozen=True)
class RowTurner:
    """Turns rows of `width` elements.

    Args:
        pairs: Which of them are pairs, HALVES or NEIGHBOURS.
        element: Type that results are rounded to.
    """

    em: Emitter
    lanes: int
    pairs: str
    width: int
    element: str

    def row(self, row: PairsAt, cosines: PairsAt, sines: PairsAt, target: RowTarget) -> None:
        """Turns one row."""
        em, lanes, count = self.em, self.lanes, self.width // 2
        half, pair = (count, 1) if self.pairs == HALVES else (1, 2)

        @em.pieces(count, lanes)
        def piece(first: Value, active: int) -> None:
            x, c, s = (
                [each.load(em, lanes, member, first, active) for member in (0, 1)]
                for each in (row, cosines, sines)
            )
            start = em.moved(target.address, first, pair * target.step, target.dtype)
            for member in (0, 1):
                kept, turned = em.b.fmul(x[member], c[member]), em.b.fmul(x[1 - member], s[member])
                value = em.rounded(em.b.fadd(kept, turned), self.element, lanes)
                at = em.address(start, member * half * target.step, target.dtype)
                em.store_strided(value, at, pair * target.step, target.dtype, lanes, active)
