"""Code for convolutions with an epilogue: register tiles over pixels where they lie, or over a padded copy of them.

Every decision is a field of `ConvSpec`; the emitter decides nothing.

A direct tile holds some pixels times some vectors of output channels while channels and windows run: pixels are
broadcast, rows of a panel of the packed weight are loaded as vectors. Finished vectors are transposed in registers, so
that the epilogue reads and writes runs of pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from aicf.backends.cpu.conv_spec import ConvSpec
from aicf.backends.cpu.gemm import EpilogueOf, GemmPointers, Tile, emit_gemm, emit_share
from aicf.backends.cpu.gemm_spec import CACHE_LINE
from aicf.backends.cpu.ir_builder import I8, I32, Emitter, Value, ir
from aicf.backends.cpu.loops import share_of
from aicf.backends.cpu.pack import emit_pack


@dataclass(frozen=True)
class ConvPointers:
    """Run-time operands of the emitted code."""

    x: Value
    weight: Value
    workspace: Value | None
    tid: Value
    nthreads: Value


def emit_conv(em: Emitter, spec: ConvSpec, pointers: ConvPointers, epilogue: EpilogueOf) -> None:
    """Emit a convolution at the current position of `em`; a tile of the epilogue is (image; channel, pixel)."""
    if spec.product is not None:
        given = (pointers.weight, (pointers.x,), pointers.workspace, pointers.tid, pointers.nthreads)
        emit_gemm(em, spec.product, GemmPointers(*given), epilogue)
        return
    algorithm = _Depthwise if spec.algorithm == "depthwise" else _Direct
    algorithm(em, spec, pointers, epilogue).run()


@dataclass(frozen=True)
class _Image:
    """Channels as tiles read them: the first element, and elements between channels, rows and columns."""

    start: Value
    channel: int
    row: int
    column: int


@dataclass(frozen=True)
class _Spot:
    """Image, first output channel and how many of a panel exist, and the first row of the block."""

    n: Value
    channel: Value
    channels: int
    row: Value


@dataclass(frozen=True)
class _Box:
    """Rows and columns of pixels of a tile, counted from the first row of the block."""

    row: Value
    rows: int
    column: Value
    columns: int


_UNROLLED = 12
"""Most elements of a window whose products are written out one after the other."""


class _Conv:
    """What both algorithms share: workspace, and the copy of the input with zeros around it."""

    def __init__(self, em: Emitter, spec: ConvSpec, pointers: ConvPointers, epilogue: EpilogueOf) -> None:
        self.em = em
        self.spec = spec
        self.p = spec.problem
        self.dtype = spec.problem.dtype
        self.pointers = pointers
        self.epilogue = epilogue(None)
        self.space = self._own_workspace()
        self.copied = self.space
        if self.space is not None and spec.packed_elements:
            bytes_ = spec.packed_elements * (8 if self.dtype == "f64" else 4)
            self.copied = em.b.gep(
                self.space, [em.index(-(-bytes_ // CACHE_LINE) * CACHE_LINE)], source_etype=I8
            )

    def _own_workspace(self) -> Value | None:
        em, workspace = self.em, self.pointers.workspace
        if workspace is None or self.spec.threads == 1:
            return workspace
        share = em.index(self.spec.workspace_bytes // self.spec.threads)
        return em.b.gep(workspace, [em.b.mul(self.pointers.tid, share)], source_etype=I8)

    @property
    def threads(self) -> tuple[Value, Value]:
        return self.pointers.tid, self.pointers.nthreads

    def zero(self, lanes: int) -> Value:
        return self.em.const(self.dtype, lanes, 0)

    def image(self, x: Value, row: Value, rows: int, channels: int) -> _Image:
        """The input of rows from `row` of the result on; `x` is where its channels start."""
        em, p, spec = self.em, self.p, self.spec
        _, channel, step, column = p.x_strides
        if not spec.copies:
            return _Image(em.moved(x, row, p.strides[0] * step, self.dtype), channel, step, column)
        self.copy(x, row, spec.rows_read(rows), channels)
        return _Image(self.copied, spec.plane, spec.pitch, 1)

    def copy(self, x: Value, first: Value, rows: int, channels: int) -> None:
        """Copies the input that row `first` of the result begins with, `rows` rows of it, with zeros around."""
        em, p, spec = self.em, self.p, self.spec
        top = em.b.sub(em.scaled(first, p.strides[0]), em.index(p.low[0]))
        reaches_out = p.low[0] > 0 or p.spans[0] - p.low[0] > p.sizes[0]

        def row(channel: Value, number: Value) -> None:
            at = em.b.add(top, number)
            target = em.moved(self.copied, channel, spec.plane, self.dtype)
            target = em.moved(target, number, spec.pitch, self.dtype)
            source = em.moved(x, channel, p.x_strides[1], self.dtype)

            def inside() -> None:
                self.copy_row(em.moved(source, at, p.x_strides[2], self.dtype), target)

            if not reaches_out:
                inside()
                return
            below = em.b.icmp_unsigned("<", at, em.index(p.sizes[0]))  # negative numbers are large ones
            em.when(below, inside, lambda: self.fill(target, 0, spec.pitch))

        def each(channel: Value, _: list[Value]) -> list[Value]:
            def body(number: Value, _: list[Value]) -> list[Value]:
                row(channel, number)
                return []

            em.loop(0, rows, 1, [], body)
            return []

        em.loop(0, channels, 1, [], each)

    def copy_row(self, source: Value, target: Value) -> None:
        em, p, spec = self.em, self.p, self.spec
        low, step = p.low[1], p.x_strides[3]
        count = max(min(p.sizes[1], spec.pitch - low), 0)
        self.fill(target, 0, min(low, spec.pitch))

        def vector(at: Value, active: int) -> None:
            value = em.load_strided(
                em.moved(source, at, step, self.dtype), step, self.dtype, spec.lanes, active
            )
            em.store(
                value,
                em.address(em.address(target, low, self.dtype), at, self.dtype),
                self.dtype,
                spec.lanes,
                active,
            )

        self.vectors(count, vector)
        self.fill(target, low + count, spec.pitch)

    def fill(self, target: Value, start: int, stop: int) -> None:
        """Zeros from element `start` to `stop` of a row."""
        if start >= stop:
            return
        em, lanes = self.em, self.spec.lanes
        first = em.address(target, start, self.dtype)
        if stop - start < 4:
            for at in range(stop - start):
                em.store(self.zero(1), em.address(first, at, self.dtype), self.dtype, 1)
            return

        def vector(at: Value, active: int) -> None:
            em.store(self.zero(lanes), em.address(first, at, self.dtype), self.dtype, lanes, active)

        self.vectors(stop - start, vector)

    def vectors(self, count: int, vector: Callable[[Value, int], None]) -> None:
        """All vectors of `count` elements, the last of which may be short."""
        em, lanes = self.em, self.spec.lanes
        full = count // lanes * lanes

        def body(at: Value, _: list[Value]) -> list[Value]:
            vector(at, lanes)
            return []

        em.loop(0, full, lanes, [], body)
        if full < count:
            vector(em.index(full), count - full)


class _Direct(_Conv):
    """Images, groups, blocks of rows, panels of output channels, tiles of pixels, channels, windows."""

    def run(self) -> None:
        em, p, spec = self.em, self.p, self.spec
        weight = self.packed_weight()
        panels = spec.panels * p.inner * spec.nr

        def image(n: Value, _: list[Value]) -> list[Value]:
            x = em.moved(self.pointers.x, n, p.x_strides[0], self.dtype)

            def group(g: Value, _: list[Value]) -> list[Value]:
                own = em.moved(x, g, p.channels * p.x_strides[1], self.dtype)
                self.blocks(n, own, em.moved(weight, g, panels, self.dtype), em.scaled(g, p.outputs))
                return []

            em.loop(0, p.groups, 1, [], group)
            return []

        em.loop(0, p.batch, 1, [], image)

    def packed_weight(self) -> Value:
        """The panels of all groups; packs them if they are not."""
        em, p, spec = self.em, self.p, self.spec
        if spec.prepared:
            return self.pointers.weight
        sizes = (spec.lanes, p.inner, p.outputs, spec.nr)

        def group(g: Value, _: list[Value]) -> list[Value]:
            source = em.moved(self.pointers.weight, g, p.outputs * p.inner, self.dtype)
            target = em.moved(self.space, g, spec.panels * p.inner * spec.nr, self.dtype)
            emit_pack(em, self.dtype, *sizes, (1, p.inner), source, target, self.dtype)
            return []

        em.loop(0, p.groups, 1, [], group)
        return self.space

    def blocks(self, n: Value, x: Value, weight: Value, first: Value) -> None:
        """All rows of the result of one group, whose output channels start at `first`."""
        em, spec, rows = self.em, self.spec, self.p.counts[0]
        full = rows // spec.block_rows * spec.block_rows

        def block(row: Value, count: int) -> None:
            image = self.image(x, row, count, self.p.channels)
            self.panels(n, image, weight, first, row, count)

        def body(row: Value, _: list[Value]) -> list[Value]:
            block(row, spec.block_rows)
            return []

        em.loop(0, full, spec.block_rows, [], body)
        if full < rows:
            block(em.index(full), rows - full)

    def panels(self, n: Value, image: _Image, weight: Value, first: Value, row: Value, rows: int) -> None:
        """A block of rows against all panels of a group."""
        em, spec = self.em, self.spec
        full, tail = divmod(self.p.outputs, spec.nr)

        def panel(index: Value, channels: int) -> None:
            own = em.moved(weight, index, self.p.inner * spec.nr, self.dtype)
            channel = em.b.add(first, em.scaled(index, spec.nr))
            self.tiles(image, own, _Spot(n, channel, channels, row), rows)

        def body(index: Value, _: list[Value]) -> list[Value]:
            panel(index, spec.nr)
            return []

        if spec.threads > 1:
            emit_share(em, full + (tail > 0), full, self.threads, body, lambda: panel(em.index(full), tail))
            return
        em.loop(0, full, 1, [], body)
        if tail:
            panel(em.index(full), tail)

    def tiles(self, image: _Image, panel: Value, spot: _Spot, rows: int) -> None:
        """All tiles of a block of rows against one panel."""
        em, spec = self.em, self.spec
        height = spec.tile_rows
        full = rows // height * height

        def line(row: Value, count: int) -> None:
            column = 0
            for width, equal in groupby(spec.tile_widths):
                number = len(list(equal))

                def tile(at: Value, _: list[Value], count: int = count, width: int = width) -> list[Value]:
                    self.tile(image, panel, spot, _Box(row, count, at, width))
                    return []

                em.loop(column, column + number * width, width, [], tile)
                column += number * width

        def body(row: Value, _: list[Value]) -> list[Value]:
            line(row, height)
            return []

        em.loop(0, full, height, [], body)
        if full < rows:
            line(em.index(full), rows - full)

    def tile(self, image: _Image, panel: Value, spot: _Spot, box: _Box) -> None:
        """One register tile: all products, then transposed to the epilogue."""
        em, p, spec = self.em, self.p, self.spec
        start = em.moved(image.start, box.row, p.strides[0] * image.row, self.dtype)
        start = em.moved(start, box.column, p.strides[1] * image.column, self.dtype)
        places = [
            row * p.strides[0] * image.row + column * p.strides[1] * image.column
            for row in range(box.rows)
            for column in range(box.columns)
        ]
        vectors = -(-spot.channels // spec.lanes)
        moved = _Image(start, image.channel, image.row, image.column)
        acc = self.sums(moved, panel, places, vectors, self.next_panel(panel, box))
        pixel = em.b.add(em.scaled(em.b.add(spot.row, box.row), p.counts[1]), box.column)
        for vector in range(vectors):
            existing = min(spec.lanes, spot.channels - vector * spec.lanes)
            own = [acc[pixel * vectors + vector] for pixel in range(len(places))]
            own += [self.zero(spec.lanes)] * (spec.lanes - len(places))
            lines = [[value] for value in em.transpose(own)[:existing]]
            channel = em.b.add(spot.channel, em.index(vector * spec.lanes))
            tile = Tile((spot.n,), channel, pixel, spec.lanes, (len(places),), lines, self.dtype)
            self.epilogue(em, tile)

    def next_panel(self, panel: Value, box: _Box) -> Value | None:
        """Where this tile's share of the next panel starts; each tile of a panel fetches one."""
        em, p, spec = self.em, self.p, self.spec
        if not spec.prefetch_lines:
            return None
        share = p.channels // spec.channel_step * spec.prefetch_lines * CACHE_LINE
        number = em.b.add(
            em.scaled(em.b.sdiv(box.row, em.index(spec.tile_rows)), len(spec.tile_widths)),
            em.b.sdiv(box.column, em.index(spec.tile_widths[0])),
        )
        following = em.address(panel, p.inner * spec.nr, self.dtype)
        return em.b.gep(following, [em.scaled(number, share)], source_etype=I8)

    def prefetch(self, start: Value | None, channel: Value) -> None:
        """The lines that one step of the loop over channels asks for."""
        em, spec = self.em, self.spec
        if start is None:
            return
        own = em.b.gep(
            start,
            [em.scaled(channel, spec.prefetch_lines * CACHE_LINE // spec.channel_step)],
            source_etype=I8,
        )
        for line in range(spec.prefetch_lines):
            em.prefetch(em.b.gep(own, [em.index(line * CACHE_LINE)], source_etype=I8))

    def sums(
        self, image: _Image, panel: Value, places: Sequence[int], vectors: int, following: Value | None
    ) -> list[Value]:
        """``[pixel][vector]``: the products of all channels and elements of the windows."""
        em, p, spec = self.em, self.p, self.spec
        rows, columns = p.taps
        window = rows * columns

        def add(start: Value, weight: Value, acc: list[Value], at: int, number: int) -> None:
            """The products of the element `at` further on, with row `number` of the weight."""
            lines = [
                em.load(
                    em.address(weight, number * spec.nr + vector * spec.lanes, self.dtype),
                    self.dtype,
                    spec.lanes,
                )
                for vector in range(vectors)
            ]
            for pixel, place in enumerate(places):
                element = em.load(em.address(start, at + place, self.dtype), self.dtype, 1)
                wide = em.splat(element, spec.lanes)
                for vector, line in enumerate(lines):
                    slot = pixel * vectors + vector
                    acc[slot] = em.fma(wide, line, acc[slot])

        def row_of(start: Value, weight: Value, acc: list[Value], row: int, number: int) -> None:
            for column in range(columns):
                at = row * p.dilations[0] * image.row + column * p.dilations[1] * image.column
                # Windows overlap: what LLVM would keep of one element for the next takes all registers.
                add(em.opaque(em.address(start, at, self.dtype)), weight, acc, 0, number + column)

        def channel(c: Value, acc: list[Value]) -> list[Value]:
            if spec.channel_step == 1:
                self.prefetch(following, c)
            start = em.moved(image.start, c, image.channel, self.dtype)
            weight = em.moved(panel, c, window * spec.nr, self.dtype)
            if window <= _UNROLLED:
                for row in range(rows):
                    row_of(start, weight, acc, row, row * columns)
                return acc

            def one_row(row: Value, acc: list[Value]) -> list[Value]:
                moved = em.moved(start, row, p.dilations[0] * image.row, self.dtype)
                own = em.moved(weight, row, columns * spec.nr, self.dtype)
                if columns <= _UNROLLED:
                    row_of(moved, own, acc, 0, 0)
                    return acc

                def one(column: Value, acc: list[Value]) -> list[Value]:
                    at = em.moved(moved, column, p.dilations[1] * image.column, self.dtype)
                    add(at, em.moved(own, column, spec.nr, self.dtype), acc, 0, 0)
                    return acc

                return em.loop(0, columns, 1, acc, one)

            return em.loop(0, rows, 1, acc, one_row)

        def channels(c: Value, acc: list[Value]) -> list[Value]:
            self.prefetch(following, c)
            start = em.moved(image.start, c, image.channel, self.dtype)
            weight = em.moved(panel, c, spec.nr, self.dtype)
            for number in range(spec.channel_step):
                add(start, weight, acc, number * image.channel, number)
            return acc

        acc = [self.zero(spec.lanes)] * (len(places) * vectors)
        unrolled = p.channels // spec.channel_step * spec.channel_step if window == 1 else 0
        acc = em.loop(0, unrolled, spec.channel_step, acc, channels)
        return em.loop(unrolled, p.channels, 1, acc, channel)


class _Depthwise(_Conv):
    """Images, channels, rows of pixels, vectors of a row, windows."""

    def run(self) -> None:
        em, p, spec = self.em, self.p, self.spec

        def image(n: Value, _: list[Value]) -> list[Value]:
            x = em.moved(self.pointers.x, n, p.x_strides[0], self.dtype)

            def group(g: Value, _: list[Value]) -> list[Value]:
                own = em.moved(x, g, p.x_strides[1], self.dtype)
                seen = self.image(own, em.index(0), p.counts[0], 1)

                def output(number: Value, _: list[Value]) -> list[Value]:
                    self.channel(n, em.b.add(em.scaled(g, p.outputs), number), seen)
                    return []

                em.loop(0, p.outputs, 1, [], output)
                return []

            if spec.threads > 1:
                em.loop(*share_of(em, p.groups, *self.threads), 1, [], group)
            else:
                em.loop(0, p.groups, 1, [], group)
            return []

        em.loop(0, p.batch, 1, [], image)

    def channel(self, n: Value, channel: Value, image: _Image) -> None:
        """All pixels of one output channel."""
        em, p, spec = self.em, self.p, self.spec
        window = p.taps[0] * p.taps[1]
        start = em.moved(self.pointers.weight, channel, window, self.dtype)
        weights = [
            em.splat(em.load(em.address(start, number, self.dtype), self.dtype, 1), spec.lanes)
            for number in range(window)
        ]
        chunk = spec.lanes * spec.tile_vectors
        full = p.counts[1] // chunk * chunk
        rest = p.counts[1] - full

        def row(number: Value, _: list[Value]) -> list[Value]:
            line = em.moved(image.start, number, p.strides[0] * image.row, self.dtype)
            first = em.scaled(number, p.counts[1])

            def vectors(at: Value, active: tuple[int, ...]) -> None:
                from_ = em.moved(line, at, p.strides[1] * image.column, self.dtype)
                acc = self.sums(from_, image, weights, active)
                where = (channel, em.b.add(first, at))
                self.epilogue(em, Tile((n,), *where, spec.lanes, active, [acc], self.dtype))

            def body(at: Value, _: list[Value]) -> list[Value]:
                vectors(at, (spec.lanes,) * spec.tile_vectors)
                return []

            em.loop(0, full, chunk, [], body)
            if rest:
                vectors(
                    em.index(full),
                    tuple(min(spec.lanes, rest - at) for at in range(0, rest, spec.lanes)),
                )
            return []

        em.loop(0, p.counts[0], 1, [], row)

    def sums(
        self, start: Value, image: _Image, weights: Sequence[Value], active: tuple[int, ...]
    ) -> list[Value]:
        """The sums of neighbouring vectors of pixels."""
        em, p, spec = self.em, self.p, self.spec
        acc: list[Value] = []
        for vector, lanes in enumerate(active):
            total: Value | None = None
            for number, weight in enumerate(weights):
                row, column = divmod(number, p.taps[1])
                at = row * p.dilations[0] * image.row + column * p.dilations[1] * image.column
                at += vector * spec.lanes * p.strides[1] * image.column
                pixels = self.pixels(em.address(start, at, self.dtype), lanes)
                total = em.b.fmul(pixels, weight) if total is None else em.fma(pixels, weight, total)
            acc.append(total)
        return acc

    def pixels(self, address: Value, active: int) -> Value:
        """A vector of pixels, `strides[1]` apart in a row."""
        em, lanes, step = self.em, self.spec.lanes, self.p.strides[1]
        if step != 2 or lanes == 1:
            return em.load_strided(address, step, self.dtype, lanes, active)
        # Two loads and a shuffle; what lies behind the last pixel is not touched.
        needed = 2 * active - 1
        halves = [
            em.load(
                em.address(address, half * lanes, self.dtype),
                self.dtype,
                lanes,
                min(lanes, needed - half * lanes),
            )
            if needed > half * lanes
            else self.zero(lanes)
            for half in range(2)
        ]
        order = ir.Constant(ir.VectorType(I32, lanes), [2 * lane for lane in range(lanes)])
        return em.b.shuffle_vector(*halves, order)
