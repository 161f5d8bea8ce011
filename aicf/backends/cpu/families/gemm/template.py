"""Code for ``C = epilogue(A * B)``: a register-tiled microkernel over packed panels of B.

Several products of one A run in one loop nest: side by side, one after the other for each block of rows, or joined,
when the sums of a tile of all of them meet in one epilogue. Rows of A that are made here (a norm) lie in workspace.

Every decision (tile, unrolling, split of K, blocking, how B is fetched, who computes which tile) is a field of
`GemmSpec`; the emitter decides nothing.

The scheme is that of BLIS (Van Zee and van de Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS
Functionality", 2015): an ``mr x (nv * lanes)`` tile of C stays in registers while K runs, A elements are broadcast and
rows of a B panel are loaded as vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from aicf.backends.cpu.codegen.ir_builder import F32, F64, I8, I32, I64, PTR, Emitter, Value
from aicf.backends.cpu.families.gemm.k_loop import KLoop
from aicf.backends.cpu.families.gemm.pack.pairs import PairPacker, Pairs, emit_rows_of_pairs
from aicf.backends.cpu.families.gemm.pack.quads import QuadPacker
from aicf.backends.cpu.families.gemm.pack.template import Packer, Rows, emit_widened_rows
from aicf.backends.cpu.families.gemm.schedule import CACHE_LINE, GemmSpec, check
from aicf.backends.cpu.families.loops.template import share_of


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


def emit_gemm(
    em: Emitter,
    spec: GemmSpec,
    pointers: GemmPointers,
    epilogue: EpilogueOf,
    rows: RowProgram | None = None,
) -> None:
    """Emit all products at the current position of `em`; ValueError if the spec contradicts itself."""
    if (problem := check(spec)) is not None:
        raise ValueError(problem)
    nest = _GroupedGemm if spec.group > 1 else _Gemm
    nest(em, spec, pointers, epilogue, rows).batches((), pointers.a, em.index(0))


def emit_share(
    em: Emitter,
    total: int,
    full: int,
    threads: tuple[Value, Value],
    body: Callable[[Value], None],
    emit_tail: Callable[[], None],
) -> None:
    """Give this thread (number, count) its contiguous share of `total` items, of which those past `full` are a tail."""
    tid, nthreads = threads
    count = em.index(total)
    low = em.b.sdiv(em.b.mul(tid, count), nthreads)
    following = em.b.add(tid, em.index(1))
    high = em.b.sdiv(em.b.mul(following, count), nthreads)
    limit = em.index(full)
    stop = em.b.select(em.b.icmp_signed("<", high, limit), high, limit)
    em.each(low, stop)(body)
    if total > full:
        own_tail = em.b.and_(em.b.icmp_signed(">", high, limit), em.b.icmp_signed("<=", low, limit))
        em.when(own_tail, emit_tail)


def emit_panels(
    em: Emitter,
    count: int,
    width: int,
    threads: tuple[Value, Value] | None,
    panel: Callable[[Value, int], None],
) -> None:
    """`panel` of the number and the width of each panel of `count` columns, or of this thread's share of them."""
    if threads is None:
        em.panels(count, width)(panel)
        return
    full, rest = divmod(count, width)
    emit_share(
        em,
        full + (rest > 0),
        full,
        threads,
        lambda number: panel(number, width),
        lambda: panel(em.index(full), rest),
    )


@dataclass(frozen=True)
class _Spot:
    """A tile's place: its batch element, first row and column, and how many rows and columns exist."""

    batch: tuple[Value, ...]
    row: Value
    rows: int
    col: Value
    columns: int


class _Gemm:
    """Loop nest of one A: batch, blocks of rows, products side by side, panels, tiles, K."""

    def __init__(
        self,
        em: Emitter,
        spec: GemmSpec,
        pointers: GemmPointers,
        epilogue: EpilogueOf,
        rows: RowProgram | None,
    ) -> None:
        self.em = em
        self.spec = spec
        self.p = spec.problem
        self.pointers = pointers
        self.epilogue = epilogue
        self.make_rows = rows
        self.k_loop = KLoop(em, spec)
        self.beside = spec.problem.products // spec.problem.tile_products
        self.b_table = PointerTable(em, pointers.b if self.beside > 1 else pointers.b[:1])
        # Rows of A, then panels of B.
        self.workspace = em.part_of(
            pointers.workspace, pointers.tid, spec.threads, spec.workspace_bytes // spec.threads
        )

    @property
    def threads(self) -> tuple[Value, Value]:
        return self.pointers.tid, self.pointers.nthreads

    def batches(self, index: tuple[Value, ...], a: Value | None, b_offset: Value) -> None:
        """The loops over batch dims; `b_offset` counts elements from the start of every B."""
        depth = len(index)
        if depth == len(self.p.batch):
            self.blocks(index, a, b_offset)
            return
        em = self.em

        @em.each(0, self.p.batch[depth])
        def body(i: Value) -> None:
            a_step = em.index(self.p.a_batch_strides[depth])
            a_next = em.address(a, em.b.mul(i, a_step), self.p.a_element)
            b_next = em.b.add(b_offset, em.b.mul(i, em.index(self.p.b_batch_strides[depth])))
            self.batches((*index, i), a_next, b_next)

    def blocks(self, batch: tuple[Value, ...], a: Value | None, b_offset: Value) -> None:
        """Row blocks; the last may be short."""
        self.em.pieces(self.p.m, self.spec.mc or self.p.m)(
            lambda row, rows: self.row_block(batch, a, b_offset, row, rows)
        )

    def row_block(
        self, batch: tuple[Value, ...], a: Value | None, b_offset: Value, row: Value, rows: int
    ) -> None:
        em = self.em
        if self.make_rows is None:
            a_block = em.address(a, em.b.mul(row, em.index(self.p.a_strides[0])), self.p.a_element)
            if self.p.widens_rows:
                matrix = Rows(self.p.a_element, self.p.a_strides, self.p.k)
                given = (self.spec.lanes, a_block, self.workspace, self.needed_rows(rows))
                if self.p.pairs:
                    emit_rows_of_pairs(em, matrix, *given)
                else:
                    emit_widened_rows(em, matrix, *given, self.p.dtype)
                a_block = self.workspace
        else:
            a_block = self.workspace
            self.make_rows(em, row, *self.needed_rows(rows), a_block)

        def product(number: Value | None) -> None:
            bs = [self.b_table.at(number)] if self.p.tile_products == 1 else self.pointers.b
            b_type = self.p.b_element if self.spec.b_source == "workspace" else self.spec.b_unit
            moved = [em.address(b, b_offset, b_type) for b in bs]
            self.panels(batch, a_block, moved, row, rows, self.epilogue(number))

        if self.beside == 1:
            product(None)
        else:
            em.each(0, self.beside)(product)

    def needed_rows(self, rows: int) -> tuple[Value, Value]:
        """Which rows of a block this thread multiplies."""
        em, spec = self.em, self.spec
        if spec.partition != "rows":
            return em.index(0), em.index(rows)
        tiles = -(-rows // spec.mr)
        first, end = (em.b.mul(tile, em.index(spec.mr)) for tile in share_of(em, tiles, *self.threads))
        limit = em.index(rows)
        return first, em.b.select(em.b.icmp_signed("<", end, limit), end, limit)

    def panels(
        self,
        batch: tuple[Value, ...],
        a: Value,
        bs: Sequence[Value],
        row: Value,
        rows: int,
        epilogue: Epilogue,
    ) -> None:
        """A row block against all panels of one product, or of all joined ones."""
        em, spec = self.em, self.spec

        def panel(index: Value, columns: int) -> None:
            self.panel(batch, a, bs, row, rows, index, columns, epilogue)

        emit_panels(em, self.p.n, spec.nr, self.threads if spec.partition == "columns" else None, panel)

    def panel(
        self,
        batch: tuple[Value, ...],
        a: Value,
        bs: Sequence[Value],
        row: Value,
        rows: int,
        index: Value,
        columns: int,
        epilogue: Epilogue,
    ) -> None:
        """All tiles of a row block against one panel of each B, whose first `columns` columns exist."""
        em, spec = self.em, self.spec
        col = em.b.mul(index, em.index(spec.nr))
        b_panels = [self.b_panel(number, b, index, col, columns) for number, b in enumerate(bs)]

        def tile(i: Value, count: int) -> None:
            self.tile(batch, a, b_panels, row, i, count, col, columns, epilogue)

        emit_panels(em, rows, spec.mr, self.threads if spec.partition == "rows" else None, tile)

    def b_panel(self, number: int, b: Value, index: Value, col: Value, columns: int) -> Value:
        """Where the panel of the joined product `number` lies; packs it if it must."""
        em, spec = self.em, self.spec
        if spec.b_source == "packed":
            return em.address(b, em.b.mul(index, em.index(spec.panel_elements)), spec.b_unit)
        if spec.b_source == "direct":
            return em.address(b, em.b.mul(col, em.index(self.p.b_strides[1])), self.p.b_element)
        space = em.address(self.packed_panels(), number * spec.panel_elements, self.p.dtype)
        self.pack_b(b, columns, col, space)
        return space

    def packed_panels(self) -> Value:
        """Where the panels lie that this thread packs."""
        return self.em.address(self.workspace, self.spec.row_elements, self.p.dtype)

    def pack_b(self, b: Value, columns: int, col: Value, space: Value) -> None:
        """Packs `columns` columns from `col` on into a panel at `space`."""
        em, spec, p = self.em, self.spec, self.p
        start = em.address(b, em.b.mul(col, em.index(p.b_strides[1])), p.b_element)
        if p.quads:
            packer = QuadPacker(em, spec.lanes, p.k, spec.nr, p.b_strides, p.shift)
        elif p.terms == 2:
            # Pairs of bf16 are packed as the integers of their bits.
            source, element = (p.b_element, p.wide_element) if p.pairs else ("i16", "i16")
            packer = PairPacker(em, Pairs(source, element, p.k, 1), spec.lanes, spec.nr, p.b_strides)
        else:
            packer = Packer(em, p.b_element, p.dtype, spec.lanes, p.k, spec.nr, p.b_strides)
        packer.panel(columns, start, space)

    def tile(
        self,
        batch: tuple[Value, ...],
        a: Value,
        b_panels: Sequence[Value],
        row: Value,
        i: Value,
        rows: int,
        col: Value,
        columns: int,
        epilogue: Epilogue,
    ) -> None:
        """One register tile of each joined product: K loop, then the epilogue."""
        em, spec = self.em, self.spec
        first = em.b.mul(i, em.index(spec.mr))
        a_tile = em.address(a, em.b.mul(first, em.index(self.p.tile_strides[0])), self.p.tile_element)
        spot = _Spot(batch, em.b.add(row, first), rows, col, columns)
        self.multiply(spot, a_tile, b_panels, i, epilogue)

    def multiply(
        self, spot: _Spot, a_tile: Value, b_panels: Sequence[Value], i: Value, epilogue: Epilogue
    ) -> None:
        """The sums of a tile, number `i` of its panel, and what becomes of them."""
        spec = self.spec
        vectors = -(-spot.columns // spec.lanes)
        active = tuple(min(spec.lanes, spot.columns - j * spec.lanes) for j in range(vectors))
        earlier: list[Value] = []
        for b_panel in b_panels[:-1]:
            acc = self.k_loop.sums(a_tile, b_panel, spot.rows, active, self.prefetch_start(b_panel, i))
            earlier.append(self.buffered(acc))
        b_panel = b_panels[-1]
        acc = self.k_loop.sums(a_tile, b_panel, spot.rows, active, self.prefetch_start(b_panel, i))
        where = (spot.batch, spot.row, spot.col)
        self.finish(Tile(*where, spec.lanes, active, acc, self.p.dtype, tuple(earlier)), epilogue)

    def prefetch_start(self, b_panel: Value, i: Value) -> Value | None:
        """Where tile number `i` starts to prefetch: ahead of itself, or its share of the next panel."""
        if not self.spec.prefetch_lines:
            return None
        em = self.em
        if self.spec.prefetch_ahead:
            return em.b.gep(b_panel, [em.index(self.spec.prefetch_ahead)], source_etype=I8)
        share = self.p.depth // self.spec.k_step * self.spec.prefetch_lines * CACHE_LINE
        following = em.address(b_panel, self.spec.panel_elements, self.spec.b_unit)
        return em.b.gep(following, [em.scaled(i, share)], source_etype=I8)

    def buffered(self, acc: list[list[Value]]) -> Value:
        """Stores the sums of a tile on the stack, ``[row][vector][lane]``; gives the address."""
        em, lanes, dtype = self.em, self.spec.lanes, self.p.dtype
        scalar = {"f32": F32, "f64": F64, "i32": I32, "i64": I64}[dtype]
        buffer = em.stack(scalar, len(acc) * len(acc[0]) * lanes)
        for number, value in enumerate(value for values in acc for value in values):
            em.store(value, em.address(buffer, number * lanes, dtype), dtype, lanes)
        return buffer

    def finish(self, tile: Tile, epilogue: Epilogue) -> None:
        """Run the epilogue on the tile in registers, or row by row from the stack."""
        em, spec = self.em, self.spec
        rows, vectors = len(tile.acc), len(tile.active)
        if not spec.tile_buffer or rows == 1:
            epilogue(em, tile)
            return
        dtype = self.p.dtype
        buffers = (*tile.earlier, self.buffered(tile.acc))

        @em.each(0, rows)
        def body(r: Value) -> None:
            *earlier, line = (
                em.address(buffer, em.b.mul(r, em.index(vectors * spec.lanes)), dtype) for buffer in buffers
            )
            values = [
                em.load(em.address(line, j * spec.lanes, dtype), dtype, spec.lanes) for j in range(vectors)
            ]
            row = em.b.add(tile.row, r)
            epilogue(em, replace(tile, row=row, acc=[values], earlier=tuple(earlier)))


class _GroupedGemm(_Gemm):
    """Loop nest where tiles of rows pass over several packed panels: batch, groups of panels, rows, panels, K."""

    def blocks(self, batch: tuple[Value, ...], a: Value | None, b_offset: Value) -> None:
        """One group of panels after the other; the last may have fewer panels, and a short one."""
        em, spec = self.em, self.spec
        b = em.address(self.b_table.at(None), b_offset, self.p.b_element)
        panels, tail = divmod(self.p.n, spec.nr)
        full, rest = divmod(panels, spec.group)

        def whole(number: Value) -> None:
            self.group(batch, a, b, em.b.mul(number, em.index(spec.group)), spec.group, 0)

        def short() -> None:
            self.group(batch, a, b, em.index(full * spec.group), rest, tail)

        total = full + (rest + tail > 0)
        if spec.partition == "columns":
            emit_share(em, total, full, self.threads, whole, short)
            return
        em.each(0, full)(whole)
        if total > full:
            short()

    def group(
        self, batch: tuple[Value, ...], a: Value | None, b: Value, first: Value, panels: int, tail: int
    ) -> None:
        """All rows against `panels` panels from panel `first` on, and one of `tail` columns if that is not 0."""
        em, spec = self.em, self.spec
        col = em.b.mul(first, em.index(spec.nr))
        spaces = self.packed_panels()

        def each(panel: Callable[[Value, int], None]) -> None:
            @em.each(0, panels)
            def body(number: Value) -> None:
                panel(number, spec.nr)

            if tail:
                panel(em.index(panels), tail)

        def columns_at(number: Value) -> tuple[Value, Value]:
            """First column of a panel of the group, and where the panel lies."""
            space = em.address(spaces, em.b.mul(number, em.index(spec.panel_elements)), self.p.dtype)
            return em.b.add(col, em.b.mul(number, em.index(spec.nr))), space

        each(lambda number, columns: self.pack_b(b, columns, *columns_at(number)))

        @em.pieces(self.p.m, spec.mr)
        def rows(row: Value, count: int) -> None:
            tile = em.address(a, em.b.mul(row, em.index(self.p.a_strides[0])), self.p.tile_element)

            def panel(number: Value, columns: int) -> None:
                at, space = columns_at(number)
                spot = _Spot(batch, row, count, at, columns)
                self.multiply(spot, tile, [space], number, self.epilogue(None))

            each(panel)
