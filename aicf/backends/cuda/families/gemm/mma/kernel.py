"""The descriptors of `cuda.gemm_mma`, `cuda.gemm_mma_tf32`, `cuda.gemm_mma_int8` and `cuda.gemm_mma_fp8`: which
products they run, with which tiles, and what they would cost. All are one kernel: an instruction of the tensor cores
multiplies 32 bytes of k, be they 16 halves, 8 elements of f32 that are rounded to TF32, or 32 integers or floats of 8
bits.

No code generator is imported here; `codegen.py` turns the record into kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Annotated

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import Entry, OneOf, RecordCodec, Whole, integer
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.pack.kernel import weight_pack_record
from aicf.backends.cuda.families.gemm.byte_operands import (
    EXACT,
    FLOATS,
    INTEGERS,
    SHORT_SUMS,
    ByteOperands,
    along_k_reason,
    copies_reason,
    layout_entries,
    math_of_bytes,
    problem_of_bytes,
)
from aicf.backends.cuda.families.gemm.packing import PRODUCT_WEIGHT
from aicf.backends.cuda.families.gemm.problem import FEW_ROWS, FEW_ROWS_SHARE, GemmProblem
from aicf.backends.cuda.families.gemm.tf32 import math_entries, tf32_reason
from aicf.backends.cuda.families.gemm.tiled_kernel import TiledKernel, TileSpec
from aicf.backends.cuda.families.records import (
    BAND,
    BLOCK_THREADS,
    CLUSTER_BLOCKS,
    STAGES,
    Shape,
    Triple,
    integers,
)
from aicf.backends.cuda.target import FLOAT8, GpuArch, arch_named
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr

STEP_BYTES = 32
"""Of k, which one instruction multiplies."""
THROUGH = ("none", "cluster", "workspace")
SUM_THREADS = 128
"""Threads of a block that adds the parts of a workspace."""
PART_PADDING = 8
"""Floats after each row of partial sums, so that a warp's stores hit no bank twice."""
_WARPS = Whole(1, BLOCK_THREADS // 32)


@dataclass(frozen=True)
class MmaSpec(TileSpec):
    """Every decision about one product.

    Args:
        bm, bn, bk: Tile of a block, and the depth of one stage.
        warps_m, warps_n, warps_k: Warps along rows and columns of the tile, and along k.
        stages: Stages in shared memory.
        split: Blocks that share a tile, each with a range of k.
        through: Where the parts of a split meet: `none`, `cluster` or `workspace`.
        group: Tiles below each other before the next column of tiles.
    """

    bm: Annotated[int, Entry(Whole(16, 256, 16), "tile")]
    bn: Annotated[int, Entry(Whole(16, 256, 16), "tile")]
    bk: Annotated[int, Entry(Whole(8, 1024, 8), "tile")]
    warps_m: Annotated[int, Entry(_WARPS, "warps")]
    warps_n: Annotated[int, Entry(_WARPS, "warps")]
    warps_k: Annotated[int, Entry(_WARPS, "warps")]
    stages: Annotated[int, Entry(STAGES)]
    split: Annotated[int, Entry(Whole(1, CLUSTER_BLOCKS), "split_k")] = 1
    through: Annotated[str, Entry(OneOf(THROUGH), "split_through")] = "none"
    group: Annotated[int, Entry(BAND, "tile_group")] = 8

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.warps_m * self.warps_n * self.warps_k

    def stage_bytes(self, problem: GemmProblem) -> int:
        """Of one stage: a tile of A and one of each factor."""
        return (self.bm + problem.factors * self.bn) * self.bk * problem.element_bytes

    def shared_bytes(self, problem: GemmProblem) -> int:
        """Dynamic shared memory: the stages, and later, in their place, the partial sums. Blocks of a cluster write
        sums to each other while some still read their stages: there the sums have a place of their own."""
        parts = problem.factors * self.warps_k * self.bm * (self.bn + PART_PADDING) * 4
        stages = self.slots(problem) * self.stage_bytes(problem)
        return stages + parts if self.through == "cluster" else max(stages, parts)

    def workspace_bytes(self, problem: GemmProblem) -> int:
        """Of the parts, if they meet there."""
        if self.through != "workspace":
            return 0
        matrices = self.split * problem.factors * problem.batches * problem.products
        return 4 * matrices * problem.m * part_columns(problem)


def k_step(problem: GemmProblem) -> int:
    """Elements of k that one instruction multiplies."""
    return STEP_BYTES // problem.element_bytes


def multiplied_k(problem: GemmProblem, arch: GpuArch) -> int:
    """Elements of k that tensor cores multiply at a time: of floats of 8 bits as many as of halves, where a warp
    converts them."""
    converts = problem.dtype in FLOAT8 and not arch.multiplies_float8
    return k_step(problem) // (2 if converts else 1)


def part_columns(problem: GemmProblem) -> int:
    """Columns of the parts in a workspace: whole vectors."""
    return ceil(problem.n / 4) * 4


# Tiles: (bm, bn, warps_m, warps_n, warps_k)
_TILES = (
    (128, 128, 2, 4, 1),
    (128, 128, 2, 2, 1),
    (128, 64, 4, 2, 1),
    (128, 64, 2, 2, 1),
    (64, 128, 2, 4, 1),
    (64, 64, 2, 2, 1),
    (64, 64, 2, 2, 2),
    (128, 32, 4, 1, 1),
    (128, 32, 4, 1, 2),
    (64, 32, 2, 1, 2),
    (64, 32, 2, 2, 1),
    (32, 64, 1, 2, 2),
    (32, 32, 1, 1, 4),
    (16, 64, 1, 2, 2),
    (16, 32, 1, 1, 4),
    (128, 96, 2, 2, 1),
    (64, 96, 2, 2, 1),
    (64, 48, 2, 1, 2),
)
_TF32_TILES = (
    (128, 128, 2, 4, 1),
    (128, 64, 4, 2, 1),
    (128, 64, 2, 2, 1),
    (128, 64, 2, 2, 2),
    (64, 128, 2, 4, 1),
    (64, 64, 2, 2, 1),
    (64, 64, 2, 2, 2),
    (64, 48, 2, 1, 2),
    (64, 32, 2, 1, 2),
    (64, 32, 2, 1, 4),
    (32, 64, 1, 2, 2),
    (32, 64, 1, 2, 4),
    (32, 32, 1, 1, 4),
    (32, 32, 1, 1, 8),
    (16, 32, 1, 1, 4),
    (16, 32, 1, 1, 8),
)
_DEPTH_STEPS = (2, 4, 8)
_STAGES = (2, 3, 4, 6, 8)
_SPLITS = (1, 2, 4, 8)
_REGISTERS = 200
"""Accumulators and fragments of a thread beyond which the compiler would spill."""


def spec_reason(spec: MmaSpec, problem: GemmProblem, arch: GpuArch) -> str | None:
    """Why `spec` cannot run `problem` on `arch`, None if it can."""
    warp_rows, warp_columns = spec.bm // spec.warps_m, spec.bn // spec.warps_n
    over = (
        spec.bm % (16 * spec.warps_m),
        spec.bn % (16 * spec.warps_n),
        spec.bk % (k_step(problem) * spec.warps_k),
    )
    if any(over):
        return f"tile {spec.bm}x{spec.bn}x{spec.bk} does not divide over its warps"
    if spec.threads > BLOCK_THREADS:
        return f"{spec.threads} threads are more than the {BLOCK_THREADS} of a block"
    if (steps := spec.bk // (k_step(problem) * spec.warps_k)) > _DEPTH_STEPS[-1]:
        return f"{steps} steps of k in a stage, each with code of its own, are more than {_DEPTH_STEPS[-1]}"
    fragments = (warp_rows + warp_columns) // 4 * (k_step(problem) // multiplied_k(problem, arch))
    registers = warp_rows * warp_columns * problem.factors // 32 + fragments
    if registers > _REGISTERS:
        return f"tile {spec.bm}x{spec.bn} needs more registers than a thread has"
    shared = spec.shared_bytes(problem)
    if shared > arch.shared_bytes:
        return f"{shared >> 10} KiB of shared memory, {arch.name} has {arch.shared_bytes >> 10}"
    if spec.split > 1 and (spec.split - 1) * spec.loops(problem) * spec.bk >= problem.k:
        return f"k = {problem.k} is too short for {spec.split} ranges"
    if (spec.split > 1) != (spec.through != "none"):
        return "a split needs a place where its parts meet, and only a split has one"
    if spec.through == "cluster":
        if not arch.has_clusters:
            return f"{arch.name} has no clusters"
        if spec.bm % (8 * spec.split):
            return f"a cluster of {spec.split} blocks cannot share {spec.bm} rows"
    if max(spec.grid(problem)[1:]) > 65535:
        return f"{problem.batches} matrices are more than a grid has room for"
    return None


FIXED_ROWS = 64
"""Rows of the smallest tile whose sums over k are whole: no other warp or block has a part of them."""


def legal_specs(problem: GemmProblem, arch: GpuArch, fixed: bool = False) -> Iterator[MmaSpec]:
    """All specs worth measuring for `problem` on `arch`, in a fixed order; with `fixed` only those that sum in one
    order, whatever the number of rows. Sums of integers are exact in any."""
    fixed = fixed and not problem.is_exact
    least = FIXED_ROWS if fixed else 16
    for tile in _tiles(problem):
        bm, bn, _, _, warps_k = tile
        if (bm > 16 and bm >= 2 * max(least, problem.m)) or (bn > 32 and bn >= 2 * max(16, problem.n)):
            continue
        if fixed and warps_k > 1:
            continue
        for bk in (steps * k_step(problem) for steps in _DEPTH_STEPS):
            for split in _SPLITS[:1] if fixed else _SPLITS:
                for through in ("none",) if split == 1 else ("cluster", "workspace"):
                    for stages in _stages(MmaSpec(bm, bn, bk, *tile[2:], 2, split, through), problem, arch):
                        yield MmaSpec(bm, bn, bk, *tile[2:], stages, split, through)


def _tiles(problem: GemmProblem) -> Sequence[tuple[int, int, int, int, int]]:
    """The tiles that are measured for a type."""
    return _TF32_TILES if problem.dtype == "f32" else _TILES


def _stages(spec: MmaSpec, problem: GemmProblem, arch: GpuArch) -> list[int]:
    """The most stages with which two blocks fit beside each other (so that the next kernel's can start while this one's
    compute), and the most with which one does."""
    legal = [
        stages
        for stages in _STAGES
        if (stages == _STAGES[0] or stages <= spec.loops(problem))
        and spec_reason(replace(spec, stages=stages), problem, arch) is None
    ]
    half = arch.shared_bytes // 2 - 1024
    paired = [stages for stages in legal if replace(spec, stages=stages).shared_bytes(problem) <= half]
    return sorted({found[-1] for found in (paired, legal) if found})


_LAUNCH_US = 0.9
_LOOP_US = 0.05
_STEP_US = 0.008, 0.011
"""A warp's step in k: whatever its tile, and for a tile of 1024 sums. It is latency, not throughput."""
_END_US = 0.33
"""For 1024 sums of a multiprocessor: through shared memory and the epilogue to the result."""
_CLUSTER_US = 0.5
"""For every block that shares a tile: they can only start together, and they exchange sums."""
_EXCHANGE_US = {1: 0.0, 2: 0.0, 4: 0.3}
"""For 1024 sums of a block, which it exchanges with its cluster, beyond that; by bytes of an element."""
_CLUSTER_SHARE = 0.85
"""Of the multiprocessors, for clusters: they do not reach over the parts that a GPU consists of."""
_PAIR_SHARE = {1: _CLUSTER_SHARE, 2: _CLUSTER_SHARE, 4: 1.0}
"""The same for two blocks, by bytes of an element."""
_WORKSPACE_US = 2.0
"""One more launch."""
_READ_SHARE = {1: 1.8, 2: 1.8, 4: 1.13}
"""Of the L2 copy throughput, for reads alone, by bytes of an element."""
_SHARED_GBS = {1: inf, 2: inf, 4: 170.0}
"""Through the shared memory of a multiprocessor, in and out: halves never wait for it."""
_SUM_BYTES = 4
"""Of a wider result, as far as the problem knows."""
_PEAK_SHARE = 0.6
"""What mma.sync reaches of a Hopper tensor core. All figures are fitted to measurements on an H100, of products
inside a transformer: the previous kernel has just ended, the weights are not in L2. Those of f32 are fitted to the
products of a training step of a classifier, whose operands are in L2. Operands of 8 bits are taken to be as halves:
nothing is fitted to them."""


def predicted_us(
    spec: MmaSpec,
    problem: GemmProblem,
    arch: GpuArch,
    touched: float | None = None,
    load_us: float = 0.0,
) -> float:
    """Microseconds: launch, the rounds of blocks, and what a split costs; no less than reading memory takes.

    Args:
        touched: Elements of operands and results in memory, if they are not those of matrices.
        load_us: What it takes a multiprocessor to bring a K tile of one block, beside what copies of rows take.
    """
    tiles, ranges, matrices = spec.grid(problem)
    blocks = tiles * ranges * matrices
    usable = _usable(spec, problem, arch)
    together = min(_resident(spec, problem, arch), ceil(blocks / usable))
    rounds = ceil(blocks / (together * usable))
    per_round = spec.loops(problem) * (_loop_us(spec, problem, arch, together, blocks) + load_us * together)
    end = _END_US * spec.bm * spec.bn * problem.factors * together / (1024 * spec.split)
    if touched is None:
        p = problem
        results = p.m * p.n * (_SUM_BYTES // p.element_bytes if p.widens else 1)
        touched = p.products * p.batches * (p.factors * p.k * p.n + results) + p.batches * p.m * p.k
        if p.m <= FEW_ROWS:
            touched /= FEW_ROWS_SHARE
    memory = float(problem.element_bytes) * touched / (arch.bandwidth_gbs * 1e3)
    return _LAUNCH_US + max(rounds * (per_round + end), memory) + _split_us(spec, problem, arch)


def _usable(spec: MmaSpec, problem: GemmProblem, arch: GpuArch) -> int:
    """Multiprocessors that have room for blocks."""
    if spec.through != "cluster":
        return arch.multiprocessors
    share = _PAIR_SHARE[problem.element_bytes] if spec.split == 2 else _CLUSTER_SHARE
    return int(arch.multiprocessors * share)


def _resident(spec: MmaSpec, problem: GemmProblem, arch: GpuArch) -> int:
    """Blocks that fit beside each other on a multiprocessor."""
    by_shared = arch.shared_bytes // (spec.shared_bytes(problem) + 1024)
    by_registers = 65536 // (min(255, _warp_tile(spec, problem) // 32 + 64) * spec.threads)
    return max(1, min(by_shared, by_registers))


def _warp_tile(spec: MmaSpec, problem: GemmProblem) -> int:
    """Sums of a warp."""
    return (spec.bm // spec.warps_m) * (spec.bn // spec.warps_n) * problem.factors


def _loop_us(spec: MmaSpec, problem: GemmProblem, arch: GpuArch, together: int, blocks: int) -> float:
    """Of one K tile of the `together` blocks of a multiprocessor: the slowest of what a warp waits for, tensor cores
    and L2."""
    fixed, per_tile = _STEP_US
    multiplied = multiplied_k(problem, arch)
    warp = spec.bk / multiplied / spec.warps_k * (fixed + per_tile * _warp_tile(spec, problem) / 1024)
    flops = 2.0 * spec.bm * spec.bn * problem.factors * spec.bk * together
    rate = arch.tensor_tflops * 1e6 / arch.multiprocessors * multiplied / 16
    compute = flops / (rate * _PEAK_SHARE)
    running = min(blocks, together * arch.multiprocessors)
    l2 = spec.stage_bytes(problem) * running / (arch.copy_l2_gbs * 1e3 * _READ_SHARE[problem.element_bytes])
    return _LOOP_US + max(warp, compute, l2, _shared_us(spec, problem) * together)


def _shared_us(spec: MmaSpec, problem: GemmProblem) -> float:
    """Of what a K tile brings into shared memory, and of what its warps read there."""
    lines = spec.bm * spec.warps_n + spec.bn * spec.warps_m * problem.factors
    read = lines * spec.bk * problem.element_bytes
    return (spec.stage_bytes(problem) + read) / (_SHARED_GBS[problem.element_bytes] * 1e3)


def _split_us(spec: MmaSpec, problem: GemmProblem, arch: GpuArch) -> float:
    """What it costs that several blocks share a tile."""
    if spec.through == "cluster":
        exchange = _EXCHANGE_US[problem.element_bytes] * spec.bm * spec.bn * problem.factors / 1024
        return _CLUSTER_US * spec.split + exchange
    if spec.through == "workspace":
        return _WORKSPACE_US + 2.0 * spec.workspace_bytes(problem) / (arch.copy_l2_gbs * 1e3)
    return 0.0


@functools.lru_cache(maxsize=4096)
def ranked_specs(
    problem: GemmProblem, arch: GpuArch, fixed: bool = False
) -> tuple[tuple[float, MmaSpec], ...]:
    """All legal specs with their predicted microseconds, the cheapest first; of equal ones that which leaves the next
    kernel more shared memory, then in the order of `legal_specs`."""
    found = [(predicted_us(spec, problem, arch), spec) for spec in legal_specs(problem, arch, fixed)]
    return tuple(sorted(found, key=lambda entry: (entry[0], entry[1].shared_bytes(problem))))


def blocks_per_sm(spec: MmaSpec, problem: GemmProblem, arch: GpuArch, more: int = 0) -> int:
    """Blocks that should fit beside each other: as the shared memory allows, as long as registers suffice, `more` in
    each thread."""
    by_registers = 65536 // ((_warp_tile(spec, problem) // 32 + 64 + more) * spec.threads)
    by_shared = arch.shared_bytes // (spec.shared_bytes(problem) + 1024)
    return max(1, min(by_registers, by_shared, 2))


# Records


_CODEC = RecordCodec(MmaSpec)
spec_of = _CODEC.read


def whole_sums_order(problem: GemmProblem) -> str:
    """How a warp combines the sums of one element of which it has all terms."""
    return f"ascending k in steps of {k_step(problem)}"


def combination_order(spec: MmaSpec, problem: GemmProblem) -> str:
    """How the sums of one element are combined, for the record."""
    if problem.is_exact:
        return EXACT
    text = whole_sums_order(problem)
    if spec.warps_k > 1:
        text += f", {spec.warps_k} warps by turns, added in order"
    if spec.split > 1:
        text += f"; {spec.split} ranges of k, added in ascending order"
    return text


def spec_record(spec: MmaSpec, problem: GemmProblem, arch: GpuArch) -> dict[str, Attribute]:
    """The entries of the kernel record that say how. `sum_grid` and `sum_block` are those of the launch that adds the
    parts of a workspace, empty without one."""
    cluster = (1, spec.split if spec.through == "cluster" else 1, 1)
    shape = Shape(spec.grid(problem), (spec.threads, 1, 1), cluster, spec.shared_bytes(problem))
    adds = spec.through == "workspace"
    return {
        **_CODEC.entries(spec),
        **shape.entries(),
        "combination_order": StringAttr(combination_order(spec, problem)),
        "workspace_bytes": integer(spec.workspace_bytes(problem)),
        "blocks_per_sm": integer(blocks_per_sm(spec, problem, arch)),
        "sum_grid": integers(_sum_grid(problem) if adds else ()),
        "sum_block": integers((SUM_THREADS, 1, 1) if adds else ()),
        **(math_of_bytes(problem) if problem.widens else math_entries(problem.dtype)),
    }


def _sum_grid(problem: GemmProblem) -> Triple:
    """A thread adds the parts of four neighbouring elements."""
    vectors = problem.m * part_columns(problem) // 4
    return ceil(vectors / SUM_THREADS), 1, problem.batches * problem.products


class MmaKernel(TiledKernel[MmaSpec]):
    """Products of f16 or bf16 with any epilogue, accumulated in f32 by tensor cores."""

    id = "cuda.gemm_mma"
    library = "mma"
    simplicity = 3
    codec = _CODEC
    specs = staticmethod(legal_specs)
    ranked = staticmethod(ranked_specs)
    order = staticmethod(combination_order)
    reason = staticmethod(spec_reason)
    entries = staticmethod(spec_record)
    smallest = MmaSpec(16, 32, 32, 1, 1, 2, 3)

    def dtype_reason(self, work: Workload) -> str | None:
        dtype = work.operands[0].dtype
        return None if dtype in ("f16", "bf16") else f"tensor cores multiply f16 and bf16 here, A is {dtype}"


class MmaTf32Kernel(MmaKernel):
    """Products of f32 with any epilogue, of operands rounded to TF32 and accumulated in f32 by tensor cores."""

    id = "cuda.gemm_mma_tf32"
    smallest = MmaSpec(16, 32, 32, 1, 1, 4, 2)

    def dtype_reason(self, work: Workload) -> str | None:
        return tf32_reason(work)


class MmaBytesKernel(MmaKernel):
    """Products of operands of 8 bits with any epilogue, with the wider sums of tensor cores."""

    bytes_: ByteOperands
    """The types that it multiplies."""
    widens = True
    smallest = MmaSpec(16, 32, 128, 1, 1, 2, 2)

    def dtype_reason(self, work: Workload) -> str | None:
        return self.bytes_.reason(work)

    def problem(self, work: Workload) -> GemmProblem:
        return problem_of_bytes(work)

    def memory_reason(self, work: Workload) -> str | None:
        problem = self.problem(work)
        return along_k_reason(problem) or copies_reason(problem)

    def record_of(self, work: Workload, target: TargetAttr, schedule: MmaSpec) -> dict[str, Attribute]:
        return {**super().record_of(work, target, schedule), **layout_entries(work)}

    def prepare(self, work: Workload, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `Kernel`: the record of `cuda.pack_windows`."""
        return weight_pack_record(work.operands[operand], target, PRODUCT_WEIGHT)


class MmaIntegerKernel(MmaBytesKernel):
    """Products of 8-bit integers, with sums of i32."""

    id = "cuda.gemm_mma_int8"
    bytes_ = INTEGERS


class MmaFloat8Kernel(MmaBytesKernel):
    """Products of floats of 8 bits, with sums of f32."""

    id = "cuda.gemm_mma_fp8"
    bytes_ = FLOATS

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: with strict rounding only where they are multiplied as halves."""
        reason = super().legal(work, target)
        if reason is None and work.rounding == "strict" and arch_named(target.arch.data).multiplies_float8:
            return SHORT_SUMS
        return reason


KERNELS = (MmaKernel(), MmaTf32Kernel(), MmaIntegerKernel(), MmaFloat8Kernel())
"""The kernels of this family."""
