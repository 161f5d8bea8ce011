"""What the code of a GEMM reads at run time, and what it hands to its epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aicf.backends.cpu.codegen.ir_builder import PTR, Emitter, Value


@dataclass(frozen=True)
class Tile:
    """Finished sums handed to the epilogue: ``acc[row][vector]`` starting at (`row`, `col`) of batch `batch`."""

    batch: tuple[Value, ...]
    row: Value
    col: Value
    lanes: int
    active: tuple[int, ...]
    """Lanes of each vector that exist in C."""
    acc: list[list[Value]]
    """Sums of the product, of the last one where several are joined."""
    dtype: str
    earlier: tuple[Value, ...] = ()
    """Where the sums of the products before it wait in memory: ``[row][vector][lane]`` each."""

    def sums(self, em: Emitter, row: int, vector: int) -> list[Value]:
        """One vector of the sums of every joined product, in order."""
        at = (row * len(self.active) + vector) * self.lanes
        waiting = [em.load(em.address(a, at, self.dtype), self.dtype, self.lanes) for a in self.earlier]
        return [*waiting, self.acc[row][vector]]


Epilogue = Callable[[Emitter, Tile], None]
"""Emits code that turns a tile into stores; it must store every active lane of the tile."""

EpilogueOf = Callable[[Value | None], Epilogue]
"""The epilogue of one of the products side by side, by its number; None where there is only one epilogue."""

RowProgram = Callable[[Emitter, Value, Value, Value, Value], None]
"""Emits code for (block, first, end, target): makes rows `first` up to `end`, counted from row `block` of A, at
`target`, where row 0 of the block goes."""


@dataclass(frozen=True)
class GemmPointers:
    """Run-time operands of the emitted code: one B per product; no A if its rows are made here."""

    a: Value | None
    b: tuple[Value, ...]
    workspace: Value | None
    tid: Value
    nthreads: Value


class PointerTable:
    """Addresses of which one is taken by a number that is known at run time only."""

    def __init__(self, em: Emitter, pointers: Sequence[Value]) -> None:
        self.em = em
        self.pointers = tuple(pointers)
        self.table = em.stack(PTR, len(pointers)) if len(pointers) > 1 else None
        for number, pointer in enumerate(self.pointers if self.table is not None else ()):
            em.b.store(pointer, self._slot(em.index(number)))

    def _slot(self, number: Value) -> Value:
        return self.em.b.gep(self.table, [number], source_etype=PTR)

    def at(self, number: Value | None) -> Value:
        """Address `number`; the only one for None."""
        if self.table is None or number is None:
            return self.pointers[0]
        return self.em.b.load(self._slot(number), typ=PTR)
