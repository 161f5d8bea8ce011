"""The descriptor of a product that is made tile by tile: what `cuda.gemm_mma` and `cuda.gemm_simt` have in common.

A family adds its decisions (a spec), which of them are legal, what they cost, and their entries in the record.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import TypeVar

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.gemm.problem import (
    KINDS,
    GemmProblem,
    early_b,
    problem_of_work,
    product_reason,
    several_reason,
)
from aicf.backends.cuda.families.records import CudaKernel, Triple, start_entries
from aicf.backends.cuda.target import GpuArch, arch_named
from aicf.dialects.emit_types import TargetAttr


class TileSpec:
    """The decisions of a family, a data class with these fields among others: a tile of `bm` rows and `bn` columns,
    `bk` of K in each of `stages` stages, `split` blocks that share a tile, `group` tiles below each other."""

    bm: int
    bn: int
    bk: int
    stages: int
    split: int
    group: int

    @property
    @abstractmethod
    def threads(self) -> int:
        """Of a block."""

    @abstractmethod
    def stage_bytes(self, problem: GemmProblem) -> int:
        """Of one stage: a tile of A and one of each factor."""

    def loops(self, problem: GemmProblem) -> int:
        """K tiles of a block."""
        return ceil(ceil(problem.k / self.bk) / self.split)

    def slots(self, problem: GemmProblem) -> int:
        """Stages that are used: no more than there are K tiles."""
        return min(self.stages, self.loops(problem))

    def grid(self, problem: GemmProblem) -> Triple:
        """Blocks: tiles, ranges of k, matrices times products."""
        tiles = ceil(problem.m / self.bm) * ceil(problem.n / self.bn)
        return tiles, self.split, problem.batches * problem.products


Spec = TypeVar("Spec", bound=TileSpec)


class TiledKernel(CudaKernel[Spec]):
    """A kernel whose variants are specs."""

    kinds = KINDS
    widens = False
    """Whether it adds products of 8-bit integers in i32; `dtype_reason` then says which."""

    # What a family adds

    @abstractmethod
    def dtype_reason(self, work: Workload) -> str | None:
        """Why operands of this type are not multiplied as the work asks, None if they are."""

    specs: Callable[[GemmProblem, GpuArch, bool], Iterator[Spec]]
    """All specs worth measuring, in a fixed order; if the last argument is true only those that sum in one order,
    whatever the number of rows."""
    ranked: Callable[[GemmProblem, GpuArch, bool], Sequence[tuple[float, Spec]]]
    """All `specs` with their predicted microseconds, the cheapest first."""
    order: Callable[[Spec, GemmProblem], str]
    """How the sums of one element are combined."""
    reason: Callable[[Spec, GemmProblem, GpuArch], str | None]
    """Why a spec cannot run a problem, None if it can."""
    smallest: Spec
    """The spec that asks for least: its reason is given where there is none."""
    entries: Callable[[Spec, GemmProblem, GpuArch], dict[str, Attribute]]
    """What a record says about a spec: its numbers first, then the launches that follow from them."""

    # What it may add

    def problem(self, work: Workload) -> GemmProblem:
        """The product, with its operands as they lie when the kernel runs."""
        return problem_of_work(work)

    def memory_reason(self, work: Workload) -> str | None:
        """Why it does not read the operands of a product where they lie, None if it does."""
        return None

    # What follows

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        reason = self.dtype_reason(work) or product_reason(work, self.widens) or several_reason(work)
        if reason is not None:
            return reason
        if (reason := self.memory_reason(work)) is not None:
            return reason
        problem, arch = self.problem(work), arch_named(target.arch.data)
        if next(self.specs(problem, arch, work.batch_invariant), None) is None:
            return self.reason(self.smallest, problem, arch)
        return None

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[dict[str, Attribute]]:
        """See `Kernel`: the records of all specs."""
        return [self.record_of(work, target, spec) for _, spec in self._ranked(work, target)]

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return self._ranked(work, target)[0][0]

    def schedule(self, work: Workload, target: TargetAttr) -> Spec:
        """See `Kernel`: the spec that the prior prefers."""
        return self._ranked(work, target)[0][1]

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: a warp or thread has all terms of its elements, and no tile changes that."""
        return self.order(self._ranked(work, target)[0][1], self.problem(work))

    def _ranked(self, work: Workload, target: TargetAttr) -> Sequence[tuple[float, Spec]]:
        return self.ranked(self.problem(work), arch_named(target.arch.data), work.batch_invariant)

    def record_of(self, work: Workload, target: TargetAttr, schedule: Spec) -> dict[str, Attribute]:
        arch = arch_named(target.arch.data)
        return {
            **self.entries(schedule, self.problem(work), arch),
            "transpose_a": work.attrs["transpose_a"],
            "transpose_b": work.attrs["transpose_b"],
            "rounding": StringAttr(work.rounding),
            **start_entries(arch, early_b(work)),
        }

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: Spec) -> str | None:
        return self.reason(schedule, self.problem(work), arch_named(target.arch.data))
