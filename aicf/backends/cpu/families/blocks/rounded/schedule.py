"""Every decision about a product of blocks with rounded numbers, with a cost prior. Imports no code generator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from aicf.backends.common.record import Entry, OneOf, Whole
from aicf.backends.cpu.families.blocks.problem import BlocksProblem, PanelLayout
from aicf.backends.cpu.families.blocks.schedule import CHUNK_ROWS, BlocksSchedule
from aicf.backends.cpu.families.gemm.schedule import MEETING_CYCLES, NOMINAL_GHZ, STREAM_AHEAD
from aicf.backends.cpu.families.gemm.units import DOT_LANES, QUADS_FEATURE
from aicf.backends.cpu.target import CpuLevel

STEP_AT, SUM_AT, OFFSET_AT, ELEMENTS_AT = 0, 4, 8, 16
"""Bytes of the record of neighbours that share a step: the step, the sum of what they are rounded to (f32 both), what
the sum of products starts from (i32), and the multiples of the step, a signed byte each."""

MOST_TILE_ROWS = 8
_TILE_ROWS = {16: 8, 32: 8}
"""By the architecture's vector registers: rows of x that share the codes in registers."""
_MEMORY_BYTES_PER_CYCLE = 6.0
_COLUMN_CYCLES, _SLOW_COLUMN_CYCLES = 0.25, 0.6
"""To multiply and add a column, with instructions that add four products, and without."""
_WORD_CYCLES = 3.0
"""To split a vector of words into codes."""
_GROUP_CYCLES = 5.0
"""Of a row and of neighbours that share a step: sums to f32, scale and minimum."""
_PREPARED_PER_CYCLE = 5.0
"""Elements of x."""
_SHARED_BYTES = 64 << 10
"""Of the least weight that threads share: below, a barrier takes longer."""


@dataclass(frozen=True)
class RoundedSchedule:
    """How a product of blocks with rounded numbers is computed.

    Args:
        lanes: Rows of the weight in a vector, which is a panel.
        tile_rows: Rows of x that share the codes in registers.
        chunk_rows: Rows of x that are prepared at a time.
        threads: That share the panels.
        prefetch_ahead: Bytes from what is read of a panel to what is prefetched; 0 prefetches nothing.
    """

    lanes: Annotated[int, Entry(OneOf(DOT_LANES))]
    tile_rows: Annotated[int, Entry(Whole(1, MOST_TILE_ROWS))]
    chunk_rows: Annotated[int, Entry(Whole(1))]
    threads: Annotated[int, Entry(Whole(1))]
    prefetch_ahead: Annotated[int, Entry(Whole(0, 1 << 20))] = 0

    @property
    def blocks(self) -> BlocksSchedule:
        """That of a product with numbers of which each is one digit of a byte."""
        return BlocksSchedule("digits", self.lanes, self.tile_rows, self.chunk_rows, self.threads)

    @property
    def combination_order(self) -> str:
        """In which order the terms of a result are combined, whatever the number of rows and the level."""
        return "ascending parts, exact sums of 8-bit elements that share a step in each"


def record_bytes(problem: BlocksProblem) -> int:
    """Bytes of the record of neighbours that share a step."""
    return ELEMENTS_AT + problem.bits.rounded_together


def row_bytes(problem: BlocksProblem) -> int:
    """Bytes of the records of a row of x."""
    return problem.k // problem.bits.rounded_together * record_bytes(problem)


def thread_bytes(problem: BlocksProblem, schedule: RoundedSchedule) -> int:
    """Bytes of workspace of a thread: the records of a chunk."""
    return min(problem.m, schedule.chunk_rows) * row_bytes(problem)


def choose(problem: BlocksProblem, level: CpuLevel, threads: int) -> RoundedSchedule:
    """The schedule that is predicted to take least."""
    lanes = level.lanes("f32")
    panels = -(-problem.n // lanes)
    layout = PanelLayout(problem.scheme, lanes)
    nbytes = panels * problem.parts * layout.part_bytes * max(1, problem.m // 4)
    shares = threads if panels >= threads and nbytes >= _SHARED_BYTES else 1
    rows = min(problem.m, _TILE_ROWS[level.registers])
    return RoundedSchedule(lanes, rows, min(problem.m, CHUNK_ROWS), shares, _prefetch_ahead(problem, rows))


def _prefetch_ahead(problem: BlocksProblem, rows: int) -> int:
    """Measured on 22 MB of weights that were in no cache, on a busy machine: 19 to 22 GB/s without, 30 with. Of codes
    of 8 bits so few instructions run for a line that the processor's own prefetch keeps up; more takes longer."""
    is_one_pass = problem.m == rows
    return STREAM_AHEAD if is_one_pass and problem.bits.code_bits < 8 else 0


def cost_us(problem: BlocksProblem, schedule: RoundedSchedule, level: CpuLevel) -> float:
    """Predicted microseconds: arithmetic or memory, whichever is longer, and preparing x."""
    layout = PanelLayout(problem.scheme, schedule.lanes)
    panels, tiles = -(-problem.n // schedule.lanes), -(-problem.m // schedule.tile_rows)
    column = _COLUMN_CYCLES if QUADS_FEATURE in level.features else _SLOW_COLUMN_CYCLES
    groups = problem.k // problem.bits.rounded_together
    words = tiles * problem.parts * layout.chunks * layout.words * _WORD_CYCLES
    arithmetic = panels * (words + problem.m * (problem.k * column + groups * _GROUP_CYCLES))
    chunks = -(-problem.m // schedule.chunk_rows)
    memory = chunks * panels * problem.parts * layout.part_bytes / _MEMORY_BYTES_PER_CYCLE
    cycles = max(arithmetic, memory) / schedule.threads + problem.m * problem.k / _PREPARED_PER_CYCLE
    meeting = MEETING_CYCLES if schedule.threads > 1 else 0.0
    return (cycles + meeting) / NOMINAL_GHZ / 1000
