"""The descriptors of `cuda.conv_mma`, `cuda.conv_mma_tf32` and `cuda.conv_mma_int8`: convolutions of any
strides by tensor cores.

No code generator is imported here; `codegen.py` turns the record into kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from xdsl.ir import Attribute

from aicf.backends.common.record import integer
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.problem import ConvProblem
from aicf.backends.cuda.families.conv.tiled_kernel import (
    TiledConvKernel,
    as_product,
    load_reason,
    load_registers,
    load_us,
    touched,
)
from aicf.backends.cuda.families.conv.windows import TileLoads, k_order, tile_loads
from aicf.backends.cuda.families.gemm.byte_operands import INTEGERS
from aicf.backends.cuda.families.gemm.mma.kernel import (
    MmaKernel,
    MmaSpec,
    blocks_per_sm,
    combination_order,
    legal_specs,
    predicted_us,
    spec_reason,
    spec_record,
)
from aicf.backends.cuda.families.gemm.tf32 import tf32_reason
from aicf.backends.cuda.target import GpuArch


def loads_of_spec(spec: MmaSpec, problem: ConvProblem) -> TileLoads | None:
    """How the threads of a block bring its tiles; None if these do not divide over them."""
    return tile_loads(problem, (spec.bm, spec.bn, spec.bk), spec.threads)


def _loads(spec: MmaSpec, problem: ConvProblem) -> TileLoads:
    found = loads_of_spec(spec, problem)
    assert found is not None, "loads are asked for of legal specs"
    return found


def _legal_specs(problem: ConvProblem, arch: GpuArch, fixed: bool) -> Iterator[MmaSpec]:
    for spec in legal_specs(as_product(problem), arch, fixed):
        if load_reason(spec, loads_of_spec(spec, problem)) is None:
            yield spec


@functools.lru_cache(maxsize=4096)
def ranked_specs(problem: ConvProblem, arch: GpuArch, fixed: bool) -> tuple[tuple[float, MmaSpec], ...]:
    """All legal specs with their predicted microseconds, the cheapest first."""
    product, elements = as_product(problem), touched(problem)
    found = [
        (predicted_us(spec, product, arch, elements, load_us(problem, _loads(spec, problem))), spec)
        for spec in _legal_specs(problem, arch, fixed)
    ]
    return tuple(sorted(found, key=lambda entry: (entry[0], entry[1].shared_bytes(product))))


class ConvMmaKernel(TiledConvKernel[MmaSpec]):
    """Convolutions of f16 or bf16 of any strides with any epilogue, accumulated in f32 by tensor cores."""

    id = "cuda.conv_mma"
    library = "mma"
    simplicity = 3
    codec = MmaKernel.codec

    def dtype_reason(self, work: Workload) -> str | None:
        dtype = work.operands[0].dtype
        halves = dtype in ("f16", "bf16")
        return None if halves else f"tensor cores multiply f16 and bf16 here, its operand is {dtype}"

    def ranked(self, problem: ConvProblem, arch: GpuArch, fixed: bool) -> Sequence[tuple[float, MmaSpec]]:
        return ranked_specs(problem, arch, fixed)

    def reason(self, spec: MmaSpec, problem: ConvProblem, arch: GpuArch) -> str | None:
        return spec_reason(spec, as_product(problem), arch) or load_reason(spec, loads_of_spec(spec, problem))

    def smallest(self, problem: ConvProblem) -> MmaSpec:
        return MmaSpec(16, 32, 4 * k_order(problem).chunk, 1, 1, 2, 2)

    def order(self, spec: MmaSpec, problem: ConvProblem) -> str:
        return combination_order(spec, as_product(problem))

    def entries(self, spec: MmaSpec, problem: ConvProblem, arch: GpuArch) -> dict[str, Attribute]:
        product = as_product(problem)
        blocks = blocks_per_sm(spec, product, arch, load_registers(problem, _loads(spec, problem)))
        return {**spec_record(spec, product, arch), "blocks_per_sm": integer(blocks)}


class ConvMmaTf32Kernel(ConvMmaKernel):
    """Convolutions of f32 with any epilogue, of operands rounded to TF32 and accumulated in f32 by tensor cores."""

    id = "cuda.conv_mma_tf32"

    def dtype_reason(self, work: Workload) -> str | None:
        return tf32_reason(work)


class ConvMmaIntegerKernel(ConvMmaKernel):
    """Convolutions of 8-bit integers with any epilogue and any integer around the operand, with sums of i32 in tensor
    cores."""

    id = "cuda.conv_mma_int8"
    widens = True

    def dtype_reason(self, work: Workload) -> str | None:
        return INTEGERS.reason(work)


KERNELS = (ConvMmaKernel(), ConvMmaTf32Kernel(), ConvMmaIntegerKernel())
"""The kernels of this family."""
