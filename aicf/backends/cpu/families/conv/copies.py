"""Code for copies of the input, a block of rows at a time, with what lies around it.

A copy holds planes of units, or the channels of a pixel side by side as the input has them.
"""

from __future__ import annotations

from dataclasses import dataclass

from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.families.conv.schedule import ConvSpec
from aicf.backends.cpu.families.conv.units import Quads, Units
from aicf.backends.cpu.families.vectors import VECTOR_BYTES


@dataclass(frozen=True)
class CopyCode:
    """The copy of a block of rows.

    Args:
        copied: Where it goes.
    """

    em: Emitter
    spec: ConvSpec
    units: Units
    copied: Value

    @property
    def place(self) -> str:
        return self.units.place

    @property
    def element(self) -> str:
        return self.spec.problem.element

    def copy(self, x: Value, first: Value, rows: int, channels: int) -> None:
        """Copies the input that row `first` of the result begins with, `rows` rows of it, with what lies around."""
        em, p, spec = self.em, self.spec.problem, self.spec
        top = em.b.sub(em.scaled(first, p.strides[0]), em.index(p.low[0]))
        if spec.copies_channels_last:
            self.rows(x, self.copied, top, rows, 1)
            return

        @em.panels(channels, p.terms)
        def unit(number: Value, present: int) -> None:
            source = em.moved(x, number, p.terms * p.x_strides[1], self.element)
            self.rows(source, em.moved(self.copied, number, spec.plane, self.place), top, rows, present)

    def rows(self, source: Value, target: Value, top: Value, rows: int, present: int) -> None:
        """Copies `rows` rows from row `top` of the input on, which may lie beyond it; a unit has so many channels."""
        em, p = self.em, self.spec.problem
        pitch = self.spec.copy_strides[1]
        reaches_out = p.low[0] > 0 or p.spans[0] - p.low[0] > p.sizes[0]

        @em.each(0, rows)
        def row(number: Value) -> None:
            at = em.b.add(top, number)
            own = em.moved(target, number, pitch, self.place)

            def inside() -> None:
                start = em.moved(source, at, p.x_strides[2], self.element)
                if self.spec.copies_channels_last:
                    self.pixels(start, own)
                else:
                    self.row(start, own, present)

            if not reaches_out:
                inside()
                return
            below = em.b.icmp_unsigned("<", at, em.index(p.sizes[0]))  # negative numbers are large ones
            em.when(below, inside, lambda: self.fill(own, 0, pitch))

    @property
    def columns(self) -> int:
        """Columns of the input that a row of the copy holds."""
        p = self.spec.problem
        return max(min(p.sizes[1], self.spec.pitch - p.low[1]), 0)

    def row(self, source: Value, target: Value, present: int) -> None:
        """Copies a row of pixels of one channel, or of units of the channels that are present."""
        em, p, spec = self.em, self.spec.problem, self.spec
        low, count, unit = p.low[1], self.columns, spec.unit_places
        self.fill(target, 0, min(low, spec.pitch) * unit)
        self.move(source, p.x_strides[3], em.address(target, low * unit, self.place), count, present)
        self.fill(target, (low + count) * unit, spec.pitch * unit)

    def pixels(self, source: Value, target: Value) -> None:
        """Copies a row of pixels whose channels lie side by side."""
        em, p, spec = self.em, self.spec.problem, self.spec
        low, count, step = p.low[1], self.columns, spec.copied_pixel
        self.fill(target, 0, min(low, spec.pitch) * step)
        start = em.address(target, low * step, self.place)
        if p.x_strides[3] == p.channels == step:
            self.side_by_side(source, start, count * step)
        else:

            @em.each(0, count)
            def pixel(number: Value) -> None:
                from_ = em.moved(source, number, p.x_strides[3], self.element)
                self.side_by_side(from_, em.moved(start, number, step, self.place), p.channels)

        self.fill(target, (low + count) * step, spec.pitch * step)

    def side_by_side(self, source: Value, target: Value, count: int) -> None:
        """Copies `count` neighbouring elements of pixels whose channels lie side by side."""
        em, units = self.em, self.units
        if not isinstance(units, Quads):
            self.move(source, 1, target, count)
            return

        @em.pieces(count, VECTOR_BYTES)
        def vector(at: Value, active: int) -> None:
            loaded = em.load(em.address(source, at, "i8"), "i8", VECTOR_BYTES, active)
            em.store(units.shifted(loaded), em.address(target, at, "i8"), "i8", VECTOR_BYTES, active)

    def move(self, source: Value, step: int, target: Value, count: int, present: int = 1) -> None:
        """Copies `count` elements, `step` apart, as units that lie side by side, of so many channels."""
        em, lanes, spec = self.em, self.spec.lanes, self.spec
        apart = spec.problem.x_strides[1]

        @em.pieces(count, lanes)
        def vector(at: Value, active: int) -> None:
            first = em.moved(source, at, step, self.element)
            loaded = [
                em.load_strided(
                    em.address(first, channel * apart, self.element), step, self.element, lanes, active
                )
                for channel in range(present)
            ]
            value = self.units.joined(loaded)
            to = em.moved(target, at, spec.unit_places, self.place)
            em.store(value, to, spec.problem.dtype, lanes, active)

    def fill(self, target: Value, start: int, stop: int) -> None:
        """What lies around the input, from place `start` to `stop` of a row."""
        if start >= stop:
            return
        em = self.em
        lanes = VECTOR_BYTES if isinstance(self.units, Quads) else self.spec.lanes
        first = em.address(target, start, self.place)
        if stop - start < 4:
            for at in range(stop - start):
                em.store(self.units.around(1), em.address(first, at, self.place), self.place, 1)
            return

        @em.pieces(stop - start, lanes)
        def vector(at: Value, active: int) -> None:
            value = self.units.around(lanes)
            em.store(value, em.address(first, at, self.place), self.place, lanes, active)
