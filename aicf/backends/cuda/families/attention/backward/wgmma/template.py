# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportUndefinedVariable=false, reportCallIssue=false, reportArgumentType=false
# Names in capitals are constants and parts that codegen.py puts in.
"""The gradients of attention by warpgroup products, in the two launches of `tensor/template.py`, which says what they
compute: in the first (ROWS) a block holds queries and walks over the keys twice, in the second it holds keys and walks
over the queries, whose states the first has left in the workspace.

Every warpgroup has 64 of the held rows; the warpgroups of a block share the tiles, which one thread has copied in bulk
into a ring of STAGES. Scores and D are products of held and streamed rows in shared memory; P and the gradient of the
scores stay in registers, two to a register, as the left operands of the last products. D is multiplied while scores are
scaled and hidden; blocks of one multiprocessor fill the gaps that are left.

`attention_backward` is the kernel; the other functions are parts that it splices in. Every part sees the names of the
kernel. What happens between the products is `../template.py`; STORE is that of `cuda.attention_backward_short`.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.ptx import *
from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def attention_backward(
    held1_map, held2_map, streamed1_map, streamed2_map, states_map, result1, result2, states, mask
):
    """f16 or bf16 with f32 sums and softmax. Barriers: of the held rows, then of each stage."""
    thread = i32(cuda.threadIdx.x)
    group = i32(cuda.shfl_sync(ALL_LANES, thread, 0)) >> 7  # known to be the same in a warp
    lane = thread & 31
    warp_row = i32((thread >> 5) * 16)
    pair = u32(u32(lane & 3) * u32(2))
    shared = u32((shared_base(cuda.shared.array(0, u8)) + u32(1023)) & u32(0xFFFFFC00))
    arrived = u32(shared + u32(BARRIERS_AT))
    first, number = splice(BLOCK_OF)
    begin, end = splice(TILES_SEEN, first)
    index = i32(number)
    row = i32(first + warp_row)
    own = i32(row + (lane >> 2))
    if thread == 0:
        for s in unrolled(1 + STAGES):
            barrier_init(u32(arrived + u32(8 * s)), u32(1))
        fence_barrier_init()
    cuda.syncthreads()
    launch_dependents()
    wait_for_predecessors()
    count = i32(end - begin)
    steps = i32(count * 2) if ROWS else count
    if thread == 0:
        barrier_expect(arrived, u32(HELD_BYTES))
        splice(COPY_HELD1, shared, arrived, first, index)
        splice(COPY_HELD2, u32(shared + u32(HELD2_AT)), arrived, first, index)
        for s in unrolled(STAGES):
            if i32(s) < steps:
                splice(FETCH, i32(s), u32(s))
    states = u64(states + u64(number) * u64(3 * PLANE))
    if MASKED:
        offset_mask = splice(OFFSET, number, BATCH, MASK_BATCH)
        mask = u64(mask + offset_mask)
    bias_held = registers(2 if MASKED and MASK_STREAMED == 0 else 0, f32(0.0))
    if MASKED and MASK_STREAMED == 0:
        for r in unrolled(2):
            line = i32(own + i32(r * 8))
            if HELD % BLOCK != 0:
                line = min(line, i32(HELD - 1))
            bias_held[r] = splice(LOAD_MASK, u64(mask + u64(line) * u64(MASK_HELD)))
    score = registers(2 * WIDTH, f32(0.0))
    weight = registers(WIDTH // 2 if ROWS else WIDTH, u32(0))
    total = registers(TOTAL, f32(0.0))
    top = registers(2 if ROWS else 0, f32(NEGATIVE_INFINITY))
    inverse = registers(2 if ROWS else 0, f32(0.0))
    shift = registers(2 if ROWS else 0, f32(0.0))
    held = u32(shared + u32(group * 8192))
    stage = u32(0)
    before = u32(0)
    phase = u32(0)
    barrier_wait(arrived, u32(0))
    if ROWS:
        sums = registers(2, f32(0.0))
        weighted = registers(2, f32(0.0))
        for step in range(count):
            splice(MULTIPLY)
            score[0:WIDTH] = splice(SCORES_DONE)
            splice(REFILL, step)
            splice(SCALE_AND_HIDE, i32(begin + step), 0, WIDTH)
            score[WIDTH : 2 * WIDTH] = splice(GRADIENT_DONE)
            splice(SUM_UP)
            before = stage
            stage = u32(stage + u32(1))
            if stage == u32(STAGES):
                stage = u32(0)
                phase = u32(phase ^ u32(1))
        splice(MERGE_LANES)

    for step in range(count if ROWS else i32(0), steps):
        splice(MULTIPLY)
        score[0:WIDTH] = splice(SCORES_DONE)
        splice(REFILL, step)
        splice(SCALE_AND_HIDE, i32(begin + step) - (count if ROWS else i32(0)), 0, WIDTH)
        score[WIDTH : 2 * WIDTH] = splice(GRADIENT_DONE)
        if ROWS:
            splice(WEIGH_ROWS)
        else:
            splice(
                WEIGH_COLUMNS,
                u32(shared + u32(TILES_AT + STATES_AT) + stage * u32(STAGE_BYTES) + pair * u32(4)),
            )
        splice(PACK_WEIGHTS)
        splice(ACCUMULATE)
        # Products that are under way from one round of the loop to the next make the compiler wait for each one.
        total[0 : D // 2] = splice(RESULT1_DONE)
        if not ROWS:
            total[D // 2 : TOTAL] = splice(RESULT2_DONE)
        before = stage
        stage = u32(stage + u32(1))
        if stage == u32(STAGES):
            stage = u32(0)
            phase = u32(phase ^ u32(1))
    cuda.syncthreads()  # none reads the held rows any more

    lines = u32(shared + u32(warp_row * 128))
    put = u32(lines + u32(((lane & 7) + ((lane >> 3) & 1) * 8) * 128) + u32(((lane >> 4) ^ (lane & 7)) << 4))
    get = u32(lines + u32((lane >> 3) * 128) + u32(((lane & 7) ^ (lane >> 3)) << 4))
    splice(STORE, 0, D, result1, RESULT1_BATCH, RESULT1_ROW, HELD, SLOPE)
    if not ROWS:
        splice(STORE, D // 2, DV, result2, RESULT2_BATCH, RESULT2_ROW, HELD, 1.0)


def fetch(step, to):
    """Starts the copies of a step's tile into stage `to`."""
    tile = i32(begin + step)
    if ROWS and step >= count:
        tile = i32(tile - count)  # the second walk
    ready = u32(arrived + u32(8) + u32(to << u32(3)))
    at = u32(shared + u32(TILES_AT) + u32(to * u32(STAGE_BYTES)))
    barrier_expect(ready, u32(TILE_BYTES))
    splice(COPY_STREAMED1, at, ready, i32(tile * TILE), index)
    splice(COPY_STREAMED2, u32(at + u32(STREAMED2_AT)), ready, i32(tile * TILE), index)
    if not ROWS:
        copy_tensor_2d(u32(at + u32(STATES_AT)), states_map, ready, i32(tile * TILE), i32(index * 3))


def refill(step):
    """Starts the copies into the stage before this one, which every warpgroup has read: its products are done."""
    if step > 0:
        cuda.syncthreads()
        if thread == 0 and step + (STAGES - 1) < steps:
            splice(FETCH, i32(step + (STAGES - 1)), before)


def multiply():
    """Starts the products of this warpgroup's rows with a tile, when that has come: scores, then D."""
    barrier_wait(u32(arrived + u32(8) + u32(stage << u32(3))), phase)
    tile1 = u32(shared + u32(TILES_AT) + u32(stage * u32(STAGE_BYTES)))
    a1 = u64(held >> u32(4)) | u64(ALONG_K)
    b1 = u64(tile1 >> u32(4)) | u64(ALONG_K)
    score[0:WIDTH] = splice(SCORES_READY)
    for k in unrolled(D // 16):
        score[0:WIDTH] = splice(
            SCORES_PRODUCT,
            u64(a1 + u64(k // 4 * (BLOCK * 8) + k % 4 * 2)),
            u64(b1 + u64(k // 4 * (TILE * 8) + k % 4 * 2)),
            i32(0 if k == 0 else 1),
        )
    wgmma_commit()
    a2 = u64(u32(held + u32(HELD2_AT)) >> u32(4)) | u64(ALONG_K)
    b2 = u64(u32(tile1 + u32(STREAMED2_AT)) >> u32(4)) | u64(ALONG_K)
    score[WIDTH : 2 * WIDTH] = splice(GRADIENT_READY)
    for k in unrolled(DV // 16):
        score[WIDTH : 2 * WIDTH] = splice(
            GRADIENT_PRODUCT,
            u64(a2 + u64(k // 4 * (BLOCK * 8) + k % 4 * 2)),
            u64(b2 + u64(k // 4 * (TILE * 8) + k % 4 * 2)),
            i32(0 if k == 0 else 1),
        )
    wgmma_commit()


def pack_weights():
    """The gradient of the scores, and after it P, in pairs of 16-bit elements."""
    for w in unrolled(WIDTH // 2):
        weight[w] = PACK(score[WIDTH + 2 * w], score[WIDTH + 2 * w + 1])
    weight[0 : WIDTH // 2] = splice(WEIGHTS1_READY)
    if not ROWS:
        for w in unrolled(WIDTH // 2):
            weight[WIDTH // 2 + w] = PACK(score[2 * w], score[2 * w + 1])
        weight[WIDTH // 2 : WIDTH] = splice(WEIGHTS2_READY)


def accumulate():
    """Starts the products of weights with the streamed rows, which lie along N: they add to the results."""
    right = u32(shared + u32(TILES_AT) + u32(stage * u32(STAGE_BYTES)))
    b1 = u64(right >> u32(4)) | u64(ALONG_N)
    total[0 : D // 2] = splice(RESULT1_READY)
    for k in unrolled(TILE // 16):
        total[0 : D // 2] = splice(
            RESULT1_PRODUCT,
            weight[4 * k],
            weight[4 * k + 1],
            weight[4 * k + 2],
            weight[4 * k + 3],
            u64(b1 + u64(k * 128)),
        )
    if not ROWS:
        b2 = u64(u32(right + u32(STREAMED2_AT)) >> u32(4)) | u64(ALONG_N)
        total[D // 2 : TOTAL] = splice(RESULT2_READY)
        for k in unrolled(TILE // 16):
            total[D // 2 : TOTAL] = splice(
                RESULT2_PRODUCT,
                weight[WIDTH // 2 + 4 * k],
                weight[WIDTH // 2 + 4 * k + 1],
                weight[WIDTH // 2 + 4 * k + 2],
                weight[WIDTH // 2 + 4 * k + 3],
                u64(b2 + u64(k * 128)),
            )
    wgmma_commit()
