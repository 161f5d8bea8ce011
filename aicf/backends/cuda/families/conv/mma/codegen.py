"""Code of `cuda.conv_mma`: the tile of a product of tensor cores, with copies of windows in the place of those of
matrices."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.specializer import Constant, Snippet
from aicf.backends.cuda.families.conv.mma.kernel import loads_of_spec
from aicf.backends.cuda.families.conv.parts import (
    checked_loads,
    checked_problem,
    conv_template,
    ends_of,
    goes_down,
)
from aicf.backends.cuda.families.conv.tiled_kernel import as_product
from aicf.backends.cuda.families.gemm.mma.codegen import launches
from aicf.backends.cuda.families.gemm.mma.kernel import spec_of


def emit(launch: Launch) -> list[KernelLaunch]:
    """The launches of one instruction: the convolution, and after a workspace split the sums of the parts."""
    from aicf.backends.cuda.families.conv import template as conv

    problem, spec = checked_problem(launch), spec_of(launch.record)
    loads, ends = checked_loads(launch, spec, loads_of_spec(spec, problem)), ends_of(launch, problem)
    warp_sums = spec.bm * spec.bn // (spec.warps_m * spec.warps_n)
    own: dict[str, Constant | Snippet] = {"SUMS": warp_sums // 32, "ARRIVES_FIRST": spec.through == "cluster"}
    # The parts of a split lie in rows of outputs, whatever the result.
    if spec.through != "workspace" and goes_down(problem, ends.outputs[0]):
        own["VECTOR_ORIGIN"] = conv.PARTS["VECTOR_DOWN"]
    pieces = loads.x.width, loads.weight.width
    template = conv_template("conv_mma", problem, spec, loads, pieces, own)
    return launches(launch, as_product(problem), ends, template)
