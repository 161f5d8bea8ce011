# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportUndefinedVariable=false, reportCallIssue=false, reportArgumentType=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Attention in plain f32 arithmetic, with an online softmax. Templates for the specializer.

A warp has ROWS queries; its lanes are the keys of a tile for the scores, then columns of the result for the weighted
sum of the values. The names in capitals are constants: `codegen.py` gives every one, and the template of `tensor` says
what those of the problem look like.
"""

from __future__ import annotations

from typing import Any

from aicf.backends.cuda.compiler.ptx import *
from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def copy_matrix(
    to: Any,
    pitch: Any,
    source: Any,
    row_stride: Any,
    column_stride: Any,
    rows: Any,
    columns: Any,
    valid: Any,
    thread: Any,
) -> None:
    """Copies a matrix as f32 to shared memory, rows from number `valid` on as zeros."""
    for index in range(thread, rows * columns, THREADS):
        row, column = i32(index // columns), i32(index % columns)
        x = f32(0.0)
        if row < valid:
            x = splice(LOAD, u64(source + u64(row) * u64(row_stride) + u64(column) * u64(column_stride)))
        store_shared_f32(u32(to + u32(row) * u32(4 * pitch) + u32(column) * u32(4)), x)


def attention_simt(q: Any, k: Any, v: Any, result: Any, mask: Any) -> None:
    """f32 arithmetic, f32, f16 or bf16 in memory, any strides.

    Block: WARPS x ROWS queries of one batch element; a warp takes ROWS of them. Its lanes are the 32 keys of a tile for
    the scores, and COLUMNS columns of the result each for the weighted sum of the values.
    """
    largest = max_nan if NAN_AS_ZERO else larger
    shared = shared_base(cuda.shared.array(0, u8))
    thread = i32(cuda.threadIdx.x)
    lane = i32(thread & 31)
    local = i32(i32(thread >> 5) * ROWS)
    first, index = splice(BLOCK_OF, WARPS * ROWS)
    if CAUSAL:
        tiles = splice(TILES_SEEN, i32(first + i32(WARPS * ROWS - 1)), 32, i32(PAST))
    offset_q = splice(OFFSET, index, BATCH, Q_BATCH)
    offset_k = splice(OFFSET, index, BATCH, K_BATCH)
    offset_v = splice(OFFSET, index, BATCH, V_BATCH)
    offset_result = splice(OFFSET, index, BATCH, RESULT_BATCH)
    q = u64(q + offset_q + u64(first) * u64(Q_ROW))
    k = u64(k + offset_k)
    v = u64(v + offset_v)
    result = u64(result + offset_result)
    if MASKED:
        offset_mask = splice(OFFSET, index, BATCH, MASK_BATCH)
        mask = u64(mask + offset_mask)
    keys_at = u32(shared + u32(4 * WARPS * ROWS * D))
    values_at = u32(keys_at + u32(4 * 32 * (D + 1)))

    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    splice(COPY_MATRIX, shared, D, q, Q_ROW, Q_COLUMN, WARPS * ROWS, D, i32(M - first), thread)
    top = registers(ROWS, f32(NEGATIVE_INFINITY))
    sums = registers(ROWS, f32(0.0))
    total = registers(ROWS * COLUMNS, f32(0.0))
    for tile in range(tiles if CAUSAL else TILES_N):
        start = i32(i32(tile) * i32(32))
        valid = i32(i32(N) - start)
        cuda.syncthreads()
        source_k, source_v = u64(k + u64(start) * u64(K_ROW)), u64(v + u64(start) * u64(V_ROW))
        splice(COPY_MATRIX, keys_at, D + 1, source_k, K_ROW, K_COLUMN, 32, D, valid, thread)
        splice(COPY_MATRIX, values_at, 32 * COLUMNS, source_v, V_ROW, V_COLUMN, 32, DV, valid, thread)
        cuda.syncthreads()
        weight = registers(ROWS, f32(0.0))
        for d in range(D):
            key = load_shared_f32(u32(keys_at + u32(lane) * u32(4 * (D + 1)) + u32(d) * u32(4)))
            for r in unrolled(ROWS):
                query = load_shared_f32(u32(shared + u32(local + r) * u32(4 * D) + u32(d) * u32(4)))
                weight[r] = cuda.fma(query, key, weight[r])
        for r in unrolled(ROWS):
            score = weight[r] * f32(SCALE)
            if MASKED:
                row = u64(min(i32(first + local + r), i32(M - 1)))
                column = u64(min(i32(start + lane), i32(N - 1)))
                bias = splice(LOAD_MASK, u64(mask + row * u64(MASK_ROW) + column * u64(MASK_COLUMN)))
                score = score + bias
            if lane >= valid or (CAUSAL and i32(start + lane) > i32(first + local + i32(r + PAST))):
                score = NEGATIVE_INFINITY
            here = score
            for distance in unrolled(5):
                here = largest(here, cuda.shfl_xor_sync(ALL_LANES, here, 1 << distance))
            here = largest(here, top[r])
            if NAN_AS_ZERO:
                here = here if here == here else INFINITY
            base = f32(0.0) if here == NEGATIVE_INFINITY else here
            decay = cuda.libdevice.expf(top[r] - base)
            top[r] = here
            weight[r] = cuda.libdevice.expf(score - base)
            if NAN_AS_ZERO:
                decay, weight[r] = larger(decay, f32(0.0)), larger(weight[r], f32(0.0))
            sums[r] = sums[r] * decay + weight[r]
            for c in unrolled(COLUMNS):
                total[r * COLUMNS + c] = total[r * COLUMNS + c] * decay
        for j in range(32):
            for c in unrolled(COLUMNS):
                value = load_shared_f32(
                    u32(values_at + u32(j) * u32(128 * COLUMNS) + u32(lane) * u32(4) + u32(128 * c))
                )
                for r in unrolled(ROWS):
                    total[r * COLUMNS + c] = cuda.fma(
                        cuda.shfl_sync(ALL_LANES, weight[r], j), value, total[r * COLUMNS + c]
                    )
    for r in unrolled(ROWS):
        whole = sums[r]
        for distance in unrolled(5):
            whole = whole + cuda.shfl_xor_sync(ALL_LANES, whole, 1 << distance)
        if NAN_AS_ZERO or EMPTY_AS_ZERO:
            whole = f32(1.0) if whole == f32(0.0) else whole
        row = i32(first + local + r)
        if row < M:
            for c in unrolled(COLUMNS):
                column = i32(lane + 32 * c)
                if column < DV:
                    at = u64(result + u64(row) * u64(RESULT_ROW) + u64(column) * u64(RESULT_COLUMN))
                    splice(STORE, at, total[r * COLUMNS + c] / whole)
