"""The descriptor of `cuda.gemm_simt`: products outside tensor cores, in IEEE f32 and f64 or wrapping integers.

No code generator is imported here; `codegen.py` turns the record into kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Annotated

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import Entry, RecordCodec, integer, powers_of_two
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.gemm.problem import GemmProblem
from aicf.backends.cuda.families.gemm.tiled_kernel import TiledKernel, TileSpec
from aicf.backends.cuda.families.records import BAND, BLOCK_THREADS, CLUSTER_BLOCKS, STAGES, Shape
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch

SUMS = {"f32": "f32", "f64": "f64", "i32": "i32", "i64": "i64", "i16": "i32", "i8": "i32", "u8": "i32"}
"""Element type of A and B to that of the sums. Short integers are widened on the way to shared memory: the low bits of
a sum are the same in any wider type, so that it wraps when it is cut off at the end."""
ROW_PADDING = 4
"""Elements after each row in shared memory: transposing copies then hit no bank twice."""
_MOST_STEPS = 16
"""Of k in a stage that a set of warps takes, each with code of its own."""


def sum_bytes(problem: GemmProblem) -> int:
    """Of a sum, and of an element of A or B in shared memory."""
    return ELEMENT_BYTES[SUMS[problem.dtype]]


@dataclass(frozen=True)
class SimtSpec(TileSpec):
    """Every decision about one product.

    Args:
        bm, bn, bk: Tile of a block, and the depth of one stage.
        tm, tn: Sums of a thread.
        depth: Sets of warps that share a tile and take turns at k.
        stages: Stages in shared memory.
        split: Blocks of a cluster that share a tile, each with a range of k.
        group: Tiles below each other before the next column of tiles.
    """

    bm: Annotated[int, Entry(powers_of_two(16, BLOCK_THREADS), "tile")]
    bn: Annotated[int, Entry(powers_of_two(32, BLOCK_THREADS), "tile")]
    bk: Annotated[int, Entry(powers_of_two(8, _MOST_STEPS * BLOCK_THREADS // 32), "tile")]
    tm: Annotated[int, Entry(powers_of_two(4, 32), "thread_tile")]
    tn: Annotated[int, Entry(powers_of_two(4, 32), "thread_tile")]
    depth: Annotated[int, Entry(powers_of_two(1, BLOCK_THREADS // 32))]
    stages: Annotated[int, Entry(STAGES)]
    split: Annotated[int, Entry(powers_of_two(1, CLUSTER_BLOCKS), "split_k")] = 1
    group: Annotated[int, Entry(BAND, "tile_group")] = 8

    @property
    def warps(self) -> tuple[int, int]:
        """Of one set, along rows and columns: a warp is 4 x 8 lanes."""
        return self.bm // (4 * self.tm), self.bn // (8 * self.tn)

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.warps[0] * self.warps[1] * self.depth

    def row_bytes(self, problem: GemmProblem, elements: int) -> int:
        """Of a row of `elements` in shared memory."""
        return (elements + ROW_PADDING) * sum_bytes(problem)

    def stage_bytes(self, problem: GemmProblem) -> int:
        """Of one stage: a tile of A and one of each factor."""
        rows = self.row_bytes(problem, self.bm) + problem.factors * self.row_bytes(problem, self.bn)
        return rows * self.bk

    def shared_bytes(self, problem: GemmProblem) -> int:
        """Dynamic shared memory: the stages, and later, in their place, the sums."""
        parts = problem.factors * self.depth * self.bm * self.row_bytes(problem, self.bn)
        return max(self.slots(problem) * self.stage_bytes(problem), parts)


# Tiles: (bm, bn, bk, tm, tn, depth)
_TILES = (
    (128, 128, 16, 8, 8, 1),
    (128, 128, 8, 8, 8, 1),
    (128, 64, 16, 8, 8, 1),
    (128, 64, 16, 8, 8, 2),
    (64, 64, 16, 8, 8, 4),
    (128, 64, 16, 8, 4, 1),
    (64, 64, 16, 8, 4, 1),
    (64, 64, 16, 4, 4, 1),
    (32, 64, 16, 4, 4, 2),
    (32, 32, 32, 4, 4, 4),
    (16, 32, 32, 4, 4, 8),
)
_STAGES = (3, 4)
_SPLITS = (1, 2, 4)


def spec_reason(spec: SimtSpec, problem: GemmProblem, arch: GpuArch) -> str | None:
    """Why `spec` cannot run `problem` on `arch`, None if it can."""
    if any((spec.bm % (4 * spec.tm), spec.bn % (8 * spec.tn), spec.bk % spec.depth)):
        return f"tile {spec.bm}x{spec.bn}x{spec.bk} does not divide over its threads"
    if spec.threads > BLOCK_THREADS:
        return f"{spec.threads} threads are more than the {BLOCK_THREADS} of a block"
    if (steps := spec.bk // spec.depth) > _MOST_STEPS:
        return f"{steps} steps of k in a stage, each with code of its own, are more than {_MOST_STEPS}"
    sums = spec.tm * spec.tn * problem.factors * sum_bytes(problem) // 4
    if sums > 160:
        return f"{spec.tm}x{spec.tn} sums of {problem.dtype} need more registers than a thread has"
    shared = spec.shared_bytes(problem)
    if shared > arch.shared_bytes:
        return f"{shared >> 10} KiB of shared memory, {arch.name} has {arch.shared_bytes >> 10}"
    if max(spec.bm, spec.bn) > spec.threads:
        return f"tile {spec.bm}x{spec.bn} is wider than its {spec.threads} threads"
    if spec.split > 1 and not arch.has_clusters:
        return f"{arch.name} has no clusters"
    if spec.split > 1 and (spec.split - 1) * spec.loops(problem) * spec.bk >= problem.k:
        return f"k = {problem.k} is too short for {spec.split} ranges"
    if max(spec.grid(problem)[1:]) > 65535:
        return f"{problem.batches} matrices are more than a grid has room for"
    return None


FIXED_TILE = 64, 64
"""The smallest tile of which one set of warps has all of k."""


def legal_specs(problem: GemmProblem, arch: GpuArch, fixed: bool = False) -> Iterator[SimtSpec]:
    """All specs worth measuring for `problem` on `arch`, in a fixed order; with `fixed` only those that sum in one
    order, whatever the number of rows."""
    rows, columns = FIXED_TILE if fixed else (16, 32)
    for tile in _TILES:
        bm, bn, depth = tile[0], tile[1], tile[-1]
        if (bm > rows and bm >= 2 * problem.m) or (bn > columns and bn >= 2 * problem.n):
            continue
        if fixed and depth > 1:
            continue
        for stages in _STAGES:
            for split in _SPLITS[:1] if fixed else _SPLITS:
                spec = SimtSpec(*tile, stages, split)
                if stages > _STAGES[0] and spec.loops(problem) < stages:
                    continue
                if spec_reason(spec, problem, arch) is None:
                    yield spec


_RATES = {"f32": 1.0, "f64": 0.5, "i32": 0.5, "i64": 0.1}
"""Products of a multiprocessor against f32."""


def predicted_us(spec: SimtSpec, problem: GemmProblem, arch: GpuArch, load_us: float = 0.0) -> float:
    """Microseconds: the slower of L2 and arithmetic over the waves of blocks, plus latencies.

    Args:
        load_us: What it takes a multiprocessor to bring a K tile of one block, beside what copies of rows take.
    """
    grid = spec.grid(problem)
    blocks = grid[0] * grid[1] * grid[2]
    registers = 40 + spec.tm * spec.tn * problem.factors * sum_bytes(problem) // 4 * 1.4
    resident = max(
        1,
        min(
            arch.shared_bytes // (spec.shared_bytes(problem) + 1024),
            int(65536 // (registers * spec.threads)),
            2048 // spec.threads,
        ),
    )
    rounds = ceil(blocks / arch.multiprocessors)
    # Few warps on a multiprocessor cannot hide latency; small tiles are bound by shared memory.
    warps = min(rounds, resident) * spec.threads / 32
    efficiency = 0.8 * min(1.0, 0.1 + warps / 10.5) * min(1.0, 0.3 + spec.tm * spec.tn / 90)
    per_block = 2.0 * spec.bm * spec.bn * problem.factors * spec.bk * spec.loops(problem)
    rate = arch.f32_tflops * 1e6 * _RATES[SUMS[problem.dtype]] / arch.multiprocessors
    compute = rounds * (per_block / (rate * efficiency) + spec.loops(problem) * load_us)
    l2 = spec.stage_bytes(problem) * spec.loops(problem) * blocks / (arch.copy_l2_gbs * 1e3)
    together = 0.5 * spec.split * rounds if spec.split > 1 else 0.0
    return 1.2 + 0.05 * spec.loops(problem) + together + max(compute, l2)


@functools.lru_cache(maxsize=4096)
def ranked_specs(
    problem: GemmProblem, arch: GpuArch, fixed: bool = False
) -> tuple[tuple[float, SimtSpec], ...]:
    """All legal specs with their predicted microseconds, the cheapest first; ties in the order of `legal_specs`."""
    found = [(predicted_us(spec, problem, arch), spec) for spec in legal_specs(problem, arch, fixed)]
    return tuple(sorted(found, key=lambda entry: entry[0]))


def combination_order(spec: SimtSpec, _: GemmProblem) -> str:
    """How the sums of one element are combined, for the record."""
    text = "ascending k"
    if spec.depth > 1:
        text += f", {spec.depth} sets of warps by turns, added in order"
    if spec.split > 1:
        text += f"; {spec.split} ranges of k, added in ascending order"
    return text


def blocks_per_sm(spec: SimtSpec, problem: GemmProblem, more: int = 0) -> int:
    """Two where the registers of both surely suffice, `more` in each thread, so that one computes while the other
    waits."""
    sums = spec.tm * spec.tn * problem.factors * sum_bytes(problem) // 4
    return 2 if (sums + 60 + more) * spec.threads * 2 <= 65536 else 1


_CODEC = RecordCodec(SimtSpec)
spec_of = _CODEC.read


def spec_record(spec: SimtSpec, problem: GemmProblem, _: GpuArch) -> dict[str, Attribute]:
    """The entries of the kernel record that say how."""
    cluster = (1, spec.split, 1)
    shape = Shape(spec.grid(problem), (spec.threads, 1, 1), cluster, spec.shared_bytes(problem))
    return {
        **_CODEC.entries(spec),
        **shape.entries(),
        "combination_order": StringAttr(combination_order(spec, problem)),
        "blocks_per_sm": integer(blocks_per_sm(spec, problem)),
    }


class SimtKernel(TiledKernel[SimtSpec]):
    """Products of f32 (IEEE), f64 and integers with any epilogue."""

    id = "cuda.gemm_simt"
    library = "simt"
    simplicity = 2
    codec = _CODEC
    specs = staticmethod(legal_specs)
    ranked = staticmethod(ranked_specs)
    order = staticmethod(combination_order)
    reason = staticmethod(spec_reason)
    entries = staticmethod(spec_record)
    smallest = SimtSpec(16, 32, 32, 4, 4, 8, 3)

    def dtype_reason(self, work: Workload) -> str | None:
        dtype = work.operands[0].dtype
        return None if dtype in SUMS else f"multiplies {', '.join(SUMS)}, A is {dtype}"


KERNELS = (SimtKernel(),)
"""The kernel of this family."""
