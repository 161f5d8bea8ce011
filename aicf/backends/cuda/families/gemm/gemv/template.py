# pyright: basic, reportUndefinedVariable=false
"""Matrix times a few rows: kernels that stream the weights once, written for the specializer.

One token of a network is a chain of such products, each a few microseconds long, and what decides is the time between
the end of one kernel and the first useful load of the next. So every kernel starts early (programmatic launch),
brings its first weights and all other constants into registers, and only then waits for its predecessor. What is left
after the wait is short: a few 16-byte loads of the activations, the row program (a norm), multiply and add
on registers, one reduction, the epilogue and the store. Names in capitals are constants that `codegen.py` gives.
"""

from __future__ import annotations

from typing import Any

from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled

# Parts: they work on the registers and indices of the kernel that splices them.


def weights_along_k(count: Any, chunks: Any, step: Any) -> None:
    """The first `chunks` pieces of `count` weight rows, `step` bytes apart, into `w`; zeros past K."""
    for i in unrolled(count):
        for j in unrolled(chunks):
            w[(i * chunks + j) * 4 : (i * chunks + j) * 4 + 4] = splice(
                STREAM, at[i] + u64(j * step), inside[j]
            )


def weights_along_n(product: Any, u: Any) -> None:
    """Piece `u` of the current step of a weight [K, N], into `w`; zeros past K and N."""
    w[(product * UNROLL + u) * 4 : (product * UNROLL + u) * 4 + 4] = stream_u32x4_or_zero(
        at[product] + u64(u * SHARES * W_ROW_BYTES),
        cuda.selp((column < i32(N)) & (share + i32(u * SHARES) < i32(K)), i32(1), i32(0)),
    )


def extras_of_rounds(loads: Any, start: Any, stop: Any) -> None:
    """Numbers `start` to `stop` of what the epilogue reads beside the sums, for every result of this thread."""
    for r in unrolled(ROUNDS):
        index = thread + i32(r * THREADS)
        m = min(index // i32(COLUMNS), i32(M - 1))
        mine = min(first + index % i32(COLUMNS), i32(N - 1))
        extra[r * EXTRAS + start : r * EXTRAS + stop] = splice(loads, m, mine)


def finish_rounds(sums: Any, parts: Any, size: Any) -> None:
    """Combines the sums of `parts` warps in their order, `size` for each product from `sums` on, and stores results."""
    for r in unrolled(ROUNDS):
        index = thread + i32(r * THREADS)
        m = index // i32(COLUMNS)
        mine = first + index % i32(COLUMNS)
        if (index < i32(M * COLUMNS)) & (mine < i32(N)):
            result = registers(PRODUCTS, f32(0.0))
            for p in unrolled(PRODUCTS):
                for s in unrolled(parts):
                    result[p] += load_shared_f32(
                        sums + u32((s * PRODUCTS + p) * size * 4) + u32(index) * u32(4)
                    )
            splice(FINISH, m, mine, r * EXTRAS, result[0:PRODUCTS])


def gemv_rows(pointers: object):
    """Weights [N, K]: a warp takes ROWS of them at once, and one of SPLIT shares of K.

    A thread holds its share of all M activation rows and of its weights in registers, CHUNKS times 16 bytes of weights
    wide. Sum q = m * ROWS + r of a thread is of activation row m and weight row r. Sums are combined in the warp by
    exchange in halves (lane l ends with sum l // (32 // COUNT)), then over the SPLIT warps in their order. (Blocks that
    go over several sets of rows, loading ahead, were no faster for any size.)
    """
    if PROGRAMMATIC and TRIGGER == "start":
        launch_dependents()
    thread = i32(cuda.threadIdx.x)
    lane = thread & i32(31)
    warp = thread >> i32(5)
    group = i32(warp // i32(SPLIT))
    part = i32(warp - group * i32(SPLIT))
    block_row = i32(cuda.blockIdx.x) * i32(GROUPS * ROWS)
    row = block_row + group * i32(ROWS)
    k0 = part * i32(CHUNKS * 32 * VEC) + lane * i32(VEC)
    inside = registers(CHUNKS, i32(1))
    if K_TAIL:
        for j in unrolled(CHUNKS):
            inside[j] = cuda.selp(k0 + i32(j * 32 * VEC) < i32(K), i32(1), i32(0))

    # Which sum this thread finishes.
    if SPLIT == 1:
        q = i32(lane * i32(COUNT)) >> i32(5)
        mine = row + q % i32(ROWS)
        finishes = ((lane & i32(32 // COUNT - 1)) == i32(0)) & (q < i32(M * ROWS))
    else:
        q = thread & i32(COUNT - 1)
        mine = block_row + i32(thread // i32(COUNT)) * i32(ROWS) + q % i32(ROWS)
        finishes = (thread < i32(GROUPS * COUNT)) & (q < i32(M * ROWS))
        sums = cuda.shared.array(PRODUCTS * SPLIT * GROUPS * COUNT, f32)
        totals = cuda.shared.array(TOTALS, f32)
    m = i32(min(q // i32(ROWS), i32(M - 1)))

    # Before the wait: only what no kernel of the program writes.
    base = registers(PRODUCTS, u64(0))
    base[0:PRODUCTS] = splice(WEIGHTS)
    at = registers(PRODUCTS * ROWS, u64(0))
    w = registers(PRODUCTS * ROWS * CHUNKS * 4, u32(0))
    for p in unrolled(PRODUCTS):
        for r in unrolled(ROWS):
            at[p * ROWS + r] = (
                base[p] + u64(min(row + i32(r), i32(N - 1))) * u64(W_ROW_BYTES) + u64(k0) * u64(16 // VEC)
            )
    if EARLY_WEIGHTS:
        splice(WEIGHTS_ALONG_K, PRODUCTS * ROWS, CHUNKS, 512)
    given = registers(GIVEN, f32(0.0))
    words = registers(WORDS, u32(0))
    splice(EARLY_ROW_OPERANDS)
    extra = registers(EXTRAS, f32(0.0))
    if EARLY_EXTRAS > 0:
        extra[0:EARLY_EXTRAS] = splice(LOAD_EARLY_EXTRAS, m, min(mine, i32(N - 1)))
    if PROGRAMMATIC:
        wait_for_predecessors()
    if PROGRAMMATIC and TRIGGER == "wait":
        launch_dependents()

    xw = registers(M * CHUNKS * X_WORDS, u32(0))
    for i in unrolled(M):
        x_at = x + u64(X_ROWS[i]) + u64(k0) * u64(X_WORDS * 4 // VEC)
        for j in unrolled(CHUNKS):
            for c in unrolled(0, X_WORDS, 4):
                xw[(i * CHUNKS + j) * X_WORDS + c : (i * CHUNKS + j) * X_WORDS + c + 4] = splice(
                    LOAD, x_at + u64(j * 128 * X_WORDS + c * 4), inside[j]
                )
    if EXTRAS > EARLY_EXTRAS:
        extra[EARLY_EXTRAS:EXTRAS] = splice(LOAD_LATE_EXTRAS, m, min(mine, i32(N - 1)))
    splice(LATE_ROW_OPERANDS)
    if not EARLY_WEIGHTS:
        splice(WEIGHTS_ALONG_K, PRODUCTS * ROWS, CHUNKS, 512)
    if PROGRAMMATIC and TRIGGER == "loaded":
        launch_dependents()
    a = registers(M * CHUNKS * VEC, f32(0.0))
    for i in unrolled(M * CHUNKS * X_WORDS):
        a[i * VEC // X_WORDS : (i + 1) * VEC // X_WORDS] = splice(UNPACK_X, xw[i])
    splice(ROW_PROGRAM)

    # Several chains per sum, so that multiply-adds need not wait for each other.
    acc = registers(PRODUCTS * COUNT * CHAINS, f32(0.0))
    for p in unrolled(PRODUCTS):
        for j in unrolled(CHUNKS):
            for r in unrolled(ROWS):
                for c in unrolled(4):
                    v = splice(UNPACK_W, w[((p * ROWS + r) * CHUNKS + j) * 4 + c])
                    for i in unrolled(M):
                        for e in unrolled(VEC // 4):
                            acc[(p * COUNT + i * ROWS + r) * CHAINS + c % CHAINS] += (
                                v[e] * a[(i * CHUNKS + j) * VEC + c * (VEC // 4) + e]
                            )
    total = registers(PRODUCTS * COUNT, f32(0.0))
    for p in unrolled(PRODUCTS):
        for i in unrolled(COUNT):
            for c in unrolled(CHAINS):
                total[p * COUNT + i] += acc[(p * COUNT + i) * CHAINS + c]
        for s in unrolled(5):
            if COUNT >> s > 1:
                upper = (lane & i32(16 >> s)) != i32(0)
                for i in unrolled(COUNT >> (s + 1)):
                    high = total[p * COUNT + i + (COUNT >> (s + 1))]
                    kept = cuda.selp(upper, high, total[p * COUNT + i])
                    sent = cuda.selp(upper, total[p * COUNT + i], high)
                    total[p * COUNT + i] = kept + cuda.shfl_xor_sync(ALL_LANES, sent, 16 >> s)
            else:
                total[p * COUNT] += cuda.shfl_xor_sync(ALL_LANES, total[p * COUNT], 16 >> s)
    result = registers(PRODUCTS, f32(0.0))
    if SPLIT == 1:
        for p in unrolled(PRODUCTS):
            result[p] = total[p * COUNT]
    else:
        if (lane & i32(32 // COUNT - 1)) == i32(0):
            slot = (part * i32(GROUPS) + group) * i32(COUNT) + (i32(lane * i32(COUNT)) >> i32(5))
            for p in unrolled(PRODUCTS):
                sums[i32(p * SPLIT * GROUPS * COUNT) + slot] = total[p * COUNT]
        cuda.syncthreads()
        if finishes:
            for p in unrolled(PRODUCTS):
                for s in unrolled(SPLIT):
                    result[p] += sums[i32((p * SPLIT + s) * GROUPS * COUNT) + thread]
    if finishes & (mine < i32(N)):
        splice(FINISH, m, mine, 0, result[0:PRODUCTS])


def gemv_columns(pointers: object):
    """Weights [K, N]: a thread takes VEC neighbouring columns, and one of LANES_K * WARPS shares of K, interleaved.

    The activations lie in shared memory in f32, zeros past K. A thread goes over its rows of the weights in STEPS
    times UNROLL loads; those of the next step are under way while it uses this one's. Sums are combined over the lanes
    of a warp by exchange, then over the warps in order; each thread finishes ROUNDS results.
    """
    if PROGRAMMATIC:
        launch_dependents()
    thread = i32(cuda.threadIdx.x)
    lane = thread & i32(31)
    warp = thread >> i32(5)
    # The row program and the copy to shared memory: every warp has a contiguous share of K.
    group = i32(0)
    part = warp
    k0 = part * i32(CHUNKS * 32 * VEC) + lane * i32(VEC)
    inside = registers(CHUNKS, i32(1))
    if K_TAIL:
        for j in unrolled(CHUNKS):
            inside[j] = cuda.selp(k0 + i32(j * 32 * VEC) < i32(K), i32(1), i32(0))
    memory = shared_base(cuda.shared.array(0, u8))
    totals = cuda.shared.array(TOTALS, f32)
    first = i32(cuda.blockIdx.x) * i32(COLUMNS)
    column = first + (lane & i32(LANES_N - 1)) * i32(VEC)
    share = warp * i32(LANES_K) + lane // i32(LANES_N)

    base = registers(PRODUCTS, u64(0))
    base[0:PRODUCTS] = splice(WEIGHTS)
    at = registers(PRODUCTS, u64(0))
    w = registers(PRODUCTS * UNROLL * 4, u32(0))
    for p in unrolled(PRODUCTS):
        at[p] = base[p] + u64(share) * u64(W_ROW_BYTES) + u64(column) * u64(16 // VEC)
    if EARLY_WEIGHTS:
        for i in unrolled(PRODUCTS):
            for u in unrolled(UNROLL):
                splice(WEIGHTS_ALONG_N, i, u)
    given = registers(GIVEN, f32(0.0))
    words = registers(WORDS, u32(0))
    splice(EARLY_ROW_OPERANDS)
    extra = registers(EXTRAS * ROUNDS, f32(0.0))
    if EARLY_EXTRAS > 0:
        splice(EXTRAS_OF_ROUNDS, LOAD_EARLY_EXTRAS, 0, EARLY_EXTRAS)
    if PROGRAMMATIC:
        wait_for_predecessors()

    a = registers(M * CHUNKS * VEC, f32(0.0))
    for i in unrolled(M):
        x_at = x + u64(X_ROWS[i]) + u64(k0) * u64(X_WORDS * 4 // VEC)
        for j in unrolled(CHUNKS):
            for c in unrolled(0, X_WORDS, 4):
                word = load_u32x4_or_zero(x_at + u64(j * 128 * X_WORDS + c * 4), inside[j])
                for d in unrolled(4):
                    a[
                        ((i * CHUNKS + j) * X_WORDS + c + d) * VEC // X_WORDS : (
                            (i * CHUNKS + j) * X_WORDS + c + d + 1
                        )
                        * VEC
                        // X_WORDS
                    ] = splice(UNPACK_X, word[d])
    if EXTRAS > EARLY_EXTRAS:
        splice(EXTRAS_OF_ROUNDS, LOAD_LATE_EXTRAS, EARLY_EXTRAS, EXTRAS)
    if not EARLY_WEIGHTS:
        for i in unrolled(PRODUCTS):
            for u in unrolled(UNROLL):
                splice(WEIGHTS_ALONG_N, i, u)
    splice(LATE_ROW_OPERANDS)
    splice(ROW_PROGRAM)
    for i in unrolled(M):
        for j in unrolled(CHUNKS):
            if inside[j] != i32(0):
                for c in unrolled(0, VEC, 4):
                    store_shared_f32x4(
                        memory + u32(i * K_PADDED * 4) + u32(k0 + i32(j * 32 * VEC + c)) * u32(4),
                        *a[(i * CHUNKS + j) * VEC + c : (i * CHUNKS + j) * VEC + c + 4],
                    )
        if K_PADDED > K:
            for k in range(i32(K) + thread, i32(K_PADDED), i32(THREADS)):
                store_shared_f32(memory + u32(i * K_PADDED * 4) + u32(k) * u32(4), f32(0.0))
    cuda.syncthreads()

    acc = registers(PRODUCTS * M * VEC, f32(0.0))
    x_from = memory + u32(share) * u32(4)
    for _step in range(STEPS):
        share += i32(UNROLL * SHARES)
        for p in unrolled(PRODUCTS):
            at[p] += u64(UNROLL * SHARES * W_ROW_BYTES)
        for u in unrolled(UNROLL):
            one = registers(M, f32(0.0))
            for i in unrolled(M):
                one[i] = load_shared_f32(x_from + u32((i * K_PADDED + u * SHARES) * 4))
            for p in unrolled(PRODUCTS):
                for c in unrolled(4):
                    v = splice(UNPACK_W, w[(p * UNROLL + u) * 4 + c])
                    for i in unrolled(M):
                        for e in unrolled(VEC // 4):
                            acc[(p * M + i) * VEC + c * (VEC // 4) + e] += v[e] * one[i]
                if STEPS > 1:
                    splice(WEIGHTS_ALONG_N, p, u)
        x_from += u32(UNROLL * SHARES * 4)

    partial = memory + u32(M * K_PADDED * 4)
    for i in unrolled(PRODUCTS * M * VEC):
        for s in unrolled(LANE_BITS):
            acc[i] += cuda.shfl_xor_sync(ALL_LANES, acc[i], 16 >> s)
    if lane < i32(LANES_N):
        for i in unrolled(PRODUCTS * M):
            for c in unrolled(0, VEC, 4):
                store_shared_f32x4(
                    partial
                    + u32((warp * i32(PRODUCTS * M) + i32(i)) * i32(COLUMNS) + lane * i32(VEC) + i32(c))
                    * u32(4),
                    *acc[i * VEC + c : i * VEC + c + 4],
                )
    cuda.syncthreads()
    splice(FINISH_ROUNDS, partial, WARPS, M * COLUMNS)


def gemv_tiles(pointers: object):
    """Weights [N, K] of f16 or bf16 for 2 to 16 activation rows: the products run on tensor cores.

    A warp takes TILES times 8 weight rows and one of SPLIT shares of K. Lane l loads 16 bytes of row l / 4 at place
    l % 4 of 32 neighbouring elements, of the weights and likewise of the activations (SLOTS = 2: also row l / 4 + 8),
    and feeds them to two products of depth 16 as they lie: the elements of K come in another order, the same on both
    sides. There are STEPS rounds of UNROLL loads, each under way while the one before is used. The SPLIT warps are
    summed in their order.
    """
    if PROGRAMMATIC:
        launch_dependents()
    thread = i32(cuda.threadIdx.x)
    lane = thread & i32(31)
    warp = thread >> i32(5)
    group = i32(warp // i32(SPLIT))
    part = i32(warp - group * i32(SPLIT))
    line = lane >> i32(2)
    first = i32(cuda.blockIdx.x) * i32(COLUMNS)
    row = first + group * i32(TILES * 8) + line
    k0 = part * i32(STEPS * UNROLL * 32) + (lane & i32(3)) * i32(8)
    inside = registers(UNROLL, i32(1))
    if K_TAIL:
        for j in unrolled(UNROLL):
            inside[j] = cuda.selp(k0 + i32(j * 32) < i32(K), i32(1), i32(0))
    memory = shared_base(cuda.shared.array(0, u8))
    totals = cuda.shared.array(TOTALS, f32)

    base = registers(PRODUCTS, u64(0))
    base[0:PRODUCTS] = splice(WEIGHTS)
    at = registers(PRODUCTS * TILES, u64(0))
    w = registers(PRODUCTS * TILES * UNROLL * 4, u32(0))
    for p in unrolled(PRODUCTS):
        for r in unrolled(TILES):
            at[p * TILES + r] = (
                base[p] + u64(min(row + i32(r * 8), i32(N - 1))) * u64(W_ROW_BYTES) + u64(k0) * u64(2)
            )
    if EARLY_WEIGHTS:
        splice(WEIGHTS_ALONG_K, PRODUCTS * TILES, UNROLL, 64)
    given = registers(GIVEN, f32(0.0))
    words = registers(WORDS, u32(0))
    splice(EARLY_ROW_OPERANDS)
    extra = registers(EXTRAS * ROUNDS, f32(0.0))
    if EARLY_EXTRAS > 0:
        splice(EXTRAS_OF_ROUNDS, LOAD_EARLY_EXTRAS, 0, EARLY_EXTRAS)
    if PROGRAMMATIC:
        wait_for_predecessors()

    x_at = registers(SLOTS, u64(0))
    has = registers(SLOTS, i32(0))
    xw = registers(SLOTS * UNROLL * 4, u32(0))
    for i in unrolled(SLOTS):
        has[i] = cuda.selp(line + i32(i * 8) < i32(M), i32(1), i32(0))
        x_at[i] = x + u64(line + i32(i * 8)) * u64(X_ROW_BYTES) + u64(k0) * u64(2)
        for j in unrolled(UNROLL):
            xw[(i * UNROLL + j) * 4 : (i * UNROLL + j) * 4 + 4] = load_u32x4_or_zero(
                x_at[i] + u64(j * 64), has[i] & inside[j]
            )
    if EXTRAS > EARLY_EXTRAS:
        splice(EXTRAS_OF_ROUNDS, LOAD_LATE_EXTRAS, EARLY_EXTRAS, EXTRAS)
    if not EARLY_WEIGHTS:
        splice(WEIGHTS_ALONG_K, PRODUCTS * TILES, UNROLL, 64)
    splice(LATE_ROW_OPERANDS)
    if PROLOGUE:
        a = registers(SLOTS * UNROLL * 8, f32(0.0))
        for i in unrolled(SLOTS * UNROLL * 4):
            a[i * 2 : i * 2 + 2] = splice(UNPACK_X, xw[i])
        splice(ROW_PROGRAM)
        for i in unrolled(SLOTS * UNROLL * 4):
            xw[i] = splice(PACK, a[i * 2], a[i * 2 + 1])

    acc = registers(PRODUCTS * TILES * 4, f32(0.0))
    for step in range(STEPS):
        for i in unrolled(PRODUCTS * TILES):
            at[i] += u64(UNROLL * 64)
        for i in unrolled(SLOTS):
            x_at[i] += u64(UNROLL * 64)
        for j in unrolled(UNROLL):
            for i in unrolled(PRODUCTS * TILES):
                for h in unrolled(2):
                    acc[i * 4 : i * 4 + 4] = splice(
                        PRODUCT,
                        acc[i * 4],
                        acc[i * 4 + 1],
                        acc[i * 4 + 2],
                        acc[i * 4 + 3],
                        xw[j * 4 + h * 2],
                        xw[((SLOTS - 1) * UNROLL + j) * 4 + h * 2],
                        xw[j * 4 + h * 2 + 1],
                        xw[((SLOTS - 1) * UNROLL + j) * 4 + h * 2 + 1],
                        w[(i * UNROLL + j) * 4 + h * 2],
                        w[(i * UNROLL + j) * 4 + h * 2 + 1],
                    )
            if STEPS > 1:
                more = cuda.selp(
                    (i32(step) < i32(STEPS - 1))
                    & (k0 + (i32(step) + i32(1)) * i32(UNROLL * 32) + i32(j * 32) < i32(K)),
                    i32(1),
                    i32(0),
                )
                for i in unrolled(PRODUCTS * TILES):
                    w[(i * UNROLL + j) * 4 : (i * UNROLL + j) * 4 + 4] = stream_u32x4_or_zero(
                        at[i] + u64(j * 64), more
                    )
                for i in unrolled(SLOTS):
                    xw[(i * UNROLL + j) * 4 : (i * UNROLL + j) * 4 + 4] = load_u32x4_or_zero(
                        x_at[i] + u64(j * 64), has[i] & more
                    )

    # Registers 0, 1 of a tile are activation row l / 4 at weight rows 2 * (l % 4), + 1; registers 2, 3 row l / 4 + 8.
    for p in unrolled(PRODUCTS):
        for r in unrolled(TILES):
            for i in unrolled(SLOTS):
                for c in unrolled(2):
                    column = (group * i32(TILES) + i32(r)) * i32(8) + (lane & i32(3)) * i32(2) + i32(c)
                    store_shared_f32(
                        memory
                        + u32(
                            ((part * i32(PRODUCTS) + i32(p)) * i32(SLOTS * 8) + line + i32(i * 8))
                            * i32(COLUMNS)
                            + column
                        )
                        * u32(4),
                        acc[(p * TILES + r) * 4 + i * 2 + c],
                    )
    cuda.syncthreads()
    splice(FINISH_ROUNDS, memory, SPLIT, SLOTS * 8 * COLUMNS)
