"""Code of `cuda.gemm_mma`: from a kernel record to the constants of the templates, and the launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, gcd

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Constant, Snippet, stage
from aicf.backends.cuda.families.gemm.byte_operands import stored_types
from aicf.backends.cuda.families.gemm.epilogue import Epilogue, EpilogueCode, Guards
from aicf.backends.cuda.families.gemm.mma.kernel import PART_PADDING, MmaSpec, k_step, part_columns, spec_of
from aicf.backends.cuda.families.gemm.parts import (
    LaunchBounds,
    TileTemplate,
    choose_pointers,
    ends_of,
    pointers_of,
    residence_of,
    tile_constants,
    with_types,
)
from aicf.backends.cuda.families.gemm.problem import Access, GemmProblem, problem_of_launch
from aicf.backends.cuda.families.gemm.tf32 import math_of
from aicf.backends.cuda.families.records import Shape, read_shape, read_triple

PREFETCHED_WORDS = 24
"""Words of the epilogue's operands that a thread may hold while it multiplies."""


@dataclass(frozen=True)
class TileGeometry:
    """How a tile of an operand lies in global and in shared memory.

    Args:
        along_k: Whether its rows go along k (else along m or n).
        element_bytes: Of its type.
        rows, chunks: Rows in shared memory, and 16-byte chunks of one.
        outer_stride, inner_stride: Elements between rows and within one, in global memory.
        outer_size, inner_size: Elements of the operand along both.
        check_outer, check_inner: Whether a tile may reach past its end.
        width: Bytes of one copy, 16, 8 or 4; 2 for single halves, through registers.
        copies: Chunks that a thread copies.
        row_step: Rows from one chunk of a thread to the next, if its chunks are below each other, else 0.
        mask, shift: The permutation: chunk ^ ((row >> shift) & mask); of words, that with pairs of chunks.
        words: Whether fragments are read word by word: matrices of f32 cannot be transposed on the way.
        offsets: Places that a lane reads from, which it keeps.
    """

    element_bytes: int
    along_k: bool
    rows: int
    chunks: int
    outer_stride: int
    inner_stride: int
    outer_size: int
    inner_size: int
    check_outer: bool
    check_inner: bool
    width: int
    copies: int
    row_step: int
    mask: int
    shift: int
    words: bool
    offsets: int

    def constants(self) -> dict[str, int | bool]:
        """As the templates read it."""
        return {
            **asdict(self),
            "checked": self.check_outer or self.check_inner,
            "row_bytes": self.chunks * 16,
            "chunk": 16 // self.element_bytes,
            "uniform": self.width == 16 and self.row_step > 0,
        }


def tile_geometry(
    size: int,
    k: int,
    strides: tuple[int, int],
    batch_strides: Sequence[int],
    alignment: int,
    tile: tuple[int, int],
    covered_k: int,
    threads: int,
    lane_tiles: int,
    k_steps: int,
    element_bytes: int = 2,
) -> TileGeometry:
    """The geometry of A or B.

    Args:
        size, k: Elements along m or n, and along k.
        strides: Of (m or n, k).
        tile: Elements of a tile along (m or n, k).
        covered_k: k rounded up to what all blocks together walk over.
        lane_tiles: 16-element tiles of a warp along m or n.
        k_steps: Steps of a warp in a tile.
    """
    along_k = strides[1] == 1 or strides[0] != 1
    sizes, extents = ((size, k), tile) if along_k else ((k, size), tile[::-1])
    outer_stride, inner_stride = strides if along_k else strides[::-1]
    rows, chunks = extents[0], extents[1] * element_bytes // 16
    covered = (ceil(size / tile[0]) * tile[0], covered_k)
    over = (covered[0] > size, covered[1] > k)
    check_outer, check_inner = over if along_k else over[::-1]
    period = gcd(chunks, 8)
    below = threads % (8 * chunks) == 0 and rows * chunks % threads == 0
    row_step = threads // chunks if below else 0
    words = element_bytes == 4 and not along_k
    # A warp reads 8 neighbours of 4 rows at once if it reads words, a chunk of 8 rows if it reads matrices.
    mask, offsets = (period // 2 - 1, min(2 * lane_tiles, period // 2)) if words else (period - 1, lane_tiles)
    return TileGeometry(
        element_bytes,
        along_k,
        rows,
        chunks,
        outer_stride,
        inner_stride,
        sizes[0],
        sizes[1],
        check_outer,
        check_inner,
        _copy_width(inner_stride, [outer_stride, *batch_strides], alignment, element_bytes),
        ceil(rows * chunks / threads),
        row_step,
        mask,
        {8: 0, 4: 1, 2: 2, 1: 3}[period],
        words,
        k_steps if along_k else offsets,
    )


def _copy_width(inner_stride: int, strides: Sequence[int], alignment: int, element_bytes: int) -> int:
    """Bytes that may be copied at once from every multiple of 16 bytes of every row."""
    if inner_stride != 1:
        return element_bytes
    return gcd(16, alignment, *(element_bytes * stride for stride in strides))


# The kernels


def emit(launch: Launch) -> list[KernelLaunch]:
    """The launches of one instruction: the products, and after a workspace split the sums of the parts."""
    from aicf.backends.cuda.families.gemm.mma import template as mma

    problem = problem_of_launch(launch)
    return launches(
        launch, problem, ends_of(launch, problem), TileTemplate("gemm_mma", mma.gemm_mma, mma.COPIES)
    )


def launches(
    launch: Launch, problem: GemmProblem, ends: EpilogueCode, template: TileTemplate
) -> list[KernelLaunch]:
    """The launches of an instruction that is `problem`, by the decisions of its record."""
    spec, residence = spec_of(launch.record), residence_of(launch.record)
    pointers, shape = pointers_of(launch, problem), read_shape(launch.record)
    if spec.through != "workspace":
        own = zip(pointers.b, pointers.ends, strict=True)
        arguments = (pointers.a, *(address for b, end in own for address in (*b, *end)))
        return [launch_in(shape, tile_code(problem, spec, residence, ends, template), arguments)]
    parts = address_of(launch.ws[0])
    arguments = (
        pointers.a,
        *(address for b in pointers.b for address in (*b, *[parts] * problem.factors)),
    )
    sums = Shape(read_triple(launch.record, "sum_grid"), read_triple(launch.record, "sum_block"))
    add = sum_code(problem, spec, residence, ends, sums.block[0])
    return [
        launch_in(shape, tile_code(problem, spec, residence, None, template), arguments),
        launch_in(sums, add, (parts, *(address for end in pointers.ends for address in end))),
    ]


def _parts_epilogue(problem: GemmProblem, spec: MmaSpec, guards: Guards) -> Epilogue:
    """Stores sums into the workspace: [factor][range of k][matrix and product][row][column]."""
    columns = part_columns(problem)
    matrices = problem.batches * problem.products
    flat = replace(problem, n=columns, batch=(spec.split * matrices,), row_dims=(problem.m,))
    size = problem.m * columns
    outputs = [
        Access(problem.sums, factor * spec.split * matrices * size, (size, columns, 1), 16)
        for factor in range(problem.factors)
    ]
    return EpilogueCode(None, (), outputs, {}).epilogue(flat, problem.factors, guards)


def tile_code(
    problem: GemmProblem,
    spec: MmaSpec,
    residence: LaunchBounds,
    ends: EpilogueCode | None,
    template: TileTemplate,
) -> KernelCode:
    """The product kernel; without `ends` it stores the parts of a split into a workspace."""
    from aicf.backends.cuda.families.gemm import template as gemm
    from aicf.backends.cuda.families.gemm.mma import template as mma

    finished = spec.bm // spec.split if spec.through == "cluster" else spec.bm
    vectors = finished * spec.bn // 4
    steps = ceil(vectors / spec.threads)
    # Threads that are left over in the last step look past the tile.
    guards = Guards(problem.m % spec.bm != 0 or steps * spec.threads > vectors, problem.n % spec.bn != 0)
    if ends is None:
        epilogue = _parts_epilogue(problem, spec, guards)
        count = 2 * problem.factors
    else:
        epilogue = ends.epilogue(problem, problem.factors, guards)
        count = problem.factors + ends.pointers
    choose, names = choose_pointers(count, problem.products)
    constants = _constants(problem, spec, residence)
    constants |= {
        "FINISH_ROWS": finished if spec.through == "cluster" else 0,
        "FINISHED": finished,
        "SLOT_BYTES": finished * (spec.bn + PART_PADDING) * 4,
        "STEPS": steps,
        "PREFETCH": 0 < epilogue.held * steps <= PREFETCHED_WORDS,
        "PARTIAL": ends is None,
        "POINTERS": count,
        "CHOOSE_POINTERS": choose,
        **epilogue.constants,
        **gemm.PARTS,
        **mma.PARTS,
    }
    stored = stored_types(problem) if problem.widens else problem.dtype
    source = template.source(constants, names, problem.sums, stored)
    params = ("ptr",) * (1 + len(names))
    name = f"{template.name}_{math_of(stored)}_{spec.bm}x{spec.bn}x{spec.bk}"
    return KernelCode(name, source, params, spec.threads, residence.blocks_per_sm)


def _constants(problem: GemmProblem, spec: MmaSpec, residence: LaunchBounds) -> dict[str, Constant | Snippet]:
    m_tiles, n_tiles = spec.bm // spec.warps_m // 16, spec.bn // spec.warps_n // 8
    k_steps = spec.bk // k_step(problem) // spec.warps_k
    size = problem.element_bytes
    covered_k = spec.split * spec.loops(problem) * spec.bk
    a_tile = tile_geometry(
        problem.m, problem.k, problem.a_strides, problem.a_batch, problem.a_alignment,
        (spec.bm, spec.bk), covered_k, spec.threads, m_tiles, k_steps, size,
    )  # fmt: skip
    b_tile = tile_geometry(
        problem.n, problem.k, (problem.b_strides[1], problem.b_strides[0]), problem.b_batch, problem.b_alignment,
        (spec.bn, spec.bk), covered_k, spec.threads, n_tiles // 2, k_steps, size,
    )  # fmt: skip
    part_row = (spec.bn + PART_PADDING) * 4
    return {
        **tile_constants(problem, spec, residence),
        "MATH": "bytes" if problem.widens else math_of(problem.dtype),
        "M_TILES": m_tiles,
        "N_TILES": n_tiles,
        "K_STEPS": k_steps,
        "B_OFFSETS": tuple((spec.bm + f * spec.bn) * spec.bk * size for f in range(problem.factors)),
        "PART_ROW": part_row,
        "PARTS_AT": spec.slots(problem) * spec.stage_bytes(problem) if spec.through == "cluster" else 0,
        "CLUSTER": spec.through == "cluster",
        "TILE_A": a_tile.constants(),
        "TILE_B": b_tile.constants(),
    }


def sum_code(
    problem: GemmProblem, spec: MmaSpec, residence: LaunchBounds, ends: EpilogueCode, threads: int
) -> KernelCode:
    """The kernel that adds the parts of a workspace."""
    from aicf.backends.cuda.families.gemm.mma import template as mma

    columns = part_columns(problem)
    epilogue = ends.epilogue(problem, 0, Guards(rows=False, columns=False))
    count = ends.pointers
    choose, names = choose_pointers(count, problem.products)
    matrices = problem.batches * problem.products
    constants: dict[str, Constant | Snippet] = {
        "THREADS": threads,
        "PRODUCTS": problem.products,
        "FACTORS": problem.factors,
        "SPLIT": spec.split,
        "PROGRAMMATIC": residence.programmatic,
        "PART_ROWS": problem.m,
        "PART_COLUMNS": columns,
        "PART_STRIDE": matrices * problem.m * columns,
        "POINTERS": count,
        "CHOOSE_POINTERS": choose,
        **epilogue.constants,
    }
    source = stage(mma.add_parts, constants).replace(
        "add_parts()", f"add_parts(parts, {', '.join(names)})", 1
    )
    source = with_types(source, problem.sums)
    return KernelCode("add_parts", source, ("ptr",) * (1 + len(names)), threads)
