"""What a convolution on the CPU is predicted to take. Imports no code generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from aicf.backends.common.loop_nest import Access
from aicf.backends.cpu.families.conv.problem import Along
from aicf.backends.cpu.families.conv.schedule import ConvSpec
from aicf.backends.cpu.families.gemm.schedule import MEETING_CYCLES, NOMINAL_GHZ, GemmSpec, traffic_cycles
from aicf.backends.cpu.target import ELEMENT_BYTES, MAX_SHUFFLED

_COPY_BYTES_PER_CYCLE = 16.0
_ROW_CYCLES = 8.0
"""Of a row that is copied, or of starting one of pixels."""
_DEPTHWISE_CYCLES = 0.7
"""Of a vector of products, two of which a cycle could start: the loads stand beside them."""
_ALONE_CYCLES = 1.5
"""Of one whose vector was loaded for it alone, from an address that was chosen."""
_GATHERED_CYCLES = 1.5
"""Of an element that is loaded or stored by itself, on its way into a vector or out of it."""
_SHUFFLED_CYCLES = 2.0
"""Of each vector that lanes a few elements apart are shuffled out of, or into."""
TRANSPOSE_CYCLES = 5.0
"""Of a vector of finished sums, which holds output channels, on its way to rows of pixels."""
_PAIR_WORK = 1.5
"""Operations of a multiplication of pairs and an addition, in those of a multiply-add."""
_SHIFT_CYCLES = 0.25
"""Of making a unit of i8 one of u8."""
_LOAD_CYCLES = 0.05
"""Of a load that is issued beside the arithmetic."""
_TILE_CYCLES = 20.0
_PANEL_CYCLES = 8.0
"""Of starting a tile of a panel of channels that each have their own weights."""
_PLANE_CYCLES = 2.0
"""Of each row of a tile in the plane of another channel, whose lines are far from those before."""


@dataclass(frozen=True)
class EpilogueCycles:
    """Cycles of one vector of the epilogue, by what its lanes are."""

    pixels: float
    channels: float

    def of(self, along: Along) -> float:
        """Those where the lanes are so."""
        return self.pixels if along == "pixels" else self.channels


def epilogue_cycles(arithmetic: float, accesses: Sequence[Access], lanes: int) -> EpilogueCycles:
    """Of an epilogue of so much arithmetic a vector, with accesses over (image, channel, pixel)."""
    channels, pixels = (
        arithmetic + sum(_apart_cycles(access.strides[dim], lanes) for access in accesses) for dim in (1, 2)
    )
    return EpilogueCycles(pixels, channels)


def _apart_cycles(stride: int, lanes: int) -> float:
    """What it costs that the lanes of a vector lie so far apart in memory."""
    if stride in (0, 1):
        return 0.0
    return stride * _SHUFFLED_CYCLES if stride <= MAX_SHUFFLED else lanes * _GATHERED_CYCLES


def cost_us(spec: ConvSpec, epilogue: EpilogueCycles) -> float:
    """Predicted microseconds of one thread's share."""
    own = epilogue.of(spec.lanes_along)
    if spec.algorithm == "direct":
        cycles = _direct_cycles(spec, own)
    elif spec.lanes_along == "channels":
        cycles = _channels_cycles(spec, own)
    else:
        cycles = _planes_cycles(spec, own)
    return (cycles + (MEETING_CYCLES if spec.threads > 1 else 0.0)) / NOMINAL_GHZ / 1000


def _direct_cycles(spec: ConvSpec, epilogue: float) -> float:
    p, size = spec.problem, ELEMENT_BYTES[spec.problem.dtype]
    full, tail = divmod(p.counts[0], spec.tile_rows)
    total = 0.0
    for rows, bands in ((spec.tile_rows, full), (tail, 1)):
        for width, times in spec.width_counts(bands) if rows else ():
            sums = rows * width * spec.tile_vectors
            loads = rows * width + spec.tile_vectors
            step = max(sums * (_PAIR_WORK if p.pairs else 1.0) / 2, loads / 2, 5.0) + _LOAD_CYCLES * loads
            step += 0.0 if spec.copies or not p.shift else _SHIFT_CYCLES * rows * width
            tile = step * p.steps + _finish_cycles(spec, sums, epilogue) + _TILE_CYCLES
            if p.x_strides[1] != 1 and not spec.copies:
                tile += rows * p.channels * _PLANE_CYCLES
            total += tile * times
    panels, share = -(-spec.panels // spec.threads), 1.0
    if spec.partition == "rows":
        items = p.batch * spec.blocks
        panels, share = spec.panels, -(-items // spec.threads) / items
    weight = spec.panel_units * size * panels
    total = max(total * panels, traffic_cycles(weight) * spec.blocks)
    total += spec.blocks * _copy_cycles(spec)
    total *= p.batch * p.groups * share
    return total + spec.packed_elements * size / 2


def _finish_cycles(spec: ConvSpec, sums: int, epilogue: float) -> float:
    """Of the epilogue of a tile: of each vector of sums, or of each channel, however few pixels it has there."""
    if spec.lanes_along == "channels":
        return sums * epilogue
    return sums * TRANSPOSE_CYCLES + spec.lanes * spec.tile_vectors * epilogue


def _copy_cycles(spec: ConvSpec) -> float:
    """Of one copy of a block of rows, of one channel where depthwise."""
    p, copied = spec.problem, spec.copy_bytes
    if not spec.copies:
        return 0.0
    if not spec.copies_channels_last and p.x_strides[3] != 1:
        elements = copied / ELEMENT_BYTES[p.dtype] * (p.terms if p.quads else 1)
        is_shuffled = p.x_strides[3] <= MAX_SHUFFLED
        return elements * (_SHUFFLED_CYCLES / spec.lanes if is_shuffled and p.quads else _GATHERED_CYCLES)
    rows = spec.rows_read(spec.block_rows)
    if not spec.copies_channels_last and spec.algorithm == "direct":
        rows *= p.channels
    return rows * _ROW_CYCLES + copied / _COPY_BYTES_PER_CYCLE


def _planes_cycles(spec: ConvSpec, epilogue: float) -> float:
    """Of a depthwise convolution in vectors of pixels."""
    p = spec.problem
    vectors = -(-p.counts[1] // spec.lanes) * p.counts[0]
    loads = 1.0 if p.strides[1] == 1 else 2.0
    row = vectors * (prod(p.taps) * loads * _DEPTHWISE_CYCLES + epilogue + 2.0) + p.counts[0] * _ROW_CYCLES
    channels = p.batch * p.groups * p.outputs
    total = channels * row + p.batch * p.groups * _copy_cycles(spec)
    return max(total, _moved_cycles(spec)) / spec.threads


def _channels_cycles(spec: ConvSpec, epilogue: float) -> float:
    """Of a depthwise convolution in vectors of channels: tiles of several pixels share what they load, those at the
    ends of a row have none to share with."""
    p, size = spec.problem, ELEMENT_BYTES[spec.problem.dtype]
    inside = sum(stretch.stop - stretch.start for stretch in p.along(1) if stretch.is_inside)
    vectors, taps = -(-p.groups // spec.lanes), prod(p.taps)
    shared = vectors * (taps * _DEPTHWISE_CYCLES + epilogue) + spec.panels * _PANEL_CYCLES / spec.tile_pixels
    alone = vectors * (taps * _ALONE_CYCLES + epilogue) + spec.panels * _PANEL_CYCLES
    total = p.batch * p.counts[0] * (inside * shared + (p.counts[1] - inside) * alone)
    shared = p.counts[0] if spec.partition == "rows" else spec.panels
    share = -(-shared // spec.threads) / shared
    return max(total, _moved_cycles(spec)) * share + spec.packed_elements * size / 2


def _moved_cycles(spec: ConvSpec) -> float:
    """Of the input and the result of a depthwise convolution on their way from and to memory."""
    p = spec.problem
    moved = p.batch * p.groups * (prod(p.sizes) + p.outputs * p.pixels)
    return traffic_cycles(moved * ELEMENT_BYTES[p.dtype])


def planes_us(spec: GemmSpec) -> float:
    """Microseconds, beside what is predicted for the product itself, of a left operand whose rows are pixels that lie
    in planes of channels."""
    p = spec.problem
    if p.a_strides[1] == 1:
        return 0.0
    tiles = -(-p.m // spec.mr) * -(-p.n // spec.nr) * prod(p.batch)
    return tiles * p.k * _PLANE_CYCLES / spec.threads / NOMINAL_GHZ / 1000
