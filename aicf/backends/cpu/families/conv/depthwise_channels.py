"""Code for depthwise convolutions in vectors of channels of a pixel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.cpu.codegen.dot_products import add_pairs
from aicf.backends.cpu.codegen.ir_builder import I8, Value
from aicf.backends.cpu.codegen.panels import PanelShare
from aicf.backends.cpu.families.conv.template_base import ConvCode
from aicf.backends.cpu.families.conv.windows import Stretch
from aicf.backends.cpu.families.gemm.template import Tile
from aicf.backends.cpu.families.loops.template import share_of
from aicf.backends.cpu.target import ELEMENT_BYTES, SHORT_INTEGERS


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


class Channels(ConvCode):
    """Vectors of channels: images, rows of pixels, tiles of a row, panels of channels, windows.

    All channels of a tile come before the next one, so that memory is read and written in order. What windows find
    beyond the input is in memory of its own: addresses are chosen, nothing is copied. Short integers become i32 where
    they are loaded, and are multiplied as the first of two i16. Where the
    windows of a run of pixels have all columns in the input, tiles of several pixels load once what they share.
    """

    @property
    def is_short(self) -> bool:
        """Whether elements are short integers."""
        return self.element in SHORT_INTEGERS

    def run(self) -> None:
        em, p = self.em, self.p
        self.panels = self.packed_weight()
        self.nothing = self.around() if p.is_padded else None
        shares_rows = self.spec.partition == "rows"
        threads = self.threads if self.spec.threads > 1 and not shares_rows else None
        self.share = PanelShare(em, p.groups, self.spec.nr, threads)
        self.own_rows = share_of(em, p.counts[0], *self.threads) if shares_rows else None
        corner = -p.low[0] * p.x_strides[2] - p.low[1] * p.x_strides[3]

        @em.each(0, p.batch)
        def image(n: Value) -> None:
            x = em.moved(self.pointers.x, n, p.x_strides[0], self.element)
            self.rows(n, em.address(x, corner, self.element))

    def around(self) -> Value:
        """What a panel of channels finds beyond the input."""
        em, spec = self.em, self.spec
        memory = em.stack(I8, spec.nr * ELEMENT_BYTES[self.element])
        for vector in range(spec.tile_vectors):
            address = em.address(memory, vector * spec.lanes, self.element)
            value = em.const(self.element, spec.lanes, self.p.around)
            em.store(value, address, self.element, spec.lanes)
        return memory

    def rows(self, n: Value, corner: Value) -> None:
        """All pixels of an image, the first of whose windows starts at `corner`."""
        em, p = self.em, self.p
        for rows in self.p.along(0):

            @em.each(*self.bounds(rows))
            def row(number: Value, rows: Stretch = rows) -> None:
                start = em.moved(corner, number, p.strides[0] * p.x_strides[2], self.element)
                own = _Row(n, number, start, None if rows.is_inside else self.inside(number, 0))
                for columns in self.p.along(1):
                    self.columns(own, columns)

    def bounds(self, rows: Stretch) -> tuple[Value | int, Value | int]:
        """The first of some rows that this thread makes, and past the last."""
        if self.own_rows is None:
            return rows.start, rows.stop
        b, (low, high) = self.em.b, self.own_rows
        start, stop = self.em.index(rows.start), self.em.index(rows.stop)
        first = b.select(b.icmp_signed(">", low, start), low, start)
        return first, b.select(b.icmp_signed("<", high, stop), high, stop)

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
        start = self.em.moved(row.start, at, self.p.strides[1] * self.p.x_strides[3], self.element)
        return self.em.address(start, panel.channel, self.element)

    def vector(self, base: Value, number: int, active: Sequence[int]) -> Value:
        """Vector `number` of a panel's channels at `base`."""
        lanes = self.spec.lanes
        address = self.em.address(base, number * lanes, self.element)
        loaded = self.em.load(address, self.element, lanes, active[number])
        return self.units.joined([loaded])

    def weight(self, panel: _Panel, tap: int, number: int) -> Value:
        """Vector `number` of the weights of an element of the window; panels are whole."""
        address = self.em.address(panel.weight, tap * self.spec.nr + number * self.spec.lanes, self.dtype)
        loaded = self.em.load(address, self.dtype, self.spec.lanes)
        if not self.is_short:
            return loaded
        # The second i16 of each pair is not to count, whatever that of the input is.
        return self.em.b.and_(loaded, self.em.const("i32", self.spec.lanes, 0xFFFF))

    def pixel(self, row: _Row, at: Value, inside: Sequence[Value], panel: _Panel) -> list[Value]:
        """The sums of one pixel; `inside` is for each column of its window whether it lies in the input."""
        em, p = self.em, self.p
        start = self.start(row, at, panel)
        acc: list[Value] = []
        for tap in range(p.inner):
            line, column = divmod(tap, p.taps[1])
            offset = line * p.dilations[0] * p.x_strides[2] + column * p.dilations[1] * p.x_strides[3]
            address = em.b.select(inside[column], em.address(start, offset, self.element), self.nothing)
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
            base = em.opaque(em.address(start, line * p.dilations[0] * p.x_strides[2], self.element))
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
            address = em.address(base, column_in * p.x_strides[3], self.element)
            if row.inside is not None:
                address = em.b.select(row.inside[line], address, self.nothing)
            value = self.vector(address, number, panel.active)
            for pixel, column in products:
                self.add(acc[pixel], number, value, weights[column])

    def add(self, acc: list[Value], number: int, value: Value, weight: Value) -> None:
        """One product more for vector `number` of a pixel, the first one where there is none."""
        if number == len(acc):
            acc.append(self.product(value, weight, None))
        else:
            acc[number] = self.product(value, weight, acc[number])

    def product(self, value: Value, weight: Value, total: Value | None) -> Value:
        """A product, added to what there is."""
        if self.is_short:
            return add_pairs(self.em, self.zero(self.spec.lanes) if total is None else total, value, weight)
        return self.em.b.fmul(value, weight) if total is None else self.em.fma(value, weight, total)
