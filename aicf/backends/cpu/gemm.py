"""Code for ``C = epilogue(A * B)``: a register-tiled microkernel over packed panels of B.

Every decision (tile, unrolling, split of K, blocking, how B is fetched, who computes which tile) is a field of
`GemmSpec`; the emitter decides nothing.

The scheme is that of BLIS (Van Zee and van de Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS
Functionality", 2015): an ``mr x (nv * lanes)`` tile of C stays in registers while K runs, A elements are broadcast and
rows of a B panel are loaded as vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from aicf.backends.cpu.gemm_spec import CACHE_LINE, GemmSpec, check
from aicf.backends.cpu.ir_builder import F32, F64, I8, I32, I64, Emitter, Value
from aicf.backends.cpu.pack import emit_pack_panel


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


Epilogue = Callable[[Emitter, Tile], None]
"""Emits code that turns a tile into stores; it must store every active lane of the tile."""


@dataclass(frozen=True)
class GemmPointers:
    """Run-time operands of the emitted code."""

    a: Value
    b: Value
    workspace: Value | None
    tid: Value
    nthreads: Value


def emit_gemm(em: Emitter, spec: GemmSpec, pointers: GemmPointers, epilogue: Epilogue) -> None:
    """Emit the whole product at the current position of `em`; ValueError if the spec contradicts itself."""
    if (problem := check(spec)) is not None:
        raise ValueError(problem)
    _Gemm(em, spec, pointers, epilogue).batches((), pointers.a, pointers.b)


class _Gemm:
    """Loop nest of one product: batch, blocks of rows, panels, tiles, K."""

    def __init__(self, em: Emitter, spec: GemmSpec, pointers: GemmPointers, epilogue: Epilogue) -> None:
        self.em = em
        self.spec = spec
        self.p = spec.problem
        self.pointers = pointers
        self.epilogue = epilogue
        self.float = spec.problem.dtype in ("f32", "f64")
        workspace = pointers.workspace
        if workspace is not None and spec.threads > 1:
            share = em.index(spec.workspace_bytes // spec.threads)
            workspace = em.b.gep(workspace, [em.b.mul(pointers.tid, share)], source_etype=I8)
        self.panel_space = workspace

    def batches(self, index: tuple[Value, ...], a: Value, b: Value) -> None:
        depth = len(index)
        if depth == len(self.p.batch):
            self.product(index, a, b)
            return
        em = self.em

        def body(i: Value, _: list[Value]) -> list[Value]:
            a_next = em.address(a, em.b.mul(i, em.index(self.p.a_batch_strides[depth])), self.p.dtype)
            b_next = em.address(b, em.b.mul(i, em.index(self.p.b_batch_strides[depth])), self.p.dtype)
            self.batches((*index, i), a_next, b_next)
            return []

        em.loop(0, self.p.batch[depth], 1, [], body)

    def product(self, batch: tuple[Value, ...], a: Value, b: Value) -> None:
        """Row blocks; the last may be short."""
        block = self.spec.mc or self.p.m
        full = self.p.m // block * block

        def body(row: Value, _: list[Value]) -> list[Value]:
            self.row_block(batch, a, b, row, block)
            return []

        self.em.loop(0, full, block, [], body)
        if full < self.p.m:
            self.row_block(batch, a, b, self.em.index(full), self.p.m - full)

    def row_block(self, batch: tuple[Value, ...], a: Value, b: Value, row: Value, rows: int) -> None:
        em, spec = self.em, self.spec
        a_block = em.address(a, em.b.mul(row, em.index(self.p.a_strides[0])), self.p.dtype)
        full = self.p.n // spec.nr
        tail = self.p.n - full * spec.nr

        def panel(index: Value, columns: int) -> None:
            self.panel(batch, a_block, b, row, rows, index, columns)

        def body(index: Value, _: list[Value]) -> list[Value]:
            panel(index, spec.nr)
            return []

        if spec.partition != "columns":
            em.loop(0, full, 1, [], body)
            if tail:
                panel(em.index(full), tail)
            return
        self.shared(full + (tail > 0), full, tail > 0, body, lambda: panel(em.index(full), tail))

    def shared(
        self,
        total: int,
        full: int,
        has_tail: bool,
        body: Callable[[Value, list[Value]], list[Value]],
        emit_tail: Callable[[], None],
    ) -> None:
        """Give this thread its contiguous share of `total` items, the last of which may be the tail."""
        em, pointers = self.em, self.pointers
        count = em.index(total)
        low = em.b.sdiv(em.b.mul(pointers.tid, count), pointers.nthreads)
        following = em.b.add(pointers.tid, em.index(1))
        high = em.b.sdiv(em.b.mul(following, count), pointers.nthreads)
        limit = em.index(full)
        stop = em.b.select(em.b.icmp_signed("<", high, limit), high, limit)
        em.loop(low, stop, 1, [], body)
        if has_tail:
            own_tail = em.b.and_(em.b.icmp_signed(">", high, limit), em.b.icmp_signed("<=", low, limit))
            em.when(own_tail, emit_tail)

    def panel(
        self, batch: tuple[Value, ...], a: Value, b: Value, row: Value, rows: int, index: Value, columns: int
    ) -> None:
        """All tiles of a row block against one panel of B, whose first `columns` columns exist."""
        em, spec = self.em, self.spec
        col = em.b.mul(index, em.index(spec.nr))
        if spec.b_source == "packed":
            b_panel = em.address(b, em.b.mul(index, em.index(spec.panel_elements)), self.p.dtype)
        else:
            b_panel = em.address(b, em.b.mul(col, em.index(self.p.b_strides[1])), self.p.dtype)
        if spec.b_source == "workspace":
            emit_pack_panel(
                em,
                self.p.dtype,
                spec.lanes,
                self.p.k,
                spec.nr,
                columns,
                self.p.b_strides,
                b_panel,
                self.panel_space,
            )
            b_panel = self.panel_space
        full = rows // spec.mr
        tail = rows - full * spec.mr

        def tile(i: Value, count: int) -> None:
            self.tile(batch, a, b_panel, row, i, count, col, columns)

        def body(i: Value, _: list[Value]) -> list[Value]:
            tile(i, spec.mr)
            return []

        if spec.partition != "rows":
            em.loop(0, full, 1, [], body)
            if tail:
                tile(em.index(full), tail)
            return
        self.shared(full + (tail > 0), full, tail > 0, body, lambda: tile(em.index(full), tail))

    def tile(
        self,
        batch: tuple[Value, ...],
        a: Value,
        b_panel: Value,
        row: Value,
        i: Value,
        rows: int,
        col: Value,
        columns: int,
    ) -> None:
        """One register tile: K loop, then the epilogue."""
        em, spec, p = self.em, self.spec, self.p
        first = em.b.mul(i, em.index(spec.mr))
        a_tile = em.address(a, em.b.mul(first, em.index(p.a_strides[0])), p.dtype)
        vectors = -(-columns // spec.lanes)
        active = tuple(min(spec.lanes, columns - j * spec.lanes) for j in range(vectors))
        acc = self.sums(a_tile, b_panel, rows, active, self.prefetch_start(b_panel, i))
        self.finish(Tile(batch, em.b.add(row, first), col, spec.lanes, active, acc))

    def prefetch_start(self, b_panel: Value, i: Value) -> Value | None:
        """Where tile number `i` starts to prefetch: each tile of a panel fetches its share of the next one."""
        if not self.spec.prefetch_lines:
            return None
        em = self.em
        share = self.p.k // self.spec.k_step * self.spec.prefetch_lines * CACHE_LINE
        following = em.address(b_panel, self.spec.panel_elements, self.p.dtype)
        return em.b.gep(following, [em.scaled(i, share)], source_etype=I8)

    def sums(
        self, a: Value, b: Value, rows: int, active: tuple[int, ...], prefetch: Value | None
    ) -> list[list[Value]]:
        """The K loop of one tile; `active` gives the lanes of each vector of B that exist."""
        em, spec, p = self.em, self.spec, self.p
        a_strides = p.a_strides
        split = min(spec.k_split, p.k)
        vectors = len(active)
        b_row = p.b_strides[0] if spec.b_source == "direct" else spec.nr
        group = rows * vectors

        def step(k: Value | None, offset: int, acc: list[Value]) -> None:
            """Add products of row ``k + offset`` of B into the sums of that k."""
            at_a = a if k is None else em.address(a, em.b.mul(k, em.index(a_strides[1])), p.dtype)
            at_b = b if k is None else em.address(b, em.b.mul(k, em.index(b_row)), p.dtype)
            b_vectors = [
                em.load(
                    em.address(at_b, offset * b_row + j * spec.lanes, p.dtype),
                    p.dtype,
                    spec.lanes,
                    lanes if spec.b_source == "direct" else None,
                )
                for j, lanes in enumerate(active)
            ]
            base = offset % split * group
            for r in range(rows):
                element = em.load(
                    em.address(at_a, r * a_strides[0] + offset * a_strides[1], p.dtype), p.dtype, 1
                )
                wide = em.splat(element, spec.lanes)
                for j in range(vectors):
                    at = base + r * vectors + j
                    acc[at] = self.multiply_add(wide, b_vectors[j], acc[at])

        unroll = spec.k_step
        rolled = p.k // unroll * unroll
        if rolled < 2 * unroll:
            rolled = 0 if p.k <= 2 * unroll else rolled

        def body(k: Value, acc: list[Value]) -> list[Value]:
            for line in range(spec.prefetch_lines if prefetch is not None else 0):
                at = em.b.mul(k, em.index(spec.prefetch_lines * CACHE_LINE // unroll))
                em.prefetch(em.b.gep(prefetch, [em.b.add(at, em.index(line * CACHE_LINE))], source_etype=I8))
            for offset in range(unroll):
                step(k, offset, acc)
            return acc

        zero = em.const(p.dtype, spec.lanes, 0)
        acc = em.loop(0, rolled, unroll, [zero] * (split * group), body)
        for offset in range(rolled, p.k):
            step(None, offset, acc)
        while split > 1:
            half = (split + 1) // 2
            for at in range((split - half) * group):
                acc[at] = self.add(acc[at], acc[at + half * group])
            split = half
        return [acc[r * vectors : (r + 1) * vectors] for r in range(rows)]

    def add(self, x: Value, y: Value) -> Value:
        return self.em.b.fadd(x, y) if self.float else self.em.b.add(x, y)

    def multiply_add(self, x: Value, y: Value, z: Value) -> Value:
        return self.em.fma(x, y, z) if self.float else self.em.b.add(self.em.b.mul(x, y), z)

    def finish(self, tile: Tile) -> None:
        """Run the epilogue on the tile in registers, or row by row from the stack."""
        em, spec = self.em, self.spec
        rows, vectors = len(tile.acc), len(tile.active)
        if not spec.tile_buffer or rows == 1:
            self.epilogue(em, tile)
            return
        dtype = self.p.dtype
        scalar = {"f32": F32, "f64": F64, "i32": I32, "i64": I64}[dtype]
        buffer = em.stack(scalar, rows * vectors * spec.lanes)
        for r, values in enumerate(tile.acc):
            for j, value in enumerate(values):
                em.store(value, em.address(buffer, (r * vectors + j) * spec.lanes, dtype), dtype, spec.lanes)

        def body(r: Value, _: list[Value]) -> list[Value]:
            line = em.address(buffer, em.b.mul(r, em.index(vectors * spec.lanes)), dtype)
            values = [
                em.load(em.address(line, j * spec.lanes, dtype), dtype, spec.lanes) for j in range(vectors)
            ]
            self.epilogue(em, replace(tile, row=em.b.add(tile.row, r), acc=[values]))
            return []

        em.loop(0, rows, 1, [], body)
