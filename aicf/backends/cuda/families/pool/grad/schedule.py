"""Every decision about a gradient of a pooling on a GPU, and what it is predicted to take. Imports no code generator.

A *group* is a vector of channels of one cell: one thread reads the windows that reach it once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Annotated

from xdsl.ir import Attribute

from aicf.backends.common.record import Entry, OneOf, Record, RecordCodec, illegal, powers_of_two
from aicf.backends.cuda.families.loops.costs import start_us
from aicf.backends.cuda.families.pool.grad.problem import MOST_SUMS, GradProblem
from aicf.backends.cuda.families.pool.schedule import CLOCKS, LATENCY_US, PLACE_INSTRUCTIONS, SECTOR, Along
from aicf.backends.cuda.families.records import Shape, Triple
from aicf.backends.cuda.target import ELEMENT_BYTES, PIECE_BYTES, GpuArch

_THREADS = (256, 128, 64)
_WINDOW_INSTRUCTIONS = 12
"""Of a window's addresses. Prices here are reckoned from what a thread does, not measured."""
_TERM_INSTRUCTIONS = 3
"""A comparison, a choice and an addition for each channel."""


@dataclass(frozen=True)
class GradSpec:
    """Every decision about the code of a gradient."""

    problem: GradProblem
    along: Annotated[Along, Entry(key="threads_along")]
    vector: Annotated[int, Entry(powers_of_two(1, PIECE_BYTES))]
    """Channels of a thread, which are read and written at once."""
    threads: Annotated[int, Entry(OneOf(_THREADS))]

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """How many of each there are: planes, vectors of channels, and cells along the three dimensions."""
        cells = (dim.cells for dim in self.problem.dims)
        return dict(
            zip("ncdhw", (self.problem.batch, self.problem.channels // self.vector, *cells), strict=True)
        )

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
        return (-(-self.groups // self.threads), 1, 1)

    # Cost

    def cost_us(self, arch: GpuArch) -> float:
        """Predicted microseconds: memory or the instructions of a multiprocessor, whichever takes longer."""
        p, size = self.problem, ELEMENT_BYTES[self.problem.dtype]
        windows = p.results * (size * self._spread(p.grad_planes) + self._spread(p.taps_planes))
        narrow = min(1.0, 0.4 + 0.15 * self.vector * size)
        memory = (windows + p.elements * size * self._spread(p.x_planes)) / (
            arch.bandwidth_gbs * narrow * 1e3
        )
        terms = self.vector * (p.windows + _TERM_INSTRUCTIONS * p.terms)
        issued = PLACE_INSTRUCTIONS + _WINDOW_INSTRUCTIONS * p.windows + terms
        busy = -(-self.groups // 32) * issued / 4 / (arch.multiprocessors * CLOCKS)
        return start_us(arch) + max(memory, busy, LATENCY_US)

    def _spread(self, planes: tuple[int, int]) -> float:
        """Bytes of memory that come with each byte that neighbouring threads ask for."""
        if self.along == "pixels" or self.problem.channels == 1:
            return 1.0
        return max(1, min(SECTOR // ELEMENT_BYTES[self.problem.dtype], planes[1]))


# The choice


def offered(problem: GradProblem, offsets: tuple[int, int, int], arch: GpuArch) -> list[GradSpec]:
    """The decisions that can be carried out, those that are predicted to take least first; of equal ones those that
    read more at once, then those whose blocks keep more of the device busy.

    Args:
        offsets: Elements from an aligned address to the start of the result, of the taps and of the gradient.
    """

    def rank(spec: GradSpec) -> tuple[float, int, int]:
        return spec.cost_us(arch), -spec.vector, -min(spec.grid[0], 2 * arch.multiprocessors)

    return sorted(_candidates(problem, widest(problem, offsets)), key=rank)


def _candidates(problem: GradProblem, wide: int) -> Iterator[GradSpec]:
    vectors: Mapping[Along, int] = {"channels": wide, "pixels": 1}
    for (along, vector), threads in product(vectors.items(), _THREADS):
        yield GradSpec(problem, along, vector, threads)


def widest(problem: GradProblem, offsets: tuple[int, int, int]) -> int:
    """Channels that can be read and written at once: a power of two that divides all that an address is made of, and
    whose sums a thread has room for."""
    planes = (problem.x_planes, problem.taps_planes, problem.grad_planes)
    if problem.channels == 1 or any(channel != 1 for _, channel in planes):
        return 1
    steps = [problem.channels, *offsets, *(image for image, _ in planes if problem.batch > 1)]
    for dim in problem.dims:
        steps += [dim.x_step] if dim.whole > 1 else []
        steps += [dim.taps_step, dim.grad_step] if dim.count > 1 else []
    vector = PIECE_BYTES // ELEMENT_BYTES[problem.dtype]
    while any(step % vector for step in steps) or vector * problem.cell > MOST_SUMS:
        vector //= 2
    return vector


def contradiction(spec: GradSpec, wide: int) -> str | None:
    """Why decisions cannot be carried out, None if they can; `wide` is what `widest` gives."""
    most = wide if spec.along == "channels" else 1
    if spec.vector > most:
        return f"its {illegal('vector', spec.vector, powers_of_two(1, most))}"
    return None


# Records

_CODEC = RecordCodec(GradSpec)


def grad_record(spec: GradSpec) -> dict[str, Attribute]:
    """Every decision about a gradient, and what follows from them."""
    return {**_CODEC.entries(spec), **Shape(spec.grid, (spec.threads, 1, 1)).entries()}


def read_spec(record: Record, problem: GradProblem) -> GradSpec:
    """The decisions of a record. Raises RecordError if it lacks one, or it is not legal."""
    return GradSpec(problem, **_CODEC.values(record))
