"""The end of a GEMM tile: the generated scalar program on the sums in registers, and the stores."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.backends.common.loop_nest import Access
from aicf.backends.cpu.codegen.evaluator import Evaluator
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.codegen.scalar.ops import Scalars, convert, dtype_of
from aicf.backends.cpu.families.gemm.operands import Epilogue, EpilogueOf, PointerTable, Tile
from aicf.dialects.emit_kernels import KernelOp, StoreOp


def make_epilogue(
    em: Emitter,
    code: KernelOp | None,
    accesses: Sequence[Access],
    pointers: Sequence[Sequence[Value]],
    rounding: str,
) -> EpilogueOf:
    """Epilogues that store what `code` computes, or the sums themselves if there is none.

    Args:
        em: Where the products' code is about to be emitted.
        code: One phase over (batch..., row, column); its first operands are the sums.
        accesses: Of the other operands, then of the outputs.
        pointers: An address per access, for each of the products side by side.
        rounding: As `LoopSpec` has it.
    """
    tables = [PointerTable(em, addresses) for addresses in zip(*pointers, strict=True)]

    def epilogue_of(product: Value | None) -> Epilogue:
        chosen = [table.at(product) for table in tables]
        return lambda em, tile: _TileEnd(em, tile, code, accesses, chosen, rounding).run()

    return epilogue_of


class _TileEnd:
    def __init__(
        self,
        em: Emitter,
        tile: Tile,
        code: KernelOp | None,
        accesses: Sequence[Access],
        pointers: Sequence[Value],
        rounding: str,
    ) -> None:
        self.em = em
        self.tile = tile
        self.code = code
        self.scalars = Scalars(em, tile.lanes, rounding == "strict")
        self.accesses = accesses
        self.bases = [self._base(access, pointer) for access, pointer in zip(accesses, pointers, strict=True)]
        self.loaded: dict[tuple[int, int, int], Value] = {}

    def _base(self, access: Access, pointer: Value) -> Value:
        """Address of the tile's first element."""
        em, tile = self.em, self.tile
        address = em.address(pointer, access.offset, access.dtype)
        for index, stride in zip((*tile.batch, tile.row, tile.col), access.strides, strict=True):
            address = em.moved(address, index, stride, access.dtype)
        return address

    def run(self) -> None:
        for vector in range(len(self.tile.active)):
            for row in range(len(self.tile.acc)):
                self._store_vector(row, vector)

    def _store_vector(self, row: int, vector: int) -> None:
        if self.code is None:
            sums = convert(self.scalars, self.tile.acc[row][vector], self.tile.dtype, self.accesses[0].dtype)
            self._store(0, sums, row, vector)
            return
        here = _Here(self, self.code, row, vector)
        stores = [op for op in self.code.phases[0].body.block.ops if isinstance(op, StoreOp)]
        # All values before any store: an output may lie on an operand.
        for op, value in [(op, here.value(op.value)) for op in stores]:
            self._store(self._operands + op.output.value.data, value, row, vector)

    @property
    def _operands(self) -> int:
        """How many of the accesses are operands."""
        return len(self.accesses) - (1 if self.code is None else len(self.code.out_maps))

    def _address(self, number: int, row: int, vector: int) -> Value:
        access = self.accesses[number]
        row_step, column_step = access.strides[-2:]
        offset = row * row_step + vector * self.tile.lanes * column_step
        return self.em.address(self.bases[number], offset, access.dtype)

    def load(self, number: int, row: int, vector: int) -> Value:
        """An operand at a vector of the tile, loaded once where it is the same for all rows or columns."""
        access = self.accesses[number]
        row_step, column_step = access.strides[-2:]
        key = (number, row if row_step else 0, vector if column_step else 0)
        if key not in self.loaded:
            lanes, active = self.tile.lanes, self.tile.active[vector]
            address = self._address(*key)
            self.loaded[key] = self.em.load_strided(address, column_step, access.dtype, lanes, active)
        return self.loaded[key]

    def _store(self, number: int, value: Value, row: int, vector: int) -> None:
        access = self.accesses[number]
        address = self._address(number, row, vector)
        lanes, active = self.tile.lanes, self.tile.active[vector]
        self.em.store_strided(value, address, access.strides[-1], access.dtype, lanes, active)


class _Here(Evaluator):
    """The epilogue's values at one vector of the tile."""

    def __init__(self, end: _TileEnd, code: KernelOp, row: int, vector: int) -> None:
        super().__init__(end.scalars)
        self.end = end
        self.row = row
        self.vector = vector
        sums = end.tile.sums(end.em, row, vector)
        self.accumulators = len(sums)
        for argument, value in zip(code.body.block.args, sums, strict=False):
            dtype = dtype_of(argument)
            own = convert(end.scalars, value, end.tile.dtype, dtype)
            self.values[argument] = end.scalars.settled(own, dtype)

    def load(self, operand: int) -> Value:
        return self.end.load(operand - self.accumulators, self.row, self.vector)
