"""The descriptors of `cuda.weight_grad_mma` and `cuda.weight_grad_mma_tf32`: gradients of weights by tensor cores, of
operands of any strides.

No code generator is imported here; `codegen.py` turns the record into kernels.
"""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.ir import Attribute

from aicf.backends.common.record import Record, integer
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.weight_grad.loads import load_reason, load_us, pixel_loads
from aicf.backends.cuda.families.conv.weight_grad.parted_kernel import Parted, PartedKernel, blocks
from aicf.backends.cuda.families.conv.weight_grad.problem import WeightGradProblem
from aicf.backends.cuda.families.conv.windows import KOrder, k_order
from aicf.backends.cuda.families.gemm.mma.kernel import (
    MmaSpec,
    blocks_per_sm,
    legal_specs,
    predicted_us,
    spec_of,
    spec_reason,
    spec_record,
)
from aicf.backends.cuda.families.gemm.problem import GemmProblem
from aicf.backends.cuda.families.gemm.tf32 import tf32_reason
from aicf.backends.cuda.target import GpuArch

_LEAST_COLUMNS = 64
"""For which there is a tile of every type."""


class WeightGradMmaKernel(PartedKernel[MmaSpec]):
    """Gradients of f16 or bf16, accumulated in f32 by tensor cores."""

    id = "cuda.weight_grad_mma"
    library = "mma"
    simplicity = 3

    def dtype_reason(self, work: Workload) -> str | None:
        dtype = work.operands[0].dtype
        halves = dtype in ("f16", "bf16")
        return None if halves else f"tensor cores multiply f16 and bf16 here, its operands are {dtype}"

    def order(self, problem: WeightGradProblem) -> KOrder:
        return k_order(problem.windows)

    def k_of(self, problem: WeightGradProblem, tile: MmaSpec) -> int:
        return tile.bk

    def tiles(self, problem: WeightGradProblem, arch: GpuArch) -> Iterable[MmaSpec]:
        """Those whose sums are whole: other blocks share K in place of other warps. Of TF32 none is narrower than the
        least."""
        product = problem.product(max(self.order(problem).k, _LEAST_COLUMNS), 1, problem.pixels)
        for spec in legal_specs(product, arch, True):
            if load_reason(problem, spec) is None:
                yield spec

    def product(self, schedule: Parted[MmaSpec], problem: WeightGradProblem) -> GemmProblem:
        """The product of all parts."""
        return problem.product(self.order(problem).k, schedule.parts, self.part_k(problem, schedule))

    def reason(self, schedule: Parted[MmaSpec], problem: WeightGradProblem, arch: GpuArch) -> str | None:
        if schedule.tile.split > 1:
            return f"K is shared in parts, not by {schedule.tile.split} blocks of a tile"
        product = self.product(schedule, problem)
        return spec_reason(schedule.tile, product, arch) or load_reason(problem, schedule.tile)

    def wave(self, problem: WeightGradProblem, tile: MmaSpec, arch: GpuArch) -> tuple[int, int]:
        product = problem.product(self.order(problem).k, 1, problem.pixels)
        beside = blocks_per_sm(tile, product, arch, self._registers(problem, tile))
        return blocks(tile.grid(product)), beside * arch.multiprocessors

    def part_us(self, schedule: Parted[MmaSpec], problem: WeightGradProblem, arch: GpuArch) -> float:
        product, tile = self.product(schedule, problem), schedule.tile
        return predicted_us(tile, product, arch, problem.touched, load_us(problem, tile))

    def entries(
        self, schedule: Parted[MmaSpec], problem: WeightGradProblem, arch: GpuArch
    ) -> dict[str, Attribute]:
        product, tile = self.product(schedule, problem), schedule.tile
        beside = blocks_per_sm(tile, product, arch, self._registers(problem, tile))
        return {**spec_record(tile, product, arch), "blocks_per_sm": integer(beside)}

    def read_tile(self, record: Record) -> MmaSpec:
        return spec_of(record)

    def _registers(self, problem: WeightGradProblem, tile: MmaSpec) -> int:
        loads = pixel_loads(problem, tile)
        assert loads is not None, "asked of legal tiles"
        return loads.registers(problem)


class WeightGradMmaTf32Kernel(WeightGradMmaKernel):
    """Gradients of f32, of operands rounded to TF32 and accumulated in f32 by tensor cores."""

    id = "cuda.weight_grad_mma_tf32"

    def dtype_reason(self, work: Workload) -> str | None:
        return tf32_reason(work)


KERNELS = (WeightGradMmaKernel(), WeightGradMmaTf32Kernel())
"""The kernels of this family."""
