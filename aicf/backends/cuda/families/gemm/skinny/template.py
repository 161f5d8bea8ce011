# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportUnboundVariable=false, reportCallIssue=false, reportArgumentType=false, reportUndefinedVariable=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""A few rows times weights [N, K] on tensor cores: cp.async, ldmatrix, mma.sync. Templates for the specializer.

A block makes all rows of BN columns. Each of its warps has 8 columns and all of k: it goes over k in ascending steps
of 16 with one accumulator, as `gemm_mma` does, and so gets the same bits. What bounds it is memory, as long as enough
copies are under way. So each warp has a ring of STAGES stages of its own weights, 8 rows of BK, and meets no other warp
to fill it. The block shares x, in panels of STAGES * BK of k: warps meet only where a panel begins; the next one is
copied meanwhile.

Rows of panels and of stages lie in chunks of 16 bytes, permuted within groups of 8 so that ldmatrix meets no bank
twice. `codegen.py` gives the constants: ROW_CHUNKS, chunks in a row of a stage; COPY_ROWS, rows of a stage that a warp
copies at once, COPIES times; PANEL_CHUNKS, chunks in a row of a panel; M_TILES, 16 rows of x each (of 8 rows, the
upper half are zeros); AHEAD, stages under way before the loop; STEPS, vectors of four sums that a thread finishes.
STORED in the name of an intrinsic is the element type of x and the weights.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.ptx import *
from aicf.backends.cuda.compiler.specializer import Snippet, part, registers, splice, unrolled


def panel_chunk(panel, number):
    """Of a chunk of a panel: where it goes, where it comes from, and whether x has it."""
    row = i32(quotient(number, PANEL_CHUNKS))
    chunk = i32(remainder(number, PANEL_CHUNKS))
    to = u32((row * PANEL_CHUNKS + (chunk ^ (row & 7))) * 16)
    across = panel * PANEL_CHUNKS + chunk
    there = i32(1) if (row < ROWS) & (across * 8 < K) else i32(0)
    return to, u64(a + u64(i64(row) * X_ROW_BYTES + i64(across) * 16)), there


def load_panel():
    """The first panel of x, through registers: waiting for copies would mean waiting for all weights under way."""
    for i in range(PANEL_COPIES):
        number = u32(tid + i * THREADS)
        if number < BM * PANEL_CHUNKS:
            to, source, there = splice(PANEL_CHUNK, i32(0), number)
            words = registers(4, u32(0))
            words[0:4] = load_u32x4_or_zero(source, there)
            store_shared_u32x4(u32(base + to), words[0], words[1], words[2], words[3])


def copy_panel(panel):
    """Starts the copies of a later panel of x, to where the one before the current one was."""
    target = u32(base + (panel & 1) * PANEL_BYTES)
    for i in range(PANEL_COPIES):
        number = u32(tid + i * THREADS)
        if number < BM * PANEL_CHUNKS:
            to, source, there = splice(PANEL_CHUNK, panel, number)
            copy_async16_or_zero(u32(target + to), source, u32(there * 16))


def copy_weights(shared, tile):
    """Starts the copies of this warp's weights of one stage."""
    size = u32(16)
    if HAS_TAIL:
        size = u32(16 if (tile * ROW_CHUNKS + copy_chunk) * 8 < K else 0)
    for i in unrolled(FACTORS * COPIES):
        copy_async16_or_zero(
            u32(shared + copy_to[i]), u64(copy_from[i] + u64(i64(tile) * (ROW_CHUNKS * 16))), size
        )


def multiply_stage():
    """Adds the products of the stage at `reading`, whose x is at `x_reading`, to the sums: two steps at a time."""
    for pair in unrolled(BK // 32):
        w = registers(4 * FACTORS, u32(0))
        for f in unrolled(FACTORS):
            w[4 * f : 4 * f + 4] = load_matrices(
                u32(reading + f * FACTOR_BYTES + w_offset[pair % 2] + pair // 2 * 128), 1, 0
            )
        if BM == 8:
            x = registers(4, u32(0))
            x[0:4] = load_matrices(u32(x_reading + x_offset[pair % 2] + pair // 2 * 128), 1, 0)
        for half in unrolled(2):
            if BM == 8:
                x_part = (x[2 * half], u32(0), x[2 * half + 1], u32(0))
            else:
                x_part = load_matrices(
                    u32(x_reading + x_offset[pair % 2 * 2 + half] + pair // 2 * 128),
                    M_TILES,
                    16 * PANEL_CHUNKS * 16,
                )
            for f in unrolled(FACTORS):
                acc[f] = mma_tile_STORED(acc[f], x_part, (w[4 * f + 2 * half], w[4 * f + 2 * half + 1]))


def vector_origin(i):
    """Row and column in the block of the i-th vector of sums that this thread finishes."""
    return i32(quotient(u32(tid + i * THREADS), BN // 4)), i32(remainder(u32(tid + i * THREADS), BN // 4)) * 4


def finish_vector(row, column, words):
    """Ends four sums of a row."""
    sums = registers(4 * FACTORS, ELEMENT(0))
    if row < ROWS:
        for f in unrolled(FACTORS):
            at = u32(base + f * SUM_BYTES + row * SUM_ROW + column * 4)
            sums[4 * f : 4 * f + 4] = load_shared_ELEMENTx4(at)
        splice(FINISH, u32(row), u32(n0 + column), u32(0), words, sums[0 : 4 * FACTORS])


def gemm_skinny():
    """All rows of BN columns of one product. Its parameters are the address of x, then for each product those of its
    weights, extras and outputs."""
    tid = u32(cuda.threadIdx.x)
    lane = i32(tid & 31)
    warp = i32(tid >> 5)
    product = i32(cuda.blockIdx.z)
    n0 = i32(cuda.blockIdx.x * BN)
    if PROGRAMMATIC:
        launch_dependents()
    pointers = registers(POINTERS, u64(0))
    pointers[0:POINTERS] = splice(CHOOSE_POINTERS, product)
    base = shared_base(cuda.shared.array(0, u8))
    ring = u32(base + STAGES_AT + warp * (STAGES * WARP_STAGE_BYTES))

    # What this lane copies: COPIES chunks of a stage. Rows past the last column are that column's, and never stored.
    copy_chunk = lane % ROW_CHUNKS
    copy_to = registers(FACTORS * COPIES, u32(0))
    copy_from = registers(FACTORS * COPIES, u64(0))
    for f in unrolled(FACTORS):
        for i in unrolled(COPIES):
            row = i32(lane // ROW_CHUNKS) + i * COPY_ROWS
            copy_to[f * COPIES + i] = u32(f * FACTOR_BYTES + (row * ROW_CHUNKS + (copy_chunk ^ row)) * 16)
            column = min(n0 + warp * 8 + row, i32(COLUMNS - 1))
            copy_from[f * COPIES + i] = u64(
                pointers[f] + u64(i64(column) * W_ROW_BYTES + i64(copy_chunk) * 16)
            )

    # Weights are written by nobody: their copies need not wait.
    if EARLY_B:
        for tile in unrolled(AHEAD):
            splice(COPY_WEIGHTS, u32(ring + tile * WARP_STAGE_BYTES), i32(tile))
            commit_copies()
    if PROGRAMMATIC:
        wait_for_predecessors()
    if not EARLY_B:
        for tile in unrolled(AHEAD):
            splice(COPY_WEIGHTS, u32(ring + tile * WARP_STAGE_BYTES), i32(tile))
            commit_copies()
    splice(LOAD_PANEL)
    held = registers(STEPS * HELD, u32(0))
    if PREFETCH:
        for i in unrolled(STEPS):
            row, column = splice(VECTOR_ORIGIN, i)
            held[i * HELD : (i + 1) * HELD] = splice(FETCH, u32(row), u32(n0 + column), u32(0))

    # Where this lane points ldmatrix: at row lane % 8 of four neighbouring chunks, or at row lane % 16 of two.
    w_offset = registers(2, u32(0))
    x_offset = registers(4, u32(0))
    for i in unrolled(2):
        chunk = (i * 4 + (lane >> 3)) ^ (lane & 7)
        w_offset[i] = u32(((lane & 7) * ROW_CHUNKS + chunk) * 16)
        if BM == 8:
            x_offset[i] = u32(((lane & 7) * PANEL_CHUNKS + chunk) * 16)
    if BM > 8:
        for i in unrolled(4):
            chunk = (i * 2 + (lane >> 4)) ^ (lane & 7)
            x_offset[i] = u32(((lane & 15) * PANEL_CHUNKS + chunk) * 16)

    acc = registers(FACTORS, zeros_ELEMENT(4 * M_TILES))
    slot = i32(0)
    panel = i32(0)
    for tile in range(LOOPS):
        wait_copies(AHEAD - 1)
        if slot == 0:
            cuda.syncthreads()
            if AHEAD < LOOPS and tile + STAGES < LOOPS:
                splice(COPY_PANEL, panel + 1)
        else:
            cuda.syncwarp()
        if AHEAD < LOOPS and tile + AHEAD < LOOPS:
            free = slot - 1 if slot > 0 else i32(STAGES - 1)
            splice(COPY_WEIGHTS, u32(ring + free * WARP_STAGE_BYTES), i32(tile + AHEAD))
        commit_copies()
        reading = u32(ring + slot * WARP_STAGE_BYTES)
        x_reading = u32(base + (panel & 1) * PANEL_BYTES + slot * (ROW_CHUNKS * 16))
        splice(MULTIPLY_STAGE)
        slot += i32(1)
        if slot == STAGES:
            slot = i32(0)
            panel += i32(1)

    # Sums through shared memory, so that a thread finishes neighbours in a row.
    cuda.syncthreads()
    for f in unrolled(FACTORS):
        at = u32(base + f * SUM_BYTES + (lane >> 2) * SUM_ROW + (warp * 8 + (lane & 3) * 2) * 4)
        store_sums(at, acc[f], 1, SUM_ROW)
    cuda.syncthreads()
    if PREFETCH:
        for i in unrolled(STEPS):
            row, column = splice(VECTOR_ORIGIN, i)
            splice(FINISH_VECTOR, row, column, held[i * HELD : (i + 1) * HELD])
    else:
        for i in range(STEPS):
            row, column = splice(VECTOR_ORIGIN, i)
            fetched = registers(HELD, u32(0))
            if HELD > 0:
                fetched[0:HELD] = splice(FETCH, u32(row), u32(n0 + column), u32(0))
            splice(FINISH_VECTOR, row, column, fetched[0:HELD])


PARTS: dict[str, Snippet] = {
    function.__name__.upper(): part(function)
    for function in (
        *(panel_chunk, load_panel, copy_panel, copy_weights),
        *(multiply_stage, vector_origin, finish_vector),
    )
}
"""The parts by the names that the template splices."""
