# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportUnboundVariable=false, reportCallIssue=false, reportArgumentType=false, reportUndefinedVariable=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""The tensor-core GEMM for Ampere and later: cp.async stages, ldmatrix, mma.sync. Templates for the specializer.

A block makes a BM x BN tile. Its warps form a grid of WARPS_M x WARPS_N x WARPS_K: those of the same rows and
columns take turns at the steps of k (32 integers, 16 halves or 8 elements of f32, always 32 bytes), and their sums are
added at the end. With SPLIT > 1 several blocks share a tile and each takes a range of k: in one cluster, which then
adds the parts through distributed shared memory, or through a workspace that `add_parts` sums up. Parts are always
added in ascending order of block, then of warp.

A tile of an operand lies in shared memory as rows of 16-byte chunks, along k or along m (n) as the operand does in
global memory; within groups of 8 rows the chunks are permuted so that ldmatrix meets no bank twice. Elements of f32 are
rounded to TF32 in registers. They are twice as wide as what ldmatrix can transpose: where they lie along m (n), a lane
reads words, and the permutation is one of pairs of chunks in groups of 4 rows. Integers of 8 bits lie along k.

In the name of an intrinsic, ELEMENT is the element type of the sums, STORED that of A and B. `codegen.py` gives the
constants: BM, BN, BK, WARPS_*; M_TILES (16 rows) and N_TILES (8 columns) of a warp; K_STEPS of
a warp in a K tile; LOOPS, K tiles of a block; STAGES in shared memory, AHEAD of them under way before the loop; TILE_A
and TILE_B, the geometry of a tile (`mma_code.TileGeometry`); STEPS, the vectors of four sums that a thread finishes.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.ptx import *
from aicf.backends.cuda.compiler.specializer import Snippet, part, registers, splice, unrolled


def chunk_offset(row, chunk, tile):
    """Bytes from the start of a tile to a chunk."""
    if tile["words"]:
        swizzled = chunk ^ (((row >> tile["shift"]) & tile["mask"]) << 1)
    return u32(
        (
            row * tile["chunks"]
            + (swizzled if tile["words"] else chunk ^ ((row >> tile["shift"]) & tile["mask"]))
        )
        * 16
    )


def word_offset(row, column, tile):
    """Bytes from the start of a tile to an element of f32."""
    swizzled = splice(CHUNK_OFFSET, row, column >> 2, tile)
    return u32(swizzled + (column & 3) * 4)


def copy_chunk(shared, base, outer, inner, number, tile):
    """Copies the elements of one chunk, zeros where the tile reaches past the operand."""
    row = i32(quotient(number, tile["chunks"]))
    chunk = i32(remainder(number, tile["chunks"]))
    if row < tile["rows"]:
        swizzled = splice(CHUNK_OFFSET, row, chunk, tile)
        target = u32(shared + swizzled)
        first = inner + chunk * tile["chunk"]
        step = i64(outer + row) * tile["outer_stride"] + i64(first) * tile["inner_stride"]
        source = u64(base + u64(step * tile["element_bytes"]))
        left = min(i32(tile["inner_size"] - first), i32(tile["chunk"]))
        left = left if outer + row < tile["outer_size"] else i32(0)
        if tile["width"] == 16:
            copy_async16_or_zero(target, source, u32(max(left * tile["element_bytes"], 0)))
        elif tile["width"] == 8:
            for part in unrolled(2):
                size = u32(max(min((left - tile["chunk"] // 2 * part) * tile["element_bytes"], 8), 0))
                copy_async8_or_zero(u32(target + 8 * part), u64(source + u64(8 * part)), size)
        elif tile["width"] == 4:
            for part in unrolled(4):
                size = u32(max(min((left - tile["chunk"] // 4 * part) * tile["element_bytes"], 4), 0))
                copy_async4_or_zero(
                    u32(target + 4 * part), u64(source + u64(4 * part * tile["inner_stride"])), size
                )
        else:
            words = registers(4, u32(0))
            for part in unrolled(4):
                if left > 2 * part:
                    words[part] = u32(load_u16(u64(source + u64(4 * part * tile["inner_stride"]))))
                if left > 2 * part + 1:
                    second = u32(load_u16(u64(source + u64((4 * part + 2) * tile["inner_stride"]))))
                    words[part] = u32(words[part] | u32(second << 16))
            store_shared_u32x4(target, words[0], words[1], words[2], words[3])


def copy_tile(shared, base, outer, inner, tile):
    """Starts the copies of the tile whose first element is (outer, inner) of the operand at `base`."""
    if tile["uniform"]:
        row = outer + i32(quotient(tid, tile["chunks"]))
        chunk = i32(remainder(tid, tile["chunks"]))
        swizzled = splice(CHUNK_OFFSET, i32(quotient(tid, tile["chunks"])), chunk, tile)
        first = inner + chunk * tile["chunk"]
        source = u64(base + u64((i64(row) * tile["outer_stride"] + i64(first)) * tile["element_bytes"]))
        if tile["checked"]:
            rows_left = i32(tile["outer_size"] - row if tile["check_outer"] else tile["rows"])
            if tile["check_inner"]:
                size = i32(max(min((tile["inner_size"] - first) * tile["element_bytes"], 16), 0))
            else:
                size = i32(16)
            copy_rows_or_zero(
                16,
                u32(shared + swizzled),
                source,
                rows_left,
                size,
                tile["copies"],
                tile["row_step"] * tile["row_bytes"],
                tile["row_step"] * tile["outer_stride"] * tile["element_bytes"],
                tile["row_step"],
            )
        else:
            copy_rows(
                16,
                u32(shared + swizzled),
                source,
                tile["copies"],
                tile["row_step"] * tile["row_bytes"],
                tile["row_step"] * tile["outer_stride"] * tile["element_bytes"],
            )
    else:
        for i in range(tile["copies"]):
            splice(COPY_CHUNK, shared, base, outer, inner, u32(tid + i * THREADS), tile)


def copy_a(shared, k):
    """Starts the copies of the tile of A at `k`."""
    if TILE_A["along_k"]:
        splice(COPY_TILE, shared, a_base, m0, k, TILE_A)
    else:
        splice(COPY_TILE, shared, a_base, k, m0, TILE_A)


def copy_b(shared, k):
    """Starts the copies of the tiles of B at `k`."""
    for factor in unrolled(FACTORS):
        at = u32(shared + B_OFFSETS[factor])
        if TILE_B["along_k"]:
            splice(COPY_TILE, at, b_base[factor], n0, k, TILE_B)
        else:
            splice(COPY_TILE, at, b_base[factor], k, n0, TILE_B)


def place_lanes():
    """Where this lane points ldmatrix: one offset per step of k if the operand lies along k, else one per 16 rows of
    it. Of words: one per 8 rows, until the permutation begins again."""
    for i in unrolled(TILE_A["offsets"]):
        if TILE_A["words"]:
            column = warp_m * (M_TILES * 16) + i * 8 + (lane >> 2)
            a_offset[i] = splice(WORD_OFFSET, warp_k * 8 + (lane & 3), column, TILE_A)
        elif TILE_A["along_k"]:
            row = warp_m * (M_TILES * 16) + (lane & 15)
            chunk = (i * WARPS_K + warp_k) * 2 + (lane >> 4)
            a_offset[i] = splice(CHUNK_OFFSET, row, chunk, TILE_A)
        else:
            row = warp_k * 16 + (lane & 7) + ((lane >> 4) << 3)
            chunk = (warp_m * M_TILES + i) * 2 + ((lane >> 3) & 1)
            a_offset[i] = splice(CHUNK_OFFSET, row, chunk, TILE_A)
    for i in unrolled(TILE_B["offsets"]):
        if TILE_B["words"]:
            column = warp_n * (N_TILES * 8) + i * 8 + (lane >> 2)
            b_offset[i] = splice(WORD_OFFSET, warp_k * 8 + (lane & 3), column, TILE_B)
        elif TILE_B["along_k"]:
            row = warp_n * (N_TILES * 8) + (lane & 7) + ((lane >> 4) << 3)
            chunk = (i * WARPS_K + warp_k) * 2 + ((lane >> 3) & 1)
            b_offset[i] = splice(CHUNK_OFFSET, row, chunk, TILE_B)
        else:
            row = warp_k * 16 + (lane & 15)
            chunk = warp_n * N_TILES + i * 2 + (lane >> 4)
            b_offset[i] = splice(CHUNK_OFFSET, row, chunk, TILE_B)


def multiply_stage():
    """Adds the products of the stage at `reading` to the sums."""
    for step in unrolled(K_STEPS):
        if TILE_A["words"]:
            at = u32(reading + step * WARPS_K * 8 * TILE_A["row_bytes"])
            offsets = a_offset[0 : TILE_A["offsets"]]
            a_part = load_words(at, offsets, 2 * M_TILES, 2, 4 * TILE_A["row_bytes"])
        elif TILE_A["along_k"]:
            a_part = load_matrices(u32(reading + a_offset[step]), M_TILES, 16 * TILE_A["row_bytes"])
        else:
            deeper = step * WARPS_K * 16 * TILE_A["row_bytes"]
            a_part = load_matrices_transposed(u32(reading + deeper), a_offset[0:M_TILES])
        if MATH == "tf32":
            a_part = rounded_tf32(a_part)
        for factor in unrolled(FACTORS):
            if TILE_B["words"]:
                at = u32(reading + B_OFFSETS[factor] + step * WARPS_K * 8 * TILE_B["row_bytes"])
                offsets = b_offset[0 : TILE_B["offsets"]]
                b_part = load_words(at, offsets, N_TILES, 1, 4 * TILE_B["row_bytes"])
            elif TILE_B["along_k"]:
                at = u32(reading + B_OFFSETS[factor] + b_offset[step])
                b_part = load_matrices(at, N_TILES // 2, 16 * TILE_B["row_bytes"])
            else:
                deeper = B_OFFSETS[factor] + step * WARPS_K * 16 * TILE_B["row_bytes"]
                b_part = load_matrices_transposed(u32(reading + deeper), b_offset[0 : N_TILES // 2])
            if MATH == "tf32":
                acc[factor] = mma_tile_tf32(acc[factor], a_part, rounded_tf32(b_part))
            elif MATH == "f16":
                acc[factor] = mma_tile_f16(acc[factor], a_part, b_part)
            elif MATH == "bytes":
                acc[factor] = mma_tile_STORED(acc[factor], a_part, b_part)
            else:
                acc[factor] = mma_tile_bf16(acc[factor], a_part, b_part)


def share_sums():
    """Sums through shared memory, so that a thread finishes neighbours in a row; gives where they lie. The blocks of a
    cluster each finish some rows, and get the parts of those rows from all others in order of rank."""
    slots = u32(base + PARTS_AT)
    at_column = warp_n * (N_TILES * 8) + (lane & 3) * 2
    if CLUSTER:
        targets = registers(2 * M_TILES, u32(0))
        cluster_wait()
        for factor in unrolled(FACTORS):
            slot = slots + ((factor * SPLIT + rank) * WARPS_K + warp_k) * SLOT_BYTES + at_column * 4
            for i in unrolled(2 * M_TILES):
                first_row = warp_m * (M_TILES * 16) + i * 8
                owner = quotient(u32(first_row), FINISHED)
                at_row = i32(remainder(u32(first_row), FINISHED)) + (lane >> 2)
                targets[i] = map_shared(u32(slot + at_row * PART_ROW), owner)
            push_sums(targets[0 : 2 * M_TILES], acc[factor], N_TILES)
        cluster_arrive()
        cluster_wait()
    else:
        cuda.syncthreads()
        at_row = warp_m * (M_TILES * 16) + (lane >> 2)
        slot = slots + warp_k * SLOT_BYTES + at_row * PART_ROW + at_column * 4
        for factor in unrolled(FACTORS):
            store_sums(u32(slot + factor * WARPS_K * SLOT_BYTES), acc[factor], N_TILES, PART_ROW)
        cuda.syncthreads()
    return slots


def finish_tile():
    """Ends every sum of the tile: `held` are the words that this thread has fetched before, if it has."""
    parts = splice(SHARE_SUMS)
    if PREFETCH:
        for i in unrolled(STEPS):
            row, column = splice(VECTOR_ORIGIN, i)
            splice(FINISH_VECTOR, parts, row, column, held[i * HELD : (i + 1) * HELD])
    else:
        for i in range(STEPS):
            row, column = splice(VECTOR_ORIGIN, i)
            fetched = registers(HELD, u32(0))
            if HELD > 0:
                fetched[0:HELD] = splice(FETCH, u32(m0 + row), u32(n0 + column), batch)
            splice(FINISH_VECTOR, parts, row, column, fetched[0:HELD])


def gemm_mma():
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
    if CLUSTER:  # the other half comes where blocks first write to each other: by then all have started
        cluster_arrive()
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

    held = registers(STEPS * HELD, u32(0))
    if PREFETCH:
        for i in unrolled(STEPS):
            row, column = splice(VECTOR_ORIGIN, i)
            held[i * HELD : (i + 1) * HELD] = splice(FETCH, u32(m0 + row), u32(n0 + column), batch)

    a_offset = registers(TILE_A["offsets"], u32(0))
    b_offset = registers(TILE_B["offsets"], u32(0))
    splice(PLACE_LANES)

    acc = registers(FACTORS, zeros_ELEMENT(4 * M_TILES * N_TILES))
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


def finish_vector(parts, row, column, words):
    """Adds the parts of four sums in ascending order and ends them."""
    sums = registers(4 * FACTORS, ELEMENT(0))
    if row < rank * FINISH_ROWS + FINISHED:
        for factor in unrolled(FACTORS):
            for block in unrolled(SPLIT if CLUSTER else 1):
                for depth in unrolled(WARPS_K):
                    slot = ((factor * (SPLIT if CLUSTER else 1) + block) * WARPS_K + depth) * SLOT_BYTES
                    at = u32(parts + slot + (row - rank * FINISH_ROWS) * PART_ROW + column * 4)
                    added = registers(4, ELEMENT(0))
                    added[0:4] = load_shared_ELEMENTx4(at)
                    for lane_of_four in unrolled(4):
                        if block + depth == 0:
                            sums[4 * factor + lane_of_four] = added[lane_of_four]
                        else:
                            sums[4 * factor + lane_of_four] = ELEMENT(
                                sums[4 * factor + lane_of_four] + added[lane_of_four]
                            )
        element = u32(rank * cuda.gridDim.z + cuda.blockIdx.z) if PARTIAL else batch
        splice(FINISH, u32(m0 + row), u32(n0 + column), element, words, sums[0 : 4 * FACTORS])


def add_parts():
    """Sums of a workspace in ascending order of block, then the end of each tile. Its parameters are the address of the
    parts, then those of `gemm_mma` without A and B."""
    index = u32(cuda.blockIdx.x * THREADS + cuda.threadIdx.x)
    product = i32(remainder(u32(cuda.blockIdx.z), PRODUCTS))
    batch = quotient(u32(cuda.blockIdx.z), PRODUCTS)
    pointers = registers(POINTERS, u64(0))
    if POINTERS > 0:
        pointers[0:POINTERS] = splice(CHOOSE_POINTERS, product)
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    row = quotient(index, PART_COLUMNS // 4)
    column = u32(remainder(index, PART_COLUMNS // 4) * 4)
    if index < PART_ROWS * (PART_COLUMNS // 4):
        first = i64(cuda.blockIdx.z) * (PART_ROWS * PART_COLUMNS) + i64(row) * PART_COLUMNS + i64(column)
        sums = registers(4 * FACTORS, ELEMENT(0))
        added = registers(4 * SPLIT, ELEMENT(0))
        for factor in unrolled(FACTORS):
            for block in unrolled(SPLIT):
                skip = (factor * SPLIT + block) * PART_STRIDE
                added[4 * block : 4 * block + 4] = load_ELEMENTx4(u64(parts + u64((first + skip) * 4)))
            for block in unrolled(SPLIT):
                for i in unrolled(4):
                    if block == 0:
                        sums[4 * factor + i] = added[i]
                    else:
                        sums[4 * factor + i] = ELEMENT(sums[4 * factor + i] + added[4 * block + i])
        held = registers(HELD, u32(0))
        if HELD > 0:
            held[0:HELD] = splice(FETCH, row, column, batch)
        splice(FINISH, row, column, batch, held[0:HELD], sums[0 : 4 * FACTORS])


PARTS: dict[str, Snippet] = {
    function.__name__.upper(): part(function)
    for function in (
        *(chunk_offset, word_offset, place_lanes, multiply_stage),
        *(share_sums, finish_tile, finish_vector),
    )
}
"""The parts of a tile that lies in shared memory, whatever has brought it there, by the names that templates splice."""
COPIES: dict[str, Snippet] = {
    function.__name__.upper(): part(function) for function in (copy_chunk, copy_tile, copy_a, copy_b)
}
"""Those that bring tiles of matrices."""
