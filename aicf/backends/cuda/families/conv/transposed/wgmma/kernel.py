"""The descriptor of `cuda.conv_transpose_wgmma`: the phases of a transposed convolution as matrices of one product of
`cuda.gemm_wgmma`, each with as many steps of K as elements of the weight reach it.

Bulk tensor copies read the operand as they read windows (`conv/wgmma`), all phases by one descriptor, and the weight
where the convolution has it. No code generator is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, prod

from xdsl.ir import Attribute

from aicf.backends.base import Launch
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.pack.kernel import WINDOW_WEIGHT, weight_layouts, weight_pack_record
from aicf.backends.cuda.families.conv.problem import ConvProblem, misplaced
from aicf.backends.cuda.families.conv.transposed.problem import (
    KIND,
    WEIGHT,
    TransposedProblem,
    read_transposed,
    refusal,
)
from aicf.backends.cuda.families.conv.wgmma.kernel import (
    operand_reason,
    runs_across,
    stage_channels,
    weight_reason,
    window_reason,
)
from aicf.backends.cuda.families.gemm.problem import Access, GemmProblem
from aicf.backends.cuda.families.gemm.wgmma.kernel import WgmmaKernel, arch_reason, task_reason
from aicf.backends.cuda.families.gemm.wgmma.schedule import Task
from aicf.backends.cuda.target import arch_named
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr


@dataclass(frozen=True)
class PhaseReads:
    """What the phases read along one dimension.

    Args:
        least: The first element of the operand that reaches the first element of any phase.
        firsts: Of each phase, counted from `least`.
        counts: How many elements of the weight reach each phase.
        last_taps: The last of these elements of the weight: its neighbour is `stride` elements before.
    """

    least: int
    firsts: tuple[int, ...]
    counts: tuple[int, ...]
    last_taps: tuple[int, ...]

    @property
    def reach(self) -> int:
        """Elements of the operand from the first to the one after the last that any phase reads."""
        return max(first + count for first, count in zip(self.firsts, self.counts, strict=True))


def reads_of(problem: TransposedProblem) -> tuple[PhaseReads, ...]:
    """What the phases read along each dimension."""
    found: list[PhaseReads] = []
    for dim in problem.dims:
        least = min(phase.first for phase in dim.phases)
        found.append(
            PhaseReads(
                least,
                tuple(phase.first - least for phase in dim.phases),
                tuple(len(phase.taps) for phase in dim.phases),
                tuple(phase.taps[0] for phase in dim.phases),
            )
        )
    return tuple(found)


def windows_of(problem: TransposedProblem) -> ConvProblem:
    """The convolution whose windows hold all that any phase reads."""
    reads, ones = reads_of(problem), (1,) * len(problem.dims)
    return ConvProblem(
        problem.dtype,
        batch=problem.batch,
        groups=1,
        channels=problem.channels,
        outputs=problem.outputs,
        sizes=tuple(dim.size for dim in problem.dims),
        counts=tuple(dim.count // dim.stride for dim in problem.dims),
        taps=tuple(each.reach for each in reads),
        strides=ones,
        dilations=ones,
        low=tuple(-each.least for each in reads),
        x_strides=problem.x.strides,
        weight_strides=problem.weight_strides,
        x_alignment=problem.x.alignment,
        weight_alignment=problem.weight.alignment,
    )


def chunks_of(problem: TransposedProblem) -> int:
    """Stages that the channels of one element fill."""
    return ceil(problem.channels / stage_channels(windows_of(problem)))


def task_of(problem: TransposedProblem) -> Task:
    """The product, K of the mean length of all phases; its batch are these."""
    windows = windows_of(problem)
    taps = prod(dim.taps for dim in problem.dims) / len(problem.phases)
    k = ceil(taps * chunks_of(problem)) * stage_channels(windows)
    output, channel = windows.weight_strides[:2]
    rank, image, *steps = len(problem.dims), problem.y.strides[0], *problem.y.strides[2:]
    product = GemmProblem(
        problem.dtype,
        windows.pixels,
        problem.outputs,
        k,
        a_strides=(k, 1),
        b_strides=(channel, 1) if runs_across(windows) else (1, output),
        batch=problem.strides,
        a_batch=(0,) * rank,
        b_batch=(0,) * rank,
        row_dims=(problem.batch, *windows.counts),
        factors=1,
        products=1,
        a_alignment=problem.x.alignment,
        b_alignment=problem.weight.alignment,
    )
    pixels = (stride * step for stride, step in zip(problem.strides, steps, strict=True))
    result = (*steps, image, *pixels, problem.y.strides[1])
    output_access = Access(problem.dtype, 0, result, problem.y.alignment)
    # Each matrix counts what it reads; all of them read the same.
    elements = ceil(problem.elements / len(problem.phases))
    return Task(product, (), output_access, early=False, a_elements=elements, is_uneven=True)


def copy_reason(problem: TransposedProblem) -> str | None:
    """Why bulk tensor copies do not read the operands of all phases, None if they do."""
    if any(dim.count % dim.stride for dim in problem.dims):
        return "its phases have not as many elements each"
    windows = windows_of(problem)
    return operand_reason(windows) or weight_reason(weight_of(problem)) or window_reason(windows)


def weight_of(problem: TransposedProblem) -> ConvProblem:
    """A convolution that reads the weight as it lies."""
    return replace(windows_of(problem), taps=tuple(dim.taps for dim in problem.dims))


def problem_of_launch(launch: Launch) -> TransposedProblem:
    """What an instruction computes. Raises PlanError if its operands do not lie as its record says."""
    reason = refusal(launch.record, launch.ins, launch.outs[0])
    layout = launch.ins[WEIGHT].layout
    name = None if layout is None else layout.layout.data
    problem = read_transposed(launch.record, launch.ins, launch.outs[0], name)
    if reason is not None or copy_reason(problem) is not None:
        raise misplaced(launch)
    return problem


class ConvTransposeWgmmaKernel(WgmmaKernel):
    """Transposed convolutions of channels-last f16 or bf16, by warpgroup products out of bulk tensor copies."""

    id = "cuda.conv_transpose_wgmma"
    kinds = frozenset({KIND})
    row_bytes = 0

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        arch = arch_named(target.arch.data)
        reason = arch_reason(arch) or refusal(work.attrs, work.operands, work.results[0])
        if reason is not None:
            return reason
        return copy_reason(_problem(work)) or task_reason(self.task(work), arch)

    def task(self, work: Workload) -> Task:
        return task_of(_problem(work))

    def problem_entries(self, work: Workload) -> Mapping[str, Attribute]:
        packing = {"layouts": weight_layouts(work, WEIGHT, WINDOW_WEIGHT)} if _packs(work) else {}
        return {**work.attrs, **packing}

    def prepare(self, work: Workload, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `Kernel`: the record of `cuda.pack_windows`."""
        return weight_pack_record(work.operands[operand], target)


def _problem(work: Workload) -> TransposedProblem:
    """The transposed convolution, with its weight as it lies when the kernel runs."""
    layout = WINDOW_WEIGHT if _packs(work) else None
    return read_transposed(work.attrs, work.operands, work.results[0], layout)


def _packs(work: Workload) -> bool:
    """Whether the weight is packed ahead, outputs innermost: it stays, and lies otherwise."""
    weight = work.operands[WEIGHT]
    if weight.layout is not None:
        return True
    found = read_transposed(work.attrs, work.operands, work.results[0])
    return weight.is_weight and weight_reason(weight_of(found)) is not None


KERNELS = (ConvTransposeWgmmaKernel(),)
"""The kernel of this family."""
