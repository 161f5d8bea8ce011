"""Every decision about a depthwise convolution, and what it is predicted to take. Imports no code generator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import gcd, prod
from typing import Annotated, Literal

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import (
    Entry,
    OneOf,
    Record,
    RecordCodec,
    illegal,
    integer,
    powers_of_two,
)
from aicf.backends.cuda.families.conv.depthwise.problem import DepthwiseProblem, WindowDim
from aicf.backends.cuda.families.gemm.problem import Access
from aicf.backends.cuda.families.loops.costs import start_us
from aicf.backends.cuda.families.records import Shape, Triple
from aicf.backends.cuda.target import ELEMENT_BYTES, PIECE_BYTES, GpuArch

Along = Literal["channels", "pixels"]
"""What neighbouring threads have: outputs of one pixel, or pixels along the last dimension."""

NAMES = ("near", "column", "row", "deep", "far", "image")
"""What the number of a thread is made of, the fastest first: vectors of outputs that lie together, pixels, groups of
such vectors, images. Neighbours in the same block have windows in common, which the first cache keeps."""
UNROLLED, MOST_UNROLLED, UNROLLED_PRODUCTS = 16, 32, 256
"""Elements of a window that are all written out; more of them, up to so many products of a thread."""
LINE_TAPS = 8
"""Most elements of a line whose weights a thread holds at a time."""
_PIXELS = (1, 2, 4)
_THREADS = (256, 128, 64)
_MOST_SUMS, _MOST_HELD = 32, 160
"""Registers of a thread, for its sums alone and with what it has loaded."""
_MOST_NEAR, _LEAST_NEAR = 16, 4

_LATENCY_US, _LINE_US = 0.3, 0.25
"""From asking for the elements of the first line to having them, and of the lines after it, which lie in a cache."""
_CLOCKS = 1700.0
"""Of a multiprocessor in a microsecond; it issues four instructions of a warp in each, of 128 lanes."""
_L1_BYTES = 128
"""Of one clock. Figures of the H100, round ones."""
_REGISTERS, _RESIDENT = 65536, 2048
"""Of a multiprocessor: registers, and threads at a time."""
_ENOUGH, _ENOUGH_LONG = 512, 384
"""Threads of a multiprocessor, some of which load while others multiply; of longer windows than are always written
out, of which compilers keep more addresses, so that they would spill."""
_SECTOR = 32
"""Bytes of memory that come together."""
_PLACE_INSTRUCTIONS, _PLACE_REGISTERS = 60, 64
_SHOWN = 0.1
"""Of what runs beside what takes longest."""
_TAP_INSTRUCTIONS, _RESULT_INSTRUCTIONS = 4, 6
"""Of an element's address, and of what follows a sum."""


@dataclass(frozen=True)
class Segment:
    """A part of a line, for all results of a thread.

    Args:
        taps: Elements of one window.
        places: What the windows find, from the start of the first one.
        uses: For each of `places` and each result the tap that is there, -1 for none.
    """

    taps: int
    places: tuple[int, ...]
    uses: tuple[tuple[int, ...], ...]


def segment_of(dim: WindowDim, taps: int, pixels: int) -> Segment:
    """So many elements of the windows of some neighbours."""
    starts = [pixel * dim.stride for pixel in range(pixels)]
    steps = range(0, taps * dim.dilation, dim.dilation)
    places = sorted({start + step for start in starts for step in steps})
    uses = [
        tuple((place - start) // dim.dilation if place - start in steps else -1 for start in starts)
        for place in places
    ]
    return Segment(taps, tuple(places), tuple(uses))


@dataclass(frozen=True)
class Vector:
    """Neighbours that a thread moves.

    Args:
        dtype: Element type name.
        count: How many.
        step: Elements from one to the next; 0 for one that all share.
        piece: Elements of one load or store.
    """

    dtype: str
    count: int
    step: int
    piece: int

    @property
    def bytes(self) -> int:
        """Of one element."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def pieces(self) -> int:
        """How many loads or stores they take."""
        return 1 if self.step == 0 else self.count // self.piece


@dataclass(frozen=True)
class DepthwiseSpec:
    """Every decision about the code of a depthwise convolution."""

    problem: DepthwiseProblem
    along: Annotated[Along, Entry(key="threads_along")]
    vector: Annotated[int, Entry(powers_of_two(1, PIECE_BYTES))]
    """Outputs of a thread that are neighbours."""
    pixels: Annotated[int, Entry(OneOf(_PIXELS))]
    """Results of a thread along the dimension of lines."""
    threads: Annotated[int, Entry(OneOf(_THREADS))]

    @property
    def inputs(self) -> int:
        """Channels of the operand that a thread reads."""
        return max(1, self.vector // self.problem.multiplier)

    @property
    def is_packed(self) -> bool:
        """Whether two halves are held in a register until they are used."""
        return self.problem.dtype != "f32" and self.inputs > 1

    @property
    def words(self) -> int:
        """Registers of the loaded channels of a place."""
        return self.inputs // 2 if self.is_packed else self.inputs

    # Who does what

    @cached_property
    def near(self) -> int:
        """Neighbouring vectors of outputs before the next pixel: enough to read whole sectors, and no more, so that a
        block has many pixels."""
        vectors = self.problem.outputs // self.vector
        if self.along == "pixels" or vectors <= _MOST_NEAR:
            return 1 if self.along == "pixels" else vectors
        found = [n for n in range(_LEAST_NEAR, _MOST_NEAR + 1) if vectors % n == 0]
        return max(found, default=vectors)

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """How many of each of `NAMES` there are."""
        p = self.problem
        counts = [dim.count for dim in p.dims]
        counts[p.line] = -(-counts[p.line] // self.pixels)
        far = p.outputs // self.vector // self.near
        return dict(zip(NAMES, (self.near, *counts[::-1], far, p.batch), strict=True))

    @property
    def groups(self) -> int:
        """Threads that have something to do."""
        return prod(self.sizes.values())

    @property
    def grid(self) -> Triple:
        """Blocks."""
        return (-(-self.groups // self.threads), 1, 1)

    # Windows

    @property
    def lines(self) -> int:
        """Of a window."""
        return self.problem.taps // self.problem.dims[self.problem.line].taps

    @cached_property
    def segments(self) -> int:
        """Of a line, those of equal length alone."""
        return self._line_taps // self.each.taps

    @cached_property
    def each(self) -> Segment:
        """The segments of a line, as even as can be."""
        parts = -(-self._line_taps // LINE_TAPS)
        return self._segment(-(-self._line_taps // parts))

    @cached_property
    def rest(self) -> Segment:
        """What is left of a line."""
        return self._segment(self._line_taps % self.each.taps)

    @property
    def _line_taps(self) -> int:
        return self.problem.dims[self.problem.line].taps

    def _segment(self, taps: int) -> Segment:
        return segment_of(self.problem.dims[self.problem.line], taps, self.pixels)

    @property
    def is_unrolled(self) -> bool:
        """Whether all lines are written out."""
        taps = self.problem.taps
        few = taps <= MOST_UNROLLED and taps * self.vector * self.pixels <= UNROLLED_PRODUCTS
        return taps <= UNROLLED or few

    @property
    def held(self) -> int:
        """Registers for the sums, and for what is loaded of a segment."""
        loaded = self.each.taps * self.vector + len(self.each.places) * self.words
        return self.vector * self.pixels + loaded

    @property
    def _fit(self) -> int:
        """Threads that have registers on a multiprocessor: a warp more on each of its four parts, or on none."""
        return min(_RESIDENT, _REGISTERS // (self.held + _PLACE_REGISTERS) // 128 * 128)

    @property
    def blocks_per_sm(self) -> int:
        """Blocks that must fit: a compiler that asks for all elements of a window first leaves room for one."""
        enough = _ENOUGH if self.problem.taps <= UNROLLED else _ENOUGH_LONG
        return max(1, min(enough, self._fit) // self.threads)

    # Accesses

    @cached_property
    def x_access(self) -> Vector:
        """The channels of a place."""
        p = self.problem
        return Vector(p.dtype, self.inputs, 1, self.inputs)

    @cached_property
    def weight_access(self) -> Vector:
        """The weights of a tap."""
        p = self.problem
        others = [dim.weight_stride for dim in p.dims if dim.taps > 1]
        return _vector(p.dtype, self.vector, p.weight_step, others, p.weight_alignment)

    def end_access(self, access: Access) -> Vector:
        """What follows the sums, at the outputs of a thread."""
        others = [access.offset, *access.strides[:-1]]
        return _vector(access.dtype, self.vector, access.strides[-1], others, access.alignment)

    # Cost

    def cost_us(self, arch: GpuArch) -> float:
        """Predicted microseconds: memory, the second cache, the instructions of a multiprocessor or the wait for
        loads, whichever takes longest, and a part of the others, which it does not hide all of."""
        p, size = self.problem, ELEMENT_BYTES[self.problem.dtype]
        read = p.elements * size * self._spread(p.dtype, p.x_planes[1], p.dims[-1].x_stride)
        moved = read + p.outputs * p.taps * size + sum(self._moved(each) for each in (*p.reads, *p.writes))
        narrow = min(1.0, 0.4 + 0.15 * self.vector * size)
        memory = moved / (arch.bandwidth_gbs * narrow * 1e3)
        again = moved + read * (self._read_again() - 1)
        cache = again / (arch.copy_l2_gbs * 1e3)
        each = (memory, cache, self._busy_us(arch), self._waits_us(arch))
        return start_us(arch) + max(each) + _SHOWN * (sum(each) - max(each))

    def _moved(self, access: Access) -> float:
        """Bytes of what follows the sums."""
        counts = (self.problem.batch, *(dim.count for dim in self.problem.dims), self.problem.outputs)
        elements = prod(n for n, step in zip(counts, access.strides, strict=True) if step)
        spread = self._spread(access.dtype, access.strides[-1], access.strides[-2])
        return elements * ELEMENT_BYTES[access.dtype] * spread

    def _spread(self, dtype: str, channel: int, pixel: int) -> float:
        """Bytes of memory that come with each byte that neighbouring threads ask for."""
        if self.along == "channels":
            count, step = self.problem.outputs, channel
        else:
            count, step = self.problem.dims[-1].count, pixel
        return 1.0 if count == 1 else max(1, min(_SECTOR // ELEMENT_BYTES[dtype], abs(step)))

    def _read_again(self) -> float:
        """How many blocks read an element: windows of neighbouring pixels share theirs in a block alone."""
        room, times = self.threads // self.near, 1.0
        for number in reversed(range(len(self.problem.dims))):
            dim, each = self.problem.dims[number], self.pixels if number == self.problem.line else 1
            pixels = min(dim.count, max(1, room) * each)
            room = room * each // dim.count
            found = (pixels - 1) * dim.stride + dim.reach + 1
            times *= max(1.0, min(found, dim.whole) / min(pixels * dim.stride, dim.whole))
        return times

    @property
    def _loads(self) -> int:
        """Of a thread, of the operand."""
        return self.lines * (self.segments * len(self.each.places) + len(self.rest.places))

    def _busy_us(self, arch: GpuArch) -> float:
        """Of the multiprocessor that has most to do: its first cache, and its instructions."""
        p, size = self.problem, ELEMENT_BYTES[self.problem.dtype]
        spread = self._spread(p.dtype, p.x_planes[1], p.dims[-1].x_stride)
        wide = max(1.0, 32 * self.inputs * size * spread / _L1_BYTES)
        cache = self._loads * wide + p.taps * self._weight_cycles()
        tested = (3 + self.words) if any(dim.is_padded for dim in p.dims) else 0
        unpacked = 0 if p.dtype == "f32" else self._loads * self.inputs + p.taps * self.vector
        loads = self._loads * (_TAP_INSTRUCTIONS + tested) + 2 * p.taps * self.weight_access.pieces
        results = self.vector * self.pixels
        issued = _PLACE_INSTRUCTIONS + loads + unpacked + results * (p.taps + _RESULT_INSTRUCTIONS)
        warps = -(-self.grid[0] // arch.multiprocessors) * self.threads / 32
        return max(warps * cache, max(1.0, warps / 4) * issued) / _CLOCKS

    def _weight_cycles(self) -> float:
        """Of the first cache, for the weights of a tap of a warp."""
        access = self.weight_access
        if self.along == "pixels":
            return access.pieces
        if access.step == 1:
            return access.pieces * max(1.0, 32 * access.piece * access.bytes / _L1_BYTES)
        return access.pieces * max(1.0, min(32, self.near) / 2)

    def _waits_us(self, arch: GpuArch) -> float:
        """Of all blocks of a multiprocessor, those that fit on it at a time together."""
        rounds = -(-self.grid[0] // (arch.multiprocessors * max(1, self._fit // self.threads)))
        turns = 0 if self.is_unrolled else self.lines * (self.segments + bool(self.rest.taps)) - 1
        return rounds * (_LATENCY_US + turns * _LINE_US)


def _vector(dtype: str, count: int, step: int, others: Sequence[int], alignment: int) -> Vector:
    """How `count` neighbours are moved, that are `step` apart and start at sums of multiples of `others`."""
    if count == 1:
        return Vector(dtype, 1, 1, 1)
    if step != 1:
        return Vector(dtype, count, step, 1)
    size = ELEMENT_BYTES[dtype]
    piece = gcd(count, PIECE_BYTES // size, alignment // size, *others)
    return Vector(dtype, count, 1, piece)


# The choice


def offered(problems: Mapping[Along, DepthwiseProblem], arch: GpuArch) -> list[DepthwiseSpec]:
    """The decisions that can be carried out for the best order of threads, those that are predicted to take least
    first; of equal ones those that read more at once, then those whose blocks keep more of the device busy."""

    def rank(spec: DepthwiseSpec) -> tuple[float, int, int]:
        return spec.cost_us(arch), -spec.vector, -min(spec.grid[0], 2 * arch.multiprocessors)

    best, *others = sorted(candidates(problems), key=rank)
    return [best, *(spec for spec in others if spec.along == best.along)]


def candidates(problems: Mapping[Along, DepthwiseProblem]) -> Iterator[DepthwiseSpec]:
    """All that may be best, simpler ones first."""
    for along, problem in problems.items():
        wide = widest(problem) if along == "channels" else 1
        for vector, pixels, threads in product(sorted({wide, max(1, wide // 2)}), _PIXELS, _THREADS):
            spec = DepthwiseSpec(problem, along, vector, pixels, threads)
            if contradiction(spec) is None:
                yield spec


def widest(problem: DepthwiseProblem) -> int:
    """Outputs of which a thread can read all channels at once: a power of two that divides all that an address is made
    of."""
    vector = PIECE_BYTES // ELEMENT_BYTES[problem.dtype]
    while not _divides(problem, vector):
        vector //= 2
    return vector


def _divides(p: DepthwiseProblem, vector: int) -> bool:
    if vector == 1:
        return True
    if p.outputs % vector or (vector % p.multiplier and p.multiplier % vector):
        return False
    inputs = max(1, vector // p.multiplier)
    if inputs == 1:
        return True
    steps = [p.x_alignment // ELEMENT_BYTES[p.dtype], *(dim.x_stride for dim in p.dims if dim.whole > 1)]
    steps += [p.x_planes[0]] if p.batch > 1 else []
    return p.x_planes[1] == 1 and not any(step % inputs for step in steps)


def contradiction(spec: DepthwiseSpec) -> str | None:
    """Why decisions cannot be carried out, None if they can."""
    most = widest(spec.problem) if spec.along == "channels" else 1
    if spec.vector > most:
        return f"its {illegal('vector', spec.vector, powers_of_two(1, most))}"
    room = min(spec.problem.dims[spec.problem.line].count, _MOST_SUMS // spec.vector)
    if spec.pixels > 1 and (spec.pixels > room or spec.held > _MOST_HELD):
        fewer = max(pixels for pixels in _PIXELS if pixels < spec.pixels)
        return f"its {illegal('pixels', spec.pixels, powers_of_two(1, fewer))}"
    return None


# Records

_CODEC = RecordCodec(DepthwiseSpec)


def depthwise_record(spec: DepthwiseSpec) -> dict[str, Attribute]:
    """Every decision about a depthwise convolution, and what follows from them."""
    return {
        **_CODEC.entries(spec),
        "near": integer(spec.near),
        "blocks_per_sm": integer(spec.blocks_per_sm),
        "combination_order": StringAttr(order_text(spec.problem)),
        **Shape(spec.grid, (spec.threads, 1, 1)).entries(),
    }


def order_text(problem: DepthwiseProblem) -> str:
    """How the elements of a window are summed, for the kernel record."""
    return f"the elements of a window, ascending, dimension {problem.line - 3} innermost"


def read_spec(record: Record, problems: Mapping[Along, DepthwiseProblem]) -> DepthwiseSpec:
    """The decisions of a record. Raises RecordError if it lacks one, or it is not legal."""
    values = _CODEC.values(record)
    return DepthwiseSpec(problems[values["along"]], **values)
