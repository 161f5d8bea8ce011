"""Code of `cuda.gemm_skinny`: from a record to the constants of the template, and the launch."""

from __future__ import annotations

from math import ceil

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, launch_in
from aicf.backends.cuda.compiler.specializer import Constant, Snippet
from aicf.backends.cuda.families.gemm.epilogue import Guards
from aicf.backends.cuda.families.gemm.mma.codegen import PREFETCHED_WORDS
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
from aicf.backends.cuda.families.gemm.skinny import template
from aicf.backends.cuda.families.gemm.skinny.kernel import COPY_ELEMENTS, spec_of
from aicf.backends.cuda.families.gemm.skinny.schedule import SUM_PADDING, WARP_COLUMNS, SkinnySpec
from aicf.backends.cuda.families.records import read_shape

_TEMPLATE = TileTemplate("gemm_skinny", template.gemm_skinny, template.PARTS)


def emit(launch: Launch) -> list[KernelLaunch]:
    """The one launch of an instruction."""
    problem, spec = problem_of_launch(launch), spec_of(launch.record)
    ends, residence = ends_of(launch, problem), residence_of(launch.record)
    vectors = problem.m * spec.bn // 4
    steps = ceil(vectors / spec.threads)
    # Threads that are left over in the last step look past the rows.
    guards = Guards(steps * spec.threads > vectors, problem.n % spec.bn != 0)
    epilogue = ends.epilogue(problem, problem.factors, guards)
    count = problem.factors + ends.pointers
    choose, names = choose_pointers(count, problem.products)
    constants = {
        **_constants(problem, spec, residence),
        "STEPS": steps,
        "PREFETCH": 0 < epilogue.held * steps <= PREFETCHED_WORDS,
        "POINTERS": count,
        "CHOOSE_POINTERS": choose,
        **epilogue.constants,
    }
    source = _TEMPLATE.source(constants, names, problem.sums, problem.dtype)
    pointers = pointers_of(launch, problem)
    own = zip(pointers.b, pointers.ends, strict=True)
    arguments = (pointers.a, *(address for b, end in own for address in (*b, *end)))
    name = f"{_TEMPLATE.name}_{problem.dtype}_{spec.bm}x{spec.bn}x{spec.bk}"
    code = KernelCode(name, source, ("ptr",) * (1 + len(names)), spec.threads, residence.blocks_per_sm)
    return [launch_in(read_shape(launch.record), code, arguments)]


def _constants(
    problem: GemmProblem, spec: SkinnySpec, residence: LaunchBounds
) -> dict[str, Constant | Snippet]:
    """The numbers of the template, as it describes them."""
    slots, size = spec.slots(problem), problem.element_bytes
    row_chunks = spec.bk // COPY_ELEMENTS
    panel_chunks = slots * row_chunks
    sum_row = 4 * (spec.bn + SUM_PADDING)
    return {
        **tile_constants(problem, spec, residence),
        "ROWS": problem.m,
        "COLUMNS": problem.n,
        "K": problem.k,
        "ROW_CHUNKS": row_chunks,
        "PANEL_CHUNKS": panel_chunks,
        "PANEL_COPIES": ceil(spec.bm * panel_chunks / spec.threads),
        "PANEL_BYTES": spec.panel_bytes(problem),
        "STAGES_AT": spec.panels(problem) * spec.panel_bytes(problem),
        "WARP_STAGE_BYTES": spec.stage_bytes(problem) * WARP_COLUMNS // spec.bn,
        "FACTOR_BYTES": WARP_COLUMNS * spec.bk * size,
        "COPY_ROWS": 32 // row_chunks,
        "COPIES": WARP_COLUMNS * row_chunks // 32,
        "X_ROW_BYTES": problem.a_strides[0] * size if problem.m > 1 else 0,
        "W_ROW_BYTES": problem.b_strides[1] * size,
        "HAS_TAIL": problem.k % spec.bk != 0,
        "M_TILES": max(1, spec.bm // 16),
        "SUM_ROW": sum_row,
        "SUM_BYTES": max(spec.bm, 16) * sum_row,
    }
