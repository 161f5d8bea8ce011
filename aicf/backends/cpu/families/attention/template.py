"""Code for ``softmax(q @ k^T * scale + mask) @ v``: the GEMM microkernel twice, with the softmax of its rows between.

For each batch element keys and values are packed once; then a block of queries at a time makes its scores in workspace,
turns each row into exponentials in place, and multiplies them with the values; the sum of a row divides last. All
decisions come with `AttentionSpec`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.codegen.scalar.ops import Scalars
from aicf.backends.cpu.families.attention.schedule import AttentionSpec, Matrix
from aicf.backends.cpu.families.gemm.pack.template import Packer, Rows, emit_widened_rows
from aicf.backends.cpu.families.gemm.schedule import GemmSpec
from aicf.backends.cpu.families.gemm.template import Epilogue, GemmPointers, Tile, emit_gemm, emit_share
from aicf.backends.cpu.families.loops.reductions import combined
from aicf.backends.cpu.families.loops.template import share_of
from aicf.backends.cpu.target import ELEMENT_BYTES


@dataclass(frozen=True)
class AttentionPointers:
    """Run-time operands of the emitted code."""

    q: Value
    k: Value
    v: Value
    mask: Value | None
    result: Value
    workspace: Value
    tid: Value
    nthreads: Value


def emit_attention(em: Emitter, spec: AttentionSpec, scale: float, pointers: AttentionPointers) -> None:
    """Emit the attention of all batch elements at the current position of `em`."""
    _Attention(em, spec, scale, pointers).run()


@dataclass(frozen=True)
class _Block:
    """`rows` queries from `first` on, against the first `keys` keys."""

    first: Value
    rows: int
    keys: int


class _Attention:
    def __init__(self, em: Emitter, spec: AttentionSpec, scale: float, pointers: AttentionPointers) -> None:
        self.em = em
        self.spec = spec
        self.scale = scale
        self.pointers = pointers
        self.problem = spec.problem
        self.dtype = spec.problem.dtype
        self.element = spec.problem.element
        self.scalars = Scalars(em, spec.lanes)
        self.keys, self.values, self.scores, self.sums, self.queries = self._workspace()

    def _workspace(self) -> list[Value]:
        """This thread's packed keys, packed values, scores, sums of rows and widened queries."""
        em, spec = self.em, self.spec
        own = sum(spec.parts) * ELEMENT_BYTES[self.dtype]
        base = em.part_of(self.pointers.workspace, self.pointers.tid, spec.threads, own)
        starts = [sum(spec.parts[:number]) for number in range(len(spec.parts))]
        return [em.address(base, start, self.dtype) for start in starts]

    def run(self) -> None:
        em, count, threads = self.em, self.problem.count, (self.pointers.tid, self.pointers.nthreads)
        bounds = share_of(em, count, *threads) if self.spec.share == "batches" else (0, count)
        em.each(*bounds)(self.batch_element)

    def batch_element(self, number: Value) -> None:
        p, spec, pointers = self.problem, self.spec, self.pointers
        index = self._index(number)
        q, k, v, result = (
            self._at(pointer, matrix, index, self.element)
            for pointer, matrix in (
                (pointers.q, p.q),
                (pointers.k, p.k),
                (pointers.v, p.v),
                (pointers.result, p.result),
            )
        )
        self.pack(k, p.d, p.n, spec.scores, self.keys)
        if spec.output.b_source == "packed":
            self.pack(v, p.n, p.dv, spec.output, self.values)
            v = self.values
        mask = None if p.mask is None else self._at(pointers.mask, p.mask, index, p.mask_element)
        self.blocks(q, v, mask, result)

    def pack(self, source: Value, k: int, columns: int, product: GemmSpec, target: Value) -> None:
        """The right operand of a product, in the type of the scores."""
        sizes = (self.spec.lanes, k, product.nr, product.problem.b_strides)
        Packer(self.em, self.element, self.dtype, *sizes).matrix(columns, source, target)

    def _index(self, number: Value) -> list[Value]:
        """The position of a batch element in each batch dim."""
        em, index = self.em, list[Value]()
        for size in reversed(self.problem.batch):
            index.insert(0, em.b.srem(number, em.index(size)))
            number = em.b.sdiv(number, em.index(size))
        return index

    def _at(self, pointer: Value, matrix: Matrix, index: Sequence[Value], dtype: str) -> Value:
        for coordinate, stride in zip(index, matrix.batch, strict=True):
            pointer = self.em.moved(pointer, coordinate, stride, dtype)
        return pointer

    def blocks(self, q: Value, v: Value, mask: Value | None, result: Value) -> None:
        """The blocks of queries; the last may be short."""
        em, p, rows = self.em, self.problem, self.spec.block_rows
        full = p.m // rows

        def block(number: Value, count: int, keys: int) -> None:
            first = em.b.mul(number, em.index(rows))
            own_q = em.moved(q, first, p.q.row, self.element)
            own_result = em.moved(result, first, p.result.row, self.element)
            own_mask = None if p.mask is None else em.moved(mask, first, p.mask.row, p.mask_element)
            self.block(_Block(first, count, keys), own_q, v, own_result, own_mask)

        def run(keys: int) -> Callable[[Value], None]:
            return lambda number: block(number, rows, keys)

        def tail(keys: int) -> None:
            block(em.index(full), p.m - full * rows, keys)

        if self.spec.share == "rows":
            threads = self.pointers.tid, self.pointers.nthreads
            emit_share(em, self.spec.blocks, full, threads, run(p.n), lambda: tail(p.n))
            return
        for first, end, keys in self.spec.runs:
            em.each(first, min(end, full))(run(keys))
            if end > full:
                tail(keys)

    def block(self, block: _Block, q: Value, v: Value, result: Value, mask: Value | None) -> None:
        """One block of queries, from scores to output."""
        em, spec, rows, keys = self.em, self.spec, block.rows, block.keys
        scores = replace(spec.scores, problem=self.problem.scores(rows, keys))
        if self.problem.widens_rows:
            self.widen(q, rows)
            q = self.queries
        self.product(scores, q, self.keys, self.score(mask, block.first))

        @em.each(0, rows)
        def body(row: Value) -> None:
            weights = em.moved(self.scores, row, spec.row_elements, self.dtype)
            total = self.exponentials(weights, keys)
            if self.problem.nan_as_zero:
                total = self.nan_as_zero(weights, total, keys)
            if self.problem.empty_as_zero:
                total = self.divisor(total)
            em.store(total, em.address(self.sums, row, self.dtype), self.dtype, 1)

        output = replace(spec.output, problem=self.problem.output(rows, spec.row_elements, keys))
        self.product(output, self.scores, v, self.divided(result))

    def widen(self, q: Value, rows: int) -> None:
        """Copies the queries of a block, contiguous and in the type of the scores."""
        em, p = self.em, self.problem
        source = Rows(self.element, (p.q.row, p.q.column), p.d)
        emit_widened_rows(
            em, source, self.spec.lanes, q, self.queries, (em.index(0), em.index(rows)), self.dtype
        )

    def product(self, spec: GemmSpec, a: Value, b: Value, epilogue: Epilogue) -> None:
        """One of the two products of a block; this thread does all of it."""
        nothing = self.em.index(0)
        emit_gemm(self.em, spec, GemmPointers(a, (b,), None, nothing, nothing), lambda _: epilogue)

    # Ends of the two products.

    def score(self, mask: Value | None, first: Value) -> Epilogue:
        """Stores scores with scale and masks, whole vectors; `first` is the first query of the block."""

        def epilogue(em: Emitter, tile: Tile) -> None:
            for row, values in enumerate(tile.acc):
                for vector, value in enumerate(values):
                    if self.scale != 1.0:
                        value = em.b.fmul(value, em.const(self.dtype, tile.lanes, self.scale))
                    if mask is not None:
                        value = em.b.fadd(value, self.mask_at(mask, tile, row, vector))
                    if self.problem.past is not None:
                        value = self.seen(value, tile, row, vector, first)
                    at = self.tile_address(
                        self.scores, self.spec.row_elements, 1, tile, row, vector, self.dtype
                    )
                    em.store(value, at, self.dtype, tile.lanes)

        return epilogue

    def mask_at(self, mask: Value, tile: Tile, row: int, vector: int) -> Value:
        """The mask at one vector of a tile of scores."""
        operand = self.problem.mask
        assert operand is not None
        dtype = self.problem.mask_element
        at = self.tile_address(mask, operand.row, operand.column, tile, row, vector, dtype)
        return self.em.load_strided(at, operand.column, dtype, tile.lanes, tile.active[vector])

    def seen(self, value: Value, tile: Tile, row: int, vector: int, first: Value) -> Value:
        """A vector of scores, -inf where the key comes after what its query sees."""
        em, past = self.em, self.problem.past
        assert past is not None
        # Keys from the first of the vector on that are seen; none may be, or more than the vector has.
        last = em.b.add(em.b.add(first, tile.row), em.index(row + past + 1))
        count = em.b.sub(last, em.b.add(tile.col, em.index(vector * tile.lanes)))
        hidden = em.const(self.dtype, tile.lanes, float("-inf"))
        return em.b.select(em.lanes_below(tile.lanes, count), value, hidden)

    def divided(self, result: Value) -> Epilogue:
        """Stores the output, each row divided by its sum of exponentials."""
        operand = self.problem.result

        def epilogue(em: Emitter, tile: Tile) -> None:
            sums = em.address(self.sums, tile.row, self.dtype)
            for row, values in enumerate(tile.acc):
                total = em.splat(em.load(em.address(sums, row, self.dtype), self.dtype, 1), tile.lanes)
                for vector, value in enumerate(values):
                    at = self.tile_address(
                        result, operand.row, operand.column, tile, row, vector, self.element
                    )
                    lanes, active = tile.lanes, tile.active[vector]
                    em.store_strided(em.b.fdiv(value, total), at, operand.column, self.element, lanes, active)

        return epilogue

    def tile_address(
        self, base: Value, row_step: int, column_step: int, tile: Tile, row: int, vector: int, dtype: str
    ) -> Value:
        """Where a vector of a tile lies in a matrix of the block at `base`."""
        em = self.em
        start = em.moved(em.moved(base, tile.row, row_step, dtype), tile.col, column_step, dtype)
        return em.address(start, row * row_step + vector * tile.lanes * column_step, dtype)

    # Softmax of one row, in place.

    def exponentials(self, row: Value, keys: int) -> Value:
        """Turns the first `keys` of a row of scores into ``exp(score - largest)``; gives their sum."""
        em, lanes = self.em, self.spec.lanes

        def score(at: Value) -> Value:
            return em.load(em.address(row, at, self.dtype), self.dtype, lanes)

        largest = self.reduced("max", score, keys)
        if self.problem.empty_as_zero:
            largest = self.finite(largest)
        largest = em.splat(largest, lanes)

        def exponential(at: Value) -> Value:
            value = self.scalars.math(self.dtype).exp(em.b.fsub(score(at), largest))
            em.store(value, em.address(row, at, self.dtype), self.dtype, lanes)
            return value

        return self.reduced("sum", exponential, keys)

    def finite(self, largest: Value) -> Value:
        """The largest score of a row, or 0 if that is -inf: below it, all exponentials of the row are 0."""
        em = self.em
        hidden = em.const(self.dtype, 1, float("-inf"))
        return em.b.select(em.b.fcmp_ordered("==", largest, hidden), em.const(self.dtype, 1, 0.0), largest)

    def divisor(self, total: Value) -> Value:
        """The sum of a row's exponentials, or 1 if all of them are 0; no other sum is below 1."""
        em = self.em
        is_empty = em.b.fcmp_ordered("==", total, em.const(self.dtype, 1, 0.0))
        return em.b.select(is_empty, em.const(self.dtype, 1, 1.0), total)

    def nan_as_zero(self, row: Value, total: Value, keys: int) -> Value:
        """Turns the exponentials of a row whose sum is NaN into zeros; gives what divides the row.

        One score that is NaN makes the sum NaN, and so does a largest one that is infinite; no sum is 0.
        """
        em, lanes = self.em, self.spec.lanes
        is_nan = em.b.fcmp_unordered("uno", total, total)

        def fill() -> None:
            zero = em.const(self.dtype, lanes, 0.0)

            @em.each(0, -(-keys // lanes))
            def body(at: Value) -> None:
                em.store(zero, em.address(row, em.scaled(at, lanes), self.dtype), self.dtype, lanes)

        em.when(is_nan, fill)
        return em.b.select(is_nan, em.const(self.dtype, 1, 1.0), total)

    def reduced(self, how: str, cell: Callable[[Value], Value], n: int) -> Value:
        """Combines the vectors that `cell` gives for the first `n` positions of a row."""
        em, lanes = self.em, self.spec.lanes
        chunk = lanes * self.spec.unroll
        start = self.scalars.identity(how, self.dtype)

        def step(partial: Value, value: Value) -> Value:
            return self.scalars.combine(how, self.dtype, partial, value)

        def body(i: Value, partial: list[Value]) -> list[Value]:
            first = em.scaled(i, chunk)
            positions = [em.b.add(first, em.index(at)) for at in range(0, chunk, lanes)]
            return [step(sums, cell(at)) for sums, at in zip(partial, positions, strict=True)]

        partial = em.loop(0, n // chunk, 1, [start] * self.spec.unroll, body)
        for number, at in enumerate(range(n // chunk * chunk, n, lanes)):
            value = cell(em.index(at))
            if n - at < lanes:
                value = em.b.select(em.lane_mask(lanes, n - at), value, start)
            partial[number] = step(partial[number], value)
        return combined(self.scalars, how, self.dtype, partial)
