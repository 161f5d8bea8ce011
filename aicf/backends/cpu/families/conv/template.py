"""Code for convolutions with an epilogue: register tiles over pixels where they lie, or over a padded copy of them.

Every decision is a field of `ConvSpec`; the emitter decides nothing.

A direct tile holds some pixels times some vectors of output channels while channels and windows run: pixels are
broadcast, rows of a panel of the packed weight are loaded as vectors. Finished vectors go to the epilogue as they are
where it reads and writes channels of a pixel; else they are transposed in registers, for runs of pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.cpu.codegen.ir_builder import I8, Emitter, Value
from aicf.backends.cpu.families.conv.depthwise_channels import Channels
from aicf.backends.cpu.families.conv.depthwise_planes import Planes
from aicf.backends.cpu.families.conv.schedule import ConvSpec
from aicf.backends.cpu.families.conv.template_base import ConvCode, ConvPointers, Image
from aicf.backends.cpu.families.conv.winograd.template import emit_winograd
from aicf.backends.cpu.families.gemm.schedule import CACHE_LINE
from aicf.backends.cpu.families.gemm.template import EpilogueOf, GemmPointers, Tile, emit_gemm, emit_panels
from aicf.backends.cpu.families.loops.template import share_of


def emit_conv(em: Emitter, spec: ConvSpec, pointers: ConvPointers, epilogue: EpilogueOf) -> None:
    """Emit a convolution at the current position of `em`; a tile of the epilogue is (image; channel, pixel), or
    (image; pixel, channel) where its lanes are channels."""
    if spec.winograd is not None:
        emit_winograd(em, spec, spec.winograd, pointers, epilogue)
    elif spec.product is not None:
        left, right = pointers.weight, pointers.x
        if spec.lanes_along == "channels":
            left, right = right, left
        given = (left, (right,), pointers.workspace, pointers.tid, pointers.nthreads)
        emit_gemm(em, spec.product, GemmPointers(*given), epilogue)
    elif spec.algorithm == "depthwise":
        algorithm = Channels if spec.lanes_along == "channels" else Planes
        algorithm(em, spec, pointers, epilogue).run()
    else:
        _Direct(em, spec, pointers, epilogue).run()


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


class _Direct(ConvCode):
    """Images, groups, blocks of rows, panels of output channels, tiles of pixels, channels, windows."""

    def run(self) -> None:
        em, p, spec = self.em, self.p, self.spec
        weight = self.packed_weight()
        if spec.threads > 1 and spec.partition == "rows":
            self.shared_blocks(weight)
            return

        @em.each(0, p.batch)
        def image(n: Value) -> None:
            @em.each(0, p.groups)
            def group(g: Value) -> None:
                own = em.moved(weight, g, spec.panels * spec.panel_units, self.dtype)

                @em.pieces(p.counts[0], spec.block_rows)
                def block(row: Value, count: int) -> None:
                    self.block(n, g, own, row, count)

    def shared_blocks(self, weight: Value) -> None:
        """This thread's share of the blocks of all images."""
        em, p, spec = self.em, self.p, self.spec
        rest = p.counts[0] % spec.block_rows

        @em.each(*share_of(em, p.batch * spec.blocks, *self.threads))
        def block(number: Value) -> None:
            n = em.b.sdiv(number, em.index(spec.blocks))
            index = em.b.srem(number, em.index(spec.blocks))
            row = em.scaled(index, spec.block_rows)

            def whole() -> None:
                self.block(n, em.index(0), weight, row, spec.block_rows)

            if not rest:
                whole()
                return
            is_last = em.b.icmp_signed("==", index, em.index(spec.blocks - 1))
            em.when(is_last, lambda: self.block(n, em.index(0), weight, row, rest), whole)

    def block(self, n: Value, g: Value, weight: Value, row: Value, count: int) -> None:
        """A block of rows of the result of one group of an image."""
        em, p = self.em, self.p
        x = em.moved(self.pointers.x, n, p.x_strides[0], self.element)
        x = em.moved(x, g, p.channels * p.x_strides[1], self.element)
        image = self.image(x, row, count, p.channels)
        self.panels(n, image, weight, em.scaled(g, p.outputs), row, count)

    def panels(self, n: Value, image: Image, weight: Value, first: Value, row: Value, rows: int) -> None:
        """A block of rows against all panels of a group."""
        em, spec = self.em, self.spec

        def panel(index: Value, channels: int) -> None:
            own = em.moved(weight, index, spec.panel_units, self.dtype)
            channel = em.b.add(first, em.scaled(index, spec.nr))
            self.tiles(image, own, _Spot(n, channel, channels, row), rows)

        shares = spec.threads > 1 and spec.partition == "panels"
        emit_panels(em, self.p.outputs, spec.nr, self.threads if shares else None, panel)

    def tiles(self, image: Image, panel: Value, spot: _Spot, rows: int) -> None:
        """All tiles of a block of rows against one panel."""
        em, spec = self.em, self.spec

        @em.pieces(rows, spec.tile_rows)
        def line(row: Value, count: int) -> None:
            column = 0
            for width, number in spec.width_counts(1):

                @em.each(column, column + number * width, width)
                def tile(at: Value, count: int = count, width: int = width) -> None:
                    self.tile(image, panel, spot, _Box(row, count, at, width))

                column += number * width

    def tile(self, image: Image, panel: Value, spot: _Spot, box: _Box) -> None:
        """One register tile: all products, then the epilogue."""
        em, p, spec = self.em, self.p, self.spec
        start = em.moved(image.start, box.row, p.strides[0] * image.row, self.place)
        start = em.moved(start, box.column, p.strides[1] * image.column, self.place)
        offsets = [
            row * p.strides[0] * image.row + column * p.strides[1] * image.column
            for row in range(box.rows)
            for column in range(box.columns)
        ]
        vectors = -(-spot.channels // spec.lanes)
        moved = Image(start, image.channel, image.row, image.column)
        acc = self.sums(moved, panel, offsets, vectors, self.next_panel(panel, box))
        pixel = em.b.add(em.scaled(em.b.add(spot.row, box.row), p.counts[1]), box.column)
        if spec.lanes_along == "channels":
            lines = [acc[at : at + vectors] for at in range(0, len(acc), vectors)]
            active = tuple(min(spec.lanes, spot.channels - vector * spec.lanes) for vector in range(vectors))
            self.epilogue(em, Tile((spot.n,), pixel, spot.channel, spec.lanes, active, lines, self.dtype))
            return
        for vector in range(vectors):
            self.finish_pixels(spot, pixel, vector, acc[vector::vectors])

    def finish_pixels(self, spot: _Spot, pixel: Value, vector: int, sums: Sequence[Value]) -> None:
        """The epilogue on one vector of channels of neighbouring pixels from `pixel` on, transposed in registers."""
        em, lanes = self.em, self.spec.lanes
        existing = min(lanes, spot.channels - vector * lanes)
        own = [*sums, *[self.zero(lanes)] * (lanes - len(sums))]
        lines = [[value] for value in em.transpose(own)[:existing]]
        channel = em.b.add(spot.channel, em.index(vector * lanes))
        self.epilogue(em, Tile((spot.n,), channel, pixel, lanes, (len(sums),), lines, self.dtype))

    def next_panel(self, panel: Value, box: _Box) -> Value | None:
        """Where this tile's share of the next panel starts; each tile of a panel fetches one."""
        em, p, spec = self.em, self.p, self.spec
        if not spec.prefetch_lines:
            return None
        share = p.depth // spec.channel_step * spec.prefetch_lines * CACHE_LINE
        number = em.b.add(
            em.scaled(em.b.sdiv(box.row, em.index(spec.tile_rows)), spec.tiles_of_row),
            em.b.sdiv(box.column, em.index(spec.width_counts(1)[0][0])),
        )
        following = em.address(panel, spec.panel_units, self.dtype)
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

    def starts(self, panel: Value, vectors: int) -> list[Value]:
        """What the sums of a pixel start from, vector by vector."""
        em, lanes = self.em, self.spec.lanes
        if not self.spec.start_rows:
            return [self.zero(lanes)] * vectors
        return [
            em.load(em.address(panel, vector * lanes, self.dtype), self.dtype, lanes)
            for vector in range(vectors)
        ]

    def sums(
        self, image: Image, panel: Value, offsets: Sequence[int], vectors: int, following: Value | None
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
            for pixel, offset in enumerate(offsets):
                unit = self.units.load(em.address(start, at + offset, self.place), spec.copies)
                for vector, line in enumerate(lines):
                    slot = pixel * vectors + vector
                    acc[slot] = self.units.multiply_add(unit, line, acc[slot])

        def row_of(start: Value, weight: Value, acc: list[Value], row: int, number: int) -> None:
            for column in range(columns):
                at = row * p.dilations[0] * image.row + column * p.dilations[1] * image.column
                # Windows overlap: what LLVM would keep of one element for the next takes all registers.
                add(em.opaque(em.address(start, at, self.place)), weight, acc, 0, number + column)

        def channel(c: Value, acc: list[Value]) -> list[Value]:
            if spec.channel_step == 1:
                self.prefetch(following, c)
            start = em.moved(image.start, c, image.channel, self.place)
            weight = em.moved(panel, c, window * spec.nr, self.dtype)
            if window <= _UNROLLED:
                for row in range(rows):
                    row_of(start, weight, acc, row, row * columns)
                return acc

            def one_row(row: Value, acc: list[Value]) -> list[Value]:
                moved = em.moved(start, row, p.dilations[0] * image.row, self.place)
                own = em.moved(weight, row, columns * spec.nr, self.dtype)
                if columns <= _UNROLLED:
                    row_of(moved, own, acc, 0, 0)
                    return acc

                def one(column: Value, acc: list[Value]) -> list[Value]:
                    at = em.moved(moved, column, p.dilations[1] * image.column, self.place)
                    add(at, em.moved(own, column, spec.nr, self.dtype), acc, 0, 0)
                    return acc

                return em.loop(0, columns, 1, acc, one)

            return em.loop(0, rows, 1, acc, one_row)

        def channels(c: Value, acc: list[Value]) -> list[Value]:
            self.prefetch(following, c)
            start = em.moved(image.start, c, image.channel, self.place)
            weight = em.moved(panel, c, spec.nr, self.dtype)
            for number in range(spec.channel_step):
                add(start, weight, acc, number * image.channel, number)
            return acc

        acc = self.starts(panel, vectors) * len(offsets)
        panel = em.address(panel, spec.start_rows * spec.nr, self.dtype)
        unrolled = p.depth // spec.channel_step * spec.channel_step if window == 1 else 0
        acc = em.loop(0, unrolled, spec.channel_step, acc, channels)
        return em.loop(unrolled, p.depth, 1, acc, channel)
