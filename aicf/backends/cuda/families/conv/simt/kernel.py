"""The descriptor of `cuda.conv_simt`: convolutions of any strides outside tensor cores, in IEEE f32 and f64.

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
)
from aicf.backends.cuda.families.conv.windows import TileLoads, tile_loads
from aicf.backends.cuda.families.gemm.simt.kernel import (
    SimtKernel,
    SimtSpec,
    blocks_per_sm,
    combination_order,
    legal_specs,
    predicted_us,
    spec_reason,
    spec_record,
)
from aicf.backends.cuda.target import GpuArch

TYPES = ("f32", "f64")
"""Whose elements asynchronous copies put in their places one by one."""


def loads_of_spec(spec: SimtSpec, problem: ConvProblem) -> TileLoads | None:
    """How the threads of a block bring its tiles, element by element; None if these do not divide over them."""
    return tile_loads(problem, (spec.bm, spec.bn, spec.bk), spec.threads, single=True)


def _loads(spec: SimtSpec, problem: ConvProblem) -> TileLoads:
    found = loads_of_spec(spec, problem)
    assert found is not None, "loads are asked for of legal specs"
    return found


def _legal_specs(problem: ConvProblem, arch: GpuArch, fixed: bool) -> Iterator[SimtSpec]:
    for spec in legal_specs(as_product(problem), arch, fixed):
        if load_reason(spec, loads_of_spec(spec, problem)) is None:
            yield spec


@functools.lru_cache(maxsize=4096)
def ranked_specs(problem: ConvProblem, arch: GpuArch, fixed: bool) -> tuple[tuple[float, SimtSpec], ...]:
    """All legal specs with their predicted microseconds, the cheapest first."""
    product = as_product(problem)
    found = [
        (predicted_us(spec, product, arch, load_us(problem, _loads(spec, problem))), spec)
        for spec in _legal_specs(problem, arch, fixed)
    ]
    return tuple(sorted(found, key=lambda entry: entry[0]))


class ConvSimtKernel(TiledConvKernel[SimtSpec]):
    """Convolutions of f32 (IEEE) and f64 of any strides with any epilogue."""

    id = "cuda.conv_simt"
    library = "simt"
    simplicity = 2
    codec = SimtKernel.codec

    def dtype_reason(self, work: Workload) -> str | None:
        dtype = work.operands[0].dtype
        return None if dtype in TYPES else f"it convolves {' and '.join(TYPES)}, its operand is {dtype}"

    def ranked(self, problem: ConvProblem, arch: GpuArch, fixed: bool) -> Sequence[tuple[float, SimtSpec]]:
        return ranked_specs(problem, arch, fixed)

    def reason(self, spec: SimtSpec, problem: ConvProblem, arch: GpuArch) -> str | None:
        return spec_reason(spec, as_product(problem), arch) or load_reason(spec, loads_of_spec(spec, problem))

    def smallest(self, problem: ConvProblem) -> SimtSpec:
        return SimtKernel.smallest

    def order(self, spec: SimtSpec, problem: ConvProblem) -> str:
        return combination_order(spec, as_product(problem))

    def entries(self, spec: SimtSpec, problem: ConvProblem, arch: GpuArch) -> dict[str, Attribute]:
        product = as_product(problem)
        blocks = blocks_per_sm(spec, product, load_registers(problem, _loads(spec, problem)))
        return {**spec_record(spec, product, arch), "blocks_per_sm": integer(blocks)}


KERNELS = (ConvSimtKernel(),)
"""The kernel of this family."""
