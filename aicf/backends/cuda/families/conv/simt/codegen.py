"""Code of `cuda.conv_simt`: the tile of a product outside tensor cores, with copies of windows in the place of those of
matrices."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.specializer import Constant, Snippet
from aicf.backends.cuda.families.conv.parts import (
    checked_loads,
    checked_problem,
    conv_template,
    ends_of,
    goes_down,
)
from aicf.backends.cuda.families.conv.problem import ConvProblem
from aicf.backends.cuda.families.conv.simt.kernel import loads_of_spec
from aicf.backends.cuda.families.conv.tiled_kernel import as_product
from aicf.backends.cuda.families.conv.windows import k_order
from aicf.backends.cuda.families.gemm.problem import GemmProblem
from aicf.backends.cuda.families.gemm.simt.codegen import launches
from aicf.backends.cuda.families.gemm.simt.kernel import SimtSpec, spec_of


def emit(launch: Launch) -> list[KernelLaunch]:
    """The one launch of an instruction."""
    from aicf.backends.cuda.families.conv import template as conv

    problem, spec = checked_problem(launch), spec_of(launch.record)
    loads, ends = checked_loads(launch, spec, loads_of_spec(spec, problem)), ends_of(launch, problem)
    product = as_product(problem)
    # The elements of a chunk lie below each other.
    pieces = spec.row_bytes(product, spec.bm), spec.row_bytes(product, spec.bn)
    own: dict[str, Constant | Snippet] = {
        "SUMS": spec.tm * spec.tn,
        "ARRIVES_FIRST": False,
        "PREFETCH": False,
        "CHUNK_OFFSET": conv.PARTS["ELEMENT_OFFSET"],
        "TILE_A": _tile(problem, product, spec, spec.bm),
        "TILE_B": _tile(problem, product, spec, spec.bn),
        "B_OFFSETS": (pieces[0] * spec.bk,),
    }
    if goes_down(problem, ends.outputs[0]):
        own["VECTOR_ORIGIN"] = conv.PARTS["VECTOR_DOWN"]
    template = conv_template("conv_simt", problem, spec, loads, pieces, own)
    return launches(launch, product, ends, template)


def _tile(problem: ConvProblem, product: GemmProblem, spec: SimtSpec, across: int) -> dict[str, int]:
    """A tile in shared memory: rows along pixels or outputs, one for each element of K."""
    row = spec.row_bytes(product, across)
    return {
        "row_bytes": row,
        "chunk_bytes": row * k_order(problem).chunk,
        "size": problem.element_bytes,
        "offsets": 1,
    }
