"""The K loop of one register tile, with what it loads of A and B at each step."""

from __future__ import annotations

from dataclasses import dataclass

from aicf.backends.cpu.codegen.dot_products import add_bf16_pairs, add_pairs, add_quads
from aicf.backends.cpu.codegen.ir_builder import I8, I16, I32, Emitter, Value
from aicf.backends.cpu.codegen.scalar.ops import Scalars, convert
from aicf.backends.cpu.families.gemm.pack.pairs import widened_pairs
from aicf.backends.cpu.families.gemm.schedule import CACHE_LINE, GemmSpec
from aicf.backends.cpu.target import ELEMENT_BYTES

_SIGNS = 0x80808080
"""The first bits of four bytes: with them flipped, an i8 is a u8 that is 128 larger."""


@dataclass(frozen=True)
class KLoop:
    """Sums of one tile of the product that a spec describes."""

    em: Emitter
    spec: GemmSpec

    def sums(
        self, a: Value, b: Value, rows: int, active: tuple[int, ...], prefetch: Value | None
    ) -> list[list[Value]]:
        """Sums over all of K, ``[row][vector]``.

        Args:
            a: First row of A.
            b: The panel of B.
            rows: Of the tile.
            active: The lanes of each vector of B that exist.
            prefetch: From where on the loop prefetches; None if it does not.
        """
        em, spec, p = self.em, self.spec, self.spec.problem
        split = min(spec.k_split, p.depth)
        vectors = len(active)
        group = rows * vectors
        starts = [self._zero() for _ in range(split * group)]
        if spec.start_rows:
            starts[:group] = [self._start(b, j) for j in range(vectors)] * rows
            b = em.address(b, spec.start_rows * spec.nr, spec.b_unit)
        unroll = spec.k_step
        # Parts of units are loaded in another way, after the loop.
        rolled = (p.k // p.terms if p.reads_units else p.depth) // unroll * unroll
        if rolled < 2 * unroll:
            rolled = 0 if p.depth <= 2 * unroll else rolled

        def body(k: Value, acc: list[Value]) -> list[Value]:
            for line in range(spec.prefetch_lines if prefetch is not None else 0):
                at = em.b.mul(k, em.index(spec.prefetch_lines * CACHE_LINE // unroll))
                em.prefetch(em.b.gep(prefetch, [em.b.add(at, em.index(line * CACHE_LINE))], source_etype=I8))
            for offset in range(unroll):
                self._step(a, b, k, offset, acc, rows, active)
            return acc

        acc = em.loop(0, rolled, unroll, starts, body)
        for offset in range(rolled, p.depth):
            self._step(a, b, None, offset, acc, rows, active)
        while split > 1:
            half = (split + 1) // 2
            for at in range((split - half) * group):
                acc[at] = self._add(acc[at], acc[at + half * group])
            split = half
        return [acc[r * vectors : (r + 1) * vectors] for r in range(rows)]

    def _step(
        self,
        a: Value,
        b: Value,
        k: Value | None,
        offset: int,
        acc: list[Value],
        rows: int,
        active: tuple[int, ...],
    ) -> None:
        """Adds products of row ``k + offset`` of B into the sums of that k."""
        em, spec, p = self.em, self.spec, self.spec.problem
        row, column = p.tile_strides
        b_row = p.b_strides[0] if spec.b_source == "direct" else spec.nr
        at_a = a if k is None else em.address(a, em.b.mul(k, em.index(column)), p.tile_element)
        at_b = b if k is None else em.address(b, em.b.mul(k, em.index(b_row)), spec.b_unit)
        b_vectors = [
            self._b_vector(at_b, offset * b_row + j * spec.lanes, lanes) for j, lanes in enumerate(active)
        ]
        split, vectors = min(spec.k_split, p.depth), len(active)
        base = offset % split * rows * vectors
        terms = p.terms if k is not None else min(p.terms, p.k - offset * p.terms)
        for r in range(rows):
            at = em.address(at_a, r * row + offset * column, p.tile_element)
            wide = self._a_unit(at, terms)
            for j in range(vectors):
                number = base + r * vectors + j
                acc[number] = self._multiply_add(wide, b_vectors[j], acc[number])

    def _a_unit(self, address: Value, terms: int) -> Value:
        """A unit of A in every lane, of which `terms` terms exist and are touched in memory."""
        em, spec, p = self.em, self.spec, self.spec.problem
        if not p.reads_units:
            return em.splat(em.load(address, p.dtype, 1), spec.lanes)
        unit = self._unit_in_place(address, terms * ELEMENT_BYTES[p.a_element])
        wide = em.splat(unit, spec.lanes)
        return em.b.xor(wide, em.const("i32", spec.lanes, _SIGNS)) if p.shift else wide

    def _unit_in_place(self, address: Value, count: int) -> Value:
        """The first `count` bytes of an i32 that need not be aligned; the others are zero."""
        em, align = self.em, ELEMENT_BYTES[self.spec.problem.a_element]
        if count == 4:
            return em.b.load(address, align=align, typ=I32)
        if count == 1:
            return em.b.zext(em.load(address, "i8", 1), I32)
        low = em.b.zext(em.b.load(address, align=align, typ=I16), I32)
        if count == 2:
            return low
        high = em.b.zext(em.load(em.address(address, 2, "i8"), "i8", 1), I32)
        return em.b.or_(low, em.b.shl(high, em.const("i32", 1, 16)))

    def _b_vector(self, start: Value, offset: int, active: int) -> Value:
        """A vector of a row of B, as the sums are; of units, where they have several terms."""
        em, spec, p, source = self.em, self.spec, self.spec.problem, self.spec.b_element
        if p.terms > 1:
            unit = em.load(em.address(start, offset, spec.b_unit), spec.b_unit, spec.lanes)
            return widened_pairs(self._scalars, unit, source) if p.pairs else unit
        lanes = active if spec.b_source == "direct" else None
        loaded = em.load(em.address(start, offset, source), source, spec.lanes, lanes)
        return convert(self._scalars, loaded, source, p.dtype)

    @property
    def _scalars(self) -> Scalars:
        return Scalars(self.em, self.spec.lanes)

    def _zero(self) -> Value:
        return self.em.const(self.spec.problem.dtype, self.spec.lanes, 0)

    def _start(self, panel: Value, vector: int) -> Value:
        """What a vector of a row of sums starts from."""
        em, spec = self.em, self.spec
        return em.load(em.address(panel, vector * spec.lanes, spec.b_unit), spec.b_unit, spec.lanes)

    def _add(self, x: Value, y: Value) -> Value:
        return self.em.b.fadd(x, y) if self.spec.problem.is_float else self.em.b.add(x, y)

    def _multiply_add(self, x: Value, y: Value, z: Value) -> Value:
        em, p = self.em, self.spec.problem
        if p.terms > 1:
            add = add_quads if p.quads else add_pairs if p.pairs else add_bf16_pairs
            return add(em, z, x, y)
        return em.fma(x, y, z) if p.is_float else em.b.add(em.b.mul(x, y), z)
