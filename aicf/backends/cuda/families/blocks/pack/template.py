# pyright: basic, reportUndefinedVariable=false
"""The kernel that lays weights out in tiles, written for the specializer.

Names in capitals are constants that `codegen.py` gives.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def pack_blocks(weight: object, tiles: object):
    """A warp takes a tile, and each lane writes the words that it will read: of rows `group` and `group` + 8, a quarter
    of each run. Rows and blocks past the end of the weight are zeros."""
    if PROGRAMMATIC:
        launch_dependents()
    index = i32(cuda.blockIdx.x) * i32(THREADS // 32) + (i32(cuda.threadIdx.x) >> i32(5))
    lane = i32(cuda.threadIdx.x) & i32(31)
    group = lane >> i32(2)
    quarter = lane & i32(3)
    tile = min(index, i32(TILES - 1))
    panel = i32(tile // i32(ROW_TILES))
    first = i32(tile - panel * i32(ROW_TILES)) * i32(BLOCKS)
    if PROGRAMMATIC:
        wait_for_predecessors()
    inside = registers(2 * BLOCKS, False)
    at = registers(2 * BLOCKS, u64(0))
    for half in unrolled(2):
        for block in unrolled(BLOCKS):
            row = panel * i32(16) + group + i32(8 * half)
            number = first + i32(block)
            inside[half * BLOCKS + block] = (row < i32(ROWS)) & (number < i32(ROW_BLOCKS))
            at[half * BLOCKS + block] = (
                weight
                + u64(min(row, i32(ROWS - 1))) * u64(ROW_STEP)
                + u64(min(number, i32(ROW_BLOCKS - 1))) * u64(BLOCK_BYTES)
            )
    words = registers(WORDS, u32(0))
    spoilt = registers(1, i32(0))
    splice(READ_CODES)
    splice(READ_FACTORS)
    if index < i32(TILES):
        out = tiles + u64(index) * u64(TILE_BYTES)
        splice(WRITE, out)
