"""Descriptors of the CPU kernels of gradients of weights. No code generator is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from xdsl.ir import Attribute

from aicf.backends.common.record import Record, RecordError, illegal, read_integer
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.conv.candidates import ConvQuery, direct_specs
from aicf.backends.cpu.families.conv.costs import cost_us, epilogue_cycles
from aicf.backends.cpu.families.conv.problem import ConvProblem
from aicf.backends.cpu.families.conv.record import conv_record, read_conv_spec
from aicf.backends.cpu.families.conv.schedule import ConvSpec
from aicf.backends.cpu.families.conv.weight_grad.problem import read_weight_grad, result_access
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.legality import (
    level_reason,
    strided,
    threads_of,
    threads_reason,
    variant_of,
)
from aicf.backends.cpu.target import FLOATS, CpuLevel
from aicf.dialects.emit_types import TargetAttr


@dataclass(frozen=True)
class ConvWeightGradKernel(CpuKernel[ConvSpec]):
    """Register tiles of a convolution whose batch and channels have changed places: windows are read where they lie,
    or from a copy of a block of rows with zeros around it."""

    library = "native"

    id: str
    level: str
    """The lowest level that has its instructions; the portable variant runs anywhere."""
    simplicity: int
    kinds: frozenset[str] = frozenset({"conv_weight_grad"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        return _reason(work) or level_reason(target, self.level)

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return self._ranked(work, target)[0][0]

    def schedule(self, work: Workload, target: TargetAttr) -> ConvSpec:
        return self._ranked(work, target)[0][1]

    def read(self, work: Workload, record: Record, target: TargetAttr) -> ConvSpec:
        return read_direct(record, _problem(work), variant_of(target, self.level))

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: ConvSpec) -> str | None:
        return threads_reason(schedule.threads, target)

    def record_of(self, work: Workload, target: TargetAttr, schedule: ConvSpec) -> dict[str, Attribute]:
        return {**conv_record(schedule), **work.attrs}

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[dict[str, Attribute]]:
        """See `Kernel`: one for each number of threads."""
        by_threads: dict[int, ConvSpec] = {}
        for _, spec in self._ranked(work, target):
            by_threads.setdefault(spec.threads, spec)
        return [self.record_of(work, target, spec) for spec in by_threads.values()]

    def _ranked(self, work: Workload, target: TargetAttr) -> Sequence[tuple[float, ConvSpec]]:
        """All tiles, with predicted microseconds; the cheapest first."""
        problem, access = _problem(work), result_access(strided(work.results[0]))
        assert access is not None, "asked of legal work"
        level = variant_of(target, self.level)
        epilogue = epilogue_cycles(0.0, [access], level.lanes(problem.dtype))
        query = ConvQuery(problem, level, threads_of(target), False, epilogue, False)
        found = [(cost_us(spec, epilogue), spec) for spec in direct_specs(query)]
        return sorted(found, key=lambda entry: entry[0])


def read_direct(record: Record, problem: ConvProblem, level: CpuLevel) -> ConvSpec:
    """The decisions of a record. Raises RecordError for an algorithm other than the direct one."""
    spec = read_conv_spec(record, problem, level)
    if spec.algorithm != "direct":
        raise RecordError(f"its {illegal('algorithm', spec.algorithm, 'direct')}")
    if spec.prepared:
        raise RecordError(f"its {illegal('prepared', spec.prepared, False)}")
    return spec


def _problem(work: Workload) -> ConvProblem:
    x, grad = (strided(operand) for operand in work.operands)
    problem = read_weight_grad(work.attrs, x, grad, strided(work.results[0]))
    assert problem is not None, "asked of legal work"
    return problem


def _reason(work: Workload) -> str | None:
    (x, grad), result = (strided(operand) for operand in work.operands), strided(work.results[0])
    if x.dtype not in FLOATS:
        return f"it sums products of {', '.join(FLOATS)}, not of {x.dtype}"
    rank = len(result.shape)
    if rank > 4:
        return "its windows have one or two dimensions"
    if prod(result.shape[2:]) == 1:
        return "with windows of one element it is a product"
    if result.shape[1] == 1 and result.shape[0] > 1 and x.shape[1] > 1:
        return "it has one input channel a group, and no others that share what is loaded"
    if grad.shape[0] * prod(grad.shape[2:]) * read_integer(work.attrs, "groups") < grad.shape[1]:
        return (
            "it has fewer windows than output channels: a product writes less of windows than of the weight"
        )
    if read_weight_grad(work.attrs, x, grad, result) is None or result_access(result) is None:
        return "the positions of a channel, or the elements of a window, are not evenly apart"
    return None


KERNELS = (
    ConvWeightGradKernel("cpu.weight_grad_avx512", "x86-64-v4", 4),
    ConvWeightGradKernel("cpu.weight_grad_avx2", "x86-64-v3", 3),
    ConvWeightGradKernel("cpu.weight_grad_portable", "generic", 2),
)
"""A kernel for each level of the processor."""
