"""Every decision about a pooling on a GPU, and what it is predicted to take. Imports no code generator.

A *group* is some neighbouring results along one dimension, whose windows overlap: one thread reads their elements once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Annotated, Literal

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import (
    Entry,
    OneOf,
    Record,
    RecordCodec,
    Whole,
    illegal,
    integer,
    powers_of_two,
)
from aicf.backends.cuda.families.loops.costs import start_us
from aicf.backends.cuda.families.pool.problem import Border, PoolProblem
from aicf.backends.cuda.families.records import Shape, Triple
from aicf.backends.cuda.target import ELEMENT_BYTES, PIECE_BYTES, GpuArch

Along = Literal["channels", "pixels"]
"""What neighbouring threads have: channels of one result, or results along the last dimension."""

UNROLLED = 32
"""Most elements of a window that one thread combines; their addresses are written out."""
TAPS_OF_A_THREAD = 8
"""Elements of a longer window that a thread has at least: the rest go to its neighbours."""
MOST_LANES = 256
TOGETHER = 4
"""Elements of a long window that a thread asks for before it combines them."""
_PIXELS = (1, 2, 4)
_THREADS = (256, 128, 64)
_MOST_REGISTERS = 32
"""For the results of a thread."""

LATENCY_US = 0.7
"""From asking for memory to having it while many ask."""
_MEETING_US = 0.3
"""From the last element of a window to the sum of the threads that share it."""
_RESIDENT = 1024
"""Threads of a multiprocessor at a time."""
CLOCKS = 1700.0
"""Of a multiprocessor in a microsecond; it issues four instructions of a warp in each."""
_L1_BYTES = 128
"""Of one clock. Figures of the H100, round ones."""
SECTOR = 32
"""Bytes of memory that come together."""
PLACE_INSTRUCTIONS, _TAP_INSTRUCTIONS = 60, 4
"""Of a thread that finds its place, and of an element's address."""


def lanes_of(taps: int) -> int:
    """Threads that share a window of so many elements. It follows from nothing else, so that a mean is added up in the
    same order whatever the batch and the layout."""
    if taps <= UNROLLED:
        return 1
    return min(MOST_LANES, 1 << ((taps // TAPS_OF_A_THREAD).bit_length() - 1))


@dataclass(frozen=True)
class PoolSpec:
    """Every decision about the code of a pooling."""

    problem: PoolProblem
    along: Annotated[Along, Entry(key="threads_along")]
    vector: Annotated[int, Entry(powers_of_two(1, PIECE_BYTES))]
    """Channels of a thread, which are read at once."""
    pixels: Annotated[int, Entry(OneOf(_PIXELS))]
    """Results of a thread along `dim`."""
    threads: Annotated[int, Entry(OneOf(_THREADS))]

    @property
    def lanes(self) -> int:
        """Threads that share a window."""
        return lanes_of(self.problem.taps)

    @property
    def slots(self) -> int:
        """Groups of a block."""
        return self.threads // self.lanes

    @property
    def dim(self) -> int:
        """The dimension along which a thread has several results; its neighbours have others along another."""
        return 2 if self.along == "channels" else 1

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """How many of each there are: planes, vectors of channels, and groups along the three dimensions."""
        counts = [dim.axis.count for dim in self.problem.dims]
        counts[self.dim] = -(-counts[self.dim] // self.pixels)
        channels = self.problem.channels // self.vector
        return dict(zip("ncdhw", (self.problem.batch, channels, *counts), strict=True))

    @property
    def order(self) -> str:
        """Names of `sizes` in the order in which threads take them, the fastest first."""
        return "cwhdn" if self.along == "channels" else "whdcn"

    @property
    def groups(self) -> int:
        """Of all blocks."""
        return prod(self.sizes.values())

    @property
    def grid(self) -> Triple:
        """Blocks."""
        return (-(-self.groups // self.slots), 1, 1)

    @cached_property
    def offsets(self) -> tuple[tuple[int, ...], ...]:
        """Along each dimension the places that a group finds, from the start of its first window."""
        return tuple(
            tuple(
                sorted(
                    {place for pixel in range(self._along_dim(number)) for place in self._taps(number, pixel)}
                )
            )
            for number in range(len(self.problem.dims))
        )

    @cached_property
    def uses(self) -> tuple[tuple[tuple[bool, ...], ...], ...]:
        """For each of `offsets` the results of the group whose windows have it."""
        return tuple(
            tuple(
                tuple(place in self._taps(number, pixel) for pixel in range(self.pixels)) for place in places
            )
            for number, places in enumerate(self.offsets)
        )

    def _along_dim(self, number: int) -> int:
        return self.pixels if number == self.dim else 1

    def _taps(self, number: int, pixel: int) -> range:
        """The places of one result's window along a dimension."""
        axis = self.problem.dims[number].axis
        start = pixel * axis.stride if number == self.dim else 0
        return range(start, start + (axis.size - 1) * axis.dilation + 1, axis.dilation)

    @property
    def loads(self) -> int:
        """Of a thread."""
        if self.lanes > 1:
            return -(-self.problem.taps // self.lanes)
        return prod(map(len, self.offsets))

    @property
    def packed(self) -> bool:
        """Whether two halves are compared at once, in one register."""
        return self.problem.mode == "max" and self.problem.dtype in ("f16", "bf16") and self.vector > 1

    @property
    def registers(self) -> int:
        """Of a vector."""
        return self.vector // 2 if self.packed else self.vector

    @property
    def combination_order(self) -> str:
        """How the elements of a window are combined, for the kernel record."""
        if self.lanes == 1:
            return "the elements of a window, ascending"
        return f"{self.lanes} threads every {self.lanes}th element of a window, ascending, then by halves"

    # Cost

    def cost_us(self, arch: GpuArch) -> float:
        """Predicted microseconds: memory or the instructions of a multiprocessor, whichever takes longer."""
        p, size = self.problem, ELEMENT_BYTES[self.problem.dtype]
        read = min(p.elements, p.results * p.taps) * size * self._spread(True)
        written = p.results * size * self._spread(False)
        narrow = min(1.0, 0.4 + 0.15 * self.vector * size)
        bandwidth = arch.bandwidth_gbs * narrow * 1e3
        memory = read / min(bandwidth, self._asked_for(arch) / LATENCY_US) + written / bandwidth
        meeting = _MEETING_US if self.lanes > 1 else 0.0
        return start_us(arch) + max(memory, self._busy_us(arch), LATENCY_US) + meeting

    def _asked_for(self, arch: GpuArch) -> float:
        """Bytes that are on their way at a time."""
        resident = min(self.groups * self.lanes, arch.multiprocessors * _RESIDENT)
        together = min(self.loads, UNROLLED if self.lanes == 1 else TOGETHER)
        return resident * together * self.vector * ELEMENT_BYTES[self.problem.dtype]

    def _busy_us(self, arch: GpuArch) -> float:
        """Of the multiprocessors: their first cache, then their instructions."""
        warps = -(-self.groups * self.lanes // 32)
        wide = 32 * self.vector * ELEMENT_BYTES[self.problem.dtype] * self._spread(True) / _L1_BYTES
        cache = self.loads * max(1.0, wide)
        combining = self.registers * (1 if self.packed else 2) * self.pixels
        tested = 2 * sum(border is not Border.NONE for border in self.problem.borders)
        issued = PLACE_INSTRUCTIONS + self.loads * (_TAP_INSTRUCTIONS + combining + tested)
        return warps * max(cache, issued / 4) / (arch.multiprocessors * CLOCKS)

    def _spread(self, reads: bool) -> float:
        """Bytes of memory that come with each byte that neighbouring threads ask for."""
        p, last = self.problem, self.problem.dims[-1]
        if self.along == "channels":
            count, step = p.channels, (p.x_planes if reads else p.y_planes)[1]
        else:
            count, step = (last.axis.whole, last.x_stride) if reads else (last.axis.count, last.y_stride)
        return 1.0 if count == 1 else max(1, min(SECTOR // ELEMENT_BYTES[p.dtype], step))


# The choice


def offered(problem: PoolProblem, offsets: tuple[int, int], arch: GpuArch) -> list[PoolSpec]:
    """The decisions that can be carried out for the best order of threads, those that are predicted to take least
    first; of equal ones those that read more at once, then those whose blocks keep more of the device busy.

    Args:
        offsets: Elements from an aligned address to the start of the operand and of the result.
    """

    def rank(spec: PoolSpec) -> tuple[float, int, int]:
        return spec.cost_us(arch), -spec.vector, -min(spec.grid[0], 2 * arch.multiprocessors)

    best, *others = sorted(_candidates(problem, offsets), key=rank)
    return [best, *(spec for spec in others if spec.along == best.along)]


def _candidates(problem: PoolProblem, offsets: tuple[int, int]) -> Iterator[PoolSpec]:
    """All that may be best, simpler ones first."""
    wide = widest(problem, offsets)
    vectors: Mapping[Along, int] = {"channels": wide, "pixels": 1}
    for (along, vector), pixels, threads in product(vectors.items(), _PIXELS, _THREADS):
        spec = PoolSpec(problem, along, vector, pixels, threads)
        if contradiction(spec, wide) is None:
            yield spec


def widest(problem: PoolProblem, offsets: tuple[int, int]) -> int:
    """Channels that can be read and written at once: a power of two that divides all that an address is made of."""
    x_channel, y_channel = problem.x_planes[1], problem.y_planes[1]
    if problem.channels == 1 or (x_channel, y_channel) != (1, 1):
        return 1
    steps = [problem.channels, *offsets]
    if problem.batch > 1:
        steps += [problem.x_planes[0], problem.y_planes[0]]
    for dim in problem.dims:
        steps += [dim.x_stride] if dim.axis.whole > 1 else []
        steps += [dim.y_stride] if dim.axis.count > 1 else []
    vector = PIECE_BYTES // ELEMENT_BYTES[problem.dtype]
    while any(step % vector for step in steps):
        vector //= 2
    return vector


def contradiction(spec: PoolSpec, wide: int) -> str | None:
    """Why decisions cannot be carried out, None if they can; `wide` is what `widest` gives."""
    most = wide if spec.along == "channels" else 1
    if spec.vector > most:
        return f"its {illegal('vector', spec.vector, powers_of_two(1, most))}"
    room = (
        1
        if spec.lanes > 1
        else min(spec.problem.dims[spec.dim].axis.count, _MOST_REGISTERS // spec.registers)
    )
    if spec.pixels > max(1, room):
        return f"its {illegal('pixels', spec.pixels, powers_of_two(1, max(1, room)))}"
    if spec.threads < spec.lanes:
        return f"its {illegal('threads', spec.threads, Whole(spec.lanes, max(_THREADS)))}"
    return None


# Records

_CODEC = RecordCodec(PoolSpec)


def pool_record(spec: PoolSpec) -> dict[str, Attribute]:
    """Every decision about a pooling, and what follows from them."""
    return {
        **_CODEC.entries(spec),
        "lanes": integer(spec.lanes),
        "combination_order": StringAttr(spec.combination_order),
        **Shape(spec.grid, (spec.threads, 1, 1)).entries(),
    }


def read_spec(record: Record, problem: PoolProblem) -> PoolSpec:
    """The decisions of a record. Raises RecordError if it lacks one, or it is not legal."""
    return PoolSpec(problem, **_CODEC.values(record))
