"""Code that finds the indices of the largest elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aicf.backends.common.loop_nest import Strided
from aicf.backends.cpu.codegen.ir_builder import I32, I64, Emitter, Value
from aicf.backends.cpu.codegen.scalar.ops import extended
from aicf.backends.cpu.families.loops.template import share_of
from aicf.backends.cpu.target import FLOATS, REGISTERS

_HIGHEST = {"f32": (I32, 0x7FFFFFFF), "f64": (I64, 0x7FFFFFFFFFFFFFFF)}
"""The integer that the bits of a float in its register are, and the largest of them: the rank of NaN in the order."""


@dataclass(frozen=True)
class Topk:
    """The indices of the largest (or smallest) elements of `source` along `axis`, to `result` (i64)."""

    source: Strided
    result: Strided
    axis: int
    smallest: bool

    def emit(self, em: Emitter, source: Value, target: Value, tid: Value, nthreads: Value) -> None:
        """All rows, each thread its share."""
        outer = [dim for dim in range(len(self.source.shape)) if dim != self.axis]
        rows = 1
        for dim in outer:
            rows *= self.source.shape[dim]

        low, high = share_of(em, rows, tid, nthreads)

        @em.each(low, high)
        def row(number: Value) -> None:
            rest, x, y = number, source, target
            for dim in reversed(outer):
                size = em.index(self.source.shape[dim])
                coordinate = em.b.srem(rest, size)
                rest = em.b.sdiv(rest, size)
                x = em.moved(x, coordinate, self.source.strides[dim], self.source.dtype)
                y = em.moved(y, coordinate, self.result.strides[dim], "i64")
            self._row(em, x, y)

    def _row(self, em: Emitter, source: Value, target: Value) -> None:
        """Inserts each element after the last kept element that is not below it; what falls off the end is gone."""
        size, k = self.source.shape[self.axis], self.result.shape[self.axis]

        def kept(slot: Value) -> Value:
            return em.moved(target, slot, self.result.strides[self.axis], "i64")

        def key(slot: Value) -> Value:
            return self._key(em, em.moved(source, slot, self.source.strides[self.axis], self.source.dtype))

        def key_at(slot: Value) -> Value:
            return key(em.load(kept(slot), "i64", 1))

        @em.each(0, size)
        def visit(number: Value) -> None:
            own, last = key(number), em.index(k - 1)

            def enter() -> None:
                full = em.b.icmp_signed("<", last, number)
                free = em.b.select(full, last, number)
                slot = self._shifted(em, free, own, key_at, kept)
                em.store(number, kept(slot), "i64", 1)

            is_short = em.b.icmp_signed("<", number, em.index(k))
            # The last of those kept is only there once k are.
            watched = em.b.select(is_short, em.index(0), last)
            em.when(is_short, enter, lambda: em.when(em.b.icmp_signed(">", own, key_at(watched)), enter))

    def _shifted(
        self,
        em: Emitter,
        free: Value,
        own: Value,
        key_at: Callable[[Value], Value],
        kept: Callable[[Value], Value],
    ) -> Value:
        """Moves what is below `own` one slot back, from slot `free` down; gives the slot that comes free."""

        def below(slot: Value) -> Value:
            return em.b.icmp_signed("<", key_at(em.b.sub(slot, em.index(1))), own)

        def move(slot: Value) -> Value:
            before = em.b.sub(slot, em.index(1))
            em.store(em.load(kept(before), "i64", 1), kept(slot), "i64", 1)
            return before

        return em.descend(free, below, move)

    def _key(self, em: Emitter, address: Value) -> Value:
        """An i64 in the order of the elements; NaN is the largest, and zeros are equal."""
        dtype = self.source.dtype
        value = em.load(address, dtype, 1)
        if dtype in FLOATS:
            type_, highest = _HIGHEST[REGISTERS[dtype]]
            positive = em.b.fadd(value, em.const(dtype, 1, 0.0))
            bits = em.b.bitcast(positive, type_)
            sign = em.b.ashr(bits, type_(type_.width - 1))
            ordered = em.b.xor(bits, em.b.and_(sign, type_(highest)))
            value = em.b.select(em.b.fcmp_unordered("uno", value, value), type_(highest), ordered)
        key = extended(em, value, dtype)
        return em.b.xor(key, em.index(-1)) if self.smallest else key
