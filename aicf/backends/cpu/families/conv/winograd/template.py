"""Code for convolutions of 3 x 3 windows by Winograd's minimal filtering. `schedule.py` says how, and decides.

A row of tiles is copied with zeros around it, a vector of channels for each pixel; vectors of channels are transformed
in registers. What the products of a block give is transformed back as vectors of output channels, which go to the
epilogue as they are, or transposed in registers to runs of pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from aicf.backends.common.loop_nest import Access
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.families.conv.schedule import ConvSpec
from aicf.backends.cpu.families.conv.template_base import ConvPointers
from aicf.backends.cpu.families.conv.winograd.matrices import transforms
from aicf.backends.cpu.families.conv.winograd.schedule import WinogradSpec
from aicf.backends.cpu.families.conv.winograd.transform import Grid, Transform
from aicf.backends.cpu.families.gemm.epilogue import make_epilogue
from aicf.backends.cpu.families.gemm.schedule import CACHE_LINE
from aicf.backends.cpu.families.gemm.template import EpilogueOf, GemmPointers, Tile, emit_gemm, emit_panels
from aicf.backends.cpu.target import ELEMENT_BYTES


def emit_winograd(
    em: Emitter, conv: ConvSpec, spec: WinogradSpec, pointers: ConvPointers, epilogue: EpilogueOf
) -> None:
    """Emit the convolution at the current position of `em`; a tile of the epilogue is (image; channel, pixel), or
    (image; pixel, channel) where its lanes are channels."""
    _Winograd(em, conv, spec, pointers, epilogue).run()


@dataclass(frozen=True)
class _Spot:
    """Image, first output channel and how many of a vector exist, and the first row of pixels of a row of tiles."""

    image: Value
    channel: Value
    channels: int
    row: Value


class _Winograd:
    """Blocks of rows of tiles: all channels transformed, all products, all output channels transformed back."""

    def __init__(
        self,
        em: Emitter,
        conv: ConvSpec,
        spec: WinogradSpec,
        pointers: ConvPointers,
        epilogue: EpilogueOf,
    ) -> None:
        self.em, self.p, self.spec = em, conv.problem, spec
        self.dtype, self.along = conv.problem.dtype, conv.lanes_along
        self.pointers = pointers
        self.epilogue = epilogue(None)
        line = CACHE_LINE // ELEMENT_BYTES[self.dtype]
        share = spec.workspace_bytes // spec.threads // ELEMENT_BYTES[self.dtype]
        first = em.scaled(pointers.tid, share) if spec.threads > 1 else 0
        self.copy = em.address(pointers.workspace, first, self.dtype)
        self.inputs = em.address(self.copy, -(-spec.copy_elements // line) * line, self.dtype)
        self.products = em.address(self.inputs, spec.taps**2 * spec.input_plane, self.dtype)

    def run(self) -> None:
        em, spec = self.em, self.spec
        self.clear(self.copy, spec.taps * spec.pitch)

        def block(number: Value, rows: int) -> None:
            self.block(em.scaled(number, spec.block_rows), rows)

        threads = (self.pointers.tid, self.pointers.nthreads) if spec.threads > 1 else None
        emit_panels(em, spec.rows, spec.block_rows, threads, block)

    def parts(self, count: int, size: int) -> Callable[[Callable[[Value, int], None]], None]:
        """A decorator that emits a function of the first element and the number of elements of a part, for each part of
        `size`; the last may be short."""

        def emit(part: Callable[[Value, int], None]) -> None:
            self.em.panels(count, size)(lambda number, length: part(self.em.scaled(number, size), length))

        return emit

    def clear(self, start: Value, vectors: int) -> None:
        """Zeros."""
        em, lanes = self.em, self.spec.lanes
        zero = em.const(self.dtype, lanes, 0)

        @em.each(0, vectors)
        def vector(at: Value) -> None:
            em.store(zero, em.moved(start, at, lanes, self.dtype), self.dtype, lanes)

    def block(self, row: Value, rows: int) -> None:
        """`rows` rows of tiles from `row` on; the rows of all images are numbered in one sequence."""
        spec = self.spec
        self.parts(self.p.channels, spec.lanes)(partial(self.transformed, row, rows))
        self.multiplied(rows)
        self.parts(self.p.outputs, spec.lanes)(partial(self.finished, row, rows))

    # The input.

    def image_and_tile(self, row: Value) -> tuple[Value, Value]:
        """Image and row of tiles in it, of a row of all."""
        em, rows = self.em, self.em.index(self.spec.tile_counts[0])
        if self.p.batch == 1:
            return em.index(0), row
        image = em.b.sdiv(row, rows)
        return image, em.b.sub(row, em.b.mul(image, rows))

    def transformed(self, row: Value, rows: int, channel: Value, channels: int) -> None:
        """A vector of channels, of which `channels` exist, of all tiles of a block."""
        em, spec, p = self.em, self.spec, self.p
        columns = spec.tile_counts[1]

        @em.each(0, rows)
        def line(number: Value) -> None:
            image, at = self.image_and_tile(em.b.add(row, number))
            x = em.moved(self.pointers.x, image, p.x_strides[0], self.dtype)
            x = em.moved(x, channel, p.x_strides[1], self.dtype)
            self.copied(x, em.b.sub(em.scaled(at, spec.tile), em.index(p.low[0])), channels)
            target = em.moved(self.inputs, em.scaled(number, columns), spec.input_pitch, self.dtype)
            target = em.address(target, channel, self.dtype)

            @em.each(0, columns)
            def tile(column: Value) -> None:
                self.input_tile(column, target)

    def copied(self, x: Value, first: Value, channels: int) -> None:
        """Rows of the input from `first` on, as vectors of channels for each pixel; zeros where there is no row."""
        em, spec, p = self.em, self.spec, self.p

        @em.each(0, spec.taps)
        def row(number: Value) -> None:
            at = em.b.add(first, number)
            target = em.moved(self.copy, number, spec.pitch * spec.lanes, self.dtype)
            source = em.moved(x, at, p.x_strides[2], self.dtype)
            below = em.b.icmp_unsigned("<", at, em.index(p.sizes[0]))  # negative numbers are large ones
            em.when(
                below,
                lambda: self.copied_row(source, target, channels),
                lambda: self.clear(target, spec.pitch),
            )

    def copied_row(self, source: Value, target: Value, channels: int) -> None:
        """Pixels of `channels` channels; the zeros on both sides are there."""
        em, spec, p = self.em, self.spec, self.p
        lanes, low = spec.lanes, p.low[1]
        _, channel_step, _, step = p.x_strides

        @self.parts(max(min(p.sizes[1], spec.pitch - low), 0), lanes)
        def pixels(first: Value, count: int) -> None:
            start = em.moved(source, first, step, self.dtype)
            out = em.moved(em.address(target, low * lanes, self.dtype), first, lanes, self.dtype)
            if channel_step == 1:
                vectors = self.strided(start, (step, 1), count, channels)
            else:
                vectors = self.strided(start, (channel_step, step), channels, count)
                vectors += [em.const(self.dtype, lanes, 0)] * (lanes - channels)
                vectors = em.transpose(vectors)[:count]
            for at, vector in enumerate(vectors):
                em.store(vector, em.address(out, at * lanes, self.dtype), self.dtype, lanes)

    def strided(self, start: Value, strides: tuple[int, int], rows: int, active: int) -> list[Value]:
        """`rows` vectors of a matrix with these strides, of which `active` lanes exist."""
        em, lanes = self.em, self.spec.lanes
        lines = [em.address(start, row * strides[0], self.dtype) for row in range(rows)]
        return [em.load_strided(line, strides[1], self.dtype, lanes, active) for line in lines]

    def input_tile(self, column: Value, target: Value) -> None:
        """One tile of the copy, transformed into all matrices; `target` is the first tile of its row."""
        em, spec = self.em, self.spec
        size, lanes = spec.taps, spec.lanes
        start = em.moved(self.copy, column, spec.tile * lanes, self.dtype)
        grid = self.grid(start, spec.pitch * lanes, lanes)
        found = Transform(em, self.dtype, lanes, transforms(spec.tile).input).both(grid)
        out = em.moved(target, column, spec.input_pitch, self.dtype)
        for row, at in product(range(size), repeat=2):
            address = em.address(out, (row * size + at) * spec.input_plane, self.dtype)
            em.store(found[row][at], address, self.dtype, lanes)

    # The products.

    def multiplied(self, rows: int) -> None:
        """The products of a block."""
        em, spec = self.em, self.spec
        own = replace(spec.product, problem=spec.product_problem(rows))
        access = Access(self.dtype, 0, (spec.output_plane, spec.output_pitch, 1))
        stored = make_epilogue(em, None, [access], [[self.products]], "fused")
        alone = (em.index(0), em.index(1))
        emit_gemm(em, own, GemmPointers(self.inputs, (self.pointers.weight,), None, *alone), stored)

    # The result.

    def finished(self, row: Value, rows: int, channel: Value, outputs: int) -> None:
        """The vector of output channels from `channel` on, of which `outputs` exist, of all tiles of a block."""
        em, spec = self.em, self.spec

        @em.each(0, rows)
        def line(number: Value) -> None:
            image, own = self.image_and_tile(em.b.add(row, number))
            tiles = em.scaled(number, spec.tile_counts[1])
            start = em.address(
                em.moved(self.products, tiles, spec.output_pitch, self.dtype), channel, self.dtype
            )
            spot = _Spot(image, channel, outputs, em.scaled(own, spec.tile))

            @self.parts(self.p.counts[1], spec.lanes)
            def pixels(column: Value, count: int) -> None:
                tile = em.b.sdiv(column, em.index(spec.tile))
                self.output_run(em.moved(start, tile, spec.output_pitch, self.dtype), spot, column, count)

    def output_run(self, start: Value, spot: _Spot, column: Value, count: int) -> None:
        """`count` columns of a row of tiles, from `column` on; the products of the first tile are at `start`."""
        em, spec, p = self.em, self.spec, self.p
        lines: Grid = [[] for _ in range(spec.tile)]
        for tile in range(-(-count // spec.tile)):
            own = self.output_tile(em.address(start, tile * spec.output_pitch, self.dtype))
            for line, pixels in zip(lines, own, strict=True):
                line += pixels
        exists = p.counts[0] % spec.tile or spec.tile
        for number, line in enumerate(lines):
            row = em.b.add(spot.row, em.index(number))

            def store(row: Value = row, line: list[Value] = line) -> None:
                pixel = em.b.add(em.scaled(row, p.counts[1]), column)
                self.store(line[:count], spot, pixel)

            if number < exists:
                store()
            else:
                em.when(em.b.icmp_signed("<", row, em.index(p.counts[0])), store)

    def output_tile(self, start: Value) -> Grid:
        """The pixels of a tile, as vectors of output channels."""
        spec = self.spec
        grid = self.grid(start, spec.taps * spec.output_plane, spec.output_plane)
        return Transform(self.em, self.dtype, spec.lanes, transforms(spec.tile).output).both(grid)

    def grid(self, start: Value, row_step: int, step: int) -> Grid:
        """The vectors of a transformed tile, which lie so many elements apart."""
        taps = range(self.spec.taps)

        def vector(offset: int) -> Value:
            return self.em.load(self.em.address(start, offset, self.dtype), self.dtype, self.spec.lanes)

        return [[vector(row * row_step + at * step) for at in taps] for row in taps]

    def store(self, pixels: Sequence[Value], spot: _Spot, pixel: Value) -> None:
        """Gives a run of pixels to the epilogue, each a vector of output channels, transposed if lanes are pixels."""
        em, lanes = self.em, self.spec.lanes
        if self.along == "channels":
            extents = (pixel, spot.channel, lanes, (spot.channels,))
            lines = [[vector] for vector in pixels]
        else:
            padded = [*pixels, *[em.const(self.dtype, lanes, 0)] * (lanes - len(pixels))]
            extents = (spot.channel, pixel, lanes, (len(pixels),))
            lines = [[vector] for vector in em.transpose(padded)[: spot.channels]]
        self.epilogue(em, Tile((spot.image,), *extents, lines, self.dtype))
