"""Code of `cuda.weight_grad_mma`: the tile of a product of tensor cores, with copies of pixels in the place of those of
matrices."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.specializer import Constant, Snippet
from aicf.backends.cuda.families.conv.weight_grad.mma.kernel import WeightGradMmaKernel
from aicf.backends.cuda.families.conv.weight_grad.parts import (
    checked_loads,
    ends_of,
    launches,
    pixel_template,
)
from aicf.backends.cuda.families.conv.weight_grad.problem import weight_grad_of_launch
from aicf.backends.cuda.families.gemm.mma.codegen import tile_code
from aicf.backends.cuda.families.gemm.parts import residence_of

_KERNEL = WeightGradMmaKernel()


def emit(launch: Launch) -> list[KernelLaunch]:
    """The launches of one instruction: the product of every part, and the sums of the parts."""
    problem, schedule = weight_grad_of_launch(launch), _KERNEL.read_schedule(launch.record)
    tile, product = schedule.tile, _KERNEL.product(schedule, problem)
    own: dict[str, Constant | Snippet] = {"SUMS": tile.bm * tile.bn // (tile.warps_m * tile.warps_n) // 32}
    loads = checked_loads(launch, problem, tile)
    template = pixel_template("weight_grad_mma", problem, tile, loads, own)
    ends = ends_of(problem, _KERNEL, schedule)
    code = tile_code(product, tile, residence_of(launch.record), ends, template)
    return launches(launch, problem, _KERNEL, schedule, code)
