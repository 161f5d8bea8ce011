"""Code of products with packed weights whose rows are made on the way in, and whose sums become results in
registers."""

from __future__ import annotations

from dataclasses import dataclass

from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.families.blocks.template import BlocksPointers, BlocksProduct
from aicf.backends.cpu.families.gemm.operands import Epilogue, RowProgram, Tile


@dataclass(frozen=True)
class _Tile(Tile):
    """A tile of one vector of columns, with the sums of the products before the last one.

    Args:
        others: Of each of them, a vector for each row.
    """

    others: tuple[list[Value], ...] = ()

    def sums(self, em: Emitter, row: int, vector: int) -> list[Value]:
        return [*(sums[row] for sums in self.others), self.acc[row][vector]]


@dataclass(frozen=True)
class FusedProduct(BlocksProduct):
    """The products of a problem with weights of one shape.

    Args:
        weights: Where the panels of each lie.
        rows: Makes rows of x; None where they are an operand.
        epilogue: Stores what becomes of the sums.
    """

    weights: tuple[Value, ...]
    rows: RowProgram | None
    epilogue: Epilogue

    def _prepare(self, pointers: BlocksPointers, first: Value, rows: int) -> None:
        """See `BlocksProduct`: `pointers.x` is where rows that are made here lie, from the first of the chunk on."""
        if self.rows is not None:
            start = self.em.index(0)
            self.rows(self.em, first, start, self.em.index(rows), pointers.x)
            first = start
        super()._prepare(pointers, first, rows)

    def _panel(self, pointers: BlocksPointers, first: Value, rows: int, number: Value, columns: int) -> None:
        em, problem, lanes = self.em, self.problem, self.schedule.lanes
        panel_bytes = problem.parts * self._layout.part_bytes
        weights = [em.moved(weight, number, panel_bytes, "u8") for weight in self.weights]
        batch = tuple(em.index(0) for _ in problem.result.shape[:-2])

        @em.pieces(rows, self.schedule.tile_rows)
        def tile(start: Value, count: int) -> None:
            x = em.moved(pointers.workspace, start, problem.parts * self._record, "u8")
            *others, last = (self._sums(weight, x, count) for weight in weights)
            at = em.b.add(first, start), em.scaled(number, lanes)
            sums = [[total] for total in last]
            self.epilogue(em, _Tile(batch, *at, lanes, (columns,), sums, "f32", others=tuple(others)))
