"""The descriptor of `cuda.weight_grad_simt`: gradients of weights outside tensor cores, in IEEE f32 and f64.

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
from aicf.backends.cuda.families.gemm.problem import GemmProblem
from aicf.backends.cuda.families.gemm.simt.kernel import (
    SimtSpec,
    blocks_per_sm,
    legal_specs,
    predicted_us,
    spec_of,
    spec_reason,
    spec_record,
)
from aicf.backends.cuda.target import GpuArch

TYPES = ("f32", "f64")


class WeightGradSimtKernel(PartedKernel[SimtSpec]):
    """Gradients of f32 (IEEE) and f64."""

    id = "cuda.weight_grad_simt"
    library = "simt"
    simplicity = 2

    def dtype_reason(self, work: Workload) -> str | None:
        dtype = work.operands[0].dtype
        return None if dtype in TYPES else f"it multiplies {' and '.join(TYPES)}, its operands are {dtype}"

    def order(self, problem: WeightGradProblem) -> KOrder:
        return k_order(problem.windows)

    def k_of(self, problem: WeightGradProblem, tile: SimtSpec) -> int:
        return tile.bk

    def tiles(self, problem: WeightGradProblem, arch: GpuArch) -> Iterable[SimtSpec]:
        """Those whose sums are whole: other blocks share K in place of other warps."""
        product = problem.product(self.order(problem).k, 1, problem.pixels)
        for spec in legal_specs(product, arch, True):
            if load_reason(problem, spec) is None:
                yield spec

    def product(self, schedule: Parted[SimtSpec], problem: WeightGradProblem) -> GemmProblem:
        """The product of all parts."""
        return problem.product(self.order(problem).k, schedule.parts, self.part_k(problem, schedule))

    def reason(self, schedule: Parted[SimtSpec], problem: WeightGradProblem, arch: GpuArch) -> str | None:
        if schedule.tile.split > 1:
            return f"K is shared in parts, not by {schedule.tile.split} blocks of a tile"
        product = self.product(schedule, problem)
        return spec_reason(schedule.tile, product, arch) or load_reason(problem, schedule.tile)

    def wave(self, problem: WeightGradProblem, tile: SimtSpec, arch: GpuArch) -> tuple[int, int]:
        product = problem.product(self.order(problem).k, 1, problem.pixels)
        beside = blocks_per_sm(tile, product, self._registers(problem, tile))
        return blocks(tile.grid(product)), beside * arch.multiprocessors

    def part_us(self, schedule: Parted[SimtSpec], problem: WeightGradProblem, arch: GpuArch) -> float:
        product, tile = self.product(schedule, problem), schedule.tile
        return predicted_us(tile, product, arch, load_us(problem, tile))

    def entries(
        self, schedule: Parted[SimtSpec], problem: WeightGradProblem, arch: GpuArch
    ) -> dict[str, Attribute]:
        product, tile = self.product(schedule, problem), schedule.tile
        beside = blocks_per_sm(tile, product, self._registers(problem, tile))
        return {**spec_record(tile, product, arch), "blocks_per_sm": integer(beside)}

    def read_tile(self, record: Record) -> SimtSpec:
        return spec_of(record)

    def _registers(self, problem: WeightGradProblem, tile: SimtSpec) -> int:
        loads = pixel_loads(problem, tile)
        assert loads is not None, "asked of legal tiles"
        return loads.registers(problem)


KERNELS = (WeightGradSimtKernel(),)
"""The kernel of this family."""
