# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportUndefinedVariable=false, reportCallIssue=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""How a block of a tiled product begins and which sums a thread ends, with tensor cores or without. Parts of templates
for the specializer.

The names in capitals, and `base`, `k0`, COPY_A and COPY_B, are those of the template that takes the parts.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.ptx import *
from aicf.backends.cuda.compiler.specializer import Snippet, part, splice


def warp_origin(tid):
    """Where a warp stands in its block: along rows, along columns, and in which of the sets that take turns at k."""
    across = i32(remainder(u32(tid >> 5), WARPS_N))
    down = i32(remainder(quotient(u32(tid >> 5), WARPS_N), WARPS_M))
    return down, across, i32(quotient(u32(tid >> 5), WARPS_N * WARPS_M))


def tile_origin():
    """First row and column of the block's tile. GROUP tiles below each other, then the next column of tiles: neighbours
    in time share tiles of A and B."""
    group = i32(quotient(u32(cuda.blockIdx.x), GROUP * GRID_N))
    within = remainder(u32(cuda.blockIdx.x), GROUP * GRID_N)
    height = u32(GROUP if GRID_M % GROUP == 0 else min(GRID_M - group * GROUP, GROUP))
    first = i32((group * GROUP + i32(remainder(within, height))) * BM)
    return first, i32(i32(quotient(within, height)) * BN)


def first_stages():
    """Starts the copies of AHEAD stages. B may be a weight, which nothing before this kernel writes: then its copies
    start before the wait."""
    if EARLY_B:
        for tile in range(AHEAD):
            splice(COPY_B, u32(base + tile * STAGE_BYTES), i32(k0 + tile * BK))
    if PROGRAMMATIC:
        wait_for_predecessors()
    for tile in range(AHEAD):
        splice(COPY_A, u32(base + tile * STAGE_BYTES), i32(k0 + tile * BK))
        if not EARLY_B:
            splice(COPY_B, u32(base + tile * STAGE_BYTES), i32(k0 + tile * BK))
        commit_copies()


def vector_origin(i):
    """Row and column in the tile of the i-th vector of sums that this thread finishes."""
    row = i32(quotient(u32(tid + i * THREADS), BN // 4)) + rank * FINISH_ROWS
    column = i32(remainder(u32(tid + i * THREADS), BN // 4)) * 4
    return row, column


PARTS: dict[str, Snippet] = {
    function.__name__.upper(): part(function)
    for function in (warp_origin, tile_origin, first_stages, vector_origin)
}
"""The parts by the names that templates splice."""
