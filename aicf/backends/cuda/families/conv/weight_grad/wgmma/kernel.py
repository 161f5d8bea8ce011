"""The descriptor of `cuda.weight_grad_wgmma`: gradients of weights as products of `cuda.gemm_wgmma`.

Both operands lie with neighbours in M or N side by side, as warpgroup products read halves. Bulk tensor copies bring 64
output channels of 64 pixels, or 64 channels of one element of the windows of 64 pixels, zeros where a window reaches
out of the image. No code generator is imported here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import Record, RecordCodec, integer
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.problem import ConvProblem
from aicf.backends.cuda.families.conv.weight_grad.parted_kernel import Parted, PartedKernel
from aicf.backends.cuda.families.conv.weight_grad.problem import WeightGradProblem
from aicf.backends.cuda.families.conv.wgmma.kernel import (
    as_matrix,
    operand_reason,
    stage_channels,
    window_reason,
)
from aicf.backends.cuda.families.conv.windows import KOrder, channels_order
from aicf.backends.cuda.families.gemm.wgmma.kernel import FACTORS, arch_reason, combination_order
from aicf.backends.cuda.families.gemm.wgmma.schedule import (
    Spec,
    Task,
    legal_specs,
    overlapped_us,
    spec_reason,
)
from aicf.backends.cuda.families.records import Shape
from aicf.backends.cuda.target import GpuArch, arch_named
from aicf.dialects.emit_types import TargetAttr

CHUNK = 64
"""Columns, and pixels, of a copy."""
_CODEC = RecordCodec(Spec)


class WeightGradWgmmaKernel(PartedKernel[Spec]):
    """Gradients of channels-last f16 or bf16, by warpgroup products out of bulk tensor copies."""

    id = "cuda.weight_grad_wgmma"
    library = "wgmma"
    simplicity = 4

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        return arch_reason(arch_named(target.arch.data)) or super().legal(work, target)

    def dtype_reason(self, work: Workload) -> str | None:
        dtype = work.operands[0].dtype
        halves = dtype in FACTORS
        return None if halves else f"warpgroup products take f16 and bf16 here, its operands are {dtype}"

    def memory_reason(self, problem: WeightGradProblem) -> str | None:
        windows = problem.windows
        reason = operand_reason(windows) or _grad_reason(problem.grad)
        return reason or (None if as_matrix(windows) else window_reason(windows))

    def order(self, problem: WeightGradProblem) -> KOrder:
        return channels_order(problem.windows, stage_channels(problem.windows))

    def k_of(self, problem: WeightGradProblem, tile: Spec) -> int:
        return CHUNK

    def task(self, schedule: Parted[Spec], problem: WeightGradProblem) -> Task:
        """The product of all parts."""
        order = self.order(problem)
        product = problem.product(order.k, schedule.parts, self.part_k(problem, schedule))
        direct = problem.result_access(order) if self.is_direct(problem, schedule) else None
        own = replace(product, batch=(schedule.parts,), a_batch=(0,), b_batch=(0,))
        access = direct or problem.parts_access(order.k)
        strides = access.strides[0], *access.strides[2:]  # of one group
        return Task(own, (), replace(access, strides=strides), False, a_elements=problem.touched)

    def tiles(self, problem: WeightGradProblem, arch: GpuArch) -> Iterable[Spec]:
        """Those that share no K within a cluster: parts do."""
        task = self.task(Parted(Spec(64, 64, 2), 2), problem)
        whole = replace(task, problem=replace(task.problem, k=problem.pixels, batch=(1,)))
        return (spec for spec in legal_specs(whole, arch) if spec.split_k == 1)

    def reason(self, schedule: Parted[Spec], problem: WeightGradProblem, arch: GpuArch) -> str | None:
        if schedule.tile.split_k > 1:
            return f"K is shared in parts, not by {schedule.tile.split_k} blocks of a cluster"
        return spec_reason(schedule.tile, self.task(schedule, problem), arch)

    def wave(self, problem: WeightGradProblem, tile: Spec, arch: GpuArch) -> tuple[int, int]:
        units = tile.units(self.task(Parted(tile, 1), problem))
        return prod(units), tile.resident(arch)

    def part_us(self, schedule: Parted[Spec], problem: WeightGradProblem, arch: GpuArch) -> float:
        task = self.task(schedule, problem)
        moved = problem.touched * problem.windows.element_bytes
        return overlapped_us(schedule.tile, task, arch, moved)

    def entries(
        self, schedule: Parted[Spec], problem: WeightGradProblem, arch: GpuArch
    ) -> dict[str, Attribute]:
        spec, task = schedule.tile, self.task(schedule, problem)
        blocks = spec.clusters(task, arch) * spec.cluster
        shape = Shape((blocks, 1, 1), (spec.threads, 1, 1), (spec.cluster, 1, 1), spec.shared_bytes(task))
        sizes = _CODEC.entries(spec)
        return {
            **{key: sizes[key] for key in ("tile", "cluster_shape", "ring")},
            "split_k": integer(spec.split_k),
            **shape.entries(),
            "combination_order": StringAttr(combination_order(spec)),
        }

    def read_tile(self, record: Record) -> Spec:
        return _CODEC.read(record)


def _grad_reason(grad: ConvProblem) -> str | None:
    """Why bulk tensor copies do not read what is passed back where it lies; None if they do."""
    if (reason := operand_reason(grad)) is not None:
        return reason.replace("its operand", "what is passed back")
    if grad.rank > 1 or grad.batch > 1:
        return "the pixels of what is passed back are not evenly apart"
    return None


KERNELS = (WeightGradWgmmaKernel(),)
"""The kernel of this family."""
