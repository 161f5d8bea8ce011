"""Descriptor of `cuda.gemv`: matrix products with at most 16 rows, which read the weights once at memory speed.

What it can run, what that costs, and the record of its decisions. No code generator is imported here; `gemv_code.py`
turns records into code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, prod
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute

from aicf.backends.base import BufferRef, OperandInfo, Work
from aicf.backends.cuda.scalar_code import TEXTS, Rounding, dtype_of
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch, arch_named
from aicf.backends.nests import is_linear
from aicf.dialects.emit_kernels import KernelOp, ReduceOp, StoreOp, YieldOp
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr
from aicf.errors import PlanError

MOST_ROWS = 16
"""Activation rows above which tensor cores win."""

KINDS = frozenset({"gemm", "gemm_epilogue", "norm_gemm", "gemm_gated", "norm_gated", "gemm_multi"})
_NORMED = ("norm_gemm", "norm_gated")
_GATED = ("gemm_gated", "norm_gated")

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
    extras = _integer_of(attrs, "prologue_operands") if kind in _NORMED else 0
    results = _integer_of(attrs, "products") if kind == "gemm_multi" else 1
    count = 2 if kind in _GATED else results
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
        gated=kind in _GATED,
        prologue=prologue,
        epilogue=tuple(tuple(rest[i * each : (i + 1) * each]) for i in range(results)),
        tiles_apply=even
        and x.dtype == w.dtype
        and all(prod(operands[i].shape) == shape[-1] for i in prologue),
    )


def _flag(attrs: Mapping[str, Attribute], key: str) -> bool:
    value = attrs.get(key)
    return isinstance(value, IntegerAttr) and bool(value.value.data)


def _integer_of(attrs: Mapping[str, Attribute], key: str) -> int:
    value = attrs.get(key)
    if not isinstance(value, IntegerAttr):
        raise PlanError(f"kernel record of cuda.gemv lacks the integer '{key}': run select-kernels again")
    return value.value.data


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

    rows: int
    groups: int
    parts: int
    chains: int = 2
    blocks_per_sm: int = 1
    trigger: str = "start"
    early: tuple[int, ...] = ()

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

    def registers(self, problem: GemvProblem) -> int:
        """Estimate of the registers of a thread: activations in f32, packed weights, sums, addresses."""
        chunks = self.chunks(problem)
        row = chunks * problem.vector
        sums = problem.products * self.count(problem) * self.chains
        constants = len(problem.prologue) * row
        weights = problem.products * self.rows * (4 * chunks + 2)
        return problem.m * row + constants + weights + sums + 32

    def fits(self, problem: GemvProblem) -> bool:
        """Whether its sums fit a warp and its registers a block."""
        registers = self.registers(problem)
        return self.count(problem) <= 32 and registers + 16 <= min(255, REGISTERS // self.threads)


@dataclass(frozen=True)
class ColumnsSpec:
    """How a product with weights [K, N] runs.

    Args:
        lanes: Lanes of a warp side by side along N, a power of two; the others share K.
        parts: Warps of a block, which share K.
        unroll: Loads of 16 bytes that a thread has under way for each weight.
        early: Operand numbers that are read before the wait.
    """

    lanes: int
    parts: int
    unroll: int
    early: tuple[int, ...] = ()

    groups = 1
    blocks_per_sm = 1

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
        early: Operand numbers that are read before the wait.
    """

    tiles: int
    groups: int
    parts: int
    unroll: int
    early: tuple[int, ...] = ()

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


def choose(problem: GemvProblem, arch: GpuArch) -> Spec | None:
    """The spec without a measurement; None if the rows do not fit into registers."""
    return next(iter(candidates(problem, arch)), None)


def candidates(problem: GemvProblem, arch: GpuArch) -> list[Spec]:
    """Specs worth a measurement, the most promising first; all operands are read after the wait."""
    if problem.w_steps[1] == 1:
        rows = [spec for spec in _rows_specs(problem, arch) if spec.fits(problem)]
        rows.sort(key=lambda spec: _rows_rank(problem, spec, arch))
        tiles = [spec for spec in _tiles_specs(problem) if spec.fits(problem, arch)]
        tiles.sort(key=lambda spec: _tiles_rank(problem, spec, arch))
        return [*tiles[:8], *rows]
    columns = [spec for spec in _columns_specs(problem) if spec.fits(problem, arch)]
    columns.sort(key=lambda spec: _columns_rank(problem, spec, arch))
    return [*columns]


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


def _rows_rank(problem: GemvProblem, spec: RowsSpec, arch: GpuArch) -> tuple[float, ...]:
    """Small blocks (a handful of warps, 4 weight rows a warp) won every comparison on chains of products: more of them
    are resident, so that the weights of the next kernels stream while this one computes."""
    loaded = 32 * problem.vector * spec.parts * spec.chunks(problem)
    waste = round(loaded / problem.k, 1)
    idle = problem.n < spec.groups * spec.rows * arch.multiprocessors
    return (waste, idle, abs(spec.chunks(problem) - 2), abs(spec.rows - 4), abs(spec.threads - 192))


def _tiles_specs(problem: GemvProblem) -> Iterator[TilesSpec]:
    if problem.m == 1 or problem.dtype not in ("f16", "bf16") or not problem.tiles_apply:
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
    for lanes, parts, unroll in product((2, 4, 8, 16, 32), (4, 8, 16), (4, 8, 12)):
        yield ColumnsSpec(lanes, parts, unroll)


def _columns_rank(problem: GemvProblem, spec: ColumnsSpec, arch: GpuArch) -> tuple[float, ...]:
    """All multiprocessors busy, whole lines of memory, then few wasted loads."""
    busy = min(1.0, spec.grid(problem) * spec.parts / (8 * arch.multiprocessors))
    loaded = spec.steps(problem) * spec.unroll * spec.shares / problem.k
    return (-round(busy, 1), round(loaded, 1), abs(spec.lanes - 8), abs(spec.parts - 8), -spec.unroll)


# Records


def rounding_of(record: Mapping[str, Attribute]) -> Rounding:
    """Where the record rounds f16 and bf16 values."""
    value = record.get("rounding")
    return "strict" if isinstance(value, StringAttr) and value.data == "strict" else "fused"


def read_spec(record: Mapping[str, Attribute]) -> Spec:
    """The decisions of a record. Raises PlanError if one is missing."""
    early, trigger, along = (record.get(key) for key in ("early_reads", "trigger_at", "along"))
    if (
        not isinstance(early, ArrayAttr)
        or not isinstance(trigger, StringAttr)
        or not isinstance(along, StringAttr)
    ):
        raise PlanError(
            "kernel record of cuda.gemv lacks 'early_reads', 'trigger_at' or 'along': run select-kernels again"
        )
    entries = cast("ArrayAttr[Attribute]", early).data
    numbers = tuple(entry.value.data for entry in entries if isinstance(entry, IntegerAttr))
    if along.data == "tiles":
        keys = ("tiles_per_warp", "row_groups", "k_parts", "unroll")
        tiles, groups, parts, unroll = (_integer_of(record, key) for key in keys)
        return TilesSpec(tiles, groups, parts, unroll, numbers)
    if along.data == "columns":
        lanes, parts, unroll = (_integer_of(record, key) for key in ("lanes_n", "k_parts", "unroll"))
        return ColumnsSpec(lanes, parts, unroll, numbers)
    return RowsSpec(
        rows=_integer_of(record, "rows_per_warp"),
        groups=_integer_of(record, "row_groups"),
        parts=_integer_of(record, "k_parts"),
        chains=_integer_of(record, "chains"),
        blocks_per_sm=_integer_of(record, "blocks_per_sm"),
        trigger=trigger.data,
        early=numbers,
    )


def _integer(value: int) -> IntegerAttr:
    return IntegerAttr(value, i64)


def spec_record(work: Work, problem: GemvProblem, spec: Spec) -> dict[str, Attribute]:
    """Every decision about `work`."""
    if isinstance(spec, RowsSpec):
        lanes = f"{spec.chains} chains of a thread, lanes by exchange in halves"
        entries: dict[str, Attribute] = {
            "along": StringAttr("rows"),
            "rows_per_warp": _integer(spec.rows),
            "row_groups": _integer(spec.groups),
            "chains": _integer(spec.chains),
            "blocks_per_sm": _integer(spec.blocks_per_sm),
            "trigger_at": StringAttr(spec.trigger),
        }
    elif isinstance(spec, TilesSpec):
        lanes = "tensor core products of a warp in order of K"
        entries = {
            "along": StringAttr("tiles"),
            "tiles_per_warp": _integer(spec.tiles),
            "row_groups": _integer(spec.groups),
            "unroll": _integer(spec.unroll),
            "trigger_at": StringAttr("start"),
        }
    else:
        lanes = f"every {spec.shares}th row of a thread in order, lanes by exchange"
        entries = {
            "along": StringAttr("columns"),
            "lanes_n": _integer(spec.lanes),
            "unroll": _integer(spec.unroll),
            "trigger_at": StringAttr("start"),
        }
    entries |= {
        "k_parts": _integer(spec.parts),
        "blocks": _integer(spec.grid(problem)),
        "block": ArrayAttr([_integer(size) for size in (spec.threads, 1, 1)]),
        "combination_order": StringAttr(
            lanes if spec.parts == 1 else f"{lanes}, {spec.parts} warps in order"
        ),
        "early_reads": ArrayAttr([_integer(operand) for operand in early_reads(work)]),
        "triggers": BoolAttr.from_bool(True),
        "rounding": StringAttr(work.rounding),
    }
    for key in ("transpose_a", "transpose_b", "prologue_operands", "products"):
        if key in work.attrs:
            entries[key] = work.attrs[key]
    return entries


def early_reads(work: Work) -> tuple[int, ...]:
    """Operands that no kernel of the program writes: all but x that are weights or constants."""
    return tuple(
        number
        for number, operand in enumerate(work.operands)
        if number > 0 and operand.role in ("param", "const", "derived") and not operand.updated
    )


# Legality


def _dtype_reason(problem: GemvProblem, work: Work) -> str | None:
    for operand in (*work.operands, *work.results):
        if operand.dtype not in ("f32", "f16", "bf16"):
            return f"operands are f32, f16 or bf16, one is {operand.dtype}"
    if len({work.operands[w].dtype for w in problem.weights}) > 1:
        return "the weights differ in element type"
    if problem.x_dtype != problem.dtype and (problem.x_dtype != "f32" or work.prologue is None):
        return f"x is {problem.x_dtype}, the weights are {problem.dtype}"
    return None


def _layout_reason(problem: GemvProblem, work: Work) -> str | None:
    size, x_size = ELEMENT_BYTES[problem.dtype], ELEMENT_BYTES[problem.x_dtype]
    if 1 not in problem.w_steps:
        return "the weights are contiguous neither along K nor along N"
    if problem.x_step != 1:
        return "x is not contiguous along K"
    along = "K" if problem.w_steps[1] == 1 else "N"
    extent, line = (problem.k, problem.w_steps[0]) if along == "K" else (problem.n, problem.w_steps[1])
    if (problem.k * size) % 16 or (extent * size) % 16 or (line * size) % 16:
        return f"K, or the weights along {along}, are no multiple of 16 bytes"
    if any((work.operands[w].offset * size) % 16 for w in problem.weights):
        return "the weights do not start at a multiple of 16 bytes"
    if any(((work.operands[0].offset + row) * x_size) % 16 for row in problem.x_rows):
        return "rows of x do not start at a multiple of 16 bytes"
    return None


def _code_reason(code: KernelOp) -> str | None:
    if not all(is_linear(m) for m in (*code.in_maps, *code.out_maps)):
        return "an operand is not indexed by sums of the loop dims"
    for phase in code.phases:
        for op in phase.body.block.ops:
            if type(op) not in TEXTS and not isinstance(op, YieldOp | StoreOp | ReduceOp):
                return f"scalar op {op.name} has no code on cuda"
    return None


def _epilogue_reason(problem: GemvProblem, work: Work) -> str | None:
    if work.code is None:
        plain = not problem.gated and not problem.epilogue[0] and work.kind != "gemm_epilogue"
        return None if plain else "what follows the product has no generated code"
    if work.code.reduce_sizes or len(work.code.phases) != 1 or len(work.code.out_maps) != 1:
        return "what follows the product is not one value for each element"
    if prod(work.code.parallel_sizes) != problem.m * problem.n:
        return "what follows the product has another shape"
    for place in range(len(problem.epilogue[0])):
        strides = {work.operands[numbers[place]].strides for numbers in problem.epilogue}
        if len(strides) > 1:
            return "operands of the products side by side lie differently"
    return _code_reason(work.code)


def _prologue_reason(work: Work) -> str | None:
    program = work.prologue
    if program is None:
        return "the row program in front has no generated code" if work.kind in _NORMED else None
    if (reason := _code_reason(program)) is not None:
        return f"row program in front: {reason}"
    for phase in program.phases:
        last = phase is program.phases[-1]
        for op in phase.body.block.ops:
            if isinstance(op, StoreOp) and not last:
                return "row program in front: it stores before its last phase"
            kept = [v for v in op.operands if program.varies(v)] if isinstance(op, YieldOp) else []
            if any(
                dtype_of(v) not in _REGISTER_FLOATS
                for v in (*kept, *(op.operands if isinstance(op, ReduceOp) else ()))
            ):
                return "row program in front: it reduces or keeps what is no f32, f16 or bf16"
    return None


_REGISTER_FLOATS = ("f32", "f16", "bf16")


@dataclass(frozen=True)
class GemvKernel:
    """Products of up to 16 rows with weights [N, K] or [K, N]; a row program in front and an epilogue behind."""

    id: str = "cuda.gemv"
    version: int = 1
    determinism: str = "bitwise"
    simplicity: int = 2
    kinds: frozenset[str] = KINDS

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `KernelDescriptor`."""
        if min(prod(o.shape) for o in work.operands) == 0:
            return "nothing to multiply"
        problem = read_problem(work.kind, work.attrs, work.operands)
        if problem.m > MOST_ROWS:
            return f"x has {problem.m} rows, at most {MOST_ROWS} are streamed past the weights"
        if any(prod(work.operands[w].shape[:-2]) > 1 for w in problem.weights):
            return "the weights have a batch"
        reason = (
            _dtype_reason(problem, work)
            or _layout_reason(problem, work)
            or _epilogue_reason(problem, work)
            or _prologue_reason(work)
        )
        if reason is None and choose(problem, arch_named(target.arch.data)) is None:
            return f"{problem.m} rows of {problem.k} elements do not fit into the registers of a block"
        return reason

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`: the weights at memory speed, no less than the latency of one kernel in a chain."""
        arch = arch_named(target.arch.data)
        problem = read_problem(work.kind, work.attrs, work.operands)
        streaming = problem.weight_bytes / (0.9 * arch.bandwidth_gbs * 1e3)
        arithmetic = 2e-6 * problem.m * problem.weight_bytes / ELEMENT_BYTES[problem.dtype] / arch.f32_tflops
        return max(streaming, 1.5 * arithmetic, LATENCY_US) + (0.4 if work.prologue is not None else 0.0)

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """See `KernelDescriptor`."""
        problem = read_problem(work.kind, work.attrs, work.operands)
        spec = choose(problem, arch_named(target.arch.data))
        assert spec is not None
        return spec_record(work, problem, spec)

    def candidates(self, work: Work, target: TargetAttr) -> list[dict[str, Attribute]]:
        """See `TunableKernel`."""
        return specs(work, target)

    def prepare(self, work: Work, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `KernelDescriptor`; never reached by a record of this kernel."""
        raise PlanError(f"kernel '{self.id}' reads plain memory: its record must not ask for a layout")


LATENCY_US = 2.0
"""Of one kernel in a chain that overlaps with its neighbours."""


def specs(work: Work, target: TargetAttr) -> list[dict[str, Attribute]]:
    """Records worth a measurement for legal `work`, the one without a measurement first."""
    problem = read_problem(work.kind, work.attrs, work.operands)
    return [
        spec_record(work, problem, spec) for spec in candidates(problem, arch_named(target.arch.data))[:12]
    ]
