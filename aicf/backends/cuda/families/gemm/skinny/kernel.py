"""Descriptor of `cuda.gemm_skinny`: products of at most 32 rows of f16 or bf16, which read the weights once at memory
speed and have the bits of `cuda.gemm_mma` with whole sums: a row comes out the same in a batch of 1 and in a prompt.

No code generator is imported here; `codegen.py` turns the record into a kernel.
"""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import RecordCodec, integer
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.gemm.mma.kernel import whole_sums_order
from aicf.backends.cuda.families.gemm.problem import GemmProblem
from aicf.backends.cuda.families.gemm.skinny.schedule import (
    MOST_ROWS,
    SkinnySpec,
    blocks_per_sm,
    legal_specs,
    ranked_specs,
    spec_reason,
)
from aicf.backends.cuda.families.gemm.tiled_kernel import TiledKernel
from aicf.backends.cuda.families.records import Shape
from aicf.backends.cuda.target import GpuArch

COPY_ELEMENTS = 8
"""Halves in the 16 bytes of a copy."""

_CODEC = RecordCodec(SkinnySpec)
spec_of = _CODEC.read


def _order(spec: SkinnySpec, problem: GemmProblem) -> str:
    """How the sums of one element are combined, for the record: no spec changes it."""
    return whole_sums_order(problem)


def _entries(spec: SkinnySpec, problem: GemmProblem, arch: GpuArch) -> dict[str, Attribute]:
    """The entries of the record that say how."""
    shape = Shape(spec.grid(problem), (spec.threads, 1, 1), shared_bytes=spec.shared_bytes(problem))
    return {
        **_CODEC.entries(spec),
        **shape.entries(),
        "combination_order": StringAttr(_order(spec, problem)),
        "blocks_per_sm": integer(blocks_per_sm(spec, problem, arch)),
    }


class SkinnyKernel(TiledKernel[SkinnySpec]):
    """Products of few rows with weights along K and any epilogue, accumulated in f32 by tensor cores.

    Whatever it runs, `cuda.gemm_mma` runs as well, and in the same order of sums: so it may be legal for few rows alone
    where the batch must not show in the bits.
    """

    id = "cuda.gemm_skinny"
    library = "mma"
    simplicity = 3
    codec = _CODEC
    specs = staticmethod(legal_specs)
    ranked = staticmethod(ranked_specs)
    order = staticmethod(_order)
    reason = staticmethod(spec_reason)
    entries = staticmethod(_entries)
    smallest = SkinnySpec(8, 16, 64, 4)

    def dtype_reason(self, work: Workload) -> str | None:
        dtype = work.operands[0].dtype
        return None if dtype in ("f16", "bf16") else f"tensor cores multiply f16 and bf16 here, A is {dtype}"

    def memory_reason(self, work: Workload) -> str | None:
        problem = self.problem(work)
        if problem.m > MOST_ROWS:
            return f"x has {problem.m} rows, at most {MOST_ROWS} are streamed past the weights"
        if problem.batches > 1:
            return f"there are {problem.batches} matrices, one is streamed"
        if problem.k > 1 and (problem.a_strides[1] != 1 or problem.b_strides[0] != 1):
            return "x and the weights are copied along K, and one does not lie so"
        rows = (problem.k, problem.a_strides[0] if problem.m > 1 else 0, problem.b_strides[1])
        if any(row % COPY_ELEMENTS for row in rows) or min(problem.a_alignment, problem.b_alignment) < 16:
            return "K, or rows of x or of the weights, are no multiple of 16 bytes"
        return None


KERNELS = (SkinnyKernel(),)
"""The kernel of this family."""
