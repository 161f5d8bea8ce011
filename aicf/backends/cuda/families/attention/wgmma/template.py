# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportUndefinedVariable=false, reportCallIssue=false, reportArgumentType=false
# Names in capitals are constants and parts that codegen.py puts in.
"""Attention on Hopper: a warpgroup copies tiles, one to three others multiply and weigh them.

As FlashAttention-3 has it (Shah et al., 2024). A *producer*, one thread, keeps two rings in shared memory filled by
bulk tensor copies: STAGES tiles of BLOCK_N keys, and as many of values. Each of GROUPS warpgroups has 64 queries; they
share the tiles. What hides what: the products of a warpgroup for the next scores and of the last weights are in flight
together, and while the second is, the softmax of the first is taken. With TURNS, warpgroups give each other the right
to multiply, so that one's softmax falls into the other's products.

A *unit* is GROUPS * 64 queries of one batch element. Blocks stay: each does a unit of every lap, and the producer is at
the next one while the last is stored. Where units differ in length, the longest are the first, and every other lap runs
backwards, which evens out what the blocks get.

A mask goes straight into registers: its loads are under way while the scores that it is added to are multiplied. With
FILLED the number of keys before the first query is in memory, and the tiles of a unit follow from it. With ONE_POSITION
queries are heads of one token, which all see as much.

`attention` is the kernel; the other functions are parts that it splices in. Every part sees the names of the kernel.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.ptx import *
from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def attention(q_map, k_map, v_map, result, extra):
    """f16 or bf16 with f32 scores and sums. Barriers in pairs, full and empty: of the queries, then for every stage of
    its keys and of its values."""
    thread = i32(cuda.threadIdx.x)
    group = i32(cuda.shfl_sync(ALL_LANES, thread, 0)) >> 7  # known to be the same in a warp
    largest = max_nan if NAN_AS_ZERO else larger
    shared = u32((shared_base(cuda.shared.array(0, u8)) + u32(1023)) & u32(0xFFFFFC00))
    full = u32(shared + u32(BARRIERS_AT))
    empty = u32(shared + u32(BARRIERS_AT + 8 * (1 + 2 * STAGES)))
    if thread == 0:
        for s in unrolled(1 + 2 * STAGES):
            barrier_init(u32(full + u32(8 * s)), u32(1))
            barrier_init(u32(empty + u32(8 * s)), u32(GROUPS))
        fence_barrier_init()
    cuda.syncthreads()
    launch_dependents()
    if group == 0:
        FEWER_REGISTERS()
        wait_for_predecessors()
        if thread == 0:
            splice(PRODUCE)
    else:
        MORE_REGISTERS()
        wait_for_predecessors()
        # Scores, softmax and weighted sums of 64 queries: 16 to a warp, two to a lane, which four lanes share.
        consumer = group - 1
        warp = (thread >> 5) & 3
        lane = thread & 31
        staging = u32(shared + u32(LINES_AT) + u32((thread >> 5) - 4) * u32(LINE_BYTES))
        queries = u64(u32(shared + u32(consumer * 8192)) >> u32(4)) | u64(DESCRIPTOR)
        score = registers(SCORE, f32(0.0))
        weight = registers(SCORE // 2, u32(0))
        total = registers(TOTAL, f32(0.0))
        top = registers(2, f32(0.0))
        sums = registers(2, f32(0.0))
        decay = registers(2, f32(0.0))
        base = registers(2 if MASKED or EMPTY_AS_ZERO else 0, f32(0.0))
        bias = registers(BIAS, u32(0))
        stage = u32(0)
        phase = u32(0)
        turn = u32(0)
        if TURNS and consumer == GROUPS - 1:
            named_arrive(u32(1), u32(256))
        for lap in range(LAPS):
            first, index, tiles, past = splice(UNIT_OF, lap)
            if tiles > 0:
                row = i32(first + consumer * 64 + warp * 16)
                if MASKED:
                    offset = splice(OFFSET, u32(index), BATCH, MASK_BATCH)
                    masks = u64(extra + offset)
                barrier_wait(full, turn)
                splice(AWAIT, 8, stage, phase)
                splice(MY_TURN)
                splice(SCORES, stage)
                splice(YOUR_TURN)
                splice(FETCH_MASK, 0, row)
                score[0:SCORE] = splice(SCORES_DONE_0)
                splice(RELEASE, 8, stage)
                splice(ADD_MASK)
                splice(HIDE, 0, row)
                for h in unrolled(2):
                    top[h] = f32(NEGATIVE_INFINITY)
                    sums[h] = f32(0.0)
                splice(WEIGH)
                for t in unrolled(TOTAL):
                    total[t] = f32(0.0)
                read = stage  # the values that are multiplied at last
                for tile in range(1, tiles):
                    last_stage = stage
                    last_phase = phase
                    stage = u32(stage + u32(1))
                    if stage == u32(STAGES):
                        stage = u32(0)
                        phase = u32(phase ^ u32(1))
                    # Waiting keeps the compiler from moving the softmax of the last tile past the end of the product.
                    splice(AWAIT, 8, stage, phase)
                    total[0:TOTAL] = splice(SUMS_DONE)
                    if tile > 1:
                        splice(RELEASE, 16, read)
                    splice(PACK_WEIGHTS)
                    splice(MY_TURN)
                    splice(SCORES, stage)
                    splice(FETCH_MASK, tile, row)
                    splice(RESCALE)
                    splice(AWAIT, 16, last_stage, last_phase)
                    splice(SUMS, last_stage)
                    splice(YOUR_TURN)
                    read = last_stage
                    score[0:SCORE] = splice(SCORES_DONE_1)
                    splice(RELEASE, 8, stage)
                    splice(ADD_MASK)
                    splice(HIDE, tile, row)
                    splice(WEIGH)
                if (thread & 127) == 0:
                    barrier_arrive(empty)  # of the queries
                turn = u32(turn ^ u32(1))
                splice(AWAIT, 16, stage, phase)
                total[0:TOTAL] = splice(SUMS_DONE)
                if tiles > 1:
                    splice(RELEASE, 16, read)
                splice(PACK_WEIGHTS)
                splice(RESCALE)
                splice(SUMS, stage)
                total[0:TOTAL] = splice(SUMS_DONE)
                splice(RELEASE, 16, stage)
                stage = u32(stage + u32(1))
                if stage == u32(STAGES):
                    stage = u32(0)
                    phase = u32(phase ^ u32(1))
                splice(STORE, index, row)


def unit_of(lap):
    """First query, batch element and tiles of keys of this block's unit of a lap, and how many keys come before the
    first query of all; no tiles if there is none."""
    unit = i32(lap * STEP) + i32(cuda.blockIdx.x)
    first = i32(0)
    index = i32(0)
    tiles = i32(0)
    past = i32(PAST)
    if CAUSAL:
        if lap % 2 == 1:
            unit = i32(lap * STEP + (STEP - 1)) - i32(cuda.blockIdx.x)
        if unit < UNITS:
            first = i32((TILES_M - 1 - unit // COUNT) * BLOCK_M)
            index = i32(unit % COUNT)
            if FILLED:
                past = splice(BEFORE, extra, u32(index))
            last = i32(0 if ONE_POSITION else first + (BLOCK_M - 1))
            tiles = i32(max(1, min(TILES_N, (last + past) // BLOCK_N + 1)))
    else:
        if unit < UNITS:
            first = i32(unit % TILES_M * BLOCK_M)
            index = i32(unit // TILES_M)
            tiles = i32(TILES_N)
    return first, index, tiles, past


def produce():
    """Keeps the rings filled, unit after unit."""
    stage = u32(0)
    phase = u32(1)  # the first wait for an empty stage passes
    turn = u32(1)
    for lap in range(LAPS):
        first, index, tiles, past = splice(UNIT_OF, lap)
        if tiles > 0:
            barrier_wait(empty, turn)
            barrier_expect(full, u32(QUERY_BYTES))
            splice(COPY_Q, shared, full, first, index)
            turn = u32(turn ^ u32(1))
            for tile in range(tiles):
                offset = u32(u32(8) + u32(stage << 4))
                row = i32(tile * BLOCK_N)
                barrier_wait(u32(empty + offset), phase)
                barrier_expect(u32(full + offset), u32(KEY_BYTES))
                at = u32(shared + u32(KEYS_AT) + u32(stage * u32(KEY_BYTES)))
                splice(COPY_K, at, u32(full + offset), row, index)
                offset = u32(offset + u32(8))
                barrier_wait(u32(empty + offset), phase)
                barrier_expect(u32(full + offset), u32(VALUE_BYTES))
                at = u32(shared + u32(VALUES_AT) + u32(stage * u32(VALUE_BYTES)))
                splice(COPY_V, at, u32(full + offset), row, index)
                stage = u32(stage + u32(1))
                if stage == u32(STAGES):
                    stage = u32(0)
                    phase = u32(phase ^ u32(1))


def await_stage(offset, stage, phase):
    """Until the keys (offset 8) or values (16) of a stage have come."""
    barrier_wait(u32(full + u32(u32(offset) + u32(stage << 4))), phase)


def release(offset, stage):
    """Tells the producer that this warpgroup has read the keys or values of a stage."""
    if (thread & 127) == 0:
        barrier_arrive(u32(empty + u32(u32(offset) + u32(stage << 4))))


def my_turn():
    """Waits until the warpgroup before has given its products to the tensor cores."""
    if TURNS:
        named_barrier(u32(1 + consumer), u32(256))


def your_turn():
    """Lets the next warpgroup multiply."""
    if TURNS:
        named_arrive(u32(1 + (consumer + 1) % GROUPS), u32(256))


def pack_weights():
    """Weights in pairs of 16-bit elements, for a product to read."""
    for w in unrolled(SCORE // 2):
        weight[w] = PACK(score[2 * w], score[2 * w + 1])
    weight[0 : SCORE // 2] = splice(WEIGHTS_READY)


def rescale():
    """Sums of earlier tiles for the maximum of the last, for a product to add to."""
    for t in unrolled(TOTAL):
        total[t] = total[t] * decay[t // 2 % 2]
    total[0:TOTAL] = splice(SUMS_READY)


def scores_of(stage):
    """Starts the product of queries and keys; a panel holds 64 elements of each of its rows."""
    score[0:SCORE] = splice(SCORES_READY)
    keys = u64(u32(shared + u32(KEYS_AT) + u32(stage * u32(KEY_BYTES))) >> u32(4)) | u64(DESCRIPTOR)
    for step in unrolled(D // 16):
        score[0:SCORE] = splice(
            SCORE_PRODUCT,
            u64(queries + u64(step // 4 * (BLOCK_M * 8) + step % 4 * 2)),
            u64(keys + u64(step // 4 * (BLOCK_N * 8) + step % 4 * 2)),
            i32(0 if step == 0 else 1),
        )
    wgmma_commit()


def sums_of(stage):
    """Starts the product of weights and values. Weights are as the product of the scores left them in registers."""
    values = u64(u32(shared + u32(VALUES_AT) + u32(stage * u32(VALUE_BYTES))) >> u32(4)) | u64(
        VALUE_DESCRIPTOR
    )
    for step in unrolled(BLOCK_N // 16):
        total[0:TOTAL] = splice(
            SUM_PRODUCT,
            weight[4 * step],
            weight[4 * step + 1],
            weight[4 * step + 2],
            weight[4 * step + 3],
            u64(values + u64(step * 128)),
        )
    wgmma_commit()


def fetch_mask(tile, row):
    """Starts the loads of the mask for a tile, two neighbours at a time. In place of what lies past the last key or
    query, others are loaded: nothing reads their scores. Nothing waits here: the words are needed when the scores are
    there."""
    column = i32(tile * BLOCK_N + (lane & 3) * 2)
    left = i32(N - MASK_TOGETHER - column)
    for h in unrolled(MASK_ROWS):
        line = u64(masks + u64(column) * u64(MASK_COLUMN))
        if MASK_ROW != 0:
            line = u64(line + u64(min(i32(row + (lane >> 2) + 8 * h), i32(M - 1))) * u64(MASK_ROW))
        for s in unrolled(0, SCORE, 4):
            if N % BLOCK_N == 0:
                splice(LOAD_PAIR, (h * SCORE + s) // 4, line, s * 2, s * 2 + 1)
            else:
                one, other = i32(min(s * 2, left)), i32(min(s * 2 + 1, left))
                splice(LOAD_PAIR, (h * SCORE + s) // 4, line, one, other)


def load_pair(column, line, one, other):
    """Pair number `column` of the mask that this lane holds: elements `one` and `other` of a line."""
    bias[column * MASK_WORDS : (column + 1) * MASK_WORDS] = splice(PAIR_OF, line, one, other)


def add_mask():
    """Scores are scaled, and get what the mask adds to them."""
    for h in unrolled(2):
        for s in unrolled(h * 2, SCORE, 4):
            splice(ADD_PAIR, (h % MASK_ROWS * SCORE + s) // 4, s)


def add_pair(column, s):
    """Adds a pair of the mask to scores s and s + 1, in their own units: the lowest number of f32 stays finite."""
    low, high = splice(UNPACKED, bias[column * MASK_WORDS : (column + 1) * MASK_WORDS])
    score[s] = cuda.fma(score[s], f32(SCALE), low)
    score[s + 1] = cuda.fma(score[s + 1], f32(SCALE), high)


def hide(tile, row):
    """Scores of keys past the last, and of those that come after the query, become -inf. Without a mask, and unless a
    position in memory is negative, every query sees the first key: a row's maximum is a number from the first tile
    on."""
    if CAUSAL or N % BLOCK_N != 0:
        seen = i32(N - 1)
        if CAUSAL:
            seen = i32(min(N - 1, (0 if ONE_POSITION else row) + past))
        if i32(tile * BLOCK_N + (BLOCK_N - 1)) > seen:
            for h in unrolled(2):
                if CAUSAL:
                    seen = i32(min(N - 1, (0 if ONE_POSITION else row + (lane >> 2) + 8 * h) + past))
                ahead = i32(seen - i32(tile * BLOCK_N + (lane & 3) * 2))
                for s in unrolled(0, SCORE, 4):
                    for c in unrolled(2):
                        if i32(s * 2 + c) > ahead:
                            score[s + h * 2 + c] = NEGATIVE_INFINITY


def weigh():
    """One step of the online softmax: the maximum so far, what earlier sums shrink by, and the weights of the tile.
    Products are in units that SCALE turns into exponents of two; with a mask LOG2_E does. Four maxima and two sums of
    a row side by side, since each chain waits for itself. The template of `tensor` says what NAN_AS_ZERO and
    EMPTY_AS_ZERO are."""
    for h in unrolled(2):
        best = registers(4, f32(NEGATIVE_INFINITY))
        for s in unrolled(h * 2, SCORE, 4):
            best[s // 4 % 4] = largest(best[s // 4 % 4], largest(score[s], score[s + 1]))
        here = largest(largest(best[0], best[1]), largest(best[2], best[3]))
        here = largest(here, cuda.shfl_xor_sync(ALL_LANES, here, 1))
        here = largest(here, cuda.shfl_xor_sync(ALL_LANES, here, 2))
        here = largest(here if MASKED else here * f32(SCALE), top[h])
        if NAN_AS_ZERO:
            here = here if here == here else INFINITY
        if MASKED or EMPTY_AS_ZERO:
            # A row that has seen only -inf so far: 0 in place of the maximum keeps its exponentials at 0.
            base[h] = f32(0.0) if here == NEGATIVE_INFINITY else here
        if MASKED:
            decay[h] = exp2_approx((top[h] - base[h]) * f32(LOG2_E))
        elif EMPTY_AS_ZERO:
            decay[h] = exp2_approx(top[h] - base[h])
        else:
            decay[h] = exp2_approx(top[h] - here)
        if NAN_AS_ZERO:
            decay[h] = larger(decay[h], f32(0.0))
        top[h] = here
    for h in unrolled(2):
        part_sum = registers(2, f32(0.0))
        for s in unrolled(h * 2, SCORE, 4):
            for c in unrolled(2):
                if MASKED:
                    score[s + c] = exp2_approx((score[s + c] - base[h]) * f32(LOG2_E))
                elif EMPTY_AS_ZERO:
                    score[s + c] = exp2_approx(cuda.fma(score[s + c], f32(SCALE), -base[h]))
                else:
                    score[s + c] = exp2_approx(cuda.fma(score[s + c], f32(SCALE), -top[h]))
                if NAN_AS_ZERO:
                    score[s + c] = larger(score[s + c], f32(0.0))
            part_sum[s // 4 % 2] = part_sum[s // 4 % 2] + (score[s] + score[s + 1])
        sums[h] = cuda.fma(sums[h], decay[h], part_sum[0] + part_sum[1])


def store(index, row):
    """Results of a warp: 16 rows x 64 columns at a time through its own shared memory, whole lines at once.

    There, 16-byte unit u of row r lies at u ^ (r mod 8), so that neither the matrix stores nor the reads of rows meet
    in a bank.
    """
    for h in unrolled(2):
        sums[h] = sums[h] + cuda.shfl_xor_sync(ALL_LANES, sums[h], 1)
        sums[h] = sums[h] + cuda.shfl_xor_sync(ALL_LANES, sums[h], 2)
        if NAN_AS_ZERO or EMPTY_AS_ZERO:
            sums[h] = f32(1.0) if sums[h] == f32(0.0) else sums[h]
        sums[h] = rcp_approx(sums[h])
    offset = splice(OFFSET, u32(index), BATCH, RESULT_BATCH)
    to = u64(result + offset)
    put = u32(
        staging + u32(((lane & 7) + ((lane >> 3) & 1) * 8) * 128) + u32(((lane >> 4) ^ (lane & 7)) << 4)
    )
    get = u32(staging + u32((lane >> 3) * 128) + u32(((lane & 7) ^ (lane >> 3)) << 4))
    for chunk in unrolled(DV // 64):
        for pair in unrolled(4):
            # Two fragments of 8 columns, each two of row `lane / 4` and two of the row 8 below.
            packed = registers(4, u32(0))
            for f in unrolled(4):
                packed[f] = PACK(
                    total[32 * chunk + 8 * pair + 2 * f] * sums[f % 2],
                    total[32 * chunk + 8 * pair + 2 * f + 1] * sums[f % 2],
                )
            store_matrix_x4(u32(put ^ u32(pair << 5)), packed[0], packed[1], packed[2], packed[3])
        cuda.syncwarp()
        for part in unrolled(4):
            v = load_shared_u32x4(u32(u32(get ^ u32((part & 1) << 6)) + u32(part * 512)))
            line = row + 4 * part + (lane >> 3)
            if M % BLOCK_M == 0 or line < M:
                there = u64(to + u64(line) * u64(RESULT_ROW) + u64(chunk * 128 + (lane & 7) * 16))
                store_u32x4(there, v[0], v[1], v[2], v[3])
        cuda.syncwarp()
