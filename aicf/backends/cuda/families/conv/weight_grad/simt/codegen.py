"""Code of `cuda.weight_grad_simt`: the tile of a product outside tensor cores, with copies of pixels in the place of
those of matrices."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.specializer import Constant, Snippet
from aicf.backends.cuda.families.conv.weight_grad.parts import (
    checked_loads,
    ends_of,
    launches,
    pixel_template,
)
from aicf.backends.cuda.families.conv.weight_grad.problem import weight_grad_of_launch
from aicf.backends.cuda.families.conv.weight_grad.simt.kernel import WeightGradSimtKernel
from aicf.backends.cuda.families.gemm.parts import residence_of
from aicf.backends.cuda.families.gemm.simt.codegen import tile_code
from aicf.backends.cuda.families.gemm.simt.kernel import sum_bytes

_KERNEL = WeightGradSimtKernel()


def emit(launch: Launch) -> list[KernelLaunch]:
    """The launches of one instruction: the product of every part, and the sums of the parts."""
    from aicf.backends.cuda.families.conv.weight_grad import template as pixels

    problem, schedule = weight_grad_of_launch(launch), _KERNEL.read_schedule(launch.record)
    tile, product = schedule.tile, _KERNEL.product(schedule, problem)
    rows = tile.row_bytes(product, tile.bm), tile.row_bytes(product, tile.bn)
    own: dict[str, Constant | Snippet] = {
        "SUMS": tile.tm * tile.tn,
        "SIZE": sum_bytes(product),
        "CHUNK_OFFSET": pixels.PARTS["ROW_OFFSET"],
        "TILE_A": {"row_bytes": rows[0], "offsets": 1},
        "TILE_B": {"row_bytes": rows[1], "offsets": 1},
        "B_OFFSETS": (rows[0] * tile.bk,),
    }
    loads = checked_loads(launch, problem, tile)
    template = pixel_template("weight_grad_simt", problem, tile, loads, own)
    ends = ends_of(problem, _KERNEL, schedule)
    code = tile_code(product, tile, residence_of(launch.record), ends, template)
    return launches(launch, problem, _KERNEL, schedule, code)
