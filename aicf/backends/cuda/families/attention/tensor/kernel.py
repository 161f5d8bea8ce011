"""Descriptors of attention on tensor cores: `cuda.attention`, and what `cuda.attention_wgmma` has in common with it.

A kernel adds its decisions (a spec), which of them are legal, what they cost, and their entries in the record.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import TypeVar

from xdsl.ir import Attribute

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.attention.problem import (
    CACHED,
    HALVES,
    KIND,
    AttentionProblem,
    cached_reason,
    common_reason,
    common_record,
    problem_of,
)
from aicf.backends.cuda.families.attention.tensor.schedule import (
    CODEC,
    AttentionSpec,
    predicted_us,
    ranked_specs,
    shared_layout,
    spec_reason,
)
from aicf.backends.cuda.families.records import CudaKernel, Shape
from aicf.backends.cuda.target import GpuArch, arch_named
from aicf.dialects.emit_types import TargetAttr

Spec = TypeVar("Spec")


class TensorAttention(CudaKernel[Spec]):
    """A kernel whose variants are specs."""

    kinds = frozenset({KIND})

    # What a kernel adds

    @abstractmethod
    def operands_reason(self, work: Workload, problem: AttentionProblem) -> str | None:
        """Why sizes, strides or the scale have no code, None if they have."""

    ranked: Callable[[AttentionProblem, GpuArch, bool], Sequence[Spec]]
    """All specs that make sense, by the prior the cheapest first; if the last argument is true only those that combine
    keys in one order, whatever the number of queries and batch elements."""
    us: Callable[[AttentionProblem, Spec, GpuArch], float]
    """Predicted microseconds."""
    reason: Callable[[AttentionProblem, Spec, GpuArch], str | None]
    """Why a spec cannot run a problem, None if it can."""

    def arch_reason(self, arch: GpuArch) -> str | None:
        """Why an architecture runs none of it, None if it may."""
        return None

    def tiled(self, problem: AttentionProblem) -> AttentionProblem:
        """The problem that tiles are made of: another reading of the same operands, if that is better."""
        return problem

    # What follows

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: f16 and bf16, on the architectures and operands that the subclass takes; over a cache without a
        window, a cap or a mask."""
        problem, arch = problem_of(work), arch_named(target.arch.data)
        if (reason := self.arch_reason(arch) or common_reason(work, problem)) is not None:
            return reason
        if work.kind == CACHED and (reason := cached_reason(work, problem)) is not None:
            return reason
        if problem.dtype not in HALVES:
            return f"tensor cores multiply f16 and bf16 here, not {problem.dtype}: use cuda.attention_simt or cast"
        if (reason := self.operands_reason(work, problem)) is not None:
            return reason
        if not self._ranked(work, target):
            return f"no tiling fits the registers and shared memory of {arch.name}"
        return None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return self.us(
            self.tiled(problem_of(work)), self.schedule(work, target), arch_named(target.arch.data)
        )

    def schedule(self, work: Workload, target: TargetAttr) -> Spec:
        """See `Kernel`: the spec that the prior prefers."""
        return self._ranked(work, target)[0]

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[Mapping[str, Attribute]]:
        """See `Kernel`: the records of all specs, by the prior the cheapest first."""
        return [self.record_of(work, target, spec) for spec in self._ranked(work, target)]

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: Spec) -> str | None:
        return self.reason(self.tiled(problem_of(work)), schedule, arch_named(target.arch.data))

    def _ranked(self, work: Workload, target: TargetAttr) -> Sequence[Spec]:
        return self.ranked(self.tiled(problem_of(work)), arch_named(target.arch.data), work.batch_invariant)


class AttentionKernel(TensorAttention[AttentionSpec]):
    """Attention on tensor cores (mma.sync or wgmma) for f16 and bf16, see `template.py`."""

    id = "cuda.attention"
    library = "flash_v2"
    version = 3
    simplicity = 2
    codec = CODEC
    ranked = staticmethod(ranked_specs)
    us = staticmethod(predicted_us)
    reason = staticmethod(spec_reason)

    def operands_reason(self, work: Workload, problem: AttentionProblem) -> str | None:
        for name, size in (("a query", problem.d), ("a value", problem.dv)):
            if size % 16 != 0 or size > 128:
                return f"{name} has {size} elements: tensor cores take 16, 32, ... 128 here"
        matrices = (
            ("queries", problem.q, problem.m),
            ("keys", problem.k, problem.n),
            ("values", problem.v, problem.n),
        )
        for name, rows, count in matrices:
            if not rows.moves_in_eights(count, problem.batch):
                return f"rows of the {name} are not neighbours that start at multiples of 16 bytes: copy them first"
        return None

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        return f"on tensor cores, keys in tiles of {self.schedule(work, target).block_n}, in order"

    def record_of(self, work: Workload, target: TargetAttr, schedule: AttentionSpec) -> dict[str, Attribute]:
        spec = schedule
        problem = problem_of(work)
        order = "keys in tiles, in order" + ("; then the warps, in order" if spec.warps_n > 1 else "")
        blocks = ceil(problem.m / spec.block_m) * problem.count
        shape = Shape((blocks, 1, 1), (spec.threads, 1, 1), (1, 1, 1), shared_layout(problem, spec).total)
        return common_record(work, arch_named(target.arch.data), shape, order) | CODEC.entries(spec)


class CachedAttentionKernel(AttentionKernel):
    """The same over a cache, as for a part of a prompt: tiles of keys after the first that no query of a block sees, by
    a position that is an operand, are not loaded."""

    id = "cuda.cached_attention"
    version = 1
    kinds = frozenset({CACHED})


KERNELS = (AttentionKernel(), CachedAttentionKernel())
