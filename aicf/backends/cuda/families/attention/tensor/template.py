# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportCallIssue=false, reportArgumentType=false, reportAssignmentType=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Attention on tensor cores with an online softmax. Templates for the specializer.

`attention` follows FlashAttention-2 (Dao, 2023): a block owns BLOCK_M queries of one head and walks over the keys in
tiles of BLOCK_N; scores never leave the registers. Its warps are WARPS_M x WARPS_N: WARPS_M of them share out the
queries. The WARPS_N with the same queries share out the keys of every tile, and each has its own running maximum, sum
and partial result; these are combined at the end, through shared memory, in the order of the warps. On Hopper, four
warps may multiply together (WARPGROUPS), straight from shared memory: only where their operands lie differs.

Names in capitals are constants: `codegen.py` gives every one, the values here only say what they look like.
"""

from __future__ import annotations

from typing import Any

from aicf.backends.cuda.compiler.ptx import *
from aicf.backends.cuda.compiler.specializer import Snippet, registers, splice, unrolled

# The problem. Strides are in bytes, batch dimensions innermost first.
BATCH = (12, 8)
M, N, D, DV = 128, 128, 64, 64
DTYPE = "f16"
Q_BATCH, Q_ROW, Q_COLUMN = (128, 196608), 1536, 2
K_BATCH, K_ROW, K_COLUMN = (128, 196608), 1536, 2
V_BATCH, V_ROW, V_COLUMN = (128, 196608), 1536, 2
RESULT_BATCH, RESULT_ROW, RESULT_COLUMN = (128, 196608), 1536, 2
WIDE_STORES = True
"""Whether eight neighbours of a result row are one 16-byte store."""
MASKED = False
MASK_BATCH, MASK_ROW, MASK_COLUMN = (0, 256), 0, 2
FOLDED = True
"""Whether SCALE goes into the argument of the exponential: then the maximum is taken of the bare products."""
SCALE, LOG2_E = 0.18, 1.4426950408889634
"""The exponential is a power of two. Without a mask SCALE has the factor, and scores are in units of 1 / log2(e). With
one they stay as they are, and what they are below their maximum has it: a mask of f32's lowest number would become
-inf."""
CAUSAL, PAST = False, 0
"""Whether query i sees keys 0 to i + PAST alone."""
FILLED = False
"""Whether a number in memory, where a mask would lie, takes the place of PAST."""
NAN_AS_ZERO = False
"""Whether weights are 0 where they would be NaN: all those of a row with a score that is NaN or infinite, or whose
scores are all -inf. The maximum of the first is held at +inf, below which every weight and what was summed before is 0;
`larger` of the NaN of two infinities and 0 is 0. A sum of 0 is then that of such a row, and nothing divides it. Values
are still multiplied by these zeros, as the program says."""
EMPTY_AS_ZERO = False
"""Whether weights are 0 in a row whose scores all are -inf. They are so before the division, and so is their sum, which
is 1 or more in any other row: what divides is 1 then."""
COUNT = 96
"""Batch elements."""
PROGRAMMATIC = True

# The method.
BLOCK_M, BLOCK_N, STAGES, WARPS_M, WARPS_N = 64, 64, 2, 4, 1
WARPGROUPS = False
"""Whether four warps multiply together (wgmma), straight from shared memory."""
DESCRIPTOR_Q = DESCRIPTOR_K = DESCRIPTOR_V = 0
THREADS = 128
TILES_M, TILES_N = 2, 2
ROW_TILES = 1
"""16-row tiles of one warp."""
KEYS = 64
"""Keys of one warp in a tile."""
QUERY, SCORE, TOTAL = 16, 32, 32
"""Registers of one 16-row tile: its queries (two elements each), scores and results. Those of a product of 16 x 8 are
neighbours: two of row `group` (half 0), two of row `group + 8` (half 1)."""
Q_COPY = {
    "rows": 64,
    "stride": 1536,
    "pitch": 144,
    "pieces": 8,
    "lanes": 8,
    "ragged": False,
    "swizzled": False,
}
K_COPY = V_COPY = Q_COPY
"""Copies of a block of queries and of a tile of keys or values: rows, their bytes in global and shared memory, 16-byte
pieces of a row, threads (a power of two) that share a row, and whether the last rows may be missing. `swizzled`: rows
lie in panels of 128 bytes, `panel` bytes apart, piece i of row r in place i ^ (r & 7), as wgmma wants it."""
K_TILE, V_TILE = 98304, 98304
"""Bytes from one tile to the next in global memory."""
K_PITCH, V_PITCH, PARTIAL_PITCH = 144, 144, 288
"""Bytes of a row in shared memory. An odd number of 16-byte pieces keeps ldmatrix free of bank conflicts."""
TILES_AT, V_AT, STAGE_BYTES = 9216, 9216, 18432
"""The key tiles, after the queries; the values, after the keys of their stage; one stage."""
STATES_AT = 0
"""Where the maxima and sums lie at the end, after the partial results."""

BEFORE = OFFSET = BLOCK_OF = TILES_SEEN = COPY_ROWS = LOAD_MASK = Snippet((), ())
SCORE_START = SCORE_PRODUCT = SCORE_RESULT = TOTAL_PRODUCT = TOTAL_RESULT = Snippet((), ())


def copy_rows(matrix: Any, to: Any, source: Any, valid: Any, thread: Any) -> None:
    """Starts the copy of a block or tile; if it may be ragged, rows from number `valid` on become zeros."""
    row = u32(thread // u32(matrix["lanes"]))
    piece = u32(thread % u32(matrix["lanes"]))
    if matrix["swizzled"]:
        to = u32(to + (piece // u32(8)) * u32(matrix["panel"]) + ((piece ^ row) & u32(7)) * u32(16))
    else:
        to = u32(to + piece * u32(16))
    to = u32(to + row * u32(matrix["pitch"]))
    source = u64(source + u64(row) * u64(matrix["stride"]) + u64(piece) * u64(16))
    if matrix["pieces"] == matrix["lanes"] or piece < u32(matrix["pieces"]):
        for later in unrolled(0, matrix["rows"], THREADS // matrix["lanes"]):
            if later + THREADS // matrix["lanes"] <= matrix["rows"] or row < u32(matrix["rows"] - later):
                here, there = (
                    u32(to + u32(later * matrix["pitch"])),
                    u64(source + u64(later * matrix["stride"])),
                )
                if matrix["ragged"]:
                    size = u32(16) if i32(row) < i32(valid - later) else u32(0)
                    copy_async16_or_zero(here, there, size)
                else:
                    copy_async16(here, there)


def attention(q: Any, k: Any, v: Any, result: Any, mask: Any) -> None:
    """f16 or bf16: products by mma.sync or wgmma with f32 accumulators, in the same registers; softmax in f32.

    Block: BLOCK_M queries of one batch element. Rows past M and keys past N are zeros in shared memory; such keys score
    -inf and such rows are not stored.
    """
    product = mma_f16 if DTYPE == "f16" else mma_bf16
    pack = pack_f16 if DTYPE == "f16" else pack_bf16
    narrow = f32_to_f16 if DTYPE == "f16" else f32_to_bf16
    largest = max_nan if NAN_AS_ZERO else larger
    shared = shared_base(cuda.shared.array(0, u8))
    if WARPGROUPS:
        shared = u32((shared + u32(1023)) & u32(0xFFFFFC00))
    thread = u32(cuda.threadIdx.x)
    lane = u32(thread & u32(31))
    warp_m = u32(u32(thread >> u32(5)) % u32(WARPS_M))
    warp_n = u32(u32(thread >> u32(5)) // u32(WARPS_M))
    group = u32(lane >> u32(2))
    pair = u32(u32(lane & u32(3)) * u32(2))
    first, index = splice(BLOCK_OF, BLOCK_M)
    past = i32(PAST)
    if CAUSAL and not FILLED:
        tiles = splice(TILES_SEEN, i32(first + i32(BLOCK_M - 1)), BLOCK_N, past)
    offset_q = splice(OFFSET, index, BATCH, Q_BATCH)
    offset_k = splice(OFFSET, index, BATCH, K_BATCH)
    offset_v = splice(OFFSET, index, BATCH, V_BATCH)
    offset_result = splice(OFFSET, index, BATCH, RESULT_BATCH)
    q = u64(q + offset_q + u64(first) * u64(Q_ROW))
    k = u64(k + offset_k)
    v = u64(v + offset_v)
    result = u64(result + offset_result + u64(first) * u64(RESULT_ROW))
    if MASKED:
        offset_mask = splice(OFFSET, index, BATCH, MASK_BATCH)
        mask = u64(mask + offset_mask)
    if WARPGROUPS:
        # What the compiler must know to be the same for all lanes of a warp.
        warpgroup = u32(u32(cuda.shfl_sync(ALL_LANES, i32(thread), 0)) >> u32(7))
        descriptor_q = u64(u64(DESCRIPTOR_Q) + u64(u32(shared + warpgroup * u32(64 * 128)) >> u32(4)))
        descriptor_k = u64(u64(DESCRIPTOR_K) + u64(u32(shared + u32(TILES_AT)) >> u32(4)))
        descriptor_v = u64(u64(DESCRIPTOR_V) + u64(u32(shared + u32(TILES_AT + V_AT)) >> u32(4)))
    else:
        # Where this lane reads its row of each 8x8 matrix.
        lane_q = u32(
            shared
            + u32(warp_m * u32(16 * ROW_TILES) + u32(lane & u32(15))) * u32(K_PITCH)
            + u32(lane >> u32(4)) * u32(16)
        )
        lane_k = u32(
            shared
            + u32(warp_n * u32(KEYS) + u32(lane >> u32(4)) * u32(8) + u32(lane & u32(7))) * u32(K_PITCH)
            + u32(u32(lane >> u32(3)) & u32(1)) * u32(16)
            + u32(TILES_AT)
        )
        lane_v = u32(
            shared
            + u32(warp_n * u32(KEYS) + u32(lane & u32(15))) * u32(V_PITCH)
            + u32(lane >> u32(4)) * u32(16)
            + u32(TILES_AT + V_AT)
        )

    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    if FILLED:
        past = splice(BEFORE, mask, index)
        tiles = splice(TILES_SEEN, i32(first + i32(BLOCK_M - 1)), BLOCK_N, past)
    splice(COPY_ROWS, Q_COPY, shared, q, i32(M - first), thread)
    if TILES_N == 1:
        # The scores need the keys alone: the values arrive meanwhile.
        splice(COPY_ROWS, K_COPY, u32(shared + u32(TILES_AT)), k, N, thread)
        commit_copies()
        splice(COPY_ROWS, V_COPY, u32(shared + u32(TILES_AT + V_AT)), v, N, thread)
        commit_copies()
        wait_copies_1()
    else:
        for stage in unrolled(STAGES - 1):
            if not CAUSAL or stage == 0 or stage < tiles:
                to = u32(shared + u32(TILES_AT + stage * STAGE_BYTES))
                splice(COPY_ROWS, K_COPY, to, u64(k + u64(stage * K_TILE)), N - stage * BLOCK_N, thread)
                splice(
                    COPY_ROWS,
                    V_COPY,
                    u32(to + u32(V_AT)),
                    u64(v + u64(stage * V_TILE)),
                    N - stage * BLOCK_N,
                    thread,
                )
            commit_copies()
        if STAGES == 2:
            wait_copies_0()
        else:
            wait_copies_1()
    if WARPGROUPS:
        fence_async_proxy()
    cuda.syncthreads()
    query = registers(0 if WARPGROUPS else ROW_TILES * QUERY, u32(0))
    for i in unrolled(0 if WARPGROUPS else ROW_TILES):
        for d in unrolled(0, QUERY, 4):
            query[i * QUERY + d : i * QUERY + d + 4] = load_matrix_x4(
                u32(lane_q + u32(i * 16 * K_PITCH + d * 8))
            )

    score = registers(ROW_TILES * SCORE, f32(0.0))
    total = registers(ROW_TILES * TOTAL, f32(0.0))
    top = registers(ROW_TILES * 2, f32(NEGATIVE_INFINITY))
    sums = registers(ROW_TILES * 2, f32(0.0))
    current = u32(0)
    loading = u32((STAGES - 1) * STAGE_BYTES)
    for tile in range(tiles if CAUSAL else TILES_N):
        if TILES_N > 1:
            if STAGES == 2:
                wait_copies_0()
            else:
                wait_copies_1()
            if WARPGROUPS:
                total[0:TOTAL] = splice(TOTAL_RESULT)
                fence_async_proxy()
            cuda.syncthreads()
            if tile < (tiles if CAUSAL else TILES_N) - (STAGES - 1):
                ahead = i32(i32(tile) + i32(STAGES - 1))
                valid = i32(i32(N) - ahead * i32(BLOCK_N))
                to = u32(shared + loading + u32(TILES_AT))
                splice(COPY_ROWS, K_COPY, to, u64(k + u64(ahead) * u64(K_TILE)), valid, thread)
                splice(
                    COPY_ROWS, V_COPY, u32(to + u32(V_AT)), u64(v + u64(ahead) * u64(V_TILE)), valid, thread
                )
            commit_copies()
            loading = (
                u32(0) if loading == u32((STAGES - 1) * STAGE_BYTES) else u32(loading + u32(STAGE_BYTES))
            )

        if WARPGROUPS:
            score[0:SCORE] = splice(SCORE_START)
            for step in unrolled(D // 16):
                score[0:SCORE] = splice(
                    SCORE_PRODUCT,
                    u64(descriptor_q + u64(step // 4 * (BLOCK_M * 8) + step % 4 * 2)),
                    u64(
                        descriptor_k + u64(current >> u32(4)) + u64(step // 4 * (BLOCK_N * 8) + step % 4 * 2)
                    ),
                    i32(0 if step == 0 else 1),
                )
            wgmma_commit()
            score[0:SCORE] = splice(SCORE_RESULT)
        else:
            for s in unrolled(ROW_TILES * SCORE):
                score[s] = f32(0.0)
        for d in unrolled(0, 0 if WARPGROUPS else QUERY, 4):
            for s in unrolled(0, SCORE, 8):
                b0, b1, b2, b3 = load_matrix_x4(u32(lane_k + current + u32(s * 2 * K_PITCH + d * 8)))
                for i in unrolled(ROW_TILES):
                    score[i * SCORE + s : i * SCORE + s + 4] = product(
                        score[i * SCORE + s : i * SCORE + s + 4],
                        *query[i * QUERY + d : i * QUERY + d + 4],
                        b0,
                        b1,
                    )
                    score[i * SCORE + s + 4 : i * SCORE + s + 8] = product(
                        score[i * SCORE + s + 4 : i * SCORE + s + 8],
                        *query[i * QUERY + d : i * QUERY + d + 4],
                        b2,
                        b3,
                    )

        column = i32(i32(tile) * i32(BLOCK_N) + i32(warp_n) * i32(KEYS) + i32(pair))
        if MASKED:
            for i in unrolled(ROW_TILES):
                for h in unrolled(2):
                    row = i32(first + i32(warp_m) * i32(16 * ROW_TILES) + i32(group) + i32(i * 16 + h * 8))
                    if M % BLOCK_M != 0:
                        row = min(row, i32(M - 1))
                    line = u64(mask + u64(row) * u64(MASK_ROW))
                    for s in unrolled(0, SCORE, 4):
                        for c in unrolled(2):
                            position = i32(column + i32(s * 2 + c))
                            if N % BLOCK_N != 0:
                                position = min(position, i32(N - 1))
                            bias = splice(LOAD_MASK, u64(line + u64(position) * u64(MASK_COLUMN)))
                            score[i * SCORE + s + h * 2 + c] = cuda.fma(
                                score[i * SCORE + s + h * 2 + c], f32(SCALE), bias
                            )
        elif not FOLDED:
            for s in unrolled(ROW_TILES * SCORE):
                score[s] = score[s] * f32(SCALE)
        if N % BLOCK_N != 0:  # noqa: SIM102 (the outer test is constant)
            if tile == TILES_N - 1:
                for s in unrolled(0, SCORE, 4):
                    for c in unrolled(2):
                        if i32(column + i32(s * 2 + c)) >= i32(N):
                            for i in unrolled(ROW_TILES):
                                score[i * SCORE + s + c] = NEGATIVE_INFINITY
                                score[i * SCORE + s + c + 2] = NEGATIVE_INFINITY
        if CAUSAL:
            seen = i32(first + i32(warp_m) * i32(16 * ROW_TILES) + past)
            if i32(i32(tile) * i32(BLOCK_N) + i32(BLOCK_N - 1)) > seen:
                # Some key of the tile comes after the first query of this warp.
                for i in unrolled(ROW_TILES):
                    for h in unrolled(2):
                        ahead = i32(i32(seen + i32(group) + i32(i * 16 + h * 8)) - column)
                        for s in unrolled(0, SCORE, 4):
                            for c in unrolled(2):
                                if i32(s * 2 + c) > ahead:
                                    score[i * SCORE + s + h * 2 + c] = NEGATIVE_INFINITY

        for i in unrolled(ROW_TILES):
            for h in unrolled(2):
                here = NEGATIVE_INFINITY
                for s in unrolled(i * SCORE + h * 2, (i + 1) * SCORE, 4):
                    here = largest(here, largest(score[s], score[s + 1]))
                here = largest(here, cuda.shfl_xor_sync(ALL_LANES, here, 1))
                here = largest(here, cuda.shfl_xor_sync(ALL_LANES, here, 2))
                if FOLDED:
                    here = here * f32(SCALE)
                here = largest(here, top[i * 2 + h])
                if NAN_AS_ZERO:
                    here = here if here == here else INFINITY
                # A row that has seen only -inf so far: 0 in place of the maximum keeps its exponentials at 0.
                base = f32(0.0) if here == NEGATIVE_INFINITY else here
                if TILES_N > 1:
                    decay = top[i * 2 + h] - base
                    if MASKED:
                        decay = decay * f32(LOG2_E)
                    decay = exp2_approx(decay)
                    if NAN_AS_ZERO:
                        decay = larger(decay, f32(0.0))
                    sums[i * 2 + h] = sums[i * 2 + h] * decay
                    for t in unrolled(i * TOTAL + h * 2, (i + 1) * TOTAL, 4):
                        total[t] = total[t] * decay
                        total[t + 1] = total[t + 1] * decay
                top[i * 2 + h] = here
                for s in unrolled(i * SCORE + h * 2, (i + 1) * SCORE, 4):
                    for c in unrolled(2):
                        if FOLDED:
                            score[s + c] = exp2_approx(cuda.fma(score[s + c], f32(SCALE), -base))
                        elif MASKED:
                            score[s + c] = exp2_approx((score[s + c] - base) * f32(LOG2_E))
                        else:
                            score[s + c] = exp2_approx(score[s + c] - base)
                        if NAN_AS_ZERO:
                            score[s + c] = larger(score[s + c], f32(0.0))
                    sums[i * 2 + h] = sums[i * 2 + h] + (score[s] + score[s + 1])

        if TILES_N == 1:
            wait_copies_0()
            if WARPGROUPS:
                fence_async_proxy()
            cuda.syncthreads()
        for s in unrolled(0, SCORE, 8):
            # Scores as the product left them are, in pairs, the left operand of the next product.
            weight = registers(ROW_TILES * 4, u32(0))
            for w in unrolled(ROW_TILES * 4):
                weight[w] = pack(
                    score[w // 4 * SCORE + s + w % 4 * 2], score[w // 4 * SCORE + s + w % 4 * 2 + 1]
                )
            if WARPGROUPS:
                b = u64(descriptor_v + u64(current >> u32(4)) + u64(s * 16))
                total[0:TOTAL] = splice(TOTAL_PRODUCT, weight[0], weight[1], weight[2], weight[3], b)
            for t in unrolled(0, 0 if WARPGROUPS else TOTAL, 8):
                b0, b1, b2, b3 = load_matrix_x4_transposed(
                    u32(lane_v + current + u32(s * 2 * V_PITCH + t * 4))
                )
                for i in unrolled(ROW_TILES):
                    total[i * TOTAL + t : i * TOTAL + t + 4] = product(
                        total[i * TOTAL + t : i * TOTAL + t + 4], *weight[i * 4 : i * 4 + 4], b0, b1
                    )
                    total[i * TOTAL + t + 4 : i * TOTAL + t + 8] = product(
                        total[i * TOTAL + t + 4 : i * TOTAL + t + 8], *weight[i * 4 : i * 4 + 4], b2, b3
                    )
        if WARPGROUPS:
            wgmma_commit()
        if TILES_N > 1:
            current = (
                u32(0) if current == u32((STAGES - 1) * STAGE_BYTES) else u32(current + u32(STAGE_BYTES))
            )

    if WARPGROUPS:
        total[0:TOTAL] = splice(TOTAL_RESULT)
        cuda.syncthreads()
    for r in unrolled(ROW_TILES * 2):
        sums[r] = sums[r] + cuda.shfl_xor_sync(ALL_LANES, sums[r], 1)
        sums[r] = sums[r] + cuda.shfl_xor_sync(ALL_LANES, sums[r], 2)
        if (NAN_AS_ZERO or EMPTY_AS_ZERO) and WARPS_N == 1:
            sums[r] = f32(1.0) if sums[r] == f32(0.0) else sums[r]
    if WARPS_N == 1:
        for i in unrolled(ROW_TILES):
            for h in unrolled(2):
                local = u32(warp_m * u32(16 * ROW_TILES) + group + u32(i * 16 + h * 8))
                inverse = rcp_approx(sums[i * 2 + h])
                if WIDE_STORES:
                    # Through the room of the queries, which are in registers by now.
                    for t in unrolled(0, TOTAL, 4):
                        store_shared_u32(
                            u32(shared + local * u32(V_PITCH) + pair * u32(2) + u32(t * 4)),
                            pack(
                                total[i * TOTAL + t + h * 2] * inverse,
                                total[i * TOTAL + t + h * 2 + 1] * inverse,
                            ),
                        )
                elif i32(local) < i32(M - first):
                    for t in unrolled(0, TOTAL, 4):
                        for c in unrolled(2):
                            at = u64(
                                result
                                + u64(local) * u64(RESULT_ROW)
                                + u64(pair + u32(t * 2 + c)) * u64(RESULT_COLUMN)
                            )
                            store_u16(at, narrow(total[i * TOTAL + t + h * 2 + c] * inverse))
        if WIDE_STORES:
            cuda.syncwarp()
            for i in unrolled((ROW_TILES * 16 * DV // 8 + 31) // 32):
                piece = u32(lane + u32(i * 32))
                local = u32(warp_m * u32(16 * ROW_TILES) + piece // u32(DV // 8))
                piece = u32(piece % u32(DV // 8))
                if i32(local) < i32(M - first):
                    x0, x1, x2, x3 = load_shared_u32x4(u32(shared + local * u32(V_PITCH) + piece * u32(16)))
                    store_u32x4(
                        u64(result + u64(local) * u64(RESULT_ROW) + u64(piece) * u64(16)), x0, x1, x2, x3
                    )
    else:
        cuda.syncthreads()
        states = u32(shared + u32(STATES_AT))
        for i in unrolled(ROW_TILES):
            for h in unrolled(2):
                local = u32(
                    warp_n * u32(BLOCK_M) + warp_m * u32(16 * ROW_TILES) + group + u32(i * 16 + h * 8)
                )
                if pair == u32(0):
                    store_shared_f32x2(u32(states + local * u32(8)), top[i * 2 + h], sums[i * 2 + h])
                for t in unrolled(0, TOTAL, 4):
                    store_shared_f32x2(
                        u32(shared + local * u32(PARTIAL_PITCH) + pair * u32(4) + u32(t * 8)),
                        total[i * TOTAL + t + h * 2],
                        total[i * TOTAL + t + h * 2 + 1],
                    )
        cuda.syncthreads()
        for i in unrolled((BLOCK_M * DV // 8 + THREADS - 1) // THREADS):
            piece = u32(thread + u32(i * THREADS))
            local = u32(piece // u32(DV // 8))
            piece = u32(piece % u32(DV // 8))
            if i32(local) < i32(min(BLOCK_M, M - first)):
                base = NEGATIVE_INFINITY
                for w in unrolled(WARPS_N):
                    base = larger(base, load_shared_f32(u32(states + (local + u32(w * BLOCK_M)) * u32(8))))
                base = f32(0.0) if base == NEGATIVE_INFINITY else base
                whole = f32(0.0)
                value = registers(8, f32(0.0))
                for w in unrolled(WARPS_N):
                    state = u32(states + (local + u32(w * BLOCK_M)) * u32(8))
                    part = u32(shared + (local + u32(w * BLOCK_M)) * u32(PARTIAL_PITCH) + piece * u32(32))
                    factor = load_shared_f32(state) - base
                    if MASKED:
                        factor = factor * f32(LOG2_E)
                    factor = exp2_approx(factor)
                    if NAN_AS_ZERO:
                        factor = larger(factor, f32(0.0))
                    whole = cuda.fma(load_shared_f32(u32(state + u32(4))), factor, whole)
                    x = registers(8, f32(0.0))
                    x[0:4] = load_shared_f32x4(part)
                    x[4:8] = load_shared_f32x4(u32(part + u32(16)))
                    for c in unrolled(8):
                        value[c] = cuda.fma(x[c], factor, value[c])
                if NAN_AS_ZERO or EMPTY_AS_ZERO:
                    whole = f32(1.0) if whole == f32(0.0) else whole
                inverse = rcp_approx(whole)
                at = u64(result + u64(local) * u64(RESULT_ROW) + u64(piece) * u64(8 * RESULT_COLUMN))
                if WIDE_STORES:
                    store_u32x4(
                        at,
                        pack(value[0] * inverse, value[1] * inverse),
                        pack(value[2] * inverse, value[3] * inverse),
                        pack(value[4] * inverse, value[5] * inverse),
                        pack(value[6] * inverse, value[7] * inverse),
                    )
                else:
                    for c in unrolled(8):
                        store_u16(u64(at + u64(c * RESULT_COLUMN)), narrow(value[c] * inverse))
