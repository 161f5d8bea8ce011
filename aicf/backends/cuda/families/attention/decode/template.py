# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportCallIssue=false, reportArgumentType=false, reportUndefinedVariable=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Attention of one query a head, as a template for the specializer: the step of a decoder, which reads its state once.

Keys and values are streamed past scalar units, in f32: with few queries there is nothing for tensor cores to share. A
cluster of SPLITS blocks has GROUP queries that share keys and values (grouped queries: Ainslie et al., 2023), and its
warps share these out (as flash-decoding does: Dao et al., 2023). A warp has LOADS keys and values of every lane under
way at once, 16 bytes each; where it has more, those of the next turn are under way while these are used, with a running
maximum (Milakov and Gimelshein, 2018). It ends with a maximum, a sum and a partial result of each query; those of one
query meet in the shared memory of one block of the cluster, where one order combines them.

With WRITES the step also puts the new token's key and value into the state: the warp that has the row uses them in
place of the row and stores them. In place that is all that is stored; else (COPIES) every row is. With ROTATES queries
and the new key are turned by their position on the way (rotary positions: Su et al., 2021).

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
ROTATES = ""
"""Which elements of queries and the new key are a pair: `halves`, i and i + D / 2; `neighbours`, 2 i and 2 i + 1."""
OF_COSINES_Q = OF_SINES_Q = OF_COSINES_K = OF_SINES_K = ((0,), 0, 4)
"""Their strides: of the batch, from the first to the second of a pair, and from pair to pair."""
PROGRAMMATIC = True

# The method.
GROUP, SHARED = 4, 1
"""Queries of a cluster, and clusters that share keys and values."""
SPLITS, WARPS = 8, 4
PIECES = 8
"""Lanes that share a key: 16 bytes each."""
BITS = 3
"""PIECES is two to the power of BITS."""
LINES = 4
"""Keys that a warp loads at a time."""
LOADS = 4
"""Keys of a lane in a turn."""
PARTS = 32
"""Warps that share a head."""
TURN, TURNS = 512, 1
"""Keys of all warps in a turn, and turns."""
TAIL = False
"""Whether the last turn ends after N."""
SLOTS, SLOT_BYTES = 1, 8448
"""Queries that a block combines, and the shared memory for the parts of one."""
COMBINERS = 1
"""Warps that combine a query, two elements a lane."""

OFFSET = LOAD_MASK = LOAD_BEFORE = ROW = UNPACK = PACK = KEYS_AND_VALUES = Snippet((), ())
ANGLES = EIGHT = NEW_ROW = WRITTEN = SCORED = STORED = COMBINED = Snippet((), ())


def keys_and_values(key: Any) -> None:
    """Starts the loads of this lane's share from `key` on; zeros past the last key. Rows that are copied are loaded,
    seen or not."""
    at_k = u64(k + u64(key) * u64(K_ROW))
    at_v = u64(v + u64(key) * u64(V_ROW))
    for j in unrolled(LOADS):
        if TAIL or FILLED or TURNS > 1:
            there = i32(1) if (key + i32(j * LINES) < end) & (key + i32(j * LINES) >= start) else i32(0)
            if COPIES_K or COPIES_V:
                there = i32(1) if key + i32(j * LINES) < i32(N) else i32(0)
            kw[j * 4 : j * 4 + 4] = load_u32x4_or_zero(at_k + u64(j * LINES * K_ROW), there)
            vw[j * 4 : j * 4 + 4] = load_u32x4_or_zero(at_v + u64(j * LINES * V_ROW), there)
        else:
            kw[j * 4 : j * 4 + 4] = load_u32x4(at_k + u64(j * LINES * K_ROW))
            vw[j * 4 : j * 4 + 4] = load_u32x4(at_v + u64(j * LINES * V_ROW))


def angles(index: Any, cosines: Any, sines: Any, of_cosines: Any, of_sines: Any) -> None:
    """Loads the cosines and sines of this lane's eight elements; sines are those of the first of a pair negated."""
    offset_cosines = splice(OFFSET, index, BATCH, of_cosines[0])
    offset_sines = splice(OFFSET, index, BATCH, of_sines[0])
    if ROTATES == "halves":
        half = u64(piece // u32(PIECES // 2))
        pair = u64(u32(piece % u32(PIECES // 2)) * u32(8))
        cosines = u64(cosines + offset_cosines + half * u64(of_cosines[1]) + pair * u64(of_cosines[2]))
        sines = u64(sines + offset_sines + half * u64(of_sines[1]) + pair * u64(of_sines[2]))
        for c in unrolled(8):
            cosine[c] = load_f32(cosines + u64(c * of_cosines[2]))
            sine[c] = load_f32(sines + u64(c * of_sines[2]))
    else:
        cosines = u64(cosines + offset_cosines + u64(piece) * u64(4 * of_cosines[2]))
        sines = u64(sines + offset_sines + u64(piece) * u64(4 * of_sines[2]))
        for c in unrolled(8):
            cosine[c] = load_f32(cosines + u64(c // 2 * of_cosines[2] + c % 2 * of_cosines[1]))
            sine[c] = load_f32(sines + u64(c // 2 * of_sines[2] + c % 2 * of_sines[1]))


def eight_of(row: Any) -> Any:
    """This lane's eight elements of a row, as they are."""
    words = registers(4, u32(0))
    words[0:4] = load_u32x4(row + u64(piece) * u64(16))
    return words[0], words[1], words[2], words[3]


def eight_turned(row: Any) -> Any:
    """This lane's eight elements of a row, turned and rounded to the type of the row."""
    words = registers(4, u32(0))
    x = registers(8, f32(0.0))
    other = registers(8, f32(0.0))
    words[0:4] = load_u32x4(row + u64(piece) * u64(16))
    for c in unrolled(4):
        x[c * 2 : c * 2 + 2] = splice(UNPACK, words[c])
    if ROTATES == "halves":
        words[0:4] = load_u32x4(row + u64(u32(piece ^ u32(PIECES // 2))) * u64(16))
        for c in unrolled(4):
            other[c * 2 : c * 2 + 2] = splice(UNPACK, words[c])
    else:
        for c in unrolled(8):
            other[c] = x[c + 1 - c % 2 * 2]
    for c in unrolled(8):
        other[c] = other[c] * sine[c]
    for c in unrolled(4):
        words[c] = splice(
            PACK,
            cuda.fma(x[c * 2], cosine[c * 2], other[c * 2]),
            cuda.fma(x[c * 2 + 1], cosine[c * 2 + 1], other[c * 2 + 1]),
        )
    return words[0], words[1], words[2], words[3]


def new_row() -> None:
    """The new key and value, in the warp that has their row, which stores them unless all rows are."""
    if owner == part:
        offset_new_k = splice(OFFSET, first, BATCH, NEW_K_BATCH)
        offset_new_v = splice(OFFSET, first, BATCH, NEW_V_BATCH)
        if ROTATES:
            splice(ANGLES, first, cosines_k, sines_k, OF_COSINES_K, OF_SINES_K)
        nk[0:4] = splice(EIGHT, u64(new_k + offset_new_k))
        nv[0:4] = load_u32x4(new_v + offset_new_v + u64(piece) * u64(16))
        if (lane < u32(PIECES)) & (row >= i64(0)) & (row < i64(N)) & is_writer:
            if not COPIES_K:
                store_u32x4(u64(keys + u64(row) * u64(KEYS_ROW)), *nk[0:4])
            if not COPIES_V:
                store_u32x4(u64(values + u64(row) * u64(VALUES_ROW)), *nv[0:4])


def written(key: Any) -> None:
    """The new row in place of the one that was loaded; and all rows from `key` on, where they are copied."""
    for j in unrolled(LOADS):
        here = i64(key + i32(j * LINES)) == row
        inside = key + i32(j * LINES) < i32(N)
        for c in unrolled(4):
            kw[j * 4 + c] = cuda.selp(here, nk[c], kw[j * 4 + c])
            vw[j * 4 + c] = cuda.selp(here, nv[c], vw[j * 4 + c])
        if COPIES_K:  # noqa: SIM102 (the outer test is constant)
            if inside & is_writer:
                at_keys = u64(keys + u64(key + i32(j * LINES)) * u64(KEYS_ROW))
                store_u32x4(at_keys, *kw[j * 4 : j * 4 + 4])
        if COPIES_V:  # noqa: SIM102 (the outer test is constant)
            if inside & is_writer:
                at_values = u64(values + u64(key + i32(j * LINES)) * u64(VALUES_ROW))
                store_u32x4(at_values, *vw[j * 4 : j * 4 + 4])
        if FILLED and (COPIES_K or COPIES_V):  # a value that is not seen may be NaN, whatever its weight
            seen = (key + i32(j * LINES) < end) & (key + i32(j * LINES) >= start)
            for c in unrolled(4):
                vw[j * 4 + c] = cuda.selp(seen, vw[j * 4 + c], u32(0))


def scored(key: Any, g: Any) -> None:
    """The keys and values from `key` on, as query `g` sees them: its maximum, its sum and its result so far."""
    query = registers(8, f32(0.0))
    for c in unrolled(4):
        query[c * 2 : c * 2 + 2] = splice(UNPACK, qw[g * 4 + c])
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
    if MASKED:
        offset_mask = splice(OFFSET, u32(first + u32(g)), BATCH, MASK_BATCH)
        at_mask = u64(mask + offset_mask + u64(key) * u64(MASK_COLUMN))
    high = top[g]
    for j in unrolled(LOADS):
        score[j] = score[j] * f32(SCALE)
        if MASKED:  # noqa: SIM102 (the outer test is constant)
            if not TAIL or key + i32(j * LINES) < i32(N):
                bias = splice(LOAD_MASK, at_mask + u64(j * LINES * MASK_COLUMN))
                score[j] = score[j] + bias
        if TAIL or FILLED:  # noqa: SIM102 (the outer test is constant)
            if (key + i32(j * LINES) >= end) | (key + i32(j * LINES) < start):
                score[j] = NEGATIVE_INFINITY
        high = largest(high, score[j])
    for s in unrolled(BITS, 5):
        high = largest(high, cuda.shfl_xor_sync(ALL_LANES, high, 1 << s))
    if NAN_AS_ZERO:
        high = high if high == high else INFINITY
    # Where all scores are -inf, 0 in place of the maximum keeps the exponentials at 0.
    base = f32(0.0) if high == NEGATIVE_INFINITY else high
    if TURNS > 1:
        kept = top[g] - base
        if MASKED:
            kept = kept * f32(LOG2_E)
        kept = exp2_approx(kept)
        if NAN_AS_ZERO:
            kept = larger(kept, f32(0.0))
        for c in unrolled(9):
            total[g * 9 + c] = total[g * 9 + c] * kept
    top[g] = high
    for j in unrolled(LOADS):
        weight = score[j] - base
        if MASKED:
            weight = weight * f32(LOG2_E)
        weight = exp2_approx(weight)
        if NAN_AS_ZERO:
            weight = larger(weight, f32(0.0))
        total[g * 9 + 8] += weight
        for c in unrolled(4):
            x[0:2] = splice(UNPACK, vw[j * 4 + c])
            total[g * 9 + c * 2] = cuda.fma(x[0], weight, total[g * 9 + c * 2])
            total[g * 9 + c * 2 + 1] = cuda.fma(x[1], weight, total[g * 9 + c * 2 + 1])


def stored(g: Any) -> None:
    """Puts what this warp has of query `g` where it is combined."""
    for s in unrolled(BITS, 5):
        for c in unrolled(9):
            total[g * 9 + c] += cuda.shfl_xor_sync(ALL_LANES, total[g * 9 + c], 1 << s)
    slot = u32(shared + u32(g // SPLITS * SLOT_BYTES))
    if SPLITS > 1:
        slot = map_shared(slot, u32(g % SPLITS))
    if lane < u32(PIECES):
        there = u32(slot + u32(PARTS * 8) + part * u32(D * 4) + piece * u32(32))
        for c in unrolled(0, 8, 2):
            store_cluster_f32x2(u32(there + u32(c * 4)), total[g * 9 + c], total[g * 9 + c + 1])
        if lane == u32(0):
            store_cluster_f32x2(u32(slot + part * u32(8)), top[g], total[g * 9 + 8])


def combined(slot: Any, turn: Any, index: Any) -> None:
    """The result of batch element `index` from its parts, of which `turn` says which two elements this lane has."""
    factor = registers((PARTS + 31) // 32, f32(0.0))
    state = registers((PARTS + 31) // 32 * 2, f32(0.0))
    high = NEGATIVE_INFINITY
    for g in unrolled((PARTS + 31) // 32):
        state[g * 2 : g * 2 + 2] = load_shared_f32x2(
            u32(slot + u32(min(lane + u32(g * 32), u32(PARTS - 1))) * u32(8))
        )
        high = larger(high, state[g * 2])
    for s in unrolled(5):
        high = larger(high, cuda.shfl_xor_sync(ALL_LANES, high, 1 << s))
    base = f32(0.0) if high == NEGATIVE_INFINITY else high
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
    x = registers(2, f32(0.0))
    value = registers(2, f32(0.0))
    pair = u32(min(u32(turn * u32(32) + lane), u32(D // 2 - 1)))
    for p in unrolled(PARTS):
        weight = cuda.shfl_sync(ALL_LANES, factor[p // 32], p % 32)
        x[0:2] = load_shared_f32x2(u32(slot + u32(PARTS * 8 + p * D * 4) + pair * u32(8)))
        value[0] = cuda.fma(x[0], weight, value[0])
        value[1] = cuda.fma(x[1], weight, value[1])
    if NAN_AS_ZERO or EMPTY_AS_ZERO:
        whole = f32(1.0) if whole == f32(0.0) else whole
    inverse = rcp_approx(whole)
    offset_result = splice(OFFSET, index, BATCH, RESULT_BATCH)
    if D >= 64 or lane < u32(D // 2):
        packed = splice(PACK, value[0] * inverse, value[1] * inverse)
        store_u32(u64(result + offset_result + u64(pair) * u64(4)), packed)


def attention_step(pointers: Any) -> None:
    """Block: one of SPLITS shares of the keys of GROUP queries, which are neighbours in the batch."""
    if PROGRAMMATIC:
        launch_dependents()
    largest = max_nan if NAN_AS_ZERO else larger
    shared = shared_base(cuda.shared.array(0, u8))
    lane = u32(u32(cuda.threadIdx.x) & u32(31))
    warp = u32(u32(cuda.threadIdx.x) >> u32(5))
    split = u32(u32(cuda.blockIdx.x) % u32(SPLITS))
    cluster = u32(u32(cuda.blockIdx.x) // u32(SPLITS))
    first = u32(cluster * u32(GROUP))
    # Neighbouring keys are those of different blocks: then a cache that is filled a little keeps all of them busy.
    part = u32(warp * u32(SPLITS) + split)
    piece = u32(lane & u32(PIECES - 1))
    own = i32(part * u32(LOADS * LINES) + u32(lane >> u32(BITS)))
    offset_k = splice(OFFSET, first, BATCH, K_BATCH)
    offset_v = splice(OFFSET, first, BATCH, V_BATCH)
    k = u64(k + offset_k + u64(piece) * u64(16))
    v = u64(v + offset_v + u64(piece) * u64(16))
    kw = registers(LOADS * 4, u32(0))
    vw = registers(LOADS * 4, u32(0))
    if SPLITS > 1:
        # Blocks must have started before others write to their shared memory.
        cluster_arrive()
    if PROGRAMMATIC:
        wait_for_predecessors()
    start, end = i32(0), i32(N)
    if FILLED:
        offset_before = splice(OFFSET, first, BATCH, BEFORE_BATCH)
        count = splice(LOAD_BEFORE, u64(before + offset_before))
        count = cuda.selp(count < i64(-1), i64(-1), cuda.selp(count > i64(1 << 30), i64(1 << 30), count))
        end = i32(cuda.selp(count < i64(N), count + i64(1), i64(N)))
        if WINDOW > 0:
            start = i32(cuda.selp(count < i64(WINDOW), i64(0), count + i64(1 - WINDOW)))
    begin, turns = i32(0), i32(TURNS)
    if TURNS > 1 and FILLED and not COPIES_K and not COPIES_V:
        begin = i32(start // i32(TURN))
        turns = i32(i32(end + i32(TURN - 1)) // i32(TURN))
    splice(KEYS_AND_VALUES, i32(begin * i32(TURN) + own))
    cosine = registers(8, f32(1.0))
    sine = registers(8, f32(0.0))
    if ROTATES:
        splice(ANGLES, first, cosines_q, sines_q, OF_COSINES_Q, OF_SINES_Q)
    qw = registers(GROUP * 4, u32(0))
    for g in unrolled(GROUP):
        offset_q = splice(OFFSET, u32(first + u32(g)), BATCH, Q_BATCH)
        qw[g * 4 : g * 4 + 4] = splice(EIGHT, u64(q + offset_q))
    if WRITES:
        row = splice(ROW)
        is_writer = u32(cluster % u32(SHARED)) == u32(0)
        # Of a row outside of the state the number is any: it is stored nowhere.
        owner = u32(u32(row // i64(LOADS * LINES)) % u32(PARTS))
        nk = registers(4, u32(0))
        nv = registers(4, u32(0))
        offset_keys = splice(OFFSET, first, BATCH, KEYS_BATCH)
        offset_values = splice(OFFSET, first, BATCH, VALUES_BATCH)
        keys = u64(keys + offset_keys + u64(piece) * u64(16))
        values = u64(values + offset_values + u64(piece) * u64(16))
        splice(NEW_ROW)

    top = registers(GROUP, NEGATIVE_INFINITY)
    total = registers(GROUP * 9, f32(0.0))
    if TURNS == 1:
        if WRITES:
            splice(WRITTEN, own)
        for g in unrolled(GROUP):
            splice(SCORED, own, g)
    else:
        for turn in range(begin, turns):
            key = i32(i32(turn) * i32(TURN) + own)
            if WRITES:
                splice(WRITTEN, key)
            for g in unrolled(GROUP):
                splice(SCORED, key, g)
            splice(KEYS_AND_VALUES, i32(key + i32(TURN)))

    if SPLITS > 1:
        cluster_wait()
    for g in unrolled(GROUP):
        splice(STORED, g)
    if SPLITS > 1:
        cluster_arrive()
        cluster_wait()
    else:
        cuda.syncthreads()
    for at in unrolled(0, SLOTS * COMBINERS, WARPS):
        unit = u32(u32(at) + warp)
        number = u32(u32(unit // u32(COMBINERS)) * u32(SPLITS) + split)
        if (unit < u32(SLOTS * COMBINERS)) & (number < u32(GROUP)):
            slot = u32(shared + u32(unit // u32(COMBINERS)) * u32(SLOT_BYTES))
            splice(COMBINED, slot, u32(unit % u32(COMBINERS)), u32(first + number))
