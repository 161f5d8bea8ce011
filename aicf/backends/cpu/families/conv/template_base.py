"""What the algorithms of convolutions share: workspace, and the copy of the input with zeros around it."""

from __future__ import annotations

from dataclasses import dataclass

from aicf.backends.cpu.codegen.ir_builder import I8, Emitter, Value
from aicf.backends.cpu.families.conv.copies import CopyCode
from aicf.backends.cpu.families.conv.pack.template import packer_of
from aicf.backends.cpu.families.conv.schedule import ConvSpec
from aicf.backends.cpu.families.conv.units import units_of
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
    """Channels as tiles read them: the first unit, and places between units of channels, rows and columns."""

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
        self.units = units_of(em, spec.problem, spec.lanes)
        self.place = self.units.place
        self.space = em.part_of(
            pointers.workspace, pointers.tid, spec.threads, spec.workspace_bytes // spec.threads
        )
        self.copied = self.space
        if self.space is not None and spec.packed_elements:
            bytes_ = spec.packed_elements * ELEMENT_BYTES[self.dtype]
            self.copied = em.b.gep(
                self.space, [em.index(-(-bytes_ // CACHE_LINE) * CACHE_LINE)], source_etype=I8
            )

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
            first = em.moved(x, row, p.strides[0] * step, self.element)
            return Image(first, channel * p.terms, step, column)
        CopyCode(em, spec, self.units, self.copied).copy(x, row, spec.rows_read(rows), channels)
        return Image(self.copied, *spec.copy_strides)

    def packed_weight(self) -> Value:
        """The panels of all groups; packs them if they are not."""
        em, p, spec = self.em, self.p, self.spec
        if spec.prepared:
            return self.pointers.weight
        matrix, packer = spec.weight_columns * p.inner, packer_of(em, spec)

        @em.each(0, p.groups * p.outputs // spec.weight_columns)
        def pack(number: Value) -> None:
            source = em.moved(self.pointers.weight, number, matrix, p.weight_element)
            target = em.moved(self.space, number, spec.panels * spec.panel_units, self.dtype)
            packer.matrix(spec.weight_columns, source, target)

        return self.space
