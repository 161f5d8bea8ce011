"""What the algorithms of convolutions share: workspace, and the copy of the input with zeros around it."""

from __future__ import annotations

from dataclasses import dataclass

from aicf.backends.cpu.codegen.ir_builder import I8, Emitter, Value
from aicf.backends.cpu.codegen.scalar.ops import Scalars
from aicf.backends.cpu.families.conv.schedule import ConvSpec
from aicf.backends.cpu.families.gemm.pack.pairs import PairPacker, Pairs, joined
from aicf.backends.cpu.families.gemm.pack.template import Packer
from aicf.backends.cpu.families.gemm.schedule import CACHE_LINE
from aicf.backends.cpu.families.gemm.template import EpilogueOf
from aicf.backends.cpu.target import ELEMENT_BYTES


@dataclass(frozen=True)
class ConvPointers:
    """Run-time operands of the emitted code."""

    x: Value
    weight: Value
    workspace: Value | None
    tid: Value
    nthreads: Value


@dataclass(frozen=True)
class Image:
    """Channels as tiles read them: the first element, and elements between channels, rows and columns."""

    start: Value
    channel: int
    row: int
    column: int


class ConvCode:
    """A convolution with its run-time operands and its epilogue."""

    def __init__(self, em: Emitter, spec: ConvSpec, pointers: ConvPointers, epilogue: EpilogueOf) -> None:
        self.em = em
        self.spec = spec
        self.p = spec.problem
        self.dtype = spec.problem.dtype
        self.element = spec.problem.element
        self.pointers = pointers
        self.epilogue = epilogue(None)
        self.space = em.part_of(
            pointers.workspace, pointers.tid, spec.threads, spec.workspace_bytes // spec.threads
        )
        self.copied = self.space
        if self.space is not None and spec.packed_elements:
            bytes_ = spec.packed_elements * ELEMENT_BYTES[self.dtype]
            self.copied = em.b.gep(
                self.space, [em.index(-(-bytes_ // CACHE_LINE) * CACHE_LINE)], source_etype=I8
            )

    def around(self, lanes: int) -> Value:
        """What lies around the input, as so many elements of its copy."""
        if not self.p.pairs:
            return self.zero(lanes)
        return self.em.const(self.dtype, lanes, (self.p.around & 0xFFFF) * 0x10001)

    @property
    def threads(self) -> tuple[Value, Value]:
        return self.pointers.tid, self.pointers.nthreads

    def zero(self, lanes: int) -> Value:
        return self.em.const(self.dtype, lanes, 0)

    def image(self, x: Value, row: Value, rows: int, channels: int) -> Image:
        """The input of rows from `row` of the result on; `x` is where its channels start."""
        em, p, spec = self.em, self.p, self.spec
        _, channel, step, column = p.x_strides
        if not spec.copies:
            return Image(em.moved(x, row, p.strides[0] * step, self.element), channel, step, column)
        self.copy(x, row, spec.rows_read(rows), channels)
        return Image(self.copied, *spec.copy_strides)

    def copy(self, x: Value, first: Value, rows: int, channels: int) -> None:
        """Copies the input that row `first` of the result begins with, `rows` rows of it, with zeros around."""
        em, p, spec = self.em, self.p, self.spec
        top = em.b.sub(em.scaled(first, p.strides[0]), em.index(p.low[0]))
        if spec.copies_channels_last:
            self.copy_rows(x, self.copied, top, rows, 1)
            return
        together = 2 if p.pairs else 1

        @em.panels(channels, together)
        def unit(number: Value, present: int) -> None:
            source = em.moved(x, number, together * p.x_strides[1], self.element)
            self.copy_rows(source, em.moved(self.copied, number, spec.plane, self.dtype), top, rows, present)

    def copy_rows(self, source: Value, target: Value, top: Value, rows: int, present: int) -> None:
        """Copies `rows` rows from row `top` of the input on, which may lie beyond it; a unit has so many channels."""
        em, p = self.em, self.p
        pitch = self.spec.copy_strides[1]
        reaches_out = p.low[0] > 0 or p.spans[0] - p.low[0] > p.sizes[0]

        @em.each(0, rows)
        def row(number: Value) -> None:
            at = em.b.add(top, number)
            own = em.moved(target, number, pitch, self.dtype)

            def inside() -> None:
                start = em.moved(source, at, p.x_strides[2], self.element)
                if self.spec.copies_channels_last:
                    self.copy_pixels(start, own)
                else:
                    self.copy_row(start, own, present)

            if not reaches_out:
                inside()
                return
            below = em.b.icmp_unsigned("<", at, em.index(p.sizes[0]))  # negative numbers are large ones
            em.when(below, inside, lambda: self.fill(own, 0, pitch))

    @property
    def copied_columns(self) -> int:
        """Columns of the input that a row of the copy holds."""
        return max(min(self.p.sizes[1], self.spec.pitch - self.p.low[1]), 0)

    def copy_row(self, source: Value, target: Value, present: int) -> None:
        """Copies a row of pixels of one channel, or of units of the channels that are present."""
        em, p, spec = self.em, self.p, self.spec
        low, count = p.low[1], self.copied_columns
        self.fill(target, 0, min(low, spec.pitch))
        self.move(source, p.x_strides[3], em.address(target, low, self.dtype), count, present)
        self.fill(target, low + count, spec.pitch)

    def copy_pixels(self, source: Value, target: Value) -> None:
        """Copies a row of pixels whose channels lie side by side."""
        em, p, spec = self.em, self.p, self.spec
        low, count, step = p.low[1], self.copied_columns, spec.copied_pixel
        self.fill(target, 0, min(low, spec.pitch) * step)
        start = em.address(target, low * step, self.dtype)
        if p.x_strides[3] == p.channels == step:
            self.move(source, 1, start, count * step)
        else:

            @em.each(0, count)
            def pixel(number: Value) -> None:
                from_ = em.moved(source, number, p.x_strides[3], self.element)
                self.move(from_, 1, em.moved(start, number, step, self.dtype), p.channels)

        self.fill(target, (low + count) * step, spec.pitch * step)

    def move(self, source: Value, step: int, target: Value, count: int, present: int = 1) -> None:
        """Copies `count` elements, `step` apart, to lie side by side in the type of the sums; as units of so many
        channels where they are pairs."""
        em, lanes, apart = self.em, self.spec.lanes, self.p.x_strides[1]

        @em.pieces(count, lanes)
        def vector(at: Value, active: int) -> None:
            first = em.moved(source, at, step, self.element)
            loaded = [
                em.load_strided(
                    em.address(first, channel * apart, self.element), step, self.element, lanes, active
                )
                for channel in range(present)
            ]
            value = self.unit(loaded)
            em.store(value, em.address(target, at, self.dtype), self.dtype, lanes, active)

    def unit(self, channels: list[Value]) -> Value:
        """Elements of a channel, or units of those of two."""
        if not self.p.pairs:
            return channels[0]
        second = channels[1] if len(channels) > 1 else None
        return joined(Scalars(self.em, self.spec.lanes), self.element, "i16", channels[0], second)

    def fill(self, target: Value, start: int, stop: int) -> None:
        """What lies around the input, from element `start` to `stop` of a row."""
        if start >= stop:
            return
        em, lanes = self.em, self.spec.lanes
        first = em.address(target, start, self.dtype)
        if stop - start < 4:
            for at in range(stop - start):
                em.store(self.around(1), em.address(first, at, self.dtype), self.dtype, 1)
            return

        @em.pieces(stop - start, lanes)
        def vector(at: Value, active: int) -> None:
            em.store(self.around(lanes), em.address(first, at, self.dtype), self.dtype, lanes, active)

    def packed_weight(self) -> Value:
        """The panels of all groups; packs them if they are not."""
        em, p, spec = self.em, self.p, self.spec
        if spec.prepared:
            return self.pointers.weight
        matrix, strides = spec.weight_columns * p.inner, (1, p.inner)
        pairs = Pairs(p.weight_element, "i16", p.inner, p.taps[0] * p.taps[1])
        packer = (
            PairPacker(em, pairs, spec.lanes, spec.nr, strides)
            if p.pairs
            else Packer(em, self.element, self.dtype, spec.lanes, p.inner, spec.nr, strides)
        )

        @em.each(0, p.groups * p.outputs // spec.weight_columns)
        def pack(number: Value) -> None:
            source = em.moved(self.pointers.weight, number, matrix, p.weight_element)
            target = em.moved(self.space, number, spec.panels * p.steps * spec.nr, self.dtype)
            packer.matrix(spec.weight_columns, source, target)

        return self.space
