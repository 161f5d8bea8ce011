# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportUnboundVariable=false, reportCallIssue=false, reportArgumentType=false, reportUndefinedVariable=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""The GEMM without tensor cores: IEEE f32 and f64, wrapping integers. Templates for the specializer.

A block makes a BM x BN tile; a warp is 4 x 8 lanes, and a lane holds TM x TN sums, in groups of 4 rows (16 apart) and 4
columns (32 apart). DEPTH sets of warps share the tile and take turns at k. Both operands lie in shared memory with k
outermost, so that a lane reads four neighbours at once: those that lie along k in global memory are transposed by the
copies themselves, element by element, and short integers become i32. A sum adds its products in ascending k, each with
one rounding; the parts of the DEPTH sets, then those of the SPLIT blocks of a cluster, are added in ascending order.

`codegen.py` gives the constants. In the name of an intrinsic, ELEMENT is the element type of the sums, STORED that
of A and B.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.ptx import *
from aicf.backends.cuda.compiler.specializer import Snippet, part, registers, splice, unrolled


def copy_tile(shared, base, first, k, tile):
    """Starts the copies of the K tile at `k` of the rows (columns) from `first` of the operand at `base`.

    A thread copies `count` pieces of `width` bytes, each `step` further along m (n), or along k if `down_k`. What is
    `widened` goes through its registers.
    """
    fast = i32(remainder(tid, tile["fast"]))
    slow = i32(quotient(tid, tile["fast"]))
    if slow < tile["slow"]:
        for again in unrolled(tile["repeats"]):
            if tile["fast_along_k"]:
                row = fast + again * tile["fast"]
                offset = slow
            else:
                row = slow
                offset = fast * tile["elements"]
            target = u32(shared + row * tile["row_bytes"] + offset * tile["size"])
            step = i64(first + offset) * tile["stride"] + i64(k + row) * tile["k_stride"]
            source = u64(base + u64(step * tile["source_size"]))
            if tile["checked"]:
                along = tile["extent"] - (first + offset)
                deep = tile["k_extent"] - (k + row)
                if tile["down_k"]:
                    size = i32(max(min(along * tile["size"], tile["width"]), 0))
                    left = i32(deep)
                else:
                    size = i32(tile["width"] if deep > 0 else 0)
                    left = i32(along)
                if tile["widened"]:
                    widen_rows_STORED(
                        target,
                        source,
                        left,
                        size,
                        tile["count"],
                        tile["target_step"],
                        tile["source_step"],
                        tile["step"],
                    )
                else:
                    copy_rows_or_zero(
                        tile["width"],
                        target,
                        source,
                        left,
                        size,
                        tile["count"],
                        tile["target_step"],
                        tile["source_step"],
                        tile["step"],
                    )
            else:
                copy_rows(
                    tile["width"], target, source, tile["count"], tile["target_step"], tile["source_step"]
                )


def copy_a(shared, k):
    """Starts the copies of A of a stage."""
    splice(COPY_TILE, shared, a_base, m0, k, TILE_A)


def copy_b(shared, k):
    """Starts the copies of B of a stage."""
    for factor in unrolled(FACTORS):
        splice(COPY_TILE, u32(shared + B_OFFSETS[factor]), b_base[factor], n0, k, TILE_B)


def place_lanes():
    """Where this lane reads its first rows and columns of a stage."""
    a_offset[0] = u32((warp_m * (TM * 4) + (lane >> 3) * 4) * SIZE + warp_k * TILE_A["row_bytes"])
    b_offset[0] = u32((warp_n * (TN * 8) + (lane & 7) * 4) * SIZE + warp_k * TILE_B["row_bytes"])


def multiply_stage():
    """Adds the products of the stage at `reading` to the sums."""
    for step in unrolled(BK // DEPTH):
        at = u32(reading + a_offset[0] + step * DEPTH * TILE_A["row_bytes"])
        a_part = load_groups_ELEMENT(at, TM // 4, 16 * SIZE)
        for factor in unrolled(FACTORS):
            at = u32(reading + b_offset[0] + (B_OFFSETS[factor] + step * DEPTH * TILE_B["row_bytes"]))
            b_part = load_groups_ELEMENT(at, TN // 4, 32 * SIZE)
            acc[factor] = multiply_add(acc[factor], a_part, b_part)


def finish_tile():
    """Sums through shared memory, so that a thread finishes neighbours in a row, and the end of each."""
    cuda.syncthreads()
    at_row = warp_m * (TM * 4) + (lane >> 3) * 4
    at_column = warp_n * (TN * 8) + (lane & 7) * 4
    part = base + warp_k * PART_BYTES + at_row * PART_ROW + at_column * SIZE
    for factor in unrolled(FACTORS):
        store_groups_ELEMENT(u32(part + factor * DEPTH * PART_BYTES), acc[factor], TN, PART_ROW)
    if CLUSTER:
        cluster_arrive()
        cluster_wait()
    else:
        cuda.syncthreads()

    for i in range(STEPS):
        row, column = splice(VECTOR_ORIGIN, i)
        if row < rank * FINISH_ROWS + FINISHED:
            held = registers(HELD, u32(0))
            if HELD > 0:
                held[0:HELD] = splice(FETCH, u32(m0 + row), u32(n0 + column), batch)
            sums = registers(4 * FACTORS, ELEMENT(0))
            added = registers(4, ELEMENT(0))
            for factor in unrolled(FACTORS):
                for block in unrolled(SPLIT):
                    for level in unrolled(DEPTH):
                        at = u32(
                            base + (factor * DEPTH + level) * PART_BYTES + row * PART_ROW + column * SIZE
                        )
                        if CLUSTER:
                            added[0:4] = load_cluster_groups_ELEMENT(map_shared(at, u32(block)), 1, 0)
                        else:
                            added[0:4] = load_groups_ELEMENT(at, 1, 0)
                        for i_of_four in unrolled(4):
                            if block + level == 0:
                                sums[4 * factor + i_of_four] = added[i_of_four]
                            else:
                                sums[4 * factor + i_of_four] = ELEMENT(
                                    sums[4 * factor + i_of_four] + added[i_of_four]
                                )
            splice(FINISH, u32(m0 + row), u32(n0 + column), batch, held[0:HELD], sums[0 : 4 * FACTORS])
    if CLUSTER:  # no block leaves while another reads its sums
        cluster_arrive()
        cluster_wait()


def gemm_simt():
    """One tile of one product. Its parameters are the address of A, then for each product those of its B operands,
    extras and outputs."""
    tid = u32(cuda.threadIdx.x)
    lane = i32(tid & 31)
    warp_m, warp_n, warp_k = splice(WARP_ORIGIN, tid)
    rank = i32(cuda.blockIdx.y)
    product = i32(remainder(u32(cuda.blockIdx.z), PRODUCTS))
    batch = quotient(u32(cuda.blockIdx.z), PRODUCTS)
    if PROGRAMMATIC:
        launch_dependents()

    m0, n0 = splice(TILE_ORIGIN)
    k0 = i32(rank * (LOOPS * BK))

    pointers = registers(POINTERS, u64(0))
    pointers[0:POINTERS] = splice(CHOOSE_POINTERS, product)
    a_base = splice(A_BATCH, a, batch)
    b_base = registers(FACTORS, u64(0))
    for factor in unrolled(FACTORS):
        b_base[factor] = splice(B_BATCH, pointers[factor], batch)

    base = shared_base(cuda.shared.array(0, u8))
    splice(FIRST_STAGES)

    acc = registers(FACTORS, zeros_ELEMENT(TM * TN))
    a_offset = registers(1, u32(0))
    b_offset = registers(1, u32(0))
    splice(PLACE_LANES)
    reading = u32(base)
    writing = u32(base + AHEAD % STAGES * STAGE_BYTES)
    for tile in range(LOOPS):
        wait_copies(AHEAD - 1)
        cuda.syncthreads()
        if AHEAD < LOOPS:
            if tile + AHEAD < LOOPS:
                splice(COPY_A, writing, i32(k0 + (tile + AHEAD) * BK))
                splice(COPY_B, writing, i32(k0 + (tile + AHEAD) * BK))
            writing = u32(writing + STAGE_BYTES)
            if writing == u32(base + STAGES * STAGE_BYTES):
                writing = u32(base)
        commit_copies()
        splice(MULTIPLY_STAGE)
        reading = u32(reading + STAGE_BYTES)
        if reading == u32(base + STAGES * STAGE_BYTES):
            reading = u32(base)

    splice(FINISH_TILE)


PARTS: dict[str, Snippet] = {
    function.__name__.upper(): part(function) for function in (place_lanes, multiply_stage, finish_tile)
}
"""The parts of a tile that lies in shared memory, whatever has brought it there, by the names that templates splice."""
COPIES: dict[str, Snippet] = {
    function.__name__.upper(): part(function) for function in (copy_tile, copy_a, copy_b)
}
"""Those that bring tiles of matrices."""
