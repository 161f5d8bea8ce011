"""Every decision about a product with blocks, with a cost prior. Imports no code generator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from aicf.backends.common.record import Entry, OneOf, Whole
from aicf.backends.cpu.families.blocks.problem import BlocksProblem, PanelLayout
from aicf.backends.cpu.families.gemm.schedule import MEETING_CYCLES, NOMINAL_GHZ
from aicf.backends.cpu.families.gemm.units import DOT_LANES, QUADS_FEATURE
from aicf.backends.cpu.families.legality import lanes_reason
from aicf.backends.cpu.target import CpuLevel

SCALE_AT, SUM_AT, OFFSETS_AT, ELEMENTS_AT = 0, 4, 8, 32
"""Bytes of the record of a part of x: what sums of its digits are scaled by, the sum of its elements (f32), what the
sums of each digit start from (i32 each), and the elements, as digits or in f32."""
_ALIGN = 16

Arithmetic: TypeAlias = Literal["digits", "pairs", "f32"]
"""Products of codes and digits of x, four bytes at a time or two words of 16 bits, or of codes and x in f32."""

DIGITS = {"digits": 3, "pairs": 2, "f32": 1}
"""Of an element of x: signed bytes, or a signed byte and the rest in words of 16 bits, or itself."""
DIGIT_BYTES = {"digits": 1, "pairs": 2, "f32": 4}

MOST_TILE_ROWS = 6
_TILE_ROWS = {"digits": 4, "pairs": 4, "f32": 6}
"""Rows of x that share the codes in registers."""
CHUNK_ROWS = 64
"""Rows of x that are prepared at a time: they stay in cache while the weight passes."""

_MEMORY_BYTES_PER_CYCLE = 6.0
_COLUMN_CYCLES = {"digits": 0.75, "pairs": 2.0, "f32": 2.0}
"""To multiply and add the digits of a column."""
_WORD_CYCLES = 3.0
"""To split a vector of words into codes."""
_PART_CYCLES = 6.0
"""Of a row and a part: sums to f32, scale and minimum."""
_PREPARED_PER_CYCLE = 4.0
"""Elements of x."""
_SHARED_BYTES = 64 << 10
"""Of the least weight that threads share: below, a barrier takes longer."""


@dataclass(frozen=True)
class BlocksSchedule:
    """How a product with blocks is computed.

    Args:
        arithmetic: Of the products in a part.
        lanes: Rows of the weight in a vector, which is a panel.
        tile_rows: Rows of x that share the codes in registers.
        chunk_rows: Rows of x that are prepared at a time.
        threads: That share the panels.
    """

    arithmetic: Annotated[Arithmetic, Entry()]
    lanes: Annotated[int, Entry(OneOf(DOT_LANES))]
    tile_rows: Annotated[int, Entry(Whole(1, MOST_TILE_ROWS))]
    chunk_rows: Annotated[int, Entry(Whole(1))]
    threads: Annotated[int, Entry(Whole(1))]

    @property
    def exact(self) -> bool:
        """Whether x is prepared as digits, the products of which are exact."""
        return self.arithmetic != "f32"

    @property
    def combination_order(self) -> str:
        """In which order the terms of a result are combined, whatever the number of rows."""
        inside = "exact sums of 24-bit elements" if self.exact else "even and odd elements apart"
        return f"ascending parts, {inside} in each"


def record_bytes(problem: BlocksProblem, arithmetic: Arithmetic) -> int:
    """Bytes of the record of a part of x."""
    elements = DIGITS[arithmetic] * DIGIT_BYTES[arithmetic] * problem.bits.part
    return -(-(ELEMENTS_AT + elements) // _ALIGN) * _ALIGN


def thread_bytes(problem: BlocksProblem, schedule: BlocksSchedule) -> int:
    """Bytes of workspace of a thread: the records of a chunk."""
    rows = min(problem.m, schedule.chunk_rows)
    return rows * problem.parts * record_bytes(problem, schedule.arithmetic)


def choose(problem: BlocksProblem, level: CpuLevel, threads: int) -> BlocksSchedule:
    """The schedule that is predicted to take least."""
    arithmetic = _arithmetic(problem, level)
    lanes = level.lanes("f32")
    panels = -(-problem.n // lanes)
    layout = PanelLayout(problem.scheme, lanes)
    nbytes = panels * problem.parts * layout.part_bytes * max(problem.readings, problem.m // 4)
    shares = threads if panels >= threads and nbytes >= _SHARED_BYTES else 1
    rows = min(problem.m, _TILE_ROWS[arithmetic]) if problem.indices is None else 1
    return BlocksSchedule(arithmetic, lanes, rows, min(problem.m, CHUNK_ROWS), shares)


def _arithmetic(problem: BlocksProblem, level: CpuLevel) -> Arithmetic:
    """Digits wherever there are instructions for their products."""
    if problem.bits.floats is not None:
        return "f32"
    if QUADS_FEATURE in level.features:
        return "digits"
    return "pairs" if level.architecture == "x86_64" else "f32"


def cost_us(problem: BlocksProblem, schedule: BlocksSchedule) -> float:
    """Predicted microseconds: arithmetic or memory, whichever is longer, and preparing x."""
    layout = PanelLayout(problem.scheme, schedule.lanes)
    panels = -(-problem.n // schedule.lanes)
    tiles = -(-problem.m // schedule.tile_rows)
    count = layout.chunks * layout.words
    per_word = problem.bits.part / count * _COLUMN_CYCLES[schedule.arithmetic]
    words = tiles * count * (_WORD_CYCLES + per_word * schedule.tile_rows)
    arithmetic = panels * problem.parts * (words + problem.m * _PART_CYCLES)
    chunks = -(-problem.m // schedule.chunk_rows)
    memory = (
        max(chunks, problem.readings) * panels * problem.parts * layout.part_bytes / _MEMORY_BYTES_PER_CYCLE
    )
    cycles = max(arithmetic, memory) / schedule.threads + problem.m * problem.k / _PREPARED_PER_CYCLE
    meeting = MEETING_CYCLES if schedule.threads > 1 else 0.0
    return (cycles + meeting) / NOMINAL_GHZ / 1000


def schedule_reason(problem: BlocksProblem, schedule: BlocksSchedule, level: CpuLevel) -> str | None:
    """Why a level cannot carry out a schedule; None if it can."""
    if (reason := lanes_reason(schedule.lanes, level)) is not None:
        return reason
    if schedule.exact and problem.bits.floats is not None:
        return f"its 'arithmetic' is {schedule.arithmetic}, of whole numbers, and {problem.scheme} has floats"
    if schedule.arithmetic == "digits" and QUADS_FEATURE not in level.features:
        return f"its 'arithmetic' is digits, which need {QUADS_FEATURE}, and the target is without"
    return None
