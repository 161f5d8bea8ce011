"""Code of `cuda.gemm_simt`: from a kernel record to the constants of the template, and the launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil, gcd

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, launch_in
from aicf.backends.cuda.compiler.specializer import Constant, Snippet
from aicf.backends.cuda.families.gemm.epilogue import EpilogueCode, Guards
from aicf.backends.cuda.families.gemm.parts import (
    LaunchBounds,
    TileTemplate,
    choose_pointers,
    ends_of,
    pointers_of,
    residence_of,
    tile_constants,
)
from aicf.backends.cuda.families.gemm.problem import GemmProblem, problem_of_launch
from aicf.backends.cuda.families.gemm.simt.kernel import SUMS, SimtSpec, spec_of, sum_bytes
from aicf.backends.cuda.families.records import read_shape
from aicf.backends.cuda.target import ELEMENT_BYTES

_COPY_LANES = 8
"""Neighbours along k that a transposing copy takes: one sector of f32."""


@dataclass(frozen=True)
class TileCopies:
    """How the threads of a block copy a tile of an operand into rows along m (n), one row per k.

    Args:
        fast, slow: Threads along the direction that global memory is contiguous in, and across it.
        fast_along_k: Whether that is k; then the copy transposes.
        elements, width: Elements and bytes of one copy.
        repeats: Times that the `fast` threads have to move along k.
        count, step: Copies of a thread, and how far they are apart, along k if `down_k`, else along m (n).
        target_step, source_step: The same in bytes.
        size, row_bytes: Of an element, of a row in shared memory.
        source_size, widened: Of an element in global memory, and whether it is a short integer that becomes an i32.
        stride, k_stride: Elements between neighbours in global memory.
        extent, k_extent: Elements of the operand along m (n) and k.
        checked: Whether a tile may reach past either; what is widened is always asked.
    """

    fast: int
    slow: int
    fast_along_k: bool
    elements: int
    width: int
    repeats: int
    count: int
    step: int
    down_k: bool
    target_step: int
    source_step: int
    size: int
    row_bytes: int
    source_size: int
    widened: bool
    stride: int
    k_stride: int
    extent: int
    k_extent: int
    checked: bool


def tile_copies(
    spec: SimtSpec,
    problem: GemmProblem,
    across: int,
    extent: int,
    strides: tuple[int, int],
    batch_strides: Sequence[int],
    alignment: int,
) -> TileCopies:
    """The copies of A or B.

    Args:
        across: Elements of a tile along m (n).
        extent: Elements of the operand along m (n).
        strides: Of (m or n, k).
        alignment: Bytes to which the first element is aligned.
    """
    size, source_size = sum_bytes(problem), ELEMENT_BYTES[problem.dtype]
    widened = size != source_size
    stride, k_stride = strides
    covered_k = spec.loops(problem) * spec.bk * spec.split
    row_bytes = spec.row_bytes(problem, across)
    checked = widened or extent % across != 0 or covered_k > problem.k
    if k_stride == 1 and stride != 1:
        threads = spec.threads // _COPY_LANES
        slow = min(threads, across)
        return TileCopies(
            _COPY_LANES, slow, True, 1, size, spec.bk // _COPY_LANES, across // slow, slow, False,
            slow * size, slow * stride * source_size,
            size, row_bytes, source_size, widened, stride, k_stride, extent, problem.k, checked,
        )  # fmt: skip
    aligned = gcd(16, alignment, *(s * size for s in (k_stride, *batch_strides))) == 16
    width = 16 if stride == 1 and aligned and not widened else size
    fast = across * size // width
    slow = min(spec.threads // fast, spec.bk)
    return TileCopies(
        fast, slow, False, width // size, width, 1, spec.bk // slow, slow, True,
        slow * row_bytes, slow * k_stride * source_size,
        size, row_bytes, source_size, widened, stride, k_stride, extent, problem.k, checked,
    )  # fmt: skip


def emit(launch: Launch) -> list[KernelLaunch]:
    """The one launch of an instruction."""
    from aicf.backends.cuda.families.gemm.simt import template as simt

    problem = problem_of_launch(launch)
    more = {**simt.COPIES, **_copies(problem, spec_of(launch.record))}
    return launches(
        launch, problem, ends_of(launch, problem), TileTemplate("gemm_simt", simt.gemm_simt, more)
    )


def launches(
    launch: Launch, problem: GemmProblem, ends: EpilogueCode, template: TileTemplate
) -> list[KernelLaunch]:
    """The one launch of an instruction that is `problem`, by the decisions of its record."""
    pointers, spec = pointers_of(launch, problem), spec_of(launch.record)
    own = zip(pointers.b, pointers.ends, strict=True)
    arguments = (pointers.a, *(address for b, end in own for address in (*b, *end)))
    code = tile_code(problem, spec, residence_of(launch.record), ends, template)
    return [launch_in(read_shape(launch.record), code, arguments)]


def tile_code(
    problem: GemmProblem,
    spec: SimtSpec,
    residence: LaunchBounds,
    ends: EpilogueCode,
    template: TileTemplate,
) -> KernelCode:
    """The kernel of a product."""
    from aicf.backends.cuda.families.gemm import template as gemm
    from aicf.backends.cuda.families.gemm.simt import template as simt

    guards = Guards(problem.m % spec.bm != 0, problem.n % spec.bn != 0)
    epilogue = ends.epilogue(problem, problem.factors, guards)
    count = problem.factors + ends.pointers
    choose, names = choose_pointers(count, problem.products)
    constants: dict[str, Constant | Snippet] = {
        **tile_constants(problem, spec, residence),
        **_sizes(problem, spec),
        "POINTERS": count,
        "CHOOSE_POINTERS": choose,
        **epilogue.constants,
        **gemm.PARTS,
        **simt.PARTS,
    }
    source = template.source(constants, names, SUMS[problem.dtype], problem.dtype)
    name = f"{template.name}_{problem.dtype}_{spec.bm}x{spec.bn}x{spec.bk}"
    return KernelCode(name, source, ("ptr",) * (1 + len(names)), spec.threads, residence.blocks_per_sm)


def _sizes(problem: GemmProblem, spec: SimtSpec) -> dict[str, Constant | Snippet]:
    """Of the tile, and of what its blocks and threads share."""
    part_row = spec.row_bytes(problem, spec.bn)
    # A cluster shares the rows of the tile; the last block may get fewer.
    finished = spec.bm // spec.split
    return {
        "WARPS_M": spec.warps[0],
        "WARPS_N": spec.warps[1],
        "SIZE": sum_bytes(problem),
        "PART_ROW": part_row,
        "PART_BYTES": part_row * spec.bm,
        "CLUSTER": spec.split > 1,
        "FINISHED": finished,
        "FINISH_ROWS": finished if spec.split > 1 else 0,
        "STEPS": ceil(finished * spec.bn // 4 / spec.threads),
    }


def _copies(problem: GemmProblem, spec: SimtSpec) -> dict[str, Constant | Snippet]:
    """How A and B come into shared memory."""
    b_strides = (problem.b_strides[1], problem.b_strides[0])
    a_tile = tile_copies(
        spec, problem, spec.bm, problem.m, problem.a_strides, problem.a_batch, problem.a_alignment
    )
    b_tile = tile_copies(spec, problem, spec.bn, problem.n, b_strides, problem.b_batch, problem.b_alignment)
    a_bytes, b_bytes = a_tile.row_bytes * spec.bk, b_tile.row_bytes * spec.bk
    return {
        "B_OFFSETS": tuple(a_bytes + factor * b_bytes for factor in range(problem.factors)),
        "TILE_A": asdict(a_tile),
        "TILE_B": asdict(b_tile),
    }
