# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportUndefinedVariable=false, reportCallIssue=false, reportArgumentType=false
# Names in capitals are constants and parts that codegen.py puts in.
"""The gradients of attention where a block has all queries and keys of a head: every product once, nothing in memory
but operands and results.

With S the scaled scores, P their softmax, g the gradient of the result and D = g v^T, the gradient of S is
G = P * (D - the sum of P * D in a row), and dq = G k, dk = G^T q, dv = P^T g. A warpgroup has 64 rows of S, P, D and G,
which its registers hold, one after the other; P and G are rounded to 16 bits there, two to a register. P^T and G^T have
64 keys for each warpgroup and rows of all of them along K, so P and then G pass through shared memory, where wgmma
reads its left operand transposed.

Blocks of one multiprocessor fill each other's gaps: one multiplies or waits for memory while another is at its softmax.

`attention_backward` is the kernel; the other functions are parts that it splices in. Every part sees the names of the
kernel. Parts that are not here are those of `cuda.attention_wgmma` (the mask) and of all these gradients (POWER).
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.ptx import *
from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def attention_backward(q_map, k_map, v_map, g_map, queries, keys, values, mask):
    """f16 or bf16 with f32 sums and softmax. `queries`, `keys` and `values` are the gradients for them. Two barriers:
    of queries and keys, and of the other operands."""
    thread = i32(cuda.threadIdx.x)
    group = i32(cuda.shfl_sync(ALL_LANES, thread, 0)) >> 7  # known to be the same in a warp
    lane = thread & 31
    row = i32((thread >> 5) * 16)
    shared = u32((shared_base(cuda.shared.array(0, u8)) + u32(1023)) & u32(0xFFFFFC00))
    arrived = u32(shared + u32(BARRIERS_AT))
    index = i32(cuda.blockIdx.x)
    if thread == 0:
        barrier_init(arrived, u32(1))
        barrier_init(u32(arrived + u32(8)), u32(1))
        fence_barrier_init()
    cuda.syncthreads()
    launch_dependents()
    wait_for_predecessors()
    if thread == 0:
        splice(COPY)
    score = registers(SCORE, f32(0.0))
    weight = registers(SCORE // 2, u32(0))
    total = registers(D + DV // 2, f32(0.0))
    bias = registers(BIAS, u32(0))
    # The 16 rows of this warp, units of 16 bytes permuted as in the copies of operands: where this lane puts a row of
    # a matrix of P, G or a result, and where it reads a result again.
    lines = u32(shared + u32(row * 128))
    put = u32(lines + u32(((lane & 7) + ((lane >> 3) & 1) * 8) * 128) + u32(((lane >> 4) ^ (lane & 7)) << 4))
    get = u32(lines + u32((lane >> 3) * 128) + u32(((lane & 7) ^ (lane >> 3)) << 4))
    if MASKED:
        offset = splice(OFFSET, u32(index), BATCH, MASK_BATCH)
        masks = u64(mask + offset)
    own = u32(shared + u32(group * 8192))

    if MASKED:
        splice(FETCH_MASK, 0, row)
    barrier_wait(arrived, u32(0))
    splice(SCORES, own, u32(shared + u32(KEYS_AT)), D)
    if MASKED:
        splice(ADD_MASK)
    elif not FOLDED:
        for s in unrolled(SCORE):
            score[s] = score[s] * f32(SCALE)
    past = i32(PAST)
    splice(HIDE, 0, row)
    splice(SOFTMAX)
    splice(PUT_WEIGHTS)
    barrier_wait(u32(arrived + u32(8)), u32(0))
    splice(SCORES, u32(own + u32(GRADIENT_AT)), u32(shared + u32(VALUES_AT)), DV)
    splice(WEIGH)
    splice(OF_WEIGHTS, u32(shared + u32(KEYS_AT)))
    cuda.syncthreads()  # all have put their P, and none reads values any more

    left = u64(u32(shared + u32(WEIGHTS_AT) + u32(group * PANEL_BYTES)) >> u32(4)) | u64(ALONG_N)
    splice(OF_TRANSPOSED, left, u32(shared + u32(GRADIENT_AT)), VALUES, DV, VALUES_READY, VALUES_PRODUCT)
    total[QUERIES : QUERIES + D // 2] = splice(QUERIES_DONE_1)
    total[VALUES : VALUES + DV // 2] = splice(VALUES_DONE_0)
    cuda.syncthreads()  # none reads P any more
    splice(PUT_WEIGHTS)
    cuda.syncthreads()
    splice(OF_TRANSPOSED, left, shared, KEYS, D, KEYS_READY, KEYS_PRODUCT)
    splice(STORE, QUERIES, D, queries, QUERIES_BATCH, QUERIES_ROW, M, SLOPE)
    splice(STORE, VALUES, DV, values, VALUES_BATCH, VALUES_ROW, N, 1.0)
    total[KEYS : KEYS + D // 2] = splice(KEYS_DONE_0)
    splice(STORE, KEYS, D, keys, KEYS_BATCH, KEYS_ROW, N, SLOPE)


def copy():
    """Starts the copies of all operands, first of what the first product needs."""
    barrier_expect(arrived, u32(2 * ROW_BYTES))
    splice(COPY_Q, shared, arrived, i32(0), index)
    splice(COPY_K, u32(shared + u32(KEYS_AT)), arrived, i32(0), index)
    second = u32(arrived + u32(8))
    barrier_expect(second, u32(2 * VALUE_BYTES))
    splice(COPY_V, u32(shared + u32(VALUES_AT)), second, i32(0), index)
    splice(COPY_G, u32(shared + u32(GRADIENT_AT)), second, i32(0), index)


def scores_of(left, right, size):
    """Products of this warpgroup's 64 rows at `left` with all rows at `right`; a panel holds 64 elements of each of
    its rows."""
    a = u64(left >> u32(4)) | u64(ALONG_K)
    b = u64(right >> u32(4)) | u64(ALONG_K)
    score[0:SCORE] = splice(SCORES_READY)
    for step in unrolled(size // 16):
        score[0:SCORE] = splice(
            SCORE_PRODUCT,
            u64(a + u64(step // 4 * (PANEL_BYTES // 16) + step % 4 * 2)),
            u64(b + u64(step // 4 * (PANEL_BYTES // 16) + step % 4 * 2)),
            i32(0 if step == 0 else 1),
        )
    wgmma_commit()
    score[0:SCORE] = splice(SCORES_DONE_0)


def softmax():
    """Probabilities in pairs, rounded, in place of scores. Four maxima and two sums of a row side by side, since each
    chain waits for itself. Rows past the last query have none: they add nothing to gradients for keys and values."""
    for h in unrolled(2):
        best = registers(4, f32(NEGATIVE_INFINITY))
        for s in unrolled(h * 2, SCORE, 4):
            best[s // 4 % 4] = larger(best[s // 4 % 4], larger(score[s], score[s + 1]))
        here = larger(larger(best[0], best[1]), larger(best[2], best[3]))
        here = larger(here, cuda.shfl_xor_sync(ALL_LANES, here, 1))
        here = larger(here, cuda.shfl_xor_sync(ALL_LANES, here, 2))
        if FOLDED:
            here = here * f32(SCALE)
        # A row that sees only -inf: 0 in place of the maximum keeps its exponentials at 0.
        base = f32(0.0) if here == NEGATIVE_INFINITY else here
        sums = registers(2, f32(0.0))
        for s in unrolled(h * 2, SCORE, 4):
            for c in unrolled(2):
                score[s + c] = splice(POWER, score[s + c], base)
            sums[s // 4 % 2] = sums[s // 4 % 2] + (score[s] + score[s + 1])
        whole = sums[0] + sums[1]
        whole = whole + cuda.shfl_xor_sync(ALL_LANES, whole, 1)
        whole = whole + cuda.shfl_xor_sync(ALL_LANES, whole, 2)
        inverse = rcp_approx(whole)
        if EMPTY_AS_ZERO:
            inverse = cuda.selp(whole == f32(0.0), f32(0.0), inverse)
        if M % TILE != 0:
            inverse = cuda.selp(i32(row + (lane >> 2) + 8 * h) < i32(M), inverse, f32(0.0))
        for s in unrolled(h * 2, SCORE, 4):
            weight[s // 2] = PACK(score[s] * inverse, score[s + 1] * inverse)


def weigh():
    """G in place of P, where D is in the registers of scores. Pairs pass through a fence halfway: else the compiler
    would take each apart once, and hold twice the registers."""
    inner = registers(2, f32(0.0))
    for h in unrolled(2):
        sums = registers(2, f32(0.0))
        for s in unrolled(h * 2, SCORE, 4):
            low, high = UNPACK(weight[s // 2])
            sums[s // 4 % 2] = cuda.fma(low, score[s], sums[s // 4 % 2])
            sums[s // 4 % 2] = cuda.fma(high, score[s + 1], sums[s // 4 % 2])
        inner[h] = sums[0] + sums[1]
        inner[h] = inner[h] + cuda.shfl_xor_sync(ALL_LANES, inner[h], 1)
        inner[h] = inner[h] + cuda.shfl_xor_sync(ALL_LANES, inner[h], 2)
    weight[0 : SCORE // 2] = splice(WEIGHTS_READY)
    for s in unrolled(0, SCORE, 2):
        low, high = UNPACK(weight[s // 2])
        weight[s // 2] = PACK(low * (score[s] - inner[s // 2 % 2]), high * (score[s + 1] - inner[s // 2 % 2]))
    weight[0 : SCORE // 2] = splice(WEIGHTS_READY)


def put_weights():
    """This warp's rows of P or G into shared memory, for products of all warpgroups."""
    for chunk in unrolled(SCORE // 32):
        for pair in unrolled(4):
            store_matrix_x4(
                u32(u32(put ^ u32(pair << 5)) + u32(WEIGHTS_AT + chunk * PANEL_BYTES)),
                *weight[chunk * 16 + 4 * pair : chunk * 16 + 4 * pair + 4],
            )
    fence_async_proxy()


def of_transposed(left, right, first, size, ready, product):
    """Starts a product of 64 columns of P or G, transposed, with rows of `size` elements along N, into the registers of
    `total` from `first` on; `ready` and `product` are the instructions for these."""
    b = u64(right >> u32(4)) | u64(ALONG_N)
    total[first : first + size // 2] = splice(ready)
    for step in unrolled(TILE // 16):
        total[first : first + size // 2] = splice(
            product, u64(left + u64(step * 128)), u64(b + u64(step * 128)), i32(0 if step == 0 else 1)
        )
    wgmma_commit()


def of_weights(right):
    """Starts the product of this warpgroup's rows of G, as they are in registers, with keys."""
    b = u64(right >> u32(4)) | u64(ALONG_N)
    total[QUERIES : QUERIES + D // 2] = splice(QUERIES_READY)
    for step in unrolled(TILE // 16):
        total[QUERIES : QUERIES + D // 2] = splice(
            QUERIES_PRODUCT,
            weight[4 * step],
            weight[4 * step + 1],
            weight[4 * step + 2],
            weight[4 * step + 3],
            u64(b + u64(step * 128)),
        )
    wgmma_commit()


def store(first, size, result, batch, row_bytes, count, factor):
    """Rounds and stores `size` columns of 64 rows, of which the result has `count`, times `factor`: 16 rows x 64
    columns of a warp at a time through its own shared memory, whole lines at once."""
    offset = splice(OFFSET, u32(index), BATCH, batch)
    to = u64(result + offset)
    for chunk in unrolled(size // 64):
        for pair in unrolled(4):
            # Two fragments of 8 columns, each two of row `lane / 4` and two of the row 8 below.
            packed = registers(4, u32(0))
            for f in unrolled(4):
                packed[f] = PACK(
                    total[first + 32 * chunk + 8 * pair + 2 * f] * f32(factor),
                    total[first + 32 * chunk + 8 * pair + 2 * f + 1] * f32(factor),
                )
            store_matrix_x4(u32(u32(put ^ u32(pair << 5)) + u32(STAGING_AT)), *packed[0:4])
        cuda.syncwarp()
        for part in unrolled(4):
            v = load_shared_u32x4(u32(u32(get ^ u32((part & 1) << 6)) + u32(STAGING_AT + part * 512)))
            line = i32(row + 4 * part + (lane >> 3))
            if count % BLOCK == 0 or line < count:
                there = u64(to + u64(line) * u64(row_bytes) + u64(chunk * 128 + (lane & 7) * 16))
                store_u32x4(there, v[0], v[1], v[2], v[3])
        cuda.syncwarp()
