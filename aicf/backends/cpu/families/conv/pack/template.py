"""Code that lays the weight of a convolution out in panels, elements or units of several channels.

Panels of quads are ``[rows of starts][channels / 4][element of the window][nr][4]`` bytes: four neighbouring channels
of an output are a quad, those that are missing are zeros. If elements of the input are read too large, a panel starts
with a row of what this adds to each sum, negative.
"""

from __future__ import annotations

from dataclasses import dataclass

from aicf.backends.cpu.codegen.ir_builder import I32, Emitter, Value
from aicf.backends.cpu.families.conv.schedule import ConvSpec
from aicf.backends.cpu.families.gemm.pack.pairs import PairPacker, Pairs
from aicf.backends.cpu.families.gemm.pack.quads import pack_starts
from aicf.backends.cpu.families.gemm.pack.template import Packer


@dataclass(frozen=True)
class ChannelQuadPacker:
    """As `gemm.pack.template.Packer`, into panels of quads.

    Args:
        lanes: Quads of a vector, of which a panel has a whole number.
        channels, taps: Of an output.
        width: Outputs of a panel.
        shift: By how much elements of the input are read too large.
    """

    em: Emitter
    lanes: int
    channels: int
    taps: int
    width: int
    shift: int

    @property
    def units(self) -> int:
        """Rows of a panel that hold quads."""
        return -(-self.channels // 4) * self.taps

    def matrix(self, columns: int, source: Value, target: Value) -> None:
        """Packs the weights ``[columns][channels][taps]`` of so many outputs."""
        em, starts = self.em, int(self.shift != 0)

        @em.panels(columns, self.width)
        def panel(index: Value, count: int) -> None:
            own = em.moved(source, index, self.width * self.channels * self.taps, "i8")
            out = em.moved(target, index, (self.units + starts) * self.width, "i32")
            self.panel(count, own, em.address(out, starts * self.width, "i32"))
            if starts:
                quads = em.address(out, self.width, "i32")
                pack_starts(em, self.lanes, self.width, self.units, self.shift, quads, out)

    def panel(self, columns: int, source: Value, target: Value) -> None:
        """Packs one panel; the rest of it is zero."""
        em = self.em
        whole, rest = divmod(self.channels, 4)

        def quads(number: Value, present: int) -> None:
            from_ = em.moved(source, number, 4 * self.taps, "i8")
            to = em.moved(target, number, self.taps * self.width, "i32")

            @em.each(0, self.taps)
            def tap(at: Value) -> None:
                self.row(columns, em.address(from_, at, "i8"), em.moved(to, at, self.width, "i32"), present)

        em.each(0, whole)(lambda number: quads(number, 4))
        if rest:
            quads(em.index(whole), rest)

    def row(self, columns: int, source: Value, target: Value, present: int) -> None:
        """A quad of `present` channels of each output."""
        em = self.em

        @em.each(0, columns)
        def column(number: Value) -> None:
            own = em.moved(source, number, self.channels * self.taps, "i8")
            quad = em.const("i32", 1, 0)
            for channel in range(present):
                element = em.load(em.address(own, channel * self.taps, "i8"), "i8", 1)
                wide = em.b.shl(em.b.zext(element, I32), em.const("i32", 1, 8 * channel))
                quad = em.b.or_(quad, wide)
            em.store(quad, em.address(target, number, "i32"), "i32", 1)

        @em.each(columns, self.width)
        def nothing(number: Value) -> None:
            em.store(em.const("i32", 1, 0), em.address(target, number, "i32"), "i32", 1)


def packer_of(em: Emitter, spec: ConvSpec) -> Packer | PairPacker | ChannelQuadPacker:
    """What packs the weight of one group of a convolution, of all groups where depthwise."""
    p = spec.problem
    taps, strides = p.taps[0] * p.taps[1], (1, p.inner)
    if p.quads:
        return ChannelQuadPacker(em, spec.lanes, p.channels, taps, spec.nr, p.shift)
    if p.pairs:
        pairs = Pairs(p.weight_element, "i16", p.inner, taps)
        return PairPacker(em, pairs, spec.lanes, spec.nr, strides)
    return Packer(em, p.weight_element, p.dtype, spec.lanes, p.inner, spec.nr, strides)
