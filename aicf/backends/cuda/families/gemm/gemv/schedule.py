"""How `cuda.gemv` reads an instruction and splits it over threads: the problem, the specs, and their order.

No code generator is imported here. `kernel.py` decides what is legal and writes records; `codegen.py` turns them into
code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, log2, prod
from typing import Annotated

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute

from aicf.backends.base import BufferRef
from aicf.backends.common.record import Entry, OneOf, Whole, read_integer
from aicf.backends.common.workload import OperandInfo
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch

NORMED = ("norm_gemm", "norm_gated")
GATED = ("gemm_gated", "norm_gated")

Operand = OperandInfo | BufferRef


@dataclass(frozen=True)
class GemvProblem:
    """A product of few rows with what is around it.

    Args:
        m, n, k: Rows of x, columns of the result, length of the sums.
        dtype, x_dtype: Of the weights and of x.
        row_shape: Sizes of the dims that make the rows, batch dims first.
        x_rows: Element offset of each row of x.
        x_step: Elements between neighbours along K in x.
        w_steps: Elements between neighbours along N and along K in a weight.
        weights: Operand numbers of the weights.
        gated: Whether all weights meet in one epilogue; else each has its own result.
        prologue: Operand numbers of what the row program reads beside x.
        epilogue: For each result, operand numbers of what its epilogue reads.
        tiles_apply: Whether rows of x lie evenly and in the weights' type, and the row program reads one value for all
            rows, so that tensor cores can take them.
    """

    m: int
    n: int
    k: int
    dtype: str
    x_dtype: str
    row_shape: tuple[int, ...]
    x_rows: tuple[int, ...]
    x_step: int
    w_steps: tuple[int, int]
    weights: tuple[int, ...]
    gated: bool
    prologue: tuple[int, ...]
    epilogue: tuple[tuple[int, ...], ...]
    tiles_apply: bool

    @property
    def vector(self) -> int:
        """Weight elements in 16 bytes."""
        return 16 // ELEMENT_BYTES[self.dtype]

    @property
    def products(self) -> int:
        """Weights that one block reads together."""
        return len(self.weights) if self.gated else 1

    @property
    def weight_bytes(self) -> int:
        """All weights."""
        return len(self.weights) * self.n * self.k * ELEMENT_BYTES[self.dtype]


def read_problem(kind: str, attrs: Mapping[str, Attribute], operands: Sequence[Operand]) -> GemvProblem:
    """The product that an instruction of `kind` with attributes `attrs` (or its record) and these operands is."""
    transpose_a, transpose_b = _flag(attrs, "transpose_a"), _flag(attrs, "transpose_b")
    extras = read_integer(attrs, "prologue_operands") if kind in NORMED else 0
    results = read_integer(attrs, "products") if kind == "gemm_multi" else 1
    count = 2 if kind in GATED else results
    x, w = operands[0], operands[1]
    shape, strides = list(x.shape), list(x.strides)
    if transpose_a:
        shape[-2:], strides[-2:] = shape[:-3:-1], strides[:-3:-1]
    rows = tuple(shape[:-1])
    offsets = tuple(
        sum(i * s for i, s in zip(index, strides, strict=False)) for index in product(*map(range, rows))
    )
    n, steps = (w.shape[-2], w.strides[-2:]) if transpose_b else (w.shape[-1], w.strides[:-3:-1])
    rest = list(range(1 + count + extras, len(operands)))
    each = len(rest) // results
    prologue = tuple(range(1 + count, 1 + count + extras))
    even = (
        all(offset == i * (offsets[1] - offsets[0]) for i, offset in enumerate(offsets))
        if offsets[1:]
        else True
    )
    return GemvProblem(
        m=prod(rows),
        n=n,
        k=shape[-1],
        dtype=w.dtype,
        x_dtype=x.dtype,
        row_shape=rows,
        x_rows=offsets,
        x_step=strides[-1],
        w_steps=(steps[0], steps[1]),
        weights=tuple(range(1, 1 + count)),
        gated=kind in GATED,
        prologue=prologue,
        epilogue=tuple(tuple(rest[i * each : (i + 1) * each]) for i in range(results)),
        tiles_apply=even
        and x.dtype == w.dtype
        and all(prod(operands[i].shape) == shape[-1] for i in prologue),
    )


def row_count(attrs: Mapping[str, Attribute], x: Operand) -> int:
    """The rows of x, without their offsets: what has thousands is no work of this kernel."""
    columns = x.shape[-2] if _flag(attrs, "transpose_a") else x.shape[-1]
    return prod(x.shape) // columns


def _flag(attrs: Mapping[str, Attribute], key: str) -> bool:
    value = attrs.get(key)
    return isinstance(value, IntegerAttr) and bool(value.value.data)


_WARPS = Whole(1, 16)
_LANES = (2, 4, 8, 16, 32)
_LOADS = Whole(1, 16)


@dataclass(frozen=True)
class RowsSpec:
    """How a product with weights [N, K] runs.

    Args:
        rows: Weight rows that a warp takes at once.
        groups: Warps of a block that take different rows.
        parts: Warps of a block that share a row, each with a contiguous share of K.
        chains: Independent chains of multiply-adds for one sum.
        blocks_per_sm: Blocks that fit on one multiprocessor by their registers, so that kernels of a chain overlap.
        trigger: When dependents may start: at the `start`, after the `wait`, or when the activations are `loaded`.
        early: Operand numbers that are read before the wait.
    """

    rows: Annotated[int, Entry(Whole(1, 32), "rows_per_warp")]
    groups: Annotated[int, Entry(_WARPS, "row_groups")]
    parts: Annotated[int, Entry(_WARPS, "k_parts")]
    chains: Annotated[int, Entry(Whole(1, 8))] = 2
    blocks_per_sm: Annotated[int, Entry(Whole(1, 16))] = 1
    trigger: Annotated[str, Entry(OneOf(("start", "wait", "loaded")), "trigger_at")] = "start"
    early: tuple[int, ...] = ()

    along = "rows"

    @property
    def order(self) -> str:
        """How a warp combines the sums of one element."""
        return f"{self.chains} chains of a thread, lanes by exchange in halves"

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.groups * self.parts

    def chunks(self, problem: GemvProblem) -> int:
        """16-byte loads of a thread along its share of K."""
        return ceil(problem.k / (32 * problem.vector * self.parts))

    def count(self, problem: GemvProblem) -> int:
        """Sums of a thread, a power of two."""
        return 1 << (problem.m * self.rows - 1).bit_length()

    def grid(self, problem: GemvProblem) -> int:
        """Blocks for each result."""
        return ceil(problem.n / (self.groups * self.rows))

    def shared_bytes(self, problem: GemvProblem) -> int:
        """Dynamic shared memory: what warps exchange is little, and declared in the kernel."""
        return 0

    def registers(self, problem: GemvProblem) -> int:
        """Estimate of the registers of a thread: activations in f32, packed weights, sums, addresses."""
        chunks = self.chunks(problem)
        row = chunks * problem.vector
        sums = problem.products * self.count(problem) * self.chains
        constants = len(problem.prologue) * row
        weights = problem.products * self.rows * (4 * chunks + 2)
        return problem.m * row + constants + weights + sums + 20

    def fits(self, problem: GemvProblem, arch: GpuArch) -> bool:
        """Whether its sums fit a warp and its registers a block, with some to spare."""
        registers = self.registers(problem) + 28
        return self.count(problem) <= 32 and registers <= min(255, REGISTERS // self.threads)


@dataclass(frozen=True)
class ColumnsSpec:
    """How a product with weights [K, N] runs.

    Args:
        lanes: Lanes of a warp side by side along N, a power of two; the others share K.
        parts: Warps of a block, which share K.
        unroll: Loads of 16 bytes that a thread has under way for each weight.
        trigger: When dependents may start.
        early: Operand numbers that are read before the wait.
    """

    lanes: Annotated[int, Entry(OneOf(_LANES), "lanes_n")]
    parts: Annotated[int, Entry(_WARPS, "k_parts")]
    unroll: Annotated[int, Entry(_LOADS)]
    trigger: Annotated[str, Entry(OneOf(("start",)), "trigger_at")] = "start"
    early: tuple[int, ...] = ()

    along = "columns"
    groups = 1
    blocks_per_sm = 1

    @property
    def order(self) -> str:
        """How a warp combines the sums of one element."""
        return f"every {self.shares}th row of a thread in order, lanes by exchange"

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.parts

    @property
    def shares(self) -> int:
        """Threads that share a column."""
        return 32 // self.lanes * self.parts

    def columns(self, problem: GemvProblem) -> int:
        """Of a block."""
        return self.lanes * problem.vector

    def grid(self, problem: GemvProblem) -> int:
        """Blocks for each result."""
        return ceil(problem.n / self.columns(problem))

    def chunks(self, problem: GemvProblem) -> int:
        """Pieces of as many elements as 16 bytes of weights that a thread has of each row of x."""
        return ceil(problem.k / (32 * problem.vector * self.parts))

    def steps(self, problem: GemvProblem) -> int:
        """Rounds of `unroll` loads."""
        return ceil(problem.k / (self.shares * self.unroll))

    def padded(self, problem: GemvProblem) -> int:
        """Elements of a row of x in shared memory."""
        return ceil(self.steps(problem) * self.shares * self.unroll / 4) * 4

    def shared_bytes(self, problem: GemvProblem) -> int:
        """Activations and one set of sums for each warp, in f32."""
        sums = self.parts * problem.products * self.columns(problem)
        return 4 * problem.m * (self.padded(problem) + sums)

    def registers(self, problem: GemvProblem) -> int:
        """Estimate of the registers of a thread: its share of x, then packed weights and sums."""
        share = (problem.m + len(problem.prologue)) * self.chunks(problem) * problem.vector
        sums = problem.products * problem.m * problem.vector
        return max(share, sums) + problem.products * 4 * self.unroll + 40

    def fits(self, problem: GemvProblem, arch: GpuArch) -> bool:
        """Whether registers and shared memory suffice."""
        registers = self.registers(problem)
        room = arch.shared_bytes - 2048
        return (
            registers <= 232 and registers * self.threads <= REGISTERS and self.shared_bytes(problem) <= room
        )


@dataclass(frozen=True)
class TilesSpec:
    """How a product of 2 to 16 rows with weights [N, K] of f16 or bf16 runs on tensor cores.

    Args:
        tiles: Times 8 weight rows of a warp.
        groups: Warps of a block that take different weight rows.
        parts: Warps of a block that share K.
        unroll: Loads of 16 bytes that a thread has under way for each tile.
        trigger: When dependents may start.
        early: Operand numbers that are read before the wait.
    """

    tiles: Annotated[int, Entry(Whole(1, 16), "tiles_per_warp")]
    groups: Annotated[int, Entry(_WARPS, "row_groups")]
    parts: Annotated[int, Entry(_WARPS, "k_parts")]
    unroll: Annotated[int, Entry(_LOADS)]
    trigger: Annotated[str, Entry(OneOf(("start",)), "trigger_at")] = "start"
    early: tuple[int, ...] = ()

    along = "tiles"
    order = "tensor core products of a warp in order of K"
    blocks_per_sm = 1

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.groups * self.parts

    @property
    def columns(self) -> int:
        """Results of a block for each row."""
        return 8 * self.tiles * self.groups

    def slots(self, problem: GemvProblem) -> int:
        """Activation rows of a lane."""
        return ceil(problem.m / 8)

    def grid(self, problem: GemvProblem) -> int:
        """Blocks for each result."""
        return ceil(problem.n / self.columns)

    def chunks(self, problem: GemvProblem) -> int:
        """16-byte pieces of an activation row that a thread holds at once."""
        return self.unroll

    def steps(self, problem: GemvProblem) -> int:
        """Rounds of `unroll` loads."""
        return ceil(problem.k / (32 * self.unroll * self.parts))

    def shared_bytes(self, problem: GemvProblem) -> int:
        """One set of sums for each warp that shares K, in f32."""
        return 4 * self.parts * problem.products * 8 * self.slots(problem) * self.columns

    def registers(self, problem: GemvProblem) -> int:
        """Estimate of the registers of a thread."""
        weights = problem.products * self.tiles * (4 * self.unroll + 6)
        rows = self.slots(problem) * self.unroll * (12 if problem.prologue else 4)
        return weights + rows + len(problem.prologue) * self.unroll * 4 + 40

    def fits(self, problem: GemvProblem, arch: GpuArch) -> bool:
        """Whether registers and shared memory suffice, and a row program sees the whole row."""
        registers = self.registers(problem)
        room = arch.shared_bytes - 2048
        whole = self.steps(problem) == 1 or not problem.prologue
        return (
            registers + 16 <= min(255, REGISTERS // self.threads)
            and self.shared_bytes(problem) <= room
            and whole
        )


Spec = RowsSpec | ColumnsSpec | TilesSpec

REGISTERS = 65536
"""Of a multiprocessor."""
TILED = ("f16", "bf16")
"""Weights that tensor cores take."""


def choose(problem: GemvProblem, arch: GpuArch) -> Spec | None:
    """The spec without a measurement; None if the rows do not fit into registers."""
    return next(iter(candidates(problem, arch)), None)


def candidates(problem: GemvProblem, arch: GpuArch) -> list[Spec]:
    """Specs worth a measurement, the most promising first; all operands are read after the wait."""
    if problem.w_steps[1] == 1:
        rows = [spec for spec in _rows_specs(problem, arch) if spec.fits(problem, arch)]
        rows.sort(key=lambda spec: _rows_rank(problem, spec, arch))
        tiles = [spec for spec in _tiles_specs(problem) if spec.fits(problem, arch)]
        tiles.sort(key=lambda spec: _tiles_rank(problem, spec, arch))
        # A chain of up- and down-projections takes 75 us with rows and 89 us with tiles for 2 tokens, 98 and 90 for 4.
        return [*rows, *tiles[:8]] if problem.m <= 2 else [*tiles[:8], *rows]
    columns = [spec for spec in _columns_specs(problem) if spec.fits(problem, arch)]
    columns.sort(key=lambda spec: _columns_rank(problem, spec, arch))
    return [*columns]


_ROW_PROGRAM, _SM_LANES, _CLOCKS_PER_US, _ISSUED = 6, 128, 1500, 0.55
"""Instructions of a norm for an element of x; lanes of a multiprocessor, its clocks, and the share of them in which it
issues one: 8 rows through eight layers of Llama 3.1 8B took 4.58 ms where all products of norms were of this kind."""


def instructions_us(problem: GemvProblem, spec: Spec, arch: GpuArch) -> float:
    """Microseconds of what is no product of tensor cores: whoever shares rows of x computes its norm, and on scalar
    units each weight is unpacked and multiplied with each row."""
    match spec:
        case RowsSpec():
            sharing, multiplied = ceil(problem.n / spec.rows), problem.n
        case ColumnsSpec():
            sharing, multiplied = spec.grid(problem), problem.n
        case TilesSpec():
            sharing, multiplied = ceil(problem.n / (8 * spec.tiles)), 0
    normed = _ROW_PROGRAM * problem.m * sharing if problem.prologue else 0
    issued = problem.k * (normed + problem.products * multiplied * (1 + problem.m))
    results = 1 if problem.gated else len(problem.weights)
    return results * issued / (arch.multiprocessors * _SM_LANES * _CLOCKS_PER_US * _ISSUED)


def spec_reason(spec: Spec, problem: GemvProblem, arch: GpuArch) -> str | None:
    """Why `spec` cannot run `problem` on `arch`, None if it can."""
    along_n = isinstance(spec, ColumnsSpec)
    if problem.w_steps[0 if along_n else 1] != 1:
        return f"the weights are not contiguous along {'N' if along_n else 'K'}"
    if isinstance(spec, TilesSpec) and (problem.dtype not in TILED or not problem.tiles_apply):
        return "tensor cores take rows of f16 or bf16 that lie evenly"
    if spec.threads > 512 or spec.threads * spec.blocks_per_sm > 2048:
        return f"{spec.blocks_per_sm} blocks of {spec.threads} threads are too many"
    if not spec.fits(problem, arch):
        return "its share does not fit into the registers and the shared memory of a block"
    return None


def _rows_specs(problem: GemvProblem, arch: GpuArch) -> Iterator[RowsSpec]:
    pieces = ceil(problem.k / (32 * problem.vector))
    for parts, rows, groups in product(range(1, min(pieces, 16) + 1), (1, 2, 4, 6, 8), (1, 2, 4, 6, 8)):
        threads = 32 * parts * groups
        if not 96 <= threads <= 512 or (rows > 1 and rows > problem.n):
            continue
        spec = RowsSpec(rows, groups, parts, 1 if rows * problem.m >= 4 else 2)
        registers = min(255, ceil(spec.registers(problem) / 8) * 8)
        yield replace(
            spec, blocks_per_sm=max(1, min(REGISTERS // (threads * registers), 2048 // threads, 16))
        )


_CHUNKS, _THREAD_BYTES, _THREADS = 4, 256, 128
"""Loads of a thread along K, its bytes of weights, and threads of a block, that were the fastest for large weights."""
_ALONE = 384
"""Threads of a block that is too large to have its multiprocessor for itself: nothing streams while its warps meet."""


def _rows_rank(problem: GemvProblem, spec: RowsSpec, arch: GpuArch) -> tuple[float, ...]:
    """Measured in chains of products on an H100: several blocks on a multiprocessor, so that the weights of some
    stream while others compute; all blocks at once where there is room; and four loads along K, 256 bytes of weights a
    thread. With two loads a token of Llama 3.2 1B takes 970 us, not 926. Of equals those whose warps need not meet: 30
    layers of SmolLM2's shapes take 320 us so, else 347."""
    chunks = spec.chunks(problem)
    waste = round(32 * problem.vector * spec.parts * chunks / problem.k, 1)
    idle = problem.n < spec.groups * spec.rows * arch.multiprocessors
    alone = spec.blocks_per_sm == 1 and spec.threads >= _ALONE
    results = 1 if problem.gated else len(problem.weights)
    waits = spec.grid(problem) * results > arch.multiprocessors * spec.blocks_per_sm
    held = problem.products * spec.rows * chunks * 16
    return (
        waste,
        idle,
        alone,
        waits,
        abs(chunks - _CHUNKS),
        abs(log2(held / _THREAD_BYTES)),
        spec.parts > 1,
        abs(spec.threads - _THREADS),
    )


def _tiles_specs(problem: GemvProblem) -> Iterator[TilesSpec]:
    if problem.m == 1 or problem.dtype not in TILED or not problem.tiles_apply:
        return
    for tiles, groups, parts, unroll in product((1, 2), (1, 2, 4), (1, 2, 4, 6, 8, 12, 16), (2, 4, 6, 8, 12)):
        if 96 <= 32 * groups * parts <= 512:
            yield TilesSpec(tiles, groups, parts, unroll)


def _tiles_rank(problem: GemvProblem, spec: TilesSpec, arch: GpuArch) -> tuple[float, ...]:
    """As for rows: small blocks, all multiprocessors busy, no round twice if it can be one."""
    waste = round(spec.steps(problem) * spec.unroll * spec.parts * 32 / problem.k, 1)
    idle = problem.n < spec.columns * arch.multiprocessors * 0.7
    return (waste, idle, spec.steps(problem) > 1, abs(spec.threads - 192), abs(spec.unroll - 8), spec.columns)


def _columns_specs(problem: GemvProblem) -> Iterator[ColumnsSpec]:
    for lanes, parts, unroll in product(_LANES, (4, 8, 16), (4, 8, 12)):
        yield ColumnsSpec(lanes, parts, unroll)


def _columns_rank(problem: GemvProblem, spec: ColumnsSpec, arch: GpuArch) -> tuple[float, ...]:
    """All multiprocessors busy, whole lines of memory, then few wasted loads."""
    busy = min(1.0, spec.grid(problem) * spec.parts / (8 * arch.multiprocessors))
    loaded = spec.steps(problem) * spec.unroll * spec.shares / problem.k
    return (-round(busy, 1), round(loaded, 1), abs(spec.lanes - 8), abs(spec.parts - 8), -spec.unroll)
