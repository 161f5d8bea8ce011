# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportUndefinedVariable=false, reportCallIssue=false, reportArgumentType=false, reportAssignmentType=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""The gradients of attention, after FlashAttention-2 (Dao, 2023), without atomics. Templates for the specializer.

With S the scaled scores, P their softmax, g the gradient of the result and D = g v^T, the gradient of S is
P * (D - the sum of P * D in a row). Neither scores nor probabilities are ever in memory.

`attention_backward` is the code of two launches. In the first (ROWS) a block holds queries and walks over the keys
twice: for the maximum, the sum and the sum weighted by D of each row, which it leaves in the workspace, and for the
gradient of the queries. In the second a block holds keys and walks over the queries: S and D are transposed then, and
what the first launch found out about a row belongs to a column. It sums up the gradients of keys and values.

What a block holds and what it walks over comes in pairs: 1 is what the scores are made of, queries or keys, 2 is what
D is made of, gradients or values.

Names in capitals are constants: `codegen.py` gives every one, the values here only say what they look like.
"""

from __future__ import annotations

from typing import Any

from aicf.backends.cuda.compiler.ptx import *
from aicf.backends.cuda.compiler.specializer import Snippet, registers, splice, unrolled

# The problem. Strides are in bytes, batch dimensions innermost first.
ROWS = True
"""Whether this is the first launch."""
BATCH, COUNT = (12, 8), 96
HELD, STREAMED = 128, 128
"""Queries and keys: of those a block has some, of these it sees all in turn."""
D, DV = 64, 64
DTYPE = "f16"
HELD1_BATCH = HELD2_BATCH = STREAMED1_BATCH = STREAMED2_BATCH = RESULT1_BATCH = RESULT2_BATCH = (128, 196608)
HELD1_ROW = HELD2_ROW = RESULT1_ROW = RESULT2_ROW = 1536
RESULT1_COLUMN = RESULT2_COLUMN = 2
WIDE1 = WIDE2 = True
"""Whether eight neighbours of a result row are one 16-byte store."""
MASKED = False
MASK_BATCH, MASK_HELD, MASK_STREAMED = (0, 256), 0, 2
FOLDED = True
"""Whether SCALE goes into the argument of the exponential: then the maximum is taken of the bare products."""
SCALE, LOG2_E = 0.18, 1.4426950408889634
"""As in the forward kernel: without a mask SCALE has the factor log2(e), with one the distance to the maximum has."""
SLOPE = 0.125
"""What the sums of the first result are multiplied by: the scale of the scores."""
CAUSAL, PAST = False, 0
"""Whether query i sees keys 0 to i + PAST alone."""
EMPTY_AS_ZERO = False
"""Whether P and its gradient are 0, not NaN, in a row whose scores all are -inf."""
PROGRAMMATIC = True

# The method.
THREADS = 128
ROW_TILES, BLOCK = 1, 64
"""16-row tiles of one warp, and rows of a block."""
TILE = 64
"""Streamed rows in shared memory at a time, in one of two stages."""
BLOCKS, TILES = 2, 2
"""Blocks of one batch element, and tiles that it streams."""
FIRST_WIDTH, WIDTH = 16, 16
"""Registers of scores that a 16-row tile has at once, two for each streamed row: while sums are taken, and after."""
KEPT2 = True
"""Whether the second held rows are in registers, too; else they are read again for every chunk."""
SCORES, TOTAL = 32, 64
"""Registers for scores and D of all row tiles, and for the results of one."""
HELD1_COPY = {
    "rows": 64,
    "stride": 1536,
    "pitch": 144,
    "pieces": 8,
    "lanes": 8,
    "ragged": False,
    "swizzled": False,
}
HELD2_COPY = STREAMED1_COPY = STREAMED2_COPY = HELD1_COPY
"""See `Q_COPY` of the forward kernel."""
STREAMED1_TILE, STREAMED2_TILE = 98304, 98304
"""Bytes from one tile to the next in global memory."""
PITCH1, PITCH2 = 144, 144
"""Bytes of a row in shared memory."""
HELD2_AT, TILES_AT, STREAMED2_AT, STATES_AT, STAGE_BYTES = 9216, 18432, 9216, 18432, 18432
"""In shared memory, after the first held rows: the second ones, and the stages. In a stage, after its first rows: the
second ones, and the states of its queries."""
PLANE = 512
"""Bytes of one number of each query of a batch element in the workspace, whole tiles of them. Three planes are what a
row is told by: its maximum, the inverse of its sum, and that times the sum of P * D. Where a tile has no query, these
make P and the gradient 0."""
LAST_STATE = 128
"""Queries in a plane."""

BLOCK_OF = TILES_SEEN = OFFSET = COPY_ROWS = LOAD_MASK = Snippet((), ())
FETCH = MULTIPLY = SCALE_AND_HIDE = POWER = SUM_UP = MERGE_LANES = WEIGH_ROWS = WEIGH_COLUMNS = ACCUMULATE = (
    STORE
) = Snippet((), ())


def attention_backward(
    held1: Any,
    held2: Any,
    streamed1: Any,
    streamed2: Any,
    result1: Any,
    result2: Any,
    states: Any,
    mask: Any,
) -> None:
    """f16 or bf16: products by mma.sync with f32 accumulators, the softmax and its gradient in f32.

    Block: BLOCK held rows of one batch element. Rows past the last one are zeros in shared memory; no result of them is
    stored.
    """
    product = mma_f16 if DTYPE == "f16" else mma_bf16
    pack = pack_f16 if DTYPE == "f16" else pack_bf16
    narrow = f32_to_f16 if DTYPE == "f16" else f32_to_bf16
    shared = shared_base(cuda.shared.array(0, u8))
    thread = u32(cuda.threadIdx.x)
    lane = u32(thread & u32(31))
    warp_row = u32(u32(thread >> u32(5)) * u32(16 * ROW_TILES))
    group = u32(lane >> u32(2))
    pair = u32(u32(lane & u32(3)) * u32(2))
    first, index = splice(BLOCK_OF)
    begin, end = splice(TILES_SEEN, first)
    own = i32(first + i32(warp_row) + i32(group))
    offset_held1 = splice(OFFSET, index, BATCH, HELD1_BATCH)
    offset_held2 = splice(OFFSET, index, BATCH, HELD2_BATCH)
    offset_streamed1 = splice(OFFSET, index, BATCH, STREAMED1_BATCH)
    offset_streamed2 = splice(OFFSET, index, BATCH, STREAMED2_BATCH)
    held1 = u64(held1 + offset_held1 + u64(first) * u64(HELD1_ROW))
    held2 = u64(held2 + offset_held2 + u64(first) * u64(HELD2_ROW))
    streamed1 = u64(streamed1 + offset_streamed1)
    streamed2 = u64(streamed2 + offset_streamed2)
    states = u64(states + u64(index) * u64(3 * PLANE))
    if MASKED:
        offset_mask = splice(OFFSET, index, BATCH, MASK_BATCH)
        mask = u64(mask + offset_mask)
    # Where this lane reads its row of each 8x8 matrix: as the left operand, as the right one of scores, and as the
    # right one of results, which has streamed rows along K.
    left_row, left_piece = u32(warp_row + u32(lane & u32(15))), u32(u32(lane >> u32(4)) * u32(16))
    left1 = u32(shared + left_row * u32(PITCH1) + left_piece)
    left2 = u32(shared + left_row * u32(PITCH2) + left_piece + u32(HELD2_AT))
    right_row = u32(u32(lane >> u32(4)) * u32(8) + u32(lane & u32(7)))
    right_piece = u32(u32(u32(lane >> u32(3)) & u32(1)) * u32(16))
    right1 = u32(shared + right_row * u32(PITCH1) + right_piece + u32(TILES_AT))
    right2 = u32(shared + right_row * u32(PITCH2) + right_piece + u32(TILES_AT + STREAMED2_AT))
    along_row = u32(lane & u32(15))
    along1 = u32(shared + along_row * u32(PITCH1) + left_piece + u32(TILES_AT))
    along2 = u32(shared + along_row * u32(PITCH2) + left_piece + u32(TILES_AT + STREAMED2_AT))

    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    splice(COPY_ROWS, HELD1_COPY, shared, held1, i32(HELD - first), thread)
    splice(COPY_ROWS, HELD2_COPY, u32(shared + u32(HELD2_AT)), held2, i32(HELD - first), thread)
    if ROWS or not CAUSAL or begin < end:
        splice(FETCH, begin, u32(0))
    commit_copies()
    wait_copies_0()
    cuda.syncthreads()
    held = registers(ROW_TILES * (D // 4 + (DV // 4 if KEPT2 else 0)), u32(0))
    for i in unrolled(ROW_TILES):
        for d in unrolled(0, D // 4, 4):
            held[i * (D // 4) + d : i * (D // 4) + d + 4] = load_matrix_x4(
                u32(left1 + u32(i * 16 * PITCH1 + d * 8))
            )
        for d in unrolled(0, DV // 4 if KEPT2 else 0, 4):
            held[ROW_TILES * (D // 4) + i * (DV // 4) + d : ROW_TILES * (D // 4) + i * (DV // 4) + d + 4] = (
                load_matrix_x4(u32(left2 + u32(i * 16 * PITCH2 + d * 8)))
            )
    bias_held = registers(ROW_TILES * 2 if MASKED and MASK_STREAMED == 0 else 0, f32(0.0))
    if MASKED and MASK_STREAMED == 0:
        for r in unrolled(ROW_TILES * 2):
            row = i32(own + i32(r * 8))
            if HELD % BLOCK != 0:
                row = min(row, i32(HELD - 1))
            bias_held[r] = splice(LOAD_MASK, u64(mask + u64(row) * u64(MASK_HELD)))

    score = registers(SCORES, f32(0.0))
    total = registers(ROW_TILES * TOTAL, f32(0.0))
    top = registers(ROW_TILES * 2 if ROWS else 0, f32(NEGATIVE_INFINITY))
    inverse = registers(ROW_TILES * 2 if ROWS else 0, f32(0.0))
    shift = registers(ROW_TILES * 2 if ROWS else 0, f32(0.0))
    current = u32(0)
    if ROWS:
        sums = registers(ROW_TILES * 2, f32(0.0))
        weighted = registers(ROW_TILES * 2, f32(0.0))
        for tile in range(begin, end):
            wait_copies_0()
            cuda.syncthreads()
            # After the last tile comes the first one again, for the second walk.
            following = i32(i32(tile) + i32(1)) if i32(tile) + i32(1) < end else begin
            splice(FETCH, following, u32(u32(STAGE_BYTES) - current))
            commit_copies()
            for chunk in unrolled(0, TILE, FIRST_WIDTH * 2):
                splice(MULTIPLY, 0, 0, D // 4, right1, PITCH1, chunk, FIRST_WIDTH)
                splice(
                    MULTIPLY,
                    ROW_TILES * FIRST_WIDTH,
                    ROW_TILES * (D // 4),
                    DV // 4,
                    right2,
                    PITCH2,
                    chunk,
                    FIRST_WIDTH,
                )
                splice(SCALE_AND_HIDE, i32(tile), chunk, FIRST_WIDTH)
                splice(SUM_UP)
            current = u32(u32(STAGE_BYTES) - current)
        splice(MERGE_LANES)

    for tile in range(begin, end):
        wait_copies_0()
        cuda.syncthreads()
        if i32(tile) + i32(1) < end:
            splice(FETCH, i32(i32(tile) + i32(1)), u32(u32(STAGE_BYTES) - current))
        commit_copies()
        for chunk in unrolled(0, TILE, WIDTH * 2):
            splice(MULTIPLY, 0, 0, D // 4, right1, PITCH1, chunk, WIDTH)
            splice(MULTIPLY, ROW_TILES * WIDTH, ROW_TILES * (D // 4), DV // 4, right2, PITCH2, chunk, WIDTH)
            splice(SCALE_AND_HIDE, i32(tile), chunk, WIDTH)
            if ROWS:
                splice(WEIGH_ROWS)
            else:
                splice(
                    WEIGH_COLUMNS,
                    u32(shared + current + pair * u32(4) + u32(TILES_AT + STATES_AT + chunk * 4)),
                )
            splice(ACCUMULATE, ROW_TILES * WIDTH, 0, D // 2, along1, PITCH1, chunk)
            if not ROWS:
                splice(ACCUMULATE, 0, D // 2, DV // 2, along2, PITCH2, chunk)
        current = u32(u32(STAGE_BYTES) - current)

    offset_result1 = splice(OFFSET, index, BATCH, RESULT1_BATCH)
    result1 = u64(result1 + offset_result1 + u64(first) * u64(RESULT1_ROW))
    splice(STORE, 0, D // 2, result1, RESULT1_ROW, RESULT1_COLUMN, shared, PITCH1, SLOPE, WIDE1)
    if not ROWS:
        offset_result2 = splice(OFFSET, index, BATCH, RESULT2_BATCH)
        result2 = u64(result2 + offset_result2 + u64(first) * u64(RESULT2_ROW))
        splice(
            STORE,
            D // 2,
            DV // 2,
            result2,
            RESULT2_ROW,
            RESULT2_COLUMN,
            u32(shared + u32(HELD2_AT)),
            PITCH2,
            1.0,
            WIDE2,
        )


def fetch(number, to):
    """Starts the copies of tile `number` into the stage at `to`."""
    valid = i32(i32(STREAMED) - number * i32(TILE))
    place = u32(shared + to + u32(TILES_AT))
    splice(
        COPY_ROWS, STREAMED1_COPY, place, u64(streamed1 + u64(number) * u64(STREAMED1_TILE)), valid, thread
    )
    splice(
        COPY_ROWS,
        STREAMED2_COPY,
        u32(place + u32(STREAMED2_AT)),
        u64(streamed2 + u64(number) * u64(STREAMED2_TILE)),
        valid,
        thread,
    )
    if not ROWS and thread < u32(3 * TILE // 4):
        plane = u32(thread // u32(TILE // 4))
        piece = u32(thread % u32(TILE // 4))
        copy_async16(
            u32(place + u32(STATES_AT) + thread * u32(16)),
            u64(states + u64(plane) * u64(PLANE) + u64(number) * u64(TILE * 4) + u64(piece) * u64(16)),
        )


def multiply(to, held_at, size, right, pitch, chunk, width):
    """Products of the held rows with 2 `width` streamed ones from number `chunk` on, into `score` from register `to`
    on; `held_at` is the first of the held registers, of which a row tile has `size`."""
    for s in unrolled(ROW_TILES * width):
        score[to + s] = f32(0.0)
    left = registers(0 if KEPT2 or held_at == 0 else ROW_TILES * 4, u32(0))
    for d in unrolled(0, size, 4):
        for i in unrolled(0 if KEPT2 or held_at == 0 else ROW_TILES):
            left[i * 4 : i * 4 + 4] = load_matrix_x4(u32(left2 + u32(i * 16 * PITCH2 + d * 8)))
        for s in unrolled(0, width, 8):
            b0, b1, b2, b3 = load_matrix_x4(u32(right + current + u32((chunk + s * 2) * pitch + d * 8)))
            for i in unrolled(ROW_TILES):
                if KEPT2 or held_at == 0:
                    a0, a1, a2, a3 = held[held_at + i * size + d : held_at + i * size + d + 4]
                else:
                    a0, a1, a2, a3 = left[i * 4 : i * 4 + 4]
                score[to + i * width + s : to + i * width + s + 4] = product(
                    score[to + i * width + s : to + i * width + s + 4], a0, a1, a2, a3, b0, b1
                )
                score[to + i * width + s + 4 : to + i * width + s + 8] = product(
                    score[to + i * width + s + 4 : to + i * width + s + 8], a0, a1, a2, a3, b2, b3
                )


def accumulate(source, to, size, along, pitch, chunk):
    """Adds products of what `score` holds from register `source` on with the streamed rows to `size` registers of each
    row tile's results, from `to` on. As the product left them, in pairs, scores are a left operand."""
    for s in unrolled(0, WIDTH, 8):
        weight = registers(ROW_TILES * 4, u32(0))
        for w in unrolled(ROW_TILES * 4):
            weight[w] = pack(
                score[source + w // 4 * WIDTH + s + w % 4 * 2],
                score[source + w // 4 * WIDTH + s + w % 4 * 2 + 1],
            )
        for t in unrolled(0, size, 8):
            b0, b1, b2, b3 = load_matrix_x4_transposed(
                u32(along + current + u32((chunk + s * 2) * pitch + t * 4))
            )
            for i in unrolled(ROW_TILES):
                total[i * TOTAL + to + t : i * TOTAL + to + t + 4] = product(
                    total[i * TOTAL + to + t : i * TOTAL + to + t + 4], *weight[i * 4 : i * 4 + 4], b0, b1
                )
                total[i * TOTAL + to + t + 4 : i * TOTAL + to + t + 8] = product(
                    total[i * TOTAL + to + t + 4 : i * TOTAL + to + t + 8], *weight[i * 4 : i * 4 + 4], b2, b3
                )


def store(source, size, result, row, column, room, pitch, factor, wide):
    """Rounds and stores a result, `size` registers of each row tile from `source` on, times `factor`. Wide stores go
    through `room`, where the warp's own held rows were, which are in registers by now."""
    for r in unrolled(ROW_TILES * 2):
        local = u32(warp_row + group + u32(r * 8))
        if wide:
            for t in unrolled(0, size, 4):
                store_shared_u32(
                    u32(room + local * u32(pitch) + pair * u32(2) + u32(t * 4)),
                    pack(
                        total[r // 2 * TOTAL + source + t + r % 2 * 2] * f32(factor),
                        total[r // 2 * TOTAL + source + t + r % 2 * 2 + 1] * f32(factor),
                    ),
                )
        elif i32(local) < i32(HELD - first):
            for t in unrolled(0, size, 4):
                for c in unrolled(2):
                    at = u64(result + u64(local) * u64(row) + u64(pair + u32(t * 2 + c)) * u64(column))
                    store_u16(at, narrow(total[r // 2 * TOTAL + source + t + r % 2 * 2 + c] * f32(factor)))
    if wide:
        cuda.syncwarp()
        for i in unrolled(ROW_TILES * size // 8):
            piece = u32(lane + u32(i * 32))
            local = u32(warp_row + piece // u32(size // 4))
            piece = u32(piece % u32(size // 4))
            if i32(local) < i32(HELD - first):
                x0, x1, x2, x3 = load_shared_u32x4(u32(room + local * u32(pitch) + piece * u32(16)))
                store_u32x4(u64(result + u64(local) * u64(row) + u64(piece) * u64(16)), x0, x1, x2, x3)
