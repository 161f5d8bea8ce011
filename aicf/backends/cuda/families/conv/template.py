# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportUnboundVariable=false, reportCallIssue=false, reportArgumentType=false, reportUndefinedVariable=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Convolutions by the products of `gemm/mma/template.py` and `gemm/simt/template.py`, whose tiles are brought from
windows. Templates for the specializer.

A row of a tile of A is a pixel: a thread keeps where the window of each of its pixels starts, and the coordinates of
that along padded dimensions. A row of a tile of B is an output. A chunk of K is an offset from these starts, the same
for all rows, and as many elements along padded dimensions.

Chunks are copied asynchronously, in pieces as wide as all of them are aligned. Elements of 16 or 8 bits that are
aligned to less than 4 bytes are loaded into registers before the products of a stage, and stored after them. Where a
piece lies in shared memory says CHUNK_OFFSET, and `piece_bytes` of the loads.

`parts.py` gives the constants: LOADS_A and LOADS_B (`windows.Loads`); PADDED, the sizes along padded dimensions, and
RUN_PADDED, which of them the elements of a chunk lie along, if any; PIXEL, X_STEP and WEIGHT_STEP, see there; CHUNKS of
K. The families add those of their products, and SUMS of a thread.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.ptx import *
from aicf.backends.cuda.compiler.specializer import Snippet, part, registers, splice, unrolled


def first_chunk(loads):
    """Row and chunk of the tile that are this thread's first."""
    if loads["down"]:
        row = remainder(tid, loads["row_step"])
        chunk = quotient(tid, loads["row_step"])
    else:
        row = quotient(tid, loads["chunks"])
        chunk = remainder(tid, loads["chunks"])
    return i32(row), i32(chunk)


def element_offset(row, chunk, tile):
    """Bytes from the start of a tile to the first element of a chunk, where elements of K lie below each other."""
    return u32(chunk * tile["chunk_bytes"] + row * tile["size"])


# Pixels


def is_inside(there, item, element):
    """Whether an element of a chunk lies in the operand for a pixel, if it is `there` in K. Where no padded dimension
    runs along chunks, what is said of one element holds for all."""
    inside = there
    for d in unrolled(len(PADDED)):
        along = element * RUN_MOVE if d == RUN_PADDED else 0
        first = x_first[item * len(PADDED) + d]
        inside = inside & (u32(first + x_step[2 + d] + along) < u32(PADDED[d]))
    return inside


def copy_pixels(shared, k):
    """Starts the copies of a tile of A."""
    for j in unrolled(LOADS_A["chunk_items"]):
        chunk = i32(a_chunk + j * LOADS_A["chunk_step"])
        number = i32((k >> CHUNK_SHIFT) + chunk)
        x_step[0 : len(PADDED) + 2] = splice(X_STEP, number)
        for i in unrolled(LOADS_A["row_items"]):
            row = i32(a_row + i * LOADS_A["row_step"])
            place = splice(CHUNK_OFFSET, row, chunk, TILE_A)
            source = u64(x_at[i] + u64(i64(x_step[0])))
            for piece in unrolled(16 // LOADS_A["width"]):
                inside = splice(IS_INSIDE, number < last_chunk, i, piece)
                size = splice(PIECE_SIZE, inside, x_step[1], piece, LOADS_A)
                target = u32(shared + place + piece * LOADS_A["piece_bytes"])
                if not LOADS_A["over"] or (row < LOADS_A["rows"] and chunk < LOADS_A["chunks"]):
                    if PADDING == 0 or size > 0:
                        splice(COPY_PIECE, target, u64(source + u64(piece * X_PIECE)), size, LOADS_A)
                    else:
                        splice(PAD_PIECE, target, LOADS_A)


def piece_size(inside, left, piece, loads):
    """Bytes of a piece that are copied, if it is inside: zeros stand where the run ends."""
    size = u32(loads["width"])
    if loads["ends"]:
        bytes_left = i32(left * ELEMENT_BYTES - piece * loads["width"])
        size = u32(max(min(bytes_left, loads["width"]), 0))
    return u32(size if inside else 0)


def copy_piece(target, source, size, loads):
    """Starts one copy."""
    if loads["width"] == 16:
        copy_async16_or_zero(target, source, size)
    elif loads["width"] == 8:
        copy_async8_or_zero(target, source, size)
    else:
        copy_async4_or_zero(target, source, size)


def pad_piece(target, loads):
    """Stores what lies around the operand in the place of a piece. Where that stands for elements past the end of K,
    the weight has zeros."""
    if loads["width"] == 16:
        store_shared_u32x4(target, u32(PADDING), u32(PADDING), u32(PADDING), u32(PADDING))
    else:
        for word in unrolled(loads["width"] // 4):
            store_shared_u32(u32(target + 4 * word), u32(PADDING))


def word_of(several):
    """Neighbouring elements as a word."""
    if PER_WORD == 2:
        word = u32(several[0] | u32(several[1] << 16))
    else:
        low = u32(several[0] | u32(several[1] << 8))
        word = u32(low | u32(u32(several[2] << 16) | u32(several[3] << 24)))
    return word


def fetch_pixels(k):
    """Loads the elements of a tile of A."""
    for j in unrolled(LOADS_A["chunk_items"]):
        number = i32((k >> CHUNK_SHIFT) + a_chunk + j * LOADS_A["chunk_step"])
        x_step[0 : len(PADDED) + 2] = splice(X_STEP, number)
        for i in unrolled(LOADS_A["row_items"]):
            row = i32(a_row + i * LOADS_A["row_step"])
            there = number < last_chunk
            if LOADS_A["over"]:
                there = there & (row < LOADS_A["rows"])
            source = u64(x_at[i] + u64(i64(x_step[0])))
            for word in unrolled(4):
                several = registers(PER_WORD, u32(0))
                for each in unrolled(PER_WORD):
                    if word * PER_WORD + each < RUN_MOST:
                        inside = splice(IS_INSIDE, there, i, word * PER_WORD + each)
                        if LOADS_A["ends"]:
                            inside = inside & (x_step[1] > word * PER_WORD + each)
                        at = u64(source + u64((word * PER_WORD + each) * X_PIECE))
                        several[each] = splice(LOAD_ELEMENT, at, inside)
                        if PADDING > 0:
                            several[each] = u32(cuda.selp(inside, several[each], u32(PADDING & 255)))
                a_words[(j * LOADS_A["row_items"] + i) * 4 + word] = splice(WORD_OF, several[0:PER_WORD])


def store_pixels(shared):
    """Stores what `fetch_pixels` has loaded."""
    for j in unrolled(LOADS_A["chunk_items"]):
        for i in unrolled(LOADS_A["row_items"]):
            row = i32(a_row + i * LOADS_A["row_step"])
            chunk = i32(a_chunk + j * LOADS_A["chunk_step"])
            target = splice(CHUNK_OFFSET, row, chunk, TILE_A)
            if not LOADS_A["over"] or (row < LOADS_A["rows"] and chunk < LOADS_A["chunks"]):
                splice(STORE_CHUNK, u32(shared + target), j * LOADS_A["row_items"] + i)


def store_chunk(target, item):
    """Stores a chunk of pixels."""
    store_shared_u32x4(target, *a_words[4 * item : 4 * item + 4])


def bring_pixels(shared, k):
    """Loads and stores a tile of A."""
    splice(FETCH_A, k)
    splice(STORE_A, shared)


# Weight


def is_output(row, number):
    """Whether a chunk of a row of B lies in the weight."""
    there = number < last_chunk
    if LOADS_B["over"]:
        there = there & (row < LOADS_B["rows"])
    if OUTPUTS_END:
        there = there & (n0 + row < OUTPUTS)
    return there


def copy_weight(shared, k):
    """Starts the copies of a tile of B."""
    number = i32((k >> CHUNK_SHIFT) + b_chunk)
    weight_step[0:2] = splice(WEIGHT_STEP, number)
    for i in unrolled(LOADS_B["row_items"]):
        row = i32(b_row + i * LOADS_B["row_step"])
        place = splice(CHUNK_OFFSET, row, b_chunk, TILE_B)
        there = splice(IS_OUTPUT, row, number)
        source = u64(weight_at + u64(i64(weight_step[0]) + i * LOADS_B["row_step"] * OUTPUT_BYTES))
        for piece in unrolled(16 // LOADS_B["width"]):
            size = splice(PIECE_SIZE, there, weight_step[1], piece, LOADS_B)
            target = u32(shared + B_OFFSETS[0] + place + piece * LOADS_B["piece_bytes"])
            if not LOADS_B["over"] or row < LOADS_B["rows"]:
                splice(COPY_PIECE, target, u64(source + u64(piece * WEIGHT_PIECE)), size, LOADS_B)


def fetch_weight(k):
    """Loads the elements of a tile of B."""
    number = i32((k >> CHUNK_SHIFT) + b_chunk)
    weight_step[0:2] = splice(WEIGHT_STEP, number)
    for i in unrolled(LOADS_B["row_items"]):
        row = i32(b_row + i * LOADS_B["row_step"])
        there = splice(IS_OUTPUT, row, number)
        source = u64(weight_at + u64(i64(weight_step[0]) + i * LOADS_B["row_step"] * OUTPUT_BYTES))
        for word in unrolled(4):
            several = registers(PER_WORD, u32(0))
            for each in unrolled(PER_WORD):
                if word * PER_WORD + each < RUN_MOST:
                    inside = there
                    if LOADS_B["ends"]:
                        inside = inside & (weight_step[1] > word * PER_WORD + each)
                    at = u64(source + u64((word * PER_WORD + each) * WEIGHT_PIECE))
                    several[each] = splice(LOAD_ELEMENT, at, inside)
            b_words[i * 4 + word] = splice(WORD_OF, several[0:PER_WORD])


def store_weight(shared):
    """Stores what `fetch_weight` has loaded."""
    for i in unrolled(LOADS_B["row_items"]):
        row = i32(b_row + i * LOADS_B["row_step"])
        target = splice(CHUNK_OFFSET, row, b_chunk, TILE_B)
        if not LOADS_B["over"] or row < LOADS_B["rows"]:
            store_shared_u32x4(u32(shared + B_OFFSETS[0] + target), *b_words[i * 4 : i * 4 + 4])


def bring_weight(shared, k):
    """Loads and stores a tile of B."""
    splice(FETCH_B, k)
    splice(STORE_B, shared)


# The kernel


def vector_down(i):
    """As `vector_origin`, for results whose pixels are neighbours in memory: neighbouring threads have neighbouring
    rows. Those that are left over at the end have none."""
    number = u32(tid + i * THREADS)
    column = i32(quotient(number, FINISHED)) * 4
    row = i32(remainder(number, FINISHED)) + rank * FINISH_ROWS
    if STEPS * THREADS > FINISHED * BN // 4:
        row = i32(row if column < BN else rank * FINISH_ROWS + FINISHED)
        column = i32(min(column, BN - 4))
    return row, column


def conv():
    """One tile of the pixels of a group. Its parameters are the addresses of operand and weight, then those of extras
    and outputs."""
    tid = u32(cuda.threadIdx.x)
    lane = i32(tid & 31)
    warp_m, warp_n, warp_k = splice(WARP_ORIGIN, tid)
    rank = i32(cuda.blockIdx.y)
    batch = u32(cuda.blockIdx.z)
    if PROGRAMMATIC:
        launch_dependents()
    if ARRIVES_FIRST:  # the other half comes where blocks first write to each other: by then all have started
        cluster_arrive()
    m0, n0 = splice(TILE_ORIGIN)
    k0 = i32(rank * (LOOPS * BK))
    last_chunk = i32(min((rank + 1) * (LOOPS * BK >> CHUNK_SHIFT), CHUNKS))

    pointers = registers(POINTERS, u64(0))
    pointers[0:POINTERS] = splice(CHOOSE_POINTERS, 0)
    a_base = splice(A_BATCH, a, batch)
    b_base = splice(B_BATCH, pointers[0], batch)

    a_row, a_chunk = splice(FIRST_CHUNK, LOADS_A)
    b_row, b_chunk = splice(FIRST_CHUNK, LOADS_B)
    x_at = registers(LOADS_A["row_items"], u64(0))
    x_first = registers(LOADS_A["row_items"] * len(PADDED), i32(0))
    for i in unrolled(LOADS_A["row_items"]):
        pixel = splice(PIXEL, u32(m0 + a_row + i * LOADS_A["row_step"]))
        x_at[i] = pixel[0]
        for d in unrolled(len(PADDED)):
            x_first[i * len(PADDED) + d] = pixel[1 + d]
    weight_at = u64(b_base + u64(i64(n0 + b_row) * OUTPUT_BYTES))
    x_step = registers(2 + len(PADDED), i32(0))
    weight_step = registers(2, i32(0))
    a_words = registers(LOADS_A["words"], u32(0))
    b_words = registers(LOADS_B["words"], u32(0))

    base = shared_base(cuda.shared.array(0, u8))
    splice(FIRST_STAGES)

    held = registers(STEPS * HELD, u32(0))
    if PREFETCH:
        for i in unrolled(STEPS):
            row, column = splice(VECTOR_ORIGIN, i)
            held[i * HELD : (i + 1) * HELD] = splice(FETCH, u32(m0 + row), u32(n0 + column), batch)

    a_offset = registers(TILE_A["offsets"], u32(0))
    b_offset = registers(TILE_B["offsets"], u32(0))
    splice(PLACE_LANES)

    acc = registers(FACTORS, zeros_ELEMENT(SUMS))
    reading = u32(base)
    writing = u32(base + AHEAD % STAGES * STAGE_BYTES)
    for tile in range(LOOPS):
        wait_copies(AHEAD - 1)
        cuda.syncthreads()
        if AHEAD < LOOPS:
            deep = i32(k0 + (tile + AHEAD) * BK)
            if tile + AHEAD < LOOPS:
                if not LOADS_A["held"]:
                    splice(COPY_A, writing, deep)
                if not LOADS_B["held"]:
                    splice(COPY_B, writing, deep)
            # Past the last stage there is nothing to load: these find all chunks outside, without a branch.
            if LOADS_A["held"]:
                splice(FETCH_A, deep)
            if LOADS_B["held"]:
                splice(FETCH_B, deep)
        commit_copies()
        splice(MULTIPLY_STAGE)
        if AHEAD < LOOPS:
            if LOADS_A["held"]:
                splice(STORE_A, writing)
            if LOADS_B["held"]:
                splice(STORE_B, writing)
            writing = u32(writing + STAGE_BYTES)
            if writing == u32(base + STAGES * STAGE_BYTES):
                writing = u32(base)
        reading = u32(reading + STAGE_BYTES)
        if reading == u32(base + STAGES * STAGE_BYTES):
            reading = u32(base)

    splice(FINISH_TILE)


PARTS: dict[str, Snippet] = {
    function.__name__.upper(): part(function)
    for function in (
        *(first_chunk, element_offset, is_inside, is_output, piece_size, copy_piece, vector_down),
        *(copy_pixels, pad_piece, word_of, fetch_pixels, store_pixels, store_chunk, bring_pixels),
        *(copy_weight, fetch_weight, store_weight, bring_weight),
    )
}
"""By the names that templates splice."""
