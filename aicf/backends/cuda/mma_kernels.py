"""The descriptor of `cuda.gemm_mma`: which products it runs, with which tiles, and what they would cost.

No code generator is imported here; `mma_code` turns the record into kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute

from aicf.backends.base import Work
from aicf.backends.cuda.gemm_problem import (
    KINDS,
    GemmProblem,
    operands_of,
    problem_of_work,
    product_reason,
)
from aicf.backends.cuda.target import GpuArch, arch_named
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr
from aicf.errors import PlanError

VERSION = 1
DTYPES = ("f16", "bf16")
EARLY_ROLES = frozenset({"param", "const", "derived"})
PART_PADDING = 8
"""Floats behind each row of partial sums, so that a warp's stores meet no bank twice."""


@dataclass(frozen=True)
class MmaSpec:
    """Every decision about one product.

    Args:
        bm, bn, bk: Tile of a block, and the depth of one stage.
        warps_m, warps_n, warps_k: Warps along rows and columns of the tile, and behind each other along k.
        stages: Stages in shared memory.
        split: Blocks that share a tile, each with a range of k.
        through: Where the parts of a split meet: `none`, `cluster` or `workspace`.
        group: Tiles below each other before the next column of tiles.
    """

    bm: int
    bn: int
    bk: int
    warps_m: int
    warps_n: int
    warps_k: int
    stages: int
    split: int = 1
    through: str = "none"
    group: int = 8

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.warps_m * self.warps_n * self.warps_k

    def loops(self, problem: GemmProblem) -> int:
        """K tiles of a block."""
        return ceil(ceil(problem.k / self.bk) / self.split)

    def stage_bytes(self, problem: GemmProblem) -> int:
        """Of one stage: a tile of A and one of each factor."""
        return (self.bm + problem.factors * self.bn) * self.bk * 2

    def shared_bytes(self, problem: GemmProblem) -> int:
        """Dynamic shared memory: the stages, and later, in their place, the partial sums. Blocks of a cluster write
        sums to each other while some still read their stages: there the sums have a place of their own."""
        parts = problem.factors * self.warps_k * self.bm * (self.bn + PART_PADDING) * 4
        stages = self.slots(problem) * self.stage_bytes(problem)
        return stages + parts if self.through == "cluster" else max(stages, parts)

    def slots(self, problem: GemmProblem) -> int:
        """Stages that are used: no more than there are K tiles."""
        return min(self.stages, self.loops(problem))

    def grid(self, problem: GemmProblem) -> tuple[int, int, int]:
        """Blocks: tiles, ranges of k, matrices times products."""
        tiles = ceil(problem.m / self.bm) * ceil(problem.n / self.bn)
        return tiles, self.split, problem.batches * problem.products

    def workspace_bytes(self, problem: GemmProblem) -> int:
        """Of the parts, if they meet there: columns padded to whole vectors."""
        if self.through != "workspace":
            return 0
        columns = ceil(problem.n / 4) * 4
        return 4 * self.split * problem.factors * problem.batches * problem.products * problem.m * columns


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
_DEPTHS = (32, 64, 128)
_STAGES = (2, 3, 4, 6, 8)
_SPLITS = (1, 2, 4, 8)
_REGISTERS = 200
"""Accumulators and fragments of a thread beyond which the compiler would spill."""


def spec_reason(spec: MmaSpec, problem: GemmProblem, arch: GpuArch) -> str | None:
    """Why `spec` cannot run `problem` on `arch`, None if it can."""
    steps = spec.bk // 16
    warp_rows, warp_columns = spec.bm // spec.warps_m, spec.bn // spec.warps_n
    if warp_rows % 16 or warp_columns % 16 or steps % spec.warps_k:
        return f"tile {spec.bm}x{spec.bn}x{spec.bk} does not divide over its warps"
    registers = warp_rows * warp_columns * problem.factors // 32 + (warp_rows + warp_columns) // 4
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
        if spec.split > 8 or spec.bm % (8 * spec.split):
            return f"a cluster of {spec.split} blocks cannot share {spec.bm} rows"
    if max(spec.grid(problem)[1:]) > 65535:
        return f"{problem.batches} matrices are more than a grid has room for"
    return None


FIXED_ROWS = 64
"""Rows of the smallest tile whose sums over k are whole: no other warp or block has a part of them."""


def legal_specs(problem: GemmProblem, arch: GpuArch, fixed: bool = False) -> Iterator[MmaSpec]:
    """All specs worth measuring for `problem` on `arch`, in a fixed order; with `fixed` only those that sum in one
    order, whatever the number of rows."""
    least = FIXED_ROWS if fixed else 16
    for tile in _TILES:
        bm, bn, _, _, warps_k = tile
        if (bm > 16 and bm >= 2 * max(least, problem.m)) or (bn > 32 and bn >= 2 * max(16, problem.n)):
            continue
        if fixed and warps_k > 1:
            continue
        for bk in _DEPTHS:
            for split in _SPLITS[:1] if fixed else _SPLITS:
                for through in ("none",) if split == 1 else ("cluster", "workspace"):
                    for stages in _stages(MmaSpec(bm, bn, bk, *tile[2:], 2, split, through), problem, arch):
                        yield MmaSpec(bm, bn, bk, *tile[2:], stages, split, through)


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
"""A warp's step of 16 in k: whatever its tile, and for a tile of 1024 sums. It is latency, not throughput."""
_END_US = 0.33
"""For 1024 sums of a multiprocessor: through shared memory and the epilogue to the result."""
_CLUSTER_US = 0.5
"""For every block that shares a tile: they can only start together, and they exchange sums."""
_CLUSTER_SHARE = 0.85
"""Of the multiprocessors, for clusters: they do not reach over the parts that a GPU consists of."""
_WORKSPACE_US = 2.0
"""One more launch."""
_READ_SHARE = 1.8
"""Of the L2 copy throughput, for reads alone."""
_PEAK_SHARE = 0.6
"""What mma.sync reaches of a Hopper tensor core. All figures are fitted to measurements on an H100, of products
inside a transformer: the kernel in front has just ended, the weights are not in L2."""


def predicted_us(spec: MmaSpec, problem: GemmProblem, arch: GpuArch) -> float:
    """Microseconds: launch, the rounds of blocks, and what a split costs; no less than reading memory takes."""
    tiles, ranges, matrices = spec.grid(problem)
    blocks = tiles * ranges * matrices
    usable = int(arch.multiprocessors * (_CLUSTER_SHARE if spec.through == "cluster" else 1.0))
    together = min(_resident(spec, problem, arch), ceil(blocks / usable))
    rounds = ceil(blocks / (together * usable))
    per_round = spec.loops(problem) * _loop_us(spec, problem, arch, together, blocks)
    end = _END_US * spec.bm * spec.bn * problem.factors * together / (1024 * spec.split)
    p = problem
    touched = p.products * p.batches * (p.factors * p.k * p.n + p.m * p.n) + p.batches * p.m * p.k
    memory = 2.0 * touched / (arch.bandwidth_gbs * 1e3)
    return _LAUNCH_US + max(rounds * (per_round + end), memory) + _split_us(spec, problem, arch)


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
    warp = spec.bk / 16 / spec.warps_k * (fixed + per_tile * _warp_tile(spec, problem) / 1024)
    flops = 2.0 * spec.bm * spec.bn * problem.factors * spec.bk * together
    compute = flops / (arch.tensor_tflops * 1e6 / arch.multiprocessors * _PEAK_SHARE)
    running = min(blocks, together * arch.multiprocessors)
    l2 = spec.stage_bytes(problem) * running / (arch.copy_l2_gbs * 1e3 * _READ_SHARE)
    return _LOOP_US + max(warp, compute, l2)


def _split_us(spec: MmaSpec, problem: GemmProblem, arch: GpuArch) -> float:
    """What it costs that several blocks share a tile."""
    if spec.through == "cluster":
        return _CLUSTER_US * spec.split
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


# Records


def integer(value: int) -> IntegerAttr:
    """An i64 attribute."""
    return IntegerAttr(value, i64)


def combination_order(spec: MmaSpec) -> str:
    """How the sums of one element are combined, for the record."""
    text = "ascending k in steps of 16"
    if spec.warps_k > 1:
        text += f", {spec.warps_k} warps by turns, added in order"
    if spec.split > 1:
        text += f"; {spec.split} ranges of k, added in ascending order"
    return text


def spec_record(spec: MmaSpec, problem: GemmProblem) -> dict[str, Attribute]:
    """The entries of the kernel record that say how."""
    grid = spec.grid(problem)
    cluster = (1, spec.split if spec.through == "cluster" else 1, 1)
    return {
        "tile": ArrayAttr([integer(v) for v in (spec.bm, spec.bn, spec.bk)]),
        "warps": ArrayAttr([integer(v) for v in (spec.warps_m, spec.warps_n, spec.warps_k)]),
        "stages": integer(spec.stages),
        "split_k": integer(spec.split),
        "split_through": StringAttr(spec.through),
        "tile_group": integer(spec.group),
        "grid": ArrayAttr([integer(v) for v in grid]),
        "block": ArrayAttr([integer(v) for v in (spec.threads, 1, 1)]),
        "cluster": ArrayAttr([integer(v) for v in cluster]),
        "shared_bytes": integer(spec.shared_bytes(problem)),
        "combination_order": StringAttr(combination_order(spec)),
        "workspace_bytes": integer(spec.workspace_bytes(problem)),
    }


def spec_of(record: Mapping[str, Attribute]) -> MmaSpec:
    """The spec of a record. Raises PlanError if an entry is missing."""
    bm, bn, bk = integers(record, "tile")
    warps_m, warps_n, warps_k = integers(record, "warps")
    stages, split, group = (integers(record, key)[0] for key in ("stages", "split_k", "tile_group"))
    return MmaSpec(
        bm, bn, bk, warps_m, warps_n, warps_k, stages, split, text_entry(record, "split_through"), group
    )


def integers(record: Mapping[str, Attribute], key: str) -> list[int]:
    """The integers of an entry, one or an array. Raises PlanError if the record lacks it."""
    value = record.get(key)
    entries = cast("ArrayAttr[Attribute]", value).data if isinstance(value, ArrayAttr) else (value,)
    numbers = [entry.value.data for entry in entries if isinstance(entry, IntegerAttr)]
    if not numbers:
        raise PlanError(f"kernel record lacks '{key}': run select-kernels again")
    return numbers


def text_entry(record: Mapping[str, Attribute], key: str) -> str:
    """A string entry. Raises PlanError if the record lacks it."""
    value = record.get(key)
    if not isinstance(value, StringAttr):
        raise PlanError(f"kernel record lacks the string '{key}': run select-kernels again")
    return value.data


def early_reads(work: Work) -> list[int]:
    """B operands that nothing before the instruction writes: read before its programmatic wait. All or none."""
    roles = operands_of(work.kind, len(work.operands), len(work.results))
    operands = [work.operands[place] for place in roles.b]
    early = all(operand.role in EARLY_ROLES and not operand.updated for operand in operands)
    return list(roles.b) if early else []


def _ranked(work: Work, target: TargetAttr) -> tuple[tuple[float, MmaSpec], ...]:
    return ranked_specs(problem_of_work(work), arch_named(target.arch.data), work.batch_invariant)


@dataclass(frozen=True)
class MmaKernel:
    """Products of f16 or bf16 with any epilogue, accumulated in f32 by tensor cores."""

    id: str = "cuda.gemm_mma"
    version: int = VERSION
    determinism: str = "bitwise"
    simplicity: int = 3
    kinds: frozenset[str] = KINDS

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `KernelDescriptor`."""
        if work.operands[0].dtype not in DTYPES:
            return f"tensor cores multiply f16 and bf16 here, A is {work.operands[0].dtype}"
        if (reason := product_reason(work)) is not None:
            return reason
        problem = problem_of_work(work)
        if not _ranked(work, target):
            return spec_reason(MmaSpec(16, 32, 32, 1, 1, 2, 3), problem, arch_named(target.arch.data))
        return None

    def fixed_order(self, work: Work, target: TargetAttr) -> str:
        """See `BatchInvariantKernel`: each element has one warp, which no tile changes."""
        return combination_order(_ranked(work, target)[0][1])

    def candidates(self, work: Work, target: TargetAttr) -> Sequence[Mapping[str, Attribute]]:
        """See `TunableKernel`: the records of all `ranked_specs`."""
        return [self.record_of(work, target, spec) for _, spec in _ranked(work, target)]

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`."""
        return _ranked(work, target)[0][0]

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """See `KernelDescriptor`: the record of the spec that the prior prefers."""
        return self.record_of(work, target, _ranked(work, target)[0][1])

    def record_of(self, work: Work, target: TargetAttr, spec: MmaSpec) -> dict[str, Attribute]:
        """The record of `work` run by `spec`, one of `legal_specs`."""
        arch = arch_named(target.arch.data)
        entries: dict[str, Attribute] = {
            **spec_record(spec, problem_of_work(work)),
            "transpose_a": work.attrs["transpose_a"],
            "transpose_b": work.attrs["transpose_b"],
            "rounding": StringAttr(work.rounding),
        }
        if arch.has_programmatic_launch:
            entries["early_reads"] = ArrayAttr([integer(place) for place in early_reads(work)])
            entries["triggers"] = BoolAttr.from_bool(True)
        return entries

    def prepare(self, work: Work, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `KernelDescriptor`; never reached by a record of this kernel."""
        raise PlanError(f"kernel '{self.id}' reads plain memory: its record must not ask for a layout")
