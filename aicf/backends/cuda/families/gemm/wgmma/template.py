# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportUndefinedVariable=false, reportCallIssue=false, reportArgumentType=false
# ruff: noqa: SIM102
# Names in capitals are constants and parts that codegen.py puts in.
"""The Hopper matrix product: one warpgroup copies tiles, one or two multiply them.

A block has a *producer*, one thread that keeps a ring of STAGES buffers in shared memory filled by bulk tensor copies,
and CONSUMERS warpgroups that multiply out of the ring, 64 rows of the tile each, with sums in registers. Two barriers
a stage pass it on: `full` (the bytes of A and B have come) and `empty` (every reader is done). Blocks stay: block i
does tiles i, i + STEP, ..., and the producer is already filling the ring for the next tile while the consumers store.

Blocks of a cluster that lie side by side share operands: each copies its part of a common operand into all of them
(multicast), and a stage is empty only when all of them have read it. Or a cluster splits K (SPLIT_K): every block
multiplies a part of K, and the partial sums are added in rank order through each other's shared memory. Or the epilogue
is a row program: then a cluster has all columns of its rows, does one tile a block, and meets for every total
(`rows.py` writes that text).

`gemm` is the kernel; the other functions are parts that it splices in. Every part sees the names of the kernel.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.ptx import *
from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def gemm(PARAMETERS):
    """The kernel. PARAMETERS: maps of A and of every B, then for every product its extra operands and its output."""
    thread = i32(cuda.threadIdx.x)
    group = i32(cuda.shfl_sync(ALL_LANES, thread, 0)) >> 7  # known to be the same in a warp
    shared = u32((shared_base(cuda.shared.array(0, u8)) + u32(1023)) & u32(0xFFFFFC00))
    full = u32(shared + u32(BARRIERS_AT))
    empty = u32(shared + u32(BARRIERS_AT + 8 * STAGES))
    rank = i32(cluster_rank()) if CLUSTER > 1 else 0
    rank_m = rank % CLUSTER_M
    rank_n = 0 if SPLIT_K > 1 else rank // CLUSTER_M
    first_step = rank * PART_STEPS if SPLIT_K > 1 else 0
    steps = PART_STEPS if ALL_STEPS == PART_STEPS * SPLIT_K else min(PART_STEPS, ALL_STEPS - first_step)
    first_unit = i32(cuda.blockIdx.x) // CLUSTER
    if thread == 0:
        for s in unrolled(STAGES):
            barrier_init(u32(full + u32(8 * s)), u32(1))
            barrier_init(u32(empty + u32(8 * s)), u32(CONSUMERS * SHARERS))
        fence_barrier_init()
    if STARTS_APART:
        cluster_arrive()  # awaited before the first store into another block, which has then started
    if SHARERS > 1:
        cluster_arrive()
        cluster_wait()
    else:
        cuda.syncthreads()
    launch_dependents()
    if group == 0:
        if RESIZE:
            FEWER_REGISTERS()
        if thread == 0:
            splice(PRODUCE)
        else:
            wait_for_predecessors()
        if SPLIT_K > 1:
            cuda.syncwarp()
            cluster_wait()
            cluster_arrive()
            cluster_wait()
        if MEETINGS > 0:
            cuda.syncwarp()
            if STARTS_APART:
                cluster_wait()
            for _ in unrolled(MEETINGS):
                cluster_arrive()
                cluster_wait()
    else:
        if RESIZE:
            MORE_REGISTERS()
        wait_for_predecessors()
        splice(CONSUME)
    if SHARERS > 1:
        # No block leaves while another may still reach into its shared memory.
        cuda.syncwarp()
        cluster_arrive()
        cluster_wait()


def tile_of(unit):
    """Matrix, first row and first column of this block's tile in unit number `unit`.

    A unit is what a cluster does at a time. Units run down bands of BAND rows of units, so that those in flight
    together touch few rows of A and few columns of B: their operands stay in L2.
    """
    matrix = unit // UNITS
    inside = unit - matrix * UNITS
    band = inside // (BAND * COLUMN_UNITS)
    index = inside - band * (BAND * COLUMN_UNITS)
    height = BAND if ROW_UNITS % BAND == 0 else min(BAND, ROW_UNITS - band * BAND)
    column_unit = index // height
    row_unit = band * BAND + index - column_unit * height
    row = (row_unit * CLUSTER_M + rank_m) * TILE_M
    column = (column_unit * CLUSTER_N + rank_n) * WIDTH
    return i32(matrix), i32(row), i32(column)


def produce():
    """Keeps the ring filled. Weights of the first stages are copied before the preceding kernels are done."""
    stage = u32(EARLY % STAGES)
    phase = u32(0 if EARLY == STAGES else 1)  # the first wait for an empty stage passes
    skip = EARLY
    if EARLY > 0:
        matrix, row, column = splice(TILE_OF, first_unit)
        for s in unrolled(EARLY):
            barrier_expect(u32(full + u32(8 * s)), u32(STAGE_BYTES))
            splice(
                COPY_B,
                u32(shared + u32(s * STAGE_BYTES + A_BYTES)),
                u32(full + u32(8 * s)),
                (first_step + s) * K_STEP,
                column,
                matrix,
            )
    wait_for_predecessors()
    if EARLY > 0:
        for s in unrolled(EARLY):
            splice(
                COPY_A,
                u32(shared + u32(s * STAGE_BYTES)),
                u32(full + u32(8 * s)),
                (first_step + s) * K_STEP,
                row,
                matrix,
            )
    for unit in range(first_unit, ALL_UNITS, STEP):
        matrix, row, column = splice(TILE_OF, unit)
        if UNEVEN:
            unit_steps = splice(STEPS, matrix)
        for step in range(skip, unit_steps if UNEVEN else steps):
            barrier_wait(u32(empty + u32(stage << 3)), phase)
            ready = u32(full + u32(stage << 3))
            at = u32(shared + u32(stage * u32(STAGE_BYTES)))
            k = i32((first_step + step) * K_STEP)
            barrier_expect(ready, u32(STAGE_BYTES))
            splice(COPY_A, at, ready, k, row, matrix)
            splice(COPY_B, u32(at + u32(A_BYTES)), ready, k, column, matrix)
            stage = u32(stage + u32(1))
            if stage == u32(STAGES):
                stage = u32(0)
                phase = u32(phase ^ u32(1))
        skip = 0


def consume():
    """Multiplies tile after tile; one product stays in flight while the next stage is awaited."""
    consumer = group - 1
    warp = (thread >> 5) & 3
    lane = thread & 31
    staging = u32(shared + u32(LINES_AT) + u32((thread >> 5) - 4) * u32(LINE_BYTES))
    stage = u32(0)
    phase = u32(0)
    previous = u32(0)
    for unit in range(first_unit, ALL_UNITS, STEP):
        matrix, row, column = splice(TILE_OF, unit)
        if SPLIT_K == 1:
            held = splice(HOLD, matrix, row + consumer * 64 + warp * 16, column, lane)
        acc = ZERO_SUMS(SUMS)
        if SUMMED:
            sums = registers(SUM_CHUNKS * 8, f32(0.0))
            summing = column == 0 if SUMMED == "a" else row == 0
        if UNEVEN:
            unit_steps = splice(STEPS, matrix)
        for step in range(unit_steps if UNEVEN else steps):
            barrier_wait(u32(full + u32(stage << 3)), phase)
            at = u32(shared + u32(stage * u32(STAGE_BYTES)))
            # Above these bits an address says which block of the cluster it is in; a descriptor has other fields there.
            a = u64((u32(at + u32(consumer * 8192)) & u32(0x3FFFF)) >> u32(4)) | u64(A_DESCRIPTOR)
            b = u64((u32(at + u32(A_BYTES)) & u32(0x3FFFF)) >> u32(4)) | u64(B_DESCRIPTOR)
            wgmma_fence()
            for k in unrolled(4):
                acc = MULTIPLY(acc, a + u64(k * A_STEP), b + u64(k * B_STEP), i32(1))
            wgmma_commit()
            if SUMMED:
                if summing:  # while the tensor cores are at it
                    first = u32(at + u32(0 if SUMMED == "a" else A_BYTES) + u32(consumer * 8192))
                    for i in unrolled(SUM_CHUNKS):
                        if (consumer + i * CONSUMERS) * 64 < (TILE_M if SUMMED == "a" else TILE_N):
                            sums[8 * i : 8 * i + 8] = splice(
                                SUM_CHUNK, u32(first + u32(i * CONSUMERS * 8192)), sums[8 * i : 8 * i + 8]
                            )
            wgmma_wait_1()
            if SUMMED:
                if summing:  # all warps have read the stage before one thread says so
                    named_barrier(u32(group), u32(128))
            if step > 0:
                splice(RELEASE, previous)
            previous = stage
            stage = u32(stage + u32(1))
            if stage == u32(STAGES):
                stage = u32(0)
                phase = u32(phase ^ u32(1))
        acc = SUMS_DONE(acc)
        splice(RELEASE, previous)
        if SUMMED:
            if summing:
                for i in unrolled(SUM_CHUNKS):
                    chunk = consumer + i * CONSUMERS
                    if SUMMED == "a":
                        splice(SUM_DONE, sums[0:8], row + chunk * 64, M)
                    else:
                        if chunk * 64 < TILE_N:
                            splice(SUM_DONE, sums[8 * i : 8 * i + 8], column + chunk * 64, N)
        if SPLIT_K > 1:
            splice(STORE, acc, matrix, row, column)
        else:
            splice(STORE, acc, held, staging, matrix, row + consumer * 64 + warp * 16, column, lane)


def sum_chunk(at, sums):
    """Adds up a chunk of a stage, 64 lines of K with 64 elements each: a thread has eight neighbours of every 16th
    line. In the swizzle, 16-byte unit u of line r lies at u ^ (r mod 8)."""
    own = thread & 127
    line = own >> 3
    start = u32(at + u32(line * 128) + u32(((own & 7) ^ (line & 7)) << 4))
    totals = registers(8, f32(0.0))
    for j in unrolled(8):
        totals[j] = sums[j]
    for part in unrolled(4):
        words = load_shared_u32x4(u32(start + u32(part * 2048)))
        for pair in unrolled(4):
            low, high = UNPACK(words[pair])
            totals[2 * pair] = f32(totals[2 * pair] + low)
            totals[2 * pair + 1] = f32(totals[2 * pair + 1] + high)
    return (totals[0], totals[1], totals[2], totals[3], totals[4], totals[5], totals[6], totals[7])


def sum_done(sums, index, size):
    """Combines what the threads of a warpgroup have of 64 sums, those from `index` on of `size`, and stores them: the
    four lines of a warp by butterflies, then the warps through what they have for lines of results, ascending."""
    lane = thread & 31
    barrier = u32(group)  # 1 or 2: one for each warpgroup that multiplies
    boards = u32(shared + u32(LINES_AT) + u32((group - 1) * (4 * LINE_BYTES)))
    totals = registers(8, f32(0.0))
    for j in unrolled(8):
        near = f32(sums[j] + cuda.shfl_xor_sync(ALL_LANES, sums[j], 8))
        totals[j] = f32(near + cuda.shfl_xor_sync(ALL_LANES, near, 16))
    if lane < 8:
        own = u32(boards + u32(((thread >> 5) & 3) * LINE_BYTES) + u32(lane * 32))
        for j in unrolled(8):
            store_shared_f32(u32(own + u32(4 * j)), totals[j])
    named_barrier(barrier, u32(128))
    column = thread & 127
    if column < 64 and index + column < size:
        start = u32(boards + u32(column * 4))
        total = load_shared_f32(start)
        for warp in unrolled(1, 4):
            total = f32(total + load_shared_f32(u32(start + u32(warp * LINE_BYTES))))
        splice(STORE_SUM, sums_out + u64((index + column) * SUM_BYTES), total)
    named_barrier(barrier, u32(128))


def release(stage):
    """Tells every producer that writes into this block's ring that this warpgroup has read the stage."""
    if SHARERS == 1:
        if (thread & 127) == 0:
            barrier_arrive(u32(empty + u32(stage << 3)))
    else:
        if (thread & 127) < SHARERS:
            barrier_arrive_cluster(map_shared(u32(empty + u32(stage << 3)), u32(thread & 127)))


def store_packed(acc, held, staging, matrix, row, column, lane):
    """16-bit results: 16 rows x 64 columns at a time through the warp's own shared memory, whole lines at once.

    There, 16-byte unit u of row r lies at u ^ (r mod 8), so that neither the matrix stores nor the reads of rows meet
    in a bank.
    """
    put = u32(
        staging + u32(((lane & 7) + ((lane >> 3) & 1) * 8) * 128) + u32(((lane >> 4) ^ (lane & 7)) << 4)
    )
    get = u32(staging + u32((lane >> 3) * 128) + u32(((lane & 7) ^ (lane >> 3)) << 4))
    if LOOPED:
        # A long epilogue is one piece of code: the sums move up instead of the code's place among them, and so do
        # the words of operands that were read before.
        for chunk in range(WIDTH // 64):
            splice(STORE_CHUNK, acc, held, 0, put, get, matrix, row, column + 64 * chunk, lane)
            acc = rotated(acc, 32)
            held = rotated(held, HELD_WORDS)
    else:
        for chunk in unrolled(WIDTH // 64):
            splice(STORE_CHUNK, acc, held, 8 * chunk, put, get, matrix, row, column + 64 * chunk, lane)
    if MOMENTS:
        splice(MOMENTS_DONE, row, column)
    if LEFT_SUMS:
        splice(SUMS_DONE_BY, row, column)


def store_chunk(acc, held, number, put, get, matrix, row, column, lane):
    """16 rows x 64 columns of results, from fragment `number` on."""
    for pair in unrolled(4):
        at = column + 16 * pair + (lane & 3) * 2
        p = splice(VALUES, acc, held, number + 2 * pair, matrix, row + (lane >> 2), at)
        q = splice(VALUES, acc, held, number + 2 * pair + 1, matrix, row + (lane >> 2), at + 8)
        spot = u32(put ^ u32(pair << 5))
        store_matrix_x4(spot, PACK(p[0], p[1]), PACK(p[2], p[3]), PACK(q[0], q[1]), PACK(q[2], q[3]))
    cuda.syncwarp()
    if MOMENTS:
        words = registers(16, u32(0))
    if LEFT_SUMS:
        splice(LINE_SUMS, get, matrix, row, column, lane)
    for part in unrolled(4):
        v = load_shared_u32x4(u32(u32(get ^ u32((part & 1) << 6)) + u32(part * 512)))
        if MOMENTS:
            for index in unrolled(4):
                words[4 * index + part] = v[index]
        line = row + 4 * part + (lane >> 3)
        first = column + (lane & 7) * 8
        if INSIDE or (line < M and first < N):
            to = splice(OUT, matrix, line, first)
            splice(STORE_LINE, to, first, v[0], v[1], v[2], v[3])
    if MOMENTS:
        for index in unrolled(4):
            splice(SLAB_MOMENTS, words[4 * index : 4 * index + 4], column + (lane & 7) * 8 + 2 * index, lane)
    cuda.syncwarp()


def slab_moments(words, column, lane):
    """The mean of two neighbouring columns over the 16 rows of a warp, and the squares around it. A lane has every
    fourth row, as results that are rounded already: what others read of them has these moments, digit by digit."""
    values = registers(8, f32(0.0))
    for part in unrolled(4):
        values[2 * part], values[2 * part + 1] = UNPACK_RESULT(words[part])
    own = u32(shared + u32(STATISTICS_AT) + u32(((thread >> 5) - 4) * BOARD_BYTES + (column % WIDTH) * 4))
    for side in unrolled(2):
        total = f32(f32(values[side] + values[2 + side]) + f32(values[4 + side] + values[6 + side]))
        total = f32(total + cuda.shfl_xor_sync(ALL_LANES, total, 8))
        total = f32(total + cuda.shfl_xor_sync(ALL_LANES, total, 16))
        mean = f32(total * f32(0.0625))
        squares = f32(0.0)
        for part in unrolled(4):
            distance = f32(values[2 * part + side] - mean)
            squares = cuda.fma(distance, distance, squares)
        squares = f32(squares + cuda.shfl_xor_sync(ALL_LANES, squares, 8))
        squares = f32(squares + cuda.shfl_xor_sync(ALL_LANES, squares, 16))
        if lane < 8:
            store_shared_f32(u32(own + u32(4 * side)), mean)
            store_shared_f32(u32(own + u32(4 * WIDTH + 4 * side)), squares)


def line_sums(get, matrix, row, column, lane):
    """Adds up a chunk of results before any of its lines is stored: no load passes a store, and so those of what lies
    beside all four lines of a lane are on their way together."""
    totals = registers(8 * LEFT_SUMS, f32(0.0))
    first = column + (lane & 7) * 8
    for part in unrolled(4):
        v = load_shared_u32x4(u32(u32(get ^ u32((part & 1) << 6)) + u32(part * 512)))
        values = registers(8, f32(0.0))
        for index in unrolled(4):
            values[2 * index], values[2 * index + 1] = UNPACK_RESULT(v[index])
        line = row + 4 * part + (lane >> 3)
        added = splice(LINE_VALUES, values[0:8], matrix, line, first)
        for index in unrolled(8 * LEFT_SUMS):
            totals[index] = f32(totals[index] + added[index]) if line < M else totals[index]
    splice(SLAB_SUMS, totals[0 : 8 * LEFT_SUMS], first, lane)


def slab_sums(totals, column, lane):
    """Sums of eight neighbouring columns over the 16 rows of a warp, of which a lane has every fourth."""
    own = u32(shared + u32(STATISTICS_AT) + u32(((thread >> 5) - 4) * BOARD_BYTES + (column % WIDTH) * 4))
    for number in unrolled(LEFT_SUMS):
        for index in unrolled(8):
            total = totals[8 * number + index]
            total = f32(total + cuda.shfl_xor_sync(ALL_LANES, total, 8))
            total = f32(total + cuda.shfl_xor_sync(ALL_LANES, total, 16))
            if lane < 8:
                store_shared_f32(u32(own + u32(4 * WIDTH * number + 4 * index)), total)


def sums_done(row, column):
    """Adds up what the four warps of a warpgroup have of each column, ascending, and writes it as one part of 64 rows:
    a sum's parts one after the other."""
    barrier = u32(group)  # 1 or 2: one for each warpgroup that multiplies
    boards = u32(shared + u32(STATISTICS_AT) + u32((group - 1) * (4 * BOARD_BYTES)))
    first = row - ((thread >> 5) & 3) * 16
    named_barrier(barrier, u32(128))
    for turn in unrolled(STATISTICS_TURNS):
        own = (thread & 127) + 128 * turn
        if first < M and own < WIDTH and column + own < N:
            for number in unrolled(LEFT_SUMS):
                board = u32(boards + u32(4 * WIDTH * number) + u32(own * 4))
                total = load_shared_f32(board)
                for slab in unrolled(1, 4):
                    total = f32(total + load_shared_f32(u32(board + u32(BOARD_BYTES * slab))))
                part = number * STATISTICS_PARTS + (first >> 6)
                store_f32(u64(statistics_out + u64((part * N + column + own) * 4)), total)
    named_barrier(barrier, u32(128))


def moments_done(row, column):
    """Combines what the four warps of a warpgroup have of each column, and writes it as one part of 64 rows: means,
    part after part, then squares. The warps that have results have as many."""
    barrier = u32(group)  # 1 or 2: one for each warpgroup that multiplies
    boards = u32(shared + u32(STATISTICS_AT) + u32((group - 1) * (4 * BOARD_BYTES)))
    first = row - ((thread >> 5) & 3) * 16
    slabs = min(4, (M - first) >> 4)
    share = (
        f32(0.25) if slabs == 4 else (f32(1 / 3) if slabs == 3 else (f32(0.5) if slabs == 2 else f32(1.0)))
    )
    named_barrier(barrier, u32(128))
    for turn in unrolled(STATISTICS_TURNS):
        own = (thread & 127) + 128 * turn
        if slabs > 0 and own < WIDTH and column + own < N:
            means = registers(4, f32(0.0))
            for slab in unrolled(4):
                means[slab] = load_shared_f32(u32(boards + u32(BOARD_BYTES * slab) + u32(own * 4)))
            total = means[0]
            for slab in unrolled(1, 4):
                total = f32(total + means[slab]) if slab < slabs else total
            mean = f32(total * share)
            squares = f32(0.0)
            for slab in unrolled(4):
                found = load_shared_f32(u32(boards + u32(BOARD_BYTES * slab + 4 * WIDTH) + u32(own * 4)))
                distance = f32(means[slab] - mean)
                added = f32(squares + cuda.fma(f32(distance * f32(16.0)), distance, found))
                squares = added if slab < slabs else squares
            to = u64(statistics_out + u64(((first >> 6) * N + column + own) * 4))
            store_f32(to, mean)
            store_f32(u64(to + u64(STATISTICS_PARTS * N * 4)), squares)
    named_barrier(barrier, u32(128))


def store_line(to, first, a, b, c, d):
    """Eight neighbouring 16-bit results from column `first` on, or those of them that the row has."""
    if LAST_COLUMNS == 0 or first + 8 <= N:
        store_u32x4(to, a, b, c, d)
    else:
        words = (a, b, c, d)
        for index in unrolled(LAST_COLUMNS):
            word = words[index // 2]
            store_u16(to + u64(2 * index), u16(word >> u32(16)) if index % 2 else u16(word & u32(0xFFFF)))


def store_bytes(acc, held, staging, matrix, row, column, lane):
    """8-bit results: 16 rows x 64 columns at a time through the warp's own shared memory, 16 bytes at once.

    Rows lie 80 bytes apart there: neither the stores of two neighbours nor the reads meet in a bank.
    """
    put = u32(staging + u32((lane >> 2) * 80 + (lane & 3) * 2))
    get = u32(staging + u32((lane >> 2) * 80 + (lane & 3) * 16))
    if LOOPED:
        for chunk in range(WIDTH // 64):
            splice(STORE_CHUNK, acc, held, 0, put, get, matrix, row, column + 64 * chunk, lane)
            acc = rotated(acc, 32)
            held = rotated(held, HELD_WORDS)
    else:
        for chunk in unrolled(WIDTH // 64):
            splice(STORE_CHUNK, acc, held, 8 * chunk, put, get, matrix, row, column + 64 * chunk, lane)


def store_byte_chunk(acc, held, number, put, get, matrix, row, column, lane):
    """16 rows x 64 columns of 8-bit results, from fragment `number` on."""
    for each in unrolled(8):
        at = column + 8 * each + (lane & 3) * 2
        v = splice(VALUES, acc, held, number + each, matrix, row + (lane >> 2), at)
        for half in unrolled(2):
            two = splice(TWO_BYTES, v[2 * half], v[2 * half + 1])
            store_shared_u16(u32(put + u32(8 * each + 8 * 80 * half)), two)
    cuda.syncwarp()
    for half in unrolled(2):
        v = load_shared_u32x4(u32(get + u32(8 * 80 * half)))
        line = row + (lane >> 2) + 8 * half
        first = column + (lane & 3) * 16
        if INSIDE or (line < M and first < N):
            to = splice(OUT, matrix, line, first)
            store_u32x4(to, v[0], v[1], v[2], v[3])
    cuda.syncwarp()


def store_vectors(acc, held, staging, matrix, row, column, lane):
    """f32 or i32 results: two neighbouring columns a thread; four threads fill a sector.

    TOGETHER fragments are read and computed before any of them is stored, for no load passes a store: each would wait
    for memory by itself.
    """
    for batch in unrolled(WIDTH // 8 // TOGETHER):
        v = registers(4 * TOGETHER, RESULT(0))
        for each in unrolled(TOGETHER):
            v[4 * each : 4 * each + 4] = splice(
                VALUES,
                acc,
                held,
                TOGETHER * batch + each,
                matrix,
                row + (lane >> 2),
                column + 8 * (TOGETHER * batch + each) + (lane & 3) * 2,
            )
        for each in unrolled(TOGETHER):
            first = column + 8 * (TOGETHER * batch + each) + (lane & 3) * 2
            for half in unrolled(2):
                line = row + (lane >> 2) + 8 * half
                if INSIDE or (line < M and first < N):
                    to = splice(OUT, matrix, line, first)
                    STORE_TWO(to, v[4 * each + 2 * half], v[4 * each + 2 * half + 1])


def store_elements(acc, held, staging, matrix, row, column, lane):
    """Results of any type and strides, one by one."""
    for number in unrolled(WIDTH // 8):
        first = column + 8 * number + (lane & 3) * 2
        v = splice(VALUES, acc, held, number, matrix, row + (lane >> 2), first)
        for index in unrolled(4):
            line = row + (lane >> 2) + 8 * (index // 2)
            if INSIDE or (line < M and first + index % 2 < N):
                to = splice(OUT, matrix, line, first + index % 2)
                splice(STORE_ELEMENT, to, v[index])


def reduce_parts(acc, matrix, row, column):
    """Adds the partial sums of all blocks of the cluster in rank order; each block finishes SHARE rows of the tile.

    A block stores the rows of its partial tile into the shared memory of the blocks that finish them, one part for each
    rank. Rows are PITCH bytes apart, so that the stores spread over the banks.
    """
    local = i32(thread - 128)
    top = (local >> 7) * 64 + ((local >> 5) & 3) * 16 + ((local & 31) >> 2)
    mine = u32(shared + u32(PARTS_AT + rank * (SHARE * PITCH) + (local & 3) * 8))
    cluster_wait()
    for half in unrolled(2):
        owner = (top + 8 * half) // SHARE
        index = top + 8 * half - owner * SHARE
        there = map_shared(u32(mine + u32(index * PITCH)), u32(owner))
        for number in unrolled(TILE_N // 8):
            SEND_SUMS(
                u32(there + u32(32 * number)), acc[4 * number + 2 * half], acc[4 * number + 2 * half + 1]
            )
    cluster_arrive()
    cluster_wait()
    for index in range(local, SHARE * (WIDTH // 8), CONSUMERS * 128):
        part_row = i32(index // (WIDTH // 8))
        part_column = i32(index % (WIDTH // 8)) * 8
        line = row + rank * SHARE + part_row
        first = column + part_column
        own = u32(shared + u32(PARTS_AT + part_row * PITCH + part_column * 4))
        sums = registers(SUM_PARTS * 8, SUM(0))
        for other in unrolled(SPLIT_K):
            for part in unrolled(SUM_PARTS * 2):
                x = LOAD_SUMS(
                    u32(own + u32(other * (SHARE * PITCH) + (part // 2) * GATE_BYTES + (part % 2) * 16))
                )
                for lane4 in unrolled(4):
                    sums[4 * part + lane4] = (
                        x[lane4] if other == 0 else SUM(sums[4 * part + lane4] + x[lane4])
                    )
        if INSIDE or (line < M and first < N):
            v = splice(VALUES, sums[0 : SUM_PARTS * 8], 0, matrix, line, first)
            splice(STORE_ROW, v, matrix, line, first)


def row_packed(v, matrix, line, first):
    """Eight 16-bit results of a row."""
    to = splice(OUT, matrix, line, first)
    splice(STORE_LINE, to, first, PACK(v[0], v[1]), PACK(v[2], v[3]), PACK(v[4], v[5]), PACK(v[6], v[7]))


def row_bytes(v, matrix, line, first):
    """Eight 8-bit results of a row."""
    to = splice(OUT, matrix, line, first)
    low = splice(FOUR_BYTES, v[0], v[1], v[2], v[3])
    high = splice(FOUR_BYTES, v[4], v[5], v[6], v[7])
    store_u32x2(to, low, high)


def row_vectors(v, matrix, line, first):
    """Eight f32 or i32 results of a row."""
    to = splice(OUT, matrix, line, first)
    STORE_FOUR(to, v[0], v[1], v[2], v[3])
    STORE_FOUR(to + u64(16), v[4], v[5], v[6], v[7])


def row_elements(v, matrix, line, first):
    """Eight results of a row, one by one."""
    for index in unrolled(8):
        if INSIDE or first + index < N:
            to = splice(OUT, matrix, line, first + index)
            splice(STORE_ELEMENT, to, v[index])
