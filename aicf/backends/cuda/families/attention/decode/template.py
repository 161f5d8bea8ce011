# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportCallIssue=false, reportArgumentType=false, reportUndefinedVariable=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Attention of one query a head, as a template for the specializer: the step of a decoder, which reads its state once.

Keys and values are streamed past scalar units, in f32: with one query there is nothing for tensor cores to share. The
keys of a head are shared out over the warps of a cluster of SPLITS blocks (as flash-decoding does: Dao et al., 2023).
A warp has all of its keys and values under way at once, 16 bytes a lane, and ends with a maximum, a sum and a partial
result; these meet in the shared memory of the first block of the cluster, where one order combines them.

With WRITES the step also puts the new token's key and value into the state: the warp that has the row uses them in
place of the row and stores them. In place that is all that is stored; else (COPIES) every row is.

Names in capitals are constants: `codegen.py` gives every one, the values here only say what they look like.
"""

from __future__ import annotations

from typing import Any

from aicf.backends.cuda.compiler.ptx import *
from aicf.backends.cuda.compiler.specializer import Snippet, registers, splice, unrolled

# The problem. Strides are in bytes, batch dimensions innermost first.
BATCH = (12,)
N, D = 512, 64
Q_BATCH, RESULT_BATCH = (128,), (128,)
K_BATCH, K_ROW = (128,), 1536
V_BATCH, V_ROW = (128,), 1536
MASKED = False
MASK_BATCH, MASK_COLUMN = (0,), 2
SCALE, LOG2_E = 0.18, 1.4426950408889634
"""The exponential is a power of two; see `attention/template.py`, also for why a mask keeps the factor out of SCALE."""
NAN_AS_ZERO = False
"""Whether weights are 0 where they would be NaN, see `attention/template.py`."""
EMPTY_AS_ZERO = False
"""Whether weights are 0 in a row whose scores all are -inf."""
WRITES, COPIES_K, COPIES_V = True, False, False
"""Whether a row of keys and values is new, and whether the others are copied to where the new state lies."""
NEW_K_BATCH, NEW_V_BATCH = (128,), (128,)
KEYS_BATCH, KEYS_ROW = (128,), 1536
VALUES_BATCH, VALUES_ROW = (128,), 1536
"""Where the new state lies."""
FILLED = False
"""Whether the keys that are seen follow from a number in memory, how many come before the query; the others are not
loaded."""
BEFORE_BATCH = (0,)
WINDOW = 0
"""Of those, how many are seen at most; 0 for all."""
PROGRAMMATIC = True

# The method.
SPLITS, WARPS = 8, 4
PIECES = 8
"""Lanes that share a key: 16 bytes each."""
BITS = 3
"""PIECES is two to the power of BITS."""
LINES = 4
"""Keys that a warp loads at a time."""
LOADS = 4
"""Keys of a lane."""
PARTS = 32
"""Warps that share a head."""
TAIL = False
"""Whether the last warps have keys past N."""

OFFSET = LOAD_MASK = LOAD_BEFORE = ROW = UNPACK = PACK = KEYS_AND_VALUES = Snippet((), ())


def keys_and_values() -> None:
    """Starts the loads of this lane's share; zeros past the last key. Rows that are copied are loaded, seen or not."""
    for j in unrolled(LOADS):
        if TAIL or FILLED:
            there = i32(1) if (key + i32(j * LINES) < end) & (key + i32(j * LINES) >= start) else i32(0)
            if COPIES_K or COPIES_V:
                there = i32(1) if key + i32(j * LINES) < i32(N) else i32(0)
            kw[j * 4 : j * 4 + 4] = load_u32x4_or_zero(k + u64(j * LINES * K_ROW), there)
            vw[j * 4 : j * 4 + 4] = load_u32x4_or_zero(v + u64(j * LINES * V_ROW), there)
        else:
            kw[j * 4 : j * 4 + 4] = load_u32x4(k + u64(j * LINES * K_ROW))
            vw[j * 4 : j * 4 + 4] = load_u32x4(v + u64(j * LINES * V_ROW))


def attention_step(pointers: Any) -> None:
    """Block: one of SPLITS shares of the keys of one batch element, for its one query."""
    if PROGRAMMATIC:
        launch_dependents()
    largest = max_nan if NAN_AS_ZERO else larger
    shared = shared_base(cuda.shared.array(0, u8))
    thread = u32(cuda.threadIdx.x)
    lane = u32(thread & u32(31))
    split = u32(u32(cuda.blockIdx.x) % u32(SPLITS))
    index = u32(u32(cuda.blockIdx.x) // u32(SPLITS))
    part = u32(split * u32(WARPS) + u32(thread >> u32(5)))
    piece = u32(lane & u32(PIECES - 1))
    key = i32(part * u32(LOADS * LINES) + u32(lane >> u32(BITS)))
    offset_q = splice(OFFSET, index, BATCH, Q_BATCH)
    offset_k = splice(OFFSET, index, BATCH, K_BATCH)
    offset_v = splice(OFFSET, index, BATCH, V_BATCH)
    k = u64(k + offset_k + u64(key) * u64(K_ROW) + u64(piece) * u64(16))
    v = u64(v + offset_v + u64(key) * u64(V_ROW) + u64(piece) * u64(16))
    kw = registers(LOADS * 4, u32(0))
    vw = registers(LOADS * 4, u32(0))
    if SPLITS > 1:
        # The first block must have started before others write to its shared memory.
        cluster_arrive()
    if PROGRAMMATIC:
        wait_for_predecessors()
    start, end = i32(0), i32(N)
    if FILLED:
        offset_before = splice(OFFSET, index, BATCH, BEFORE_BATCH)
        count = splice(LOAD_BEFORE, u64(before + offset_before))
        count = cuda.selp(count < i64(-1), i64(-1), cuda.selp(count > i64(1 << 30), i64(1 << 30), count))
        end = i32(cuda.selp(count < i64(N), count + i64(1), i64(N)))
        if WINDOW > 0:
            start = i32(cuda.selp(count < i64(WINDOW), i64(0), count + i64(1 - WINDOW)))
    splice(KEYS_AND_VALUES)
    query = registers(8, f32(0.0))
    qw = registers(4, u32(0))
    qw[0:4] = load_u32x4(q + offset_q + u64(piece) * u64(16))
    if WRITES:
        row = splice(ROW)
        offset_new_k = splice(OFFSET, index, BATCH, NEW_K_BATCH)
        offset_new_v = splice(OFFSET, index, BATCH, NEW_V_BATCH)
        offset_keys = splice(OFFSET, index, BATCH, KEYS_BATCH)
        offset_values = splice(OFFSET, index, BATCH, VALUES_BATCH)
        nk = registers(4, u32(0))
        nv = registers(4, u32(0))
        nk[0:4] = load_u32x4(new_k + offset_new_k + u64(piece) * u64(16))
        nv[0:4] = load_u32x4(new_v + offset_new_v + u64(piece) * u64(16))
        keys = u64(keys + offset_keys + u64(key) * u64(KEYS_ROW) + u64(piece) * u64(16))
        values = u64(values + offset_values + u64(key) * u64(VALUES_ROW) + u64(piece) * u64(16))
        for j in unrolled(LOADS):
            here = i64(key + i32(j * LINES)) == row
            inside = key + i32(j * LINES) < i32(N)
            for c in unrolled(4):
                kw[j * 4 + c] = cuda.selp(here, nk[c], kw[j * 4 + c])
                vw[j * 4 + c] = cuda.selp(here, nv[c], vw[j * 4 + c])
            if inside if COPIES_K else inside & here:
                store_u32x4(keys + u64(j * LINES * KEYS_ROW), *kw[j * 4 : j * 4 + 4])
            if inside if COPIES_V else inside & here:
                store_u32x4(values + u64(j * LINES * VALUES_ROW), *vw[j * 4 : j * 4 + 4])
            if FILLED and (COPIES_K or COPIES_V):  # a value that is not seen may be NaN, whatever its weight
                seen = (key + i32(j * LINES) < end) & (key + i32(j * LINES) >= start)
                for c in unrolled(4):
                    vw[j * 4 + c] = cuda.selp(seen, vw[j * 4 + c], u32(0))
    for c in unrolled(4):
        query[c * 2 : c * 2 + 2] = splice(UNPACK, qw[c])
    if MASKED:
        offset_mask = splice(OFFSET, index, BATCH, MASK_BATCH)
        mask = u64(mask + offset_mask + u64(key) * u64(MASK_COLUMN))

    score = registers(LOADS, f32(0.0))
    x = registers(2, f32(0.0))
    for j in unrolled(LOADS):
        for c in unrolled(4):
            x[0:2] = splice(UNPACK, kw[j * 4 + c])
            score[j] = cuda.fma(x[0], query[c * 2], score[j])
            score[j] = cuda.fma(x[1], query[c * 2 + 1], score[j])
    for s in unrolled(BITS):
        for j in unrolled(LOADS):
            score[j] += cuda.shfl_xor_sync(ALL_LANES, score[j], 1 << s)
    top = NEGATIVE_INFINITY
    for j in unrolled(LOADS):
        score[j] = score[j] * f32(SCALE)
        if MASKED:  # noqa: SIM102 (the outer test is constant)
            if not TAIL or key + i32(j * LINES) < i32(N):
                bias = splice(LOAD_MASK, mask + u64(j * LINES * MASK_COLUMN))
                score[j] = score[j] + bias
        if TAIL or FILLED:  # noqa: SIM102 (the outer test is constant)
            if (key + i32(j * LINES) >= end) | (key + i32(j * LINES) < start):
                score[j] = NEGATIVE_INFINITY
        top = largest(top, score[j])
    for s in unrolled(BITS, 5):
        top = largest(top, cuda.shfl_xor_sync(ALL_LANES, top, 1 << s))
    if NAN_AS_ZERO:
        top = top if top == top else INFINITY
    # Where all scores are -inf, 0 in place of the maximum keeps the exponentials at 0.
    base = f32(0.0) if top == NEGATIVE_INFINITY else top
    total = registers(9, f32(0.0))
    for j in unrolled(LOADS):
        weight = score[j] - base
        if MASKED:
            weight = weight * f32(LOG2_E)
        weight = exp2_approx(weight)
        if NAN_AS_ZERO:
            weight = larger(weight, f32(0.0))
        total[8] += weight
        for c in unrolled(4):
            x[0:2] = splice(UNPACK, vw[j * 4 + c])
            total[c * 2] = cuda.fma(x[0], weight, total[c * 2])
            total[c * 2 + 1] = cuda.fma(x[1], weight, total[c * 2 + 1])
    for s in unrolled(BITS, 5):
        for c in unrolled(9):
            total[c] += cuda.shfl_xor_sync(ALL_LANES, total[c], 1 << s)

    # The maxima and sums of all parts, then their results.
    sums_at = u32(shared + u32(PARTS * 8))
    if SPLITS > 1:
        cluster_wait()
        shared_there = map_shared(shared, u32(0))
    else:
        shared_there = shared
    if lane < u32(PIECES):
        there = u32(shared_there + u32(PARTS * 8) + part * u32(D * 4) + piece * u32(32))
        for c in unrolled(0, 8, 2):
            store_cluster_f32x2(u32(there + u32(c * 4)), total[c], total[c + 1])
        if lane == u32(0):
            store_cluster_f32x2(u32(shared_there + part * u32(8)), top, total[8])
    if SPLITS > 1:
        cluster_arrive()
        cluster_wait()
    else:
        cuda.syncthreads()
    if (split == u32(0)) & (thread < u32(max(32, D // 2))):
        factor = registers((PARTS + 31) // 32, f32(0.0))
        state = registers((PARTS + 31) // 32 * 2, f32(0.0))
        top = NEGATIVE_INFINITY
        for g in unrolled((PARTS + 31) // 32):
            state[g * 2 : g * 2 + 2] = load_shared_f32x2(
                u32(shared + u32(min(lane + u32(g * 32), u32(PARTS - 1))) * u32(8))
            )
            top = larger(top, state[g * 2])
        for s in unrolled(5):
            top = larger(top, cuda.shfl_xor_sync(ALL_LANES, top, 1 << s))
        base = f32(0.0) if top == NEGATIVE_INFINITY else top
        whole = f32(0.0)
        for g in unrolled((PARTS + 31) // 32):
            factor[g] = state[g * 2] - base
            if MASKED:
                factor[g] = factor[g] * f32(LOG2_E)
            factor[g] = exp2_approx(factor[g])
            if NAN_AS_ZERO:
                factor[g] = larger(factor[g], f32(0.0))
            if PARTS % 32 != 0:
                factor[g] = factor[g] if lane + u32(g * 32) < u32(PARTS) else f32(0.0)
            whole = cuda.fma(state[g * 2 + 1], factor[g], whole)
        for s in unrolled(5):
            whole += cuda.shfl_xor_sync(ALL_LANES, whole, 1 << s)
        value = registers(2, f32(0.0))
        pair = u32(min(thread, u32(D // 2 - 1)))
        for p in unrolled(PARTS):
            weight = cuda.shfl_sync(ALL_LANES, factor[p // 32], p % 32)
            x[0:2] = load_shared_f32x2(u32(sums_at + u32(p * D * 4) + pair * u32(8)))
            value[0] = cuda.fma(x[0], weight, value[0])
            value[1] = cuda.fma(x[1], weight, value[1])
        if NAN_AS_ZERO or EMPTY_AS_ZERO:
            whole = f32(1.0) if whole == f32(0.0) else whole
        inverse = rcp_approx(whole)
        offset_result = splice(OFFSET, index, BATCH, RESULT_BATCH)
        if D >= 64 or thread < u32(D // 2):
            at = u64(result + offset_result + u64(pair) * u64(4))
            packed = splice(PACK, value[0] * inverse, value[1] * inverse)
            store_u32(at, packed)
