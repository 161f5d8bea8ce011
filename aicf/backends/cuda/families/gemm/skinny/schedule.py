"""How `cuda.gemm_skinny` splits a product over blocks, which splits are legal, and what they would cost.

No split changes an order of sums: a warp has all terms of its elements, in ascending order of k. Products of many rows
by `cuda.gemm_mma` have that order as well where no warps and blocks share k.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import Annotated

from aicf.backends.common.record import Entry, OneOf
from aicf.backends.cuda.families.gemm.problem import GemmProblem
from aicf.backends.cuda.families.gemm.tiled_kernel import TileSpec
from aicf.backends.cuda.families.records import STAGES
from aicf.backends.cuda.target import GpuArch

MOST_ROWS = 32
"""Rows of x above which tiles of more rows read the weights just as often."""
STEP = 16
"""Elements of k that one instruction multiplies."""
WARP_COLUMNS = 8
"""Columns of a warp: the width of that instruction."""
SUM_PADDING = 8
"""Floats after each row of sums in shared memory, so that a warp's stores hit no bank twice."""

_ROWS, _COLUMNS, _DEPTHS, _STAGES = (8, 16, 32), (16, 32, 64), (64, 128, 256), (4, 8)


@dataclass(frozen=True)
class SkinnySpec(TileSpec):
    """The decisions about one product.

    Args:
        bm: Rows of x that a block has room for: all.
        bn: Columns of a block, 8 for each warp.
        bk: k of a stage.
        stages: Stages of weights in shared memory, for each warp its own. A panel of x has as much of k as all of them.
    """

    bm: Annotated[int, Entry(OneOf(_ROWS), "tile")]
    bn: Annotated[int, Entry(OneOf(_COLUMNS), "tile")]
    bk: Annotated[int, Entry(OneOf(_DEPTHS), "tile")]
    stages: Annotated[int, Entry(STAGES)]

    split = 1
    group = 1

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.bn // WARP_COLUMNS

    def stage_bytes(self, problem: GemmProblem) -> int:
        """Of the weights of one stage, for all warps."""
        return problem.factors * self.bn * self.bk * problem.element_bytes

    def panels(self, problem: GemmProblem) -> int:
        """Panels of x in shared memory: two take turns, unless one has all of k."""
        return 1 if self.slots(problem) == self.loops(problem) else 2

    def panel_bytes(self, problem: GemmProblem) -> int:
        """Of one panel of x."""
        return self.bm * self.slots(problem) * self.bk * problem.element_bytes

    def shared_bytes(self, problem: GemmProblem) -> int:
        """Dynamic shared memory: panels and stages, and in their place the sums."""
        operands = self.panels(problem) * self.panel_bytes(problem)
        operands += self.slots(problem) * self.stage_bytes(problem)
        return max(operands, 4 * problem.factors * max(self.bm, 16) * (self.bn + SUM_PADDING))


def spec_reason(spec: SkinnySpec, problem: GemmProblem, arch: GpuArch) -> str | None:
    """Why `spec` cannot run `problem` on `arch`, None if it can."""
    if problem.m > spec.bm:
        return f"x has {problem.m} rows, tile {spec.bm}x{spec.bn} has room for {spec.bm}"
    shared = spec.shared_bytes(problem)
    if shared > arch.shared_bytes:
        return f"{shared >> 10} KiB of shared memory, {arch.name} has {arch.shared_bytes >> 10}"
    return None


def legal_specs(problem: GemmProblem, arch: GpuArch, fixed: bool = False) -> Iterator[SkinnySpec]:
    """All specs worth measuring, in a fixed order. `fixed` takes nothing away: all of them sum in one order."""
    rows = next((rows for rows in _ROWS if rows >= problem.m), MOST_ROWS)
    for columns, depth, stages in product(_COLUMNS, _DEPTHS, _STAGES):
        spec = SkinnySpec(rows, columns, depth, stages)
        is_another = stages == _STAGES[0] or stages <= spec.loops(problem)
        if is_another and spec_reason(spec, problem, arch) is None:
            yield spec


# Cost prior. Nothing of it is fitted: it follows from latencies and from what `cuda.gemv` reaches.

_START_US, _END_US = 0.9, 0.3
"""Until the first product of a block, as of `cuda.gemm_mma`, and from its last one to the results."""
_STREAMED_SHARE = 0.9
"""What streaming weights reaches of the memory's bandwidth, as for `cuda.gemv`: the first weights of the next kernel of
a chain are under way while this one ends."""
_MEMORY_US = 1.5
"""From a copy's start until the next one to its place starts, while memory is busy: so much has to be under way."""
_STEP_US, _STAGE_US = 0.019, 0.03
"""Of a step of k, which waits for the step before (33 clocks), and of a stage beside its steps."""
_BUSY_SHARE = 0.9
"""Of the multiprocessors, which a spec should use."""


def predicted_us(spec: SkinnySpec, problem: GemmProblem, arch: GpuArch) -> float:
    """Microseconds: the longer of streaming the weights, and of what rounds of blocks take from step to step of k."""
    blocks = spec.grid(problem)[0] * problem.products
    running = min(blocks, blocks_per_sm(spec, problem, arch) * arch.multiprocessors)
    under_way = running * max(1, spec.slots(problem) - 1) * spec.stage_bytes(problem)
    streamed = min(_STREAMED_SHARE * arch.bandwidth_gbs * 1e3, under_way / _MEMORY_US)
    weights = problem.products * problem.factors * problem.n * problem.k
    touched = weights + problem.m * (problem.k + problem.products * problem.n)
    memory = touched * problem.element_bytes / streamed
    steps = spec.loops(problem) * (spec.bk // STEP * _STEP_US + _STAGE_US)
    return max(memory, _START_US + ceil(blocks / running) * steps + _END_US)


def blocks_per_sm(spec: SkinnySpec, problem: GemmProblem, arch: GpuArch) -> int:
    """Blocks that fit beside each other by their shared memory and 128 registers a thread; at most 4."""
    by_shared = arch.shared_bytes // (spec.shared_bytes(problem) + 1024)
    return max(1, min(by_shared, 65536 // (128 * spec.threads), 4))


@functools.lru_cache(maxsize=4096)
def ranked_specs(
    problem: GemmProblem, arch: GpuArch, fixed: bool = False
) -> tuple[tuple[float, SkinnySpec], ...]:
    """All legal specs with their predicted microseconds, the most promising first."""
    found = [(predicted_us(spec, problem, arch), spec) for spec in legal_specs(problem, arch, fixed)]
    return tuple(sorted(found, key=lambda entry: _rank(*entry, problem, arch)))


def _rank(us: float, spec: SkinnySpec, problem: GemmProblem, arch: GpuArch) -> tuple[float, ...]:
    """What orders specs: predicted time; of equals those that leave no multiprocessor idle and run all blocks at once,
    then those that read x less often and weights in longer lines, then those that leave the next kernel more shared
    memory."""
    blocks = spec.grid(problem)[0] * problem.products
    idle = blocks < _BUSY_SHARE * arch.multiprocessors
    waits = blocks > blocks_per_sm(spec, problem, arch) * arch.multiprocessors
    return round(us, 2), idle, waits, -spec.bn, -spec.bk, spec.shared_bytes(problem)
