"""Poolings as the cpu kernel sees them, and every decision about one. Imports no code generator.

`template.py` emits what is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Annotated

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.loop_nest import Strided
from aicf.backends.common.pool import PoolAxis, read_axes
from aicf.backends.common.record import (
    Entry,
    Record,
    RecordCodec,
    RecordError,
    Whole,
    illegal,
    read_integer,
    read_text,
)
from aicf.backends.cpu.families.conv.schedule import Along
from aicf.backends.cpu.families.gemm.schedule import MEETING_CYCLES, NOMINAL_GHZ
from aicf.backends.cpu.families.vectors import VECTOR_LANES, lanes_reason
from aicf.backends.cpu.target import ELEMENT_BYTES, CpuLevel
from aicf.dialects.window_counts import found_by_all

MAX_ROW = 4096
"""Longest row of windows: one or a block of them, one of nothing and the counts of a mean lie on the stack. Of vectors
of channels the counts alone do."""
MAX_ROW_TAPS = 512
"""Most rows of a window, whose code is written out row by row."""
ROWS_AT_ONCE = 8
"""Rows of a window that are combined in registers."""

BLOCK_ROWS = 8
"""Rows of results in a block, and elements of all of them: half of the first cache."""
MAX_BLOCK = 4096
MOST_VECTORS = 4
"""Vectors of channels whose windows are combined side by side."""

_LOAD_CYCLES = 0.8
_STORE_CYCLES = 2.0
_COMBINE_CYCLES = {"max": 1.1, "sum": 0.6}
"""Of a vector that is loaded and combined with those before it."""
_DIVIDE_CYCLES = 3.0
_WINDOW_CYCLES = 5.0
"""Of finding a window, beside half a cycle for each of its elements."""
_ROW_CYCLES = 6
"""Of finding a row of a window, and of starting to read it."""


@dataclass(frozen=True)
class PoolProblem:
    """Planes of a batch and of channels, whose windows have one result each."""

    mode: str
    """`max` or `avg`."""
    dtype: str
    batch: int
    channels: int
    axes: tuple[PoolAxis, ...]
    padding_counts: bool
    """Whether a mean counts padding."""
    x_strides: tuple[int, ...]
    y_strides: tuple[int, ...]

    def has_long_counts(self, axis: PoolAxis) -> bool:
        """Whether what the windows along a dimension find is a table that is too long for the stack."""
        return axis.count > MAX_ROW and found_by_all(axis, padding=self.padding_counts) is None

    @property
    def rows(self) -> int:
        """Rows of results."""
        return self.batch * self.channels * prod(axis.count for axis in self.axes[:-1])

    @property
    def row_taps(self) -> int:
        """Rows of the operand that a row of results is made of."""
        return prod(axis.size for axis in self.axes[:-1])

    @property
    def rows_side_by_side(self) -> bool:
        """Whether the elements of a row lie so, in the operand and in the result."""
        last = self.axes[-1]
        return max(last.whole, last.count) == 1 or self.x_strides[-1] == self.y_strides[-1] == 1

    @property
    def channels_side_by_side(self) -> bool:
        """Whether the channels of a position do."""
        return self.x_strides[1] == self.y_strides[1] == 1

    @property
    def how(self) -> str:
        """How elements are combined."""
        return "max" if self.mode == "max" else "sum"


@dataclass(frozen=True)
class PoolSpec:
    """Every decision about the code of a pooling."""

    problem: PoolProblem
    lanes: Annotated[int, Entry(VECTOR_LANES)]
    lanes_along: Annotated[Along, Entry()] = "pixels"
    vectors: Annotated[int, Entry(Whole(1, MOST_VECTORS))] = 1
    """Vectors of channels side by side, where the lanes are channels."""
    block_rows: Annotated[int, Entry(Whole(1))] = 1
    """Rows of results whose rows of windows are combined before the columns of the first are read: what was just
    stored cannot be loaded across the borders of its vectors."""
    threads: Annotated[int, Entry(Whole(1))] = 1

    @property
    def panel(self) -> int:
        """Channels that pass over the operand together."""
        return self.lanes * self.vectors

    @property
    def combination_order(self) -> str:
        """How the elements of a window are combined, for the kernel record."""
        if self.lanes_along == "channels":
            return "the elements of a window, ascending"
        return "the rows of each column, then columns ascending"

    @property
    def in_place(self) -> bool:
        """Whether columns are read where the operand has them: one row, and no border."""
        return self.problem.row_taps == 1 and self.problem.axes[-1].is_inside

    @property
    def pitch(self) -> int:
        """Elements of a row of the operand with its border, in whole vectors."""
        last = self.problem.axes[-1]
        return -(-max(last.length, last.low + last.whole) // self.lanes) * self.lanes

    def cost_us(self) -> float:
        """Predicted microseconds of one thread's share: arithmetic against traffic from L2."""
        p = self.problem
        elements = p.batch * p.channels * (prod(a.whole for a in p.axes) + prod(a.count for a in p.axes))
        traffic = elements * ELEMENT_BYTES[p.dtype] / 24
        meeting = MEETING_CYCLES if self.threads > 1 else 0.0
        cycles = self._channels_cycles() if self.lanes_along == "channels" else self._rows_cycles()
        return (max(cycles, traffic) / self.threads + 20 + meeting) / NOMINAL_GHZ / 1000

    def _channels_cycles(self) -> float:
        """Of all windows, each of which some vectors of channels pass over."""
        p = self.problem
        taps = prod(axis.size for axis in p.axes)
        vectors, panels = -(-p.channels // self.lanes), -(-p.channels // self.panel)
        divide = _DIVIDE_CYCLES if p.mode == "avg" else 0.0
        combine = _COMBINE_CYCLES[p.how]
        window = vectors * (taps * combine + _STORE_CYCLES + divide) + panels * (taps / 2 + _WINDOW_CYCLES)
        return p.batch * prod(axis.count for axis in p.axes) * window

    def _rows_cycles(self) -> float:
        """Of rows combined, then columns."""
        p, last = self.problem, self.problem.axes[-1]
        vectors = -(-last.whole // self.lanes)
        combining = 0.0 if self.in_place else vectors * (p.row_taps * _LOAD_CYCLES + _STORE_CYCLES)
        reading = _LOAD_CYCLES * min(last.stride, 4)
        columns = -(-last.count // self.lanes) * (last.size * reading + _STORE_CYCLES)
        return p.rows * (combining + columns + p.row_taps * _ROW_CYCLES)


def refusal(problem: PoolProblem) -> str | None:
    """Why there is no code for a pooling, None if there is."""
    if problem.channels_side_by_side:
        longest = max(axis.count for axis in problem.axes)
        return f"it has more than {MAX_ROW} windows along a dimension" if longest > MAX_ROW else None
    if problem.mode == "avg" and any(map(problem.has_long_counts, problem.axes)):
        return f"more than {MAX_ROW} windows along a dimension do not all find the same number of elements"
    if not problem.rows_side_by_side:
        return "neither the elements of its rows nor those of its channels are side by side"
    if problem.row_taps > MAX_ROW_TAPS:
        return f"its windows have more than {MAX_ROW_TAPS} rows, each of which is written out"
    last = problem.axes[-1]
    if max(last.whole + last.low, last.length) > MAX_ROW:
        return f"its rows are longer than {MAX_ROW} elements"
    return None


def choose(problem: PoolProblem, level: CpuLevel, threads: int) -> PoolSpec:
    """Lanes are what lies side by side; all threads share planes, or panels of channels, where that is predicted to
    take less time."""
    wider = problem.channels >= problem.axes[-1].whole
    if problem.channels_side_by_side and (wider or not problem.rows_side_by_side):
        return _channels(problem, level, threads)
    alone = PoolSpec(problem, max(1, level.lanes(problem.dtype)))
    if not alone.in_place and len(problem.axes) > 1:
        room = max(1, MAX_BLOCK // alone.pitch)
        alone = replace(alone, block_rows=min(BLOCK_ROWS, room, problem.axes[-2].count))
    if threads == 1 or problem.batch * problem.channels < threads:
        return alone
    return min(alone, replace(alone, threads=threads), key=PoolSpec.cost_us)


def _channels(problem: PoolProblem, level: CpuLevel, threads: int) -> PoolSpec:
    lanes = max(1, level.lanes(problem.dtype))
    vectors = min(MOST_VECTORS, -(-problem.channels // lanes))
    alone = PoolSpec(problem, lanes, lanes_along="channels", vectors=vectors)
    shares = max(1, -(-problem.channels // (lanes * threads)))
    shared = replace(alone, threads=threads, vectors=min(MOST_VECTORS, shares))
    if threads == 1 or problem.channels <= shared.panel * (threads - 1):
        return alone
    return min(alone, shared, key=PoolSpec.cost_us)


def read_pool(attrs: Mapping[str, Attribute], x: Strided, y: Strided) -> PoolProblem:
    """The problem of an instruction, from the attributes of its kind or a record that holds them."""
    return PoolProblem(
        read_text(attrs, "mode"),
        x.dtype,
        *x.shape[:2],
        axes=read_axes(attrs, x.shape, y.shape),
        padding_counts=bool(read_integer(attrs, "count_include_pad")),
        x_strides=x.strides,
        y_strides=y.strides,
    )


_CODEC = RecordCodec(PoolSpec)


def pool_record(spec: PoolSpec) -> dict[str, Attribute]:
    """Every decision about a pooling."""
    return {**_CODEC.entries(spec), "combination_order": StringAttr(spec.combination_order)}


def read_pool_spec(record: Record, problem: PoolProblem) -> PoolSpec:
    """The decisions of a record for `problem`. Raises RecordError if they are no decisions about it."""
    spec = PoolSpec(problem, **_CODEC.values(record))
    if (reason := lanes_reason(spec.lanes, problem.dtype) or _block_reason(spec)) is not None:
        raise RecordError(reason)
    return spec


def _block_reason(spec: PoolSpec) -> str | None:
    """Why lanes do not lie side by side, or a block does not fit on the stack."""
    problem = spec.problem
    fits = {"pixels": problem.rows_side_by_side, "channels": problem.channels_side_by_side}
    if not fits[spec.lanes_along]:
        legal = ", ".join(along for along, side_by_side in fits.items() if side_by_side)
        return f"its {illegal('lanes_along', spec.lanes_along, legal)}"
    rows = problem.axes[-2].count if len(problem.axes) > 1 else 1
    most = Whole(1, max(1, min(rows, MAX_BLOCK // spec.pitch)))
    return None if most.holds(spec.block_rows) else f"its {illegal('block_rows', spec.block_rows, most)}"
