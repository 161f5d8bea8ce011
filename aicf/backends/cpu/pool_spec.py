"""Poolings as the cpu kernel sees them, and every decision about one. Imports no code generator.

`pool.py` emits what is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.cpu.gemm_spec import MEETING_CYCLES, NOMINAL_GHZ
from aicf.backends.cpu.records import get_int, get_text, integer
from aicf.backends.cpu.target import ELEMENT_BYTES, CpuLevel
from aicf.backends.nests import Strided
from aicf.errors import PlanError

MAX_ROW = 4096
"""Longest row of windows: one or a block of them, one of nothing and the counts of a mean lie on the stack."""
ROWS_AT_ONCE = 8
"""Rows of a window that are combined in registers."""

BLOCK_ROWS = 8
"""Rows of results in a block, and elements of all of them: half of the first cache."""
MAX_BLOCK = 4096

_LOAD_CYCLES = 1.5
_STORE_CYCLES = 2.0
_ROW_CYCLES = 12
"""Of finding a row of a window, and of starting to read it."""


@dataclass(frozen=True)
class PoolAxis:
    """The windows along one dimension of ``whole`` elements."""

    whole: int
    size: int
    stride: int
    dilation: int
    low: int
    high: int
    count: int

    @property
    def length(self) -> int:
        """Elements from the first that a window can find to the last."""
        return (self.count - 1) * self.stride + (self.size - 1) * self.dilation + 1

    @property
    def is_inside(self) -> bool:
        """Whether no window leaves the operand."""
        return self.low == 0 and self.length <= self.whole

    def found(self, *, padding: bool) -> tuple[int, ...]:
        """How many elements each window finds: of the operand, or of it and its padding."""
        first, last = (-self.low, self.whole + self.high) if padding else (0, self.whole)
        starts = [place * self.stride - self.low for place in range(self.count)]
        return tuple(
            sum(first <= start + step * self.dilation < last for step in range(self.size)) for start in starts
        )


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

    @property
    def rows(self) -> int:
        """Rows of results."""
        return self.batch * self.channels * prod(axis.count for axis in self.axes[:-1])

    @property
    def row_taps(self) -> int:
        """Rows of the operand that a row of results is made of."""
        return prod(axis.size for axis in self.axes[:-1])

    @property
    def how(self) -> str:
        """How elements are combined."""
        return "max" if self.mode == "max" else "sum"


@dataclass(frozen=True)
class PoolSpec:
    """Every decision about the code of a pooling."""

    problem: PoolProblem
    lanes: int
    block_rows: int = 1
    """Rows of results whose rows of windows are combined before the columns of the first are read: what was just
    stored cannot be loaded across the borders of its vectors."""
    threads: int = 1

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
        """Predicted microseconds of one thread's share: rows combined, then columns, against traffic from L2."""
        p, last = self.problem, self.problem.axes[-1]
        vectors = -(-last.whole // self.lanes)
        combining = 0.0 if self.in_place else vectors * (p.row_taps * _LOAD_CYCLES + _STORE_CYCLES)
        reading = _LOAD_CYCLES * min(last.stride, 4)
        columns = -(-last.count // self.lanes) * (last.size * reading + _STORE_CYCLES)
        cycles = p.rows * (combining + columns + p.row_taps * _ROW_CYCLES)
        elements = p.batch * p.channels * (prod(a.whole for a in p.axes) + prod(a.count for a in p.axes))
        traffic = elements * ELEMENT_BYTES[p.dtype] / 24
        meeting = MEETING_CYCLES if self.threads > 1 else 0.0
        return (max(cycles, traffic) / self.threads + 20 + meeting) / NOMINAL_GHZ / 1000


COMBINATION_ORDER = "the rows of each column, then columns ascending"


def choose(problem: PoolProblem, level: CpuLevel, threads: int) -> PoolSpec:
    """All threads share the planes where that is predicted to take less time."""
    alone = PoolSpec(problem, max(1, level.lanes(problem.dtype)))
    if not alone.in_place and len(problem.axes) > 1:
        room = max(1, MAX_BLOCK // alone.pitch)
        alone = replace(alone, block_rows=min(BLOCK_ROWS, room, problem.axes[-2].count))
    if threads == 1 or problem.batch * problem.channels < threads:
        return alone
    return min(alone, replace(alone, threads=threads), key=PoolSpec.cost_us)


def read_pool(attrs: Mapping[str, Attribute], x: Strided, y: Strided) -> PoolProblem:
    """The problem of an instruction, from the attributes of its kind or a record that holds them."""

    def value(name: str, dim: int) -> int:
        return get_int(attrs, f"{name}_{dim}")

    axes = [
        PoolAxis(
            whole,
            size=value("size", dim),
            stride=value("stride", dim),
            dilation=value("dilation", dim),
            low=value("low", dim),
            high=value("high", dim),
            count=count,
        )
        for dim, (whole, count) in enumerate(zip(x.shape[2:], y.shape[2:], strict=True))
    ]
    return PoolProblem(
        get_text(attrs, "mode"),
        x.dtype,
        *x.shape[:2],
        axes=tuple(axes),
        padding_counts=bool(get_int(attrs, "count_include_pad")),
        x_strides=x.strides,
        y_strides=y.strides,
    )


def pool_record(spec: PoolSpec) -> dict[str, Attribute]:
    """Every decision about a pooling."""
    return {
        "lanes": integer(spec.lanes),
        "block_rows": integer(spec.block_rows),
        "threads": integer(spec.threads),
        "combination_order": StringAttr(COMBINATION_ORDER),
    }


def read_pool_spec(record: Mapping[str, Attribute], problem: PoolProblem) -> PoolSpec:
    """The decisions of a record for `problem`. Raises PlanError if they are no decisions about it."""
    lanes, rows, threads = (get_int(record, name) for name in ("lanes", "block_rows", "threads"))
    most = problem.axes[-2].count if len(problem.axes) > 1 else 1
    if lanes < 1 or lanes & (lanes - 1) or threads < 1 or not 1 <= rows <= most:
        raise PlanError("kernel record of a pooling contradicts itself: run select-kernels again")
    return PoolSpec(problem, lanes, rows, threads)
