"""Code for depthwise convolutions: vectors of pixels of a channel, or of channels of a pixel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.cpu.codegen.ir_builder import I8, I32, Emitter, Value, ir
from aicf.backends.cpu.codegen.panels import PanelShare
from aicf.backends.cpu.families.conv.schedule import ConvSpec
from aicf.backends.cpu.families.conv.template_base import ConvCode, ConvPointers, Image
from aicf.backends.cpu.families.conv.windows import Stretch
from aicf.backends.cpu.families.gemm.template import EpilogueOf, Tile
from aicf.backends.cpu.families.loops.template import share_of
from aicf.backends.cpu.target import ELEMENT_BYTES


def emit_depthwise(em: Emitter, spec: ConvSpec, pointers: ConvPointers, epilogue: EpilogueOf) -> None:
    """Emit a depthwise convolution at the current position of `em`."""
    algorithm = _Channels if spec.lanes_along == "channels" else _Planes
    algorithm(em, spec, pointers, epilogue).run()


class _Planes(ConvCode):
    """Vectors of pixels: images, channels, rows of pixels, vectors of a row, windows."""

    def run(self) -> None:
        em, p, spec = self.em, self.p, self.spec

        @em.each(0, p.batch)
        def image(n: Value) -> None:
            x = em.moved(self.pointers.x, n, p.x_strides[0], self.element)
            groups = share_of(em, p.groups, *self.threads) if spec.threads > 1 else (0, p.groups)

            @em.each(*groups)
            def group(g: Value) -> None:
                own = em.moved(x, g, p.x_strides[1], self.element)
                seen = self.image(own, em.index(0), p.counts[0], 1)

                @em.each(0, p.outputs)
                def output(number: Value) -> None:
                    self.channel(n, em.b.add(em.scaled(g, p.outputs), number), seen)

    def channel(self, n: Value, channel: Value, image: Image) -> None:
        """All pixels of one output channel."""
        em, p, spec = self.em, self.p, self.spec
        window = p.taps[0] * p.taps[1]
        start = em.moved(self.pointers.weight, channel, window, self.element)
        weights = [
            em.splat(em.load(em.address(start, number, self.element), self.element, 1), spec.lanes)
            for number in range(window)
        ]
        chunk = spec.lanes * spec.tile_vectors
        full = p.counts[1] // chunk * chunk
        rest = p.counts[1] - full

        @em.each(0, p.counts[0])
        def row(number: Value) -> None:
            line = em.moved(image.start, number, p.strides[0] * image.row, self.dtype)
            first = em.scaled(number, p.counts[1])

            def vectors(at: Value, active: tuple[int, ...]) -> None:
                from_ = em.moved(line, at, p.strides[1] * image.column, self.dtype)
                acc = self.sums(from_, image, weights, active)
                where = (channel, em.b.add(first, at))
                self.epilogue(em, Tile((n,), *where, spec.lanes, active, [acc], self.dtype))

            @em.each(0, full, chunk)
            def body(at: Value) -> None:
                vectors(at, (spec.lanes,) * spec.tile_vectors)

            if rest:
                vectors(
                    em.index(full),
                    tuple(min(spec.lanes, rest - at) for at in range(0, rest, spec.lanes)),
                )

    def sums(
        self, start: Value, image: Image, weights: Sequence[Value], active: tuple[int, ...]
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
        # Two loads and a shuffle; memory after the last pixel is not touched.
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


@dataclass(frozen=True)
class _Row:
    """A row of pixels.

    Args:
        n, number: Image, and which row.
        start: Where the window of the first pixel starts, which may be outside the input.
        inside: For each row of a window whether it lies in the input; None where all do.
    """

    n: Value
    number: Value
    start: Value
    inside: Sequence[Value] | None


@dataclass(frozen=True)
class _Panel:
    """Some channels: the first, the lanes of each vector that exist, and their weights."""

    channel: Value
    active: tuple[int, ...]
    weight: Value


class _Channels(ConvCode):
    """Vectors of channels: images, rows of pixels, tiles of a row, panels of channels, windows.

    All channels of a tile come before the next one, so that memory is read and written in order. What windows find
    beyond the input are zeros in memory of their own: addresses are chosen, nothing is copied. Where the
    windows of a run of pixels have all columns in the input, tiles of several pixels load once what they share.
    """

    def run(self) -> None:
        em, p = self.em, self.p
        self.panels = self.packed_weight()
        self.nothing = self.zeros() if p.is_padded else None
        self.share = PanelShare(em, p.groups, self.spec.nr, self.threads if self.spec.threads > 1 else None)
        corner = -p.low[0] * p.x_strides[2] - p.low[1] * p.x_strides[3]

        @em.each(0, p.batch)
        def image(n: Value) -> None:
            x = em.moved(self.pointers.x, n, p.x_strides[0], self.dtype)
            self.rows(n, em.address(x, corner, self.dtype))

    def zeros(self) -> Value:
        """What a panel of channels finds beyond the input."""
        em, spec = self.em, self.spec
        memory = em.stack(I8, spec.nr * ELEMENT_BYTES[self.dtype])
        for vector in range(spec.tile_vectors):
            address = em.address(memory, vector * spec.lanes, self.dtype)
            em.store(self.zero(spec.lanes), address, self.dtype, spec.lanes)
        return memory

    def rows(self, n: Value, corner: Value) -> None:
        """All pixels of an image, the first of whose windows starts at `corner`."""
        em, p = self.em, self.p
        for rows in self.p.along(0):

            @em.each(rows.start, rows.stop)
            def row(number: Value, rows: Stretch = rows) -> None:
                start = em.moved(corner, number, p.strides[0] * p.x_strides[2], self.dtype)
                own = _Row(n, number, start, None if rows.is_inside else self.inside(number, 0))
                for columns in self.p.along(1):
                    self.columns(own, columns)

    def inside(self, number: Value, dim: int) -> list[Value]:
        """For each row, or column, of window `number` whether it lies in the input."""
        em, p = self.em, self.p
        first = em.b.sub(em.scaled(number, p.strides[dim]), em.index(p.low[dim]))
        coordinates = [em.b.add(first, em.index(tap * p.dilations[dim])) for tap in range(p.taps[dim])]
        # Negative numbers are large ones.
        return [em.b.icmp_unsigned("<", coordinate, em.index(p.sizes[dim])) for coordinate in coordinates]

    def columns(self, row: _Row, columns: Stretch) -> None:
        """The pixels of a stretch of a row: tiles where all windows lie in the input, else one by one."""
        em = self.em
        size = self.spec.tile_pixels if columns.is_inside else 1
        full = (columns.stop - columns.start) // size * size + columns.start

        def tile(at: Value, count: int) -> None:
            inside = None if columns.is_inside else self.inside(at, 1)

            def panel(index: Value, channels: int) -> None:
                own = self.panel(index, channels)
                sums = (
                    self.tile(row, at, count, own) if inside is None else [self.pixel(row, at, inside, own)]
                )
                self.finish(row, at, own, sums)

            self.share.each(panel)

        @em.each(columns.start, full, size)
        def body(at: Value) -> None:
            tile(at, size)

        if full < columns.stop:
            tile(em.index(full), columns.stop - full)

    def panel(self, index: Value, channels: int) -> _Panel:
        """Panel `index`, of so many channels."""
        em, lanes, nr = self.em, self.spec.lanes, self.spec.nr
        active = tuple(min(lanes, channels - at) for at in range(0, channels, lanes))
        return _Panel(
            em.scaled(index, nr), active, em.moved(self.panels, index, self.p.inner * nr, self.dtype)
        )

    def finish(self, row: _Row, at: Value, panel: _Panel, sums: list[list[Value]]) -> None:
        """The epilogue on the sums of pixels of a row from `at` on."""
        em = self.em
        pixel = em.b.add(em.scaled(row.number, self.p.counts[1]), at)
        tile = Tile((row.n,), pixel, panel.channel, self.spec.lanes, panel.active, sums, self.dtype)
        self.epilogue(em, tile)

    def start(self, row: _Row, at: Value, panel: _Panel) -> Value:
        """Where the window of a pixel of a row starts."""
        start = self.em.moved(row.start, at, self.p.strides[1] * self.p.x_strides[3], self.dtype)
        return self.em.address(start, panel.channel, self.dtype)

    def vector(self, base: Value, number: int, active: Sequence[int]) -> Value:
        """Vector `number` of a panel's channels at `base`."""
        lanes = self.spec.lanes
        address = self.em.address(base, number * lanes, self.dtype)
        return self.em.load(address, self.dtype, lanes, active[number])

    def weight(self, panel: _Panel, tap: int, number: int) -> Value:
        """Vector `number` of the weights of an element of the window; panels are whole."""
        address = self.em.address(panel.weight, tap * self.spec.nr + number * self.spec.lanes, self.dtype)
        return self.em.load(address, self.dtype, self.spec.lanes)

    def pixel(self, row: _Row, at: Value, inside: Sequence[Value], panel: _Panel) -> list[Value]:
        """The sums of one pixel; `inside` is for each column of its window whether it lies in the input."""
        em, p = self.em, self.p
        start = self.start(row, at, panel)
        acc: list[Value] = []
        for tap in range(p.inner):
            line, column = divmod(tap, p.taps[1])
            offset = line * p.dilations[0] * p.x_strides[2] + column * p.dilations[1] * p.x_strides[3]
            address = em.b.select(inside[column], em.address(start, offset, self.dtype), self.nothing)
            if row.inside is not None:
                address = em.b.select(row.inside[line], address, self.nothing)
            for number in range(len(panel.active)):
                value = self.vector(address, number, panel.active)
                self.add(acc, number, value, self.weight(panel, tap, number))
        return acc

    def tile(self, row: _Row, at: Value, count: int, panel: _Panel) -> list[list[Value]]:
        """``[pixel][vector]``: the sums of `count` pixels from `at` on, whose windows have all columns in the input."""
        em, p = self.em, self.p
        start = self.start(row, at, panel)
        acc: list[list[Value]] = [[] for _ in range(count)]
        for line in range(p.taps[0]):
            # What LLVM would keep of one row for the next takes all registers.
            base = em.opaque(em.address(start, line * p.dilations[0] * p.x_strides[2], self.dtype))
            for number in range(len(panel.active)):
                self.add_line(row, panel, (base, line, number), acc)
        return acc

    def add_line(
        self, row: _Row, panel: _Panel, source: tuple[Value, int, int], acc: list[list[Value]]
    ) -> None:
        """The products of a row of the windows with one vector of channels; each pixel is loaded once.

        `source` is where that row starts, its number, and that of the vector.
        """
        em, p = self.em, self.p
        base, line, number = source
        users: dict[int, list[tuple[int, int]]] = {}
        for pixel in range(len(acc)):
            for column in range(p.taps[1]):
                column_in = pixel * p.strides[1] + column * p.dilations[1]
                users.setdefault(column_in, []).append((pixel, column))
        weights = [self.weight(panel, line * p.taps[1] + column, number) for column in range(p.taps[1])]
        for column_in, products in sorted(users.items()):
            address = em.address(base, column_in * p.x_strides[3], self.dtype)
            if row.inside is not None:
                address = em.b.select(row.inside[line], address, self.nothing)
            value = self.vector(address, number, panel.active)
            for pixel, column in products:
                self.add(acc[pixel], number, value, weights[column])

    def add(self, acc: list[Value], number: int, value: Value, weight: Value) -> None:
        """One product more for vector `number` of a pixel, the first one where there is none."""
        if number == len(acc):
            acc.append(self.em.b.fmul(value, weight))
        else:
            acc[number] = self.em.fma(value, weight, acc[number])
