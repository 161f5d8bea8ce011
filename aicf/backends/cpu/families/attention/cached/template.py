"""The code of attention over a cache: blocks of queries over tiles of keys, with a running softmax.

For each block of queries the unfinished output starts at 0 and the largest score at the lowest number. Each tile of
keys makes its scores transposed, a vector of queries for each key; where a larger score turns up, what was summed
before is multiplied by ``exp(old - new)``. The sum of a row divides last. All decisions come with `CachedSpec`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aicf.backends.common.rotation import Pairs
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.codegen.scalar.ops import Scalars
from aicf.backends.cpu.families.attention.cached.problem import KEY_TILE, Numbers, Rotation, RowWrites
from aicf.backends.cpu.families.attention.cached.schedule import CachedSpec
from aicf.backends.cpu.families.attention.cached.template_rotation import PairsAt, RowTarget, RowTurner
from aicf.backends.cpu.families.attention.schedule import Matrix
from aicf.backends.cpu.families.gemm.pack.template import Packer, Rows, emit_widened_rows
from aicf.backends.cpu.families.gemm.schedule import GemmSpec
from aicf.backends.cpu.families.gemm.template import Epilogue, GemmPointers, Tile, emit_gemm
from aicf.backends.cpu.families.loops.template import share_of
from aicf.backends.cpu.target import ELEMENT_BYTES

_FARTHEST = 1 << 30
"""Positions beyond this are taken for it: caches are smaller, and coordinates are compared as i32."""


@dataclass(frozen=True)
class RowPointers:
    """Run-time operands of a step: the index of the row, the new key and value, and the old keys and values."""

    index: Value
    key: Value
    value: Value
    old_keys: Value
    old_values: Value


@dataclass(frozen=True)
class CachedPointers:
    """Run-time operands of the emitted code; of a step `k` and `v` are where the new keys and values lie, and `factors`
    the cosines and sines of queries and of the new key, if these are turned."""

    q: Value
    k: Value
    v: Value
    position: Value | None
    result: Value
    workspace: Value
    tid: Value
    nthreads: Value
    row: RowPointers | None = None
    factors: Sequence[Value] = ()


def emit_cached(em: Emitter, spec: CachedSpec, scale: float, pointers: CachedPointers) -> None:
    """Emit the attention of all batch elements at the current position of `em`."""
    _Cached(em, spec, scale, pointers).run()


@dataclass(frozen=True)
class _Block:
    """`rows` queries of a batch element.

    Args:
        last: The last key that the first of them sees; None if all see all keys.
        end: How many keys, from the first on, one of them may see.
    """

    rows: int
    last: Value | None
    end: Value


@dataclass(frozen=True)
class _Keys:
    """A tile of keys and values.

    Args:
        first: Number of its first key.
        is_short: Whether keys from the end of the block on are in it, which are zeros in a copy.
        is_copied: Whether it lies in workspace.
    """

    keys: Value
    values: Value
    first: Value
    is_short: bool
    is_copied: bool


class _Cached:
    def __init__(self, em: Emitter, spec: CachedSpec, scale: float, pointers: CachedPointers) -> None:
        self.em = em
        self.spec = spec
        self.scale = scale
        self.pointers = pointers
        self.problem = spec.problem
        self.dtype = spec.problem.dtype
        self.element = spec.problem.element
        self.scalars = Scalars(em, spec.lanes)
        (
            self.queries,
            self.scores,
            self.outputs,
            self.largest,
            self.sums,
            self.factors,
            self.copied_keys,
            self.copied_values,
            self.turned_queries,
        ) = self._workspace()

    def _workspace(self) -> list[Value]:
        """Where this thread's parts start, see `CachedSpec.parts`."""
        em, spec = self.em, self.spec
        own = sum(spec.parts) * ELEMENT_BYTES[self.dtype]
        base = em.part_of(self.pointers.workspace, self.pointers.tid, spec.threads, own)
        starts = [sum(spec.parts[:number]) for number in range(len(spec.parts))]
        return [em.address(base, start, self.dtype) for start in starts]

    def run(self) -> None:
        """This thread's share of the blocks of all batch elements."""
        em, p, spec = self.em, self.problem, self.spec
        total = p.count * spec.blocks
        bounds = (
            (0, total)
            if spec.threads == 1
            else share_of(em, total, self.pointers.tid, self.pointers.nthreads)
        )
        rest = p.rows % spec.block_rows

        @em.each(*bounds)
        def body(item: Value) -> None:
            number = em.b.sdiv(item, em.index(spec.blocks))
            block = em.b.srem(item, em.index(spec.blocks))
            if not rest:
                self.block(number, block, spec.block_rows)
                return
            is_last = em.b.icmp_signed("==", block, em.index(spec.blocks - 1))
            em.when(
                is_last,
                lambda: self.block(number, block, rest),
                None if spec.blocks == 1 else lambda: self.block(number, block, spec.block_rows),
            )

    # One block of queries.

    def block(self, number: Value, block: Value, rows: int) -> None:
        """Queries of batch element `number`, from packed queries to the result."""
        em, p, pointers = self.em, self.problem, self.pointers
        index, first = self._index(number), em.scaled(block, self.spec.block_rows)
        (q, _), (k, _), (v, _), (result, _) = (
            self._matrix_at(pointer, matrix, index)
            for pointer, matrix in (
                (pointers.q, p.q),
                (pointers.k, p.k),
                (pointers.v, p.v),
                (pointers.result, p.result),
            )
        )
        q = em.moved(q, first, p.q.row, self.element)
        result = em.moved(result, first, p.result.row, self.element)
        if p.writes is not None and pointers.row is not None:
            self.write(p.writes, pointers.row, index, (k, v))
        self.pack(q, index, rows)
        self.start(rows)
        self.tiles(self.reach(index, first, rows), k, v)
        self.finish(result, rows)

    def pack(self, q: Value, index: Sequence[Value], rows: int) -> None:
        """Packs the queries of a block for the scores; those that are to be turned are turned first."""
        em, p, spec = self.em, self.problem, self.spec
        lies, dtype = (p.q.column, p.q.row), self.element
        if p.rotation is not None:
            self.turn_queries(p.rotation, q, index, rows)
            q, lies, dtype = self.turned_queries, (1, p.d), self.dtype
        Packer(em, dtype, self.dtype, spec.lanes, p.d, spec.scores.nr, lies).matrix(rows, q, self.queries)

    def turn_queries(self, rotation: Rotation, q: Value, index: Sequence[Value], rows: int) -> None:
        """Turns the queries of a block, into workspace."""
        em, p = self.em, self.problem
        cosines, sines = self._factors(self.pointers.factors[:2], rotation.turns.query, index)

        @em.each(0, rows)
        def body(row: Value) -> None:
            query = PairsAt(em.moved(q, row, p.q.row, self.element), rotation.query)
            target = RowTarget(em.moved(self.turned_queries, row, p.d, self.dtype), 1, self.dtype)
            self._turner(rotation).row(query, cosines, sines, target)

    def turn_key(self, rotation: Rotation, key: Value, index: Sequence[Value], to: Value) -> None:
        """Turns the new key of a batch element, which starts at `key`, into the cache from `to` on."""
        cosines, sines = self._factors(self.pointers.factors[2:], rotation.turns.key, index)
        target = RowTarget(to, self.problem.k.column, self.element)
        self._turner(rotation).row(PairsAt(key, rotation.key), cosines, sines, target)

    def _turner(self, rotation: Rotation) -> RowTurner:
        return RowTurner(self.em, self.spec.lanes, rotation.turns.pairs, self.problem.d, self.element)

    def _factors(
        self, pointers: Sequence[Value], lies: tuple[Pairs, Pairs], index: Sequence[Value]
    ) -> Sequence[PairsAt]:
        """Cosines and sines of a batch element."""
        return [
            PairsAt(self._at(pointer, each.batch, index, each.dtype), each)
            for pointer, each in zip(pointers, lies, strict=True)
        ]

    def write(
        self, writes: RowWrites, row: RowPointers, index: Sequence[Value], new: Sequence[Value]
    ) -> None:
        """Writes the new row into the keys and values of a batch element, `new`, and the old rows where these lie
        elsewhere. An index from the end counts back from it; one beyond the ends writes nothing."""
        em, p = self.em, self.problem
        named, size = self.number(row.index, writes.index, index), em.index(p.n)
        at = em.b.select(em.b.icmp_signed("<", named, em.index(0)), em.b.add(named, size), named)
        key, value = (
            self._matrix_at(pointer, matrix, index)
            for pointer, matrix in ((row.key, writes.key), (row.value, writes.value))
        )
        self._keep_rows(self._matrix_at(row.old_keys, writes.old_keys, index), (new[0], p.k), p.d)
        self._keep_rows(self._matrix_at(row.old_values, writes.old_values, index), (new[1], p.v), p.dv)

        def written() -> None:
            if p.rotation is not None:
                self.turn_key(p.rotation, key[0], index, em.moved(new[0], at, p.k.row, self.element))
            else:
                self._copy_row(key, (new[0], p.k), em.index(0), at, p.d)
            self._copy_row(value, (new[1], p.v), em.index(0), at, p.dv)

        em.when(em.b.icmp_unsigned("<", at, size), written)

    def _keep_rows(self, old: tuple[Value, Matrix], new: tuple[Value, Matrix], width: int) -> None:
        """Copies the old rows of keys or values, unless the new ones are the same memory."""
        em = self.em

        def copied() -> None:
            @em.each(0, self.problem.n)
            def line(number: Value) -> None:
                self._copy_row(old, new, number, number, width)

        # Whether it is in place is known when it runs: instructions of equal records share their code.
        em.when(em.b.icmp_unsigned("!=", old[0], new[0]), copied)

    def _copy_row(
        self, source: tuple[Value, Matrix], target: tuple[Value, Matrix], row: Value, to: Value, width: int
    ) -> None:
        """Copies `width` elements of row `row` of one matrix to row `to` of another."""
        em, lanes = self.em, self.spec.lanes
        start = em.moved(source[0], row, source[1].row, self.element)
        end = em.moved(target[0], to, target[1].row, self.element)

        @em.pieces(width, lanes)
        def piece(first: Value, active: int) -> None:
            read = em.moved(start, first, source[1].column, self.element)
            value = em.load_strided(read, source[1].column, self.element, lanes, active)
            written = em.moved(end, first, target[1].column, self.element)
            em.store_strided(value, written, target[1].column, self.element, lanes, active)

    def _index(self, number: Value) -> list[Value]:
        """The position of a batch element in each batch dim."""
        em, index = self.em, list[Value]()
        for size in reversed(self.problem.batch):
            index.insert(0, em.b.srem(number, em.index(size)))
            number = em.b.sdiv(number, em.index(size))
        return index

    def _at(self, pointer: Value, strides: Sequence[int], index: Sequence[Value], dtype: str) -> Value:
        for coordinate, stride in zip(index, strides, strict=True):
            pointer = self.em.moved(pointer, coordinate, stride, dtype)
        return pointer

    def _matrix_at(self, pointer: Value, matrix: Matrix, index: Sequence[Value]) -> tuple[Value, Matrix]:
        return self._at(pointer, matrix.batch, index, self.element), matrix

    def number(self, pointer: Value, numbers: Numbers, index: Sequence[Value]) -> Value:
        """The number of a batch element (i64)."""
        em, dtype = self.em, numbers.dtype
        value = em.load(self._at(pointer, numbers.batch, index, dtype), dtype, 1)
        return value if dtype == "i64" else em.b.sext(value, em.type("i64", 1))

    def reach(self, index: Sequence[Value], first: Value, rows: int) -> _Block:
        """Which keys a block sees whose first query is row `first`."""
        em, p = self.em, self.problem
        if not p.is_causal:
            return _Block(rows, None, em.index(p.n))
        last = em.index(p.past or 0) if p.position is None else self.position(p.position, index)
        tokens = rows if p.are_tokens else 1
        if p.are_tokens:
            last = em.b.add(last, first)
        end = self.clamped(em.b.add(last, em.index(tokens)), 0, p.n)
        return _Block(rows, last, end)

    def position(self, numbers: Numbers, index: Sequence[Value]) -> Value:
        """How many keys come before the first token of a batch element (i64)."""
        assert self.pointers.position is not None
        return self.clamped(self.number(self.pointers.position, numbers, index), -_FARTHEST, _FARTHEST)

    def clamped(self, value: Value, least: int, most: int) -> Value:
        """A number (i64) within bounds."""
        b, low, high = self.em.b, self.em.index(least), self.em.index(most)
        value = b.select(b.icmp_signed("<", value, low), low, value)
        return b.select(b.icmp_signed(">", value, high), high, value)

    def start(self, rows: int) -> None:
        """The state of a block that has seen no key."""
        em, lanes = self.em, self.spec.lanes
        zero = em.const(self.dtype, lanes, 0.0)
        lowest = em.const(self.dtype, lanes, float(np.finfo(self.dtype.replace("f", "float")).min))

        @em.each(0, rows * self.spec.output_elements, lanes)
        def body(at: Value) -> None:
            em.store(zero, em.address(self.outputs, at, self.dtype), self.dtype, lanes)

        @em.each(0, self.spec.row_elements, lanes)
        def states(at: Value) -> None:
            em.store(lowest, em.address(self.largest, at, self.dtype), self.dtype, lanes)
            em.store(zero, em.address(self.sums, at, self.dtype), self.dtype, lanes)

    def tiles(self, block: _Block, k: Value, v: Value) -> None:
        """All tiles of keys that a block sees; those of the last one that are not seen are zeros in a copy."""
        em, p = self.em, self.problem
        size = em.index(KEY_TILE)
        full = em.b.sdiv(block.end, size)

        def at(tile: Value) -> tuple[Value, Value, Value]:
            first = em.scaled(tile, KEY_TILE)
            return (
                em.moved(k, first, p.k.row, self.element),
                em.moved(v, first, p.v.row, self.element),
                first,
            )

        @em.each(self.first_tile(block), full)
        def body(tile: Value) -> None:
            keys, values, first = at(tile)
            if p.copies_tiles:
                self.copy(keys, values, size)
                keys, values = self.copied_keys, self.copied_values
            self.tile(block, _Keys(keys, values, first, is_short=False, is_copied=p.copies_tiles))

        def rest() -> None:
            keys, values, first = at(full)
            self.copy(keys, values, em.b.sub(block.end, first))
            self.tile(
                block, _Keys(self.copied_keys, self.copied_values, first, is_short=True, is_copied=True)
            )

        em.when(em.b.icmp_signed(">", block.end, em.scaled(full, KEY_TILE)), rest)

    def first_tile(self, block: _Block) -> Value:
        """The tile of the first key that the first query sees."""
        em, p = self.em, self.problem
        if not p.window or block.last is None:
            return em.index(0)
        start = em.b.sub(block.last, em.index(p.window - 1))
        return em.b.sdiv(self.clamped(start, 0, p.n), em.index(KEY_TILE))

    def copy(self, keys: Value, values: Value, count: Value) -> None:
        """The first `count` keys and values of a tile, contiguous and in the type of the scores; zeros after them."""
        em, p, lanes = self.em, self.problem, self.spec.lanes
        for source, target, matrix, size in (
            (keys, self.copied_keys, p.k, p.d),
            (values, self.copied_values, p.v, p.dv),
        ):
            rows = Rows(self.element, (matrix.row, matrix.column), size)
            emit_widened_rows(em, rows, lanes, source, target, (em.index(0), count), self.dtype)
            start, zero = em.scaled(count, size), em.const(self.dtype, 1, 0.0)

            @em.each(start, KEY_TILE * size)
            def body(at: Value, target: Value = target, zero: Value = zero) -> None:
                em.store(zero, em.address(target, at, self.dtype), self.dtype, 1)

    # One tile of keys.

    def tile(self, block: _Block, keys: _Keys) -> None:
        """Scores, their softmax as far as it is known, and what they add to the output."""
        spec, copied, rows = self.spec, keys.is_copied, block.rows
        scores = replace(spec.scores, problem=self.problem.scores(rows, copied=copied))
        self.product(scores, keys.keys, self.queries, self.score(block, keys))

        @self.em.each(0, -(-rows // spec.lanes))
        def body(vector: Value) -> None:
            self.softmax(self.em.scaled(vector, spec.lanes))

        output = replace(spec.output, problem=self.problem.output(rows, spec.row_elements, copied=copied))
        self.product(output, self.scores, keys.values, self.added)

    def product(self, spec: GemmSpec, a: Value, b: Value, epilogue: Epilogue) -> None:
        """One of the two products of a tile; this thread does all of it."""
        nothing = self.em.index(0)
        emit_gemm(self.em, spec, GemmPointers(a, (b,), None, nothing, nothing), lambda _: epilogue)

    def score(self, block: _Block, keys: _Keys) -> Epilogue:
        """Stores scores with scale and cap, whole vectors of queries, -inf where a key is not seen."""

        def epilogue(em: Emitter, tile: Tile) -> None:
            for row, values in enumerate(tile.acc):
                key = em.b.add(keys.first, em.b.add(tile.row, em.index(row)))
                for vector, value in enumerate(values):
                    query = em.b.add(tile.col, em.index(vector * tile.lanes))
                    value = self.seen(self.scaled(value, tile.lanes), block, keys, key, query)
                    at = em.b.add(em.scaled(em.b.add(tile.row, em.index(row)), self.spec.row_elements), query)
                    em.store(value, em.address(self.scores, at, self.dtype), self.dtype, tile.lanes)

        return epilogue

    def scaled(self, value: Value, lanes: int) -> Value:
        """Scores from a product."""
        em, cap = self.em, self.problem.softcap
        scale = self.scale / cap if cap else self.scale
        if scale != 1.0:
            value = em.b.fmul(value, em.const(self.dtype, lanes, scale))
        if cap:
            value = self.scalars.math(self.dtype).tanh(value)
            value = em.b.fmul(value, em.const(self.dtype, lanes, cap))
        return value

    def seen(self, value: Value, block: _Block, keys: _Keys, key: Value, query: Value) -> Value:
        """The scores of a key and a vector of queries from `query` on, -inf for those that do not see it."""
        em, p, lanes = self.em, self.problem, self.spec.lanes
        hidden = em.const(self.dtype, lanes, float("-inf"))
        if block.last is not None:
            # Of each query, how far its last key is after this one.
            ahead = em.b.sub(block.last, key)
            if p.are_tokens:
                ahead = em.b.add(ahead, query)
            distance = em.splat(em.b.trunc(ahead, em.type("i32", 1)), lanes)
            if p.are_tokens:
                distance = em.b.add(distance, em.ramp("i32", lanes, 1))
            visible = em.b.icmp_signed(">=", distance, em.const("i32", lanes, 0))
            value = em.b.select(visible, value, hidden)
            if p.window:
                visible = em.b.icmp_signed("<", distance, em.const("i32", lanes, p.window))
                value = em.b.select(visible, value, hidden)
        if keys.is_short:
            value = em.b.select(em.splat(em.b.icmp_signed("<", key, block.end), lanes), value, hidden)
        return value

    def softmax(self, at: Value) -> None:
        """Turns the scores of a vector of queries, from query `at` on, into ``exp(score - largest)``, and corrects what
        was summed before."""
        em, lanes, scalars = self.em, self.spec.lanes, self.scalars
        exp = scalars.math(self.dtype).exp

        def state(part: Value) -> Value:
            return em.address(part, at, self.dtype)

        def score(key: Value) -> Value:
            return em.address(self.scores, em.b.add(em.scaled(key, self.spec.row_elements), at), self.dtype)

        before = em.load(state(self.largest), self.dtype, lanes)

        def larger(key: Value, found: list[Value]) -> Sequence[Value]:
            return [scalars.combine("max", self.dtype, found[0], em.load(score(key), self.dtype, lanes))]

        (largest,) = em.loop(0, KEY_TILE, 1, [before], larger)

        def weight(key: Value, total: list[Value]) -> Sequence[Value]:
            value = exp(em.b.fsub(em.load(score(key), self.dtype, lanes), largest))
            em.store(value, score(key), self.dtype, lanes)
            return [em.b.fadd(total[0], value)]

        (total,) = em.loop(0, KEY_TILE, 1, [em.const(self.dtype, lanes, 0.0)], weight)
        factor = exp(em.b.fsub(before, largest))
        summed = em.fma(em.load(state(self.sums), self.dtype, lanes), factor, total)
        for part, value in ((self.largest, largest), (self.sums, summed), (self.factors, factor)):
            em.store(value, state(part), self.dtype, lanes)

    def added(self, em: Emitter, tile: Tile) -> None:
        """Adds a tile of the output to what was summed before."""
        for row, values in enumerate(tile.acc):
            number = em.b.add(tile.row, em.index(row))
            factor = em.splat(
                em.load(em.address(self.factors, number, self.dtype), self.dtype, 1), tile.lanes
            )
            start = em.b.add(em.scaled(number, self.spec.output_elements), tile.col)
            for vector, value in enumerate(values):
                at = em.address(self.outputs, em.b.add(start, em.index(vector * tile.lanes)), self.dtype)
                value = em.fma(em.load(at, self.dtype, tile.lanes), factor, value)
                em.store(value, at, self.dtype, tile.lanes)

    # The result.

    def finish(self, result: Value, rows: int) -> None:
        """Divides each row by its sum, and stores it."""
        em, p, lanes = self.em, self.problem, self.spec.lanes

        @em.each(0, rows)
        def body(row: Value) -> None:
            total = em.load(em.address(self.sums, row, self.dtype), self.dtype, 1)
            total, kept = self.divisor(total)
            line = em.scaled(row, self.spec.output_elements)
            target = em.moved(result, row, p.result.row, self.element)

            @em.pieces(p.dv, lanes)
            def vector(at: Value, active: int) -> None:
                value = em.load(em.address(self.outputs, em.b.add(line, at), self.dtype), self.dtype, lanes)
                value = kept(em.b.fdiv(value, em.splat(total, lanes)))
                there = em.moved(target, at, p.result.column, self.element)
                em.store_strided(value, there, p.result.column, self.element, lanes, active)

    def divisor(self, total: Value) -> tuple[Value, Callable[[Value], Value]]:
        """What divides a row, and what becomes of the quotients where NaN is 0."""
        em, p, lanes = self.em, self.problem, self.spec.lanes
        zero, one = em.const(self.dtype, 1, 0.0), em.const(self.dtype, 1, 1.0)
        if p.empty_as_zero or p.nan_as_zero:
            # All keys are hidden: no other sum is below 1.
            total = em.b.select(em.b.fcmp_ordered("==", total, zero), one, total)
        if not p.nan_as_zero:
            return total, lambda value: value
        is_nan = em.splat(em.b.fcmp_unordered("uno", total, total), lanes)
        return total, lambda value: em.b.select(is_nan, em.const(self.dtype, lanes, 0.0), value)
