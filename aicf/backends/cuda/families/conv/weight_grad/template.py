# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportUnboundVariable=false, reportCallIssue=false, reportArgumentType=false, reportUndefinedVariable=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Gradients of weights by the products of `gemm/mma/template.py` and `gemm/simt/template.py`, whose tiles are brought
pixel by pixel. Templates for the specializer.

A row of a tile of A or B is a pixel: what is passed back there, or the window there. A thread keeps where each of its
chunks of columns lies within a pixel, and finds its pixels anew in every stage. Tiles lie in shared memory with K
outermost, as the operands do in global memory where these are channels-last.

Chunks are copied asynchronously, in pieces as wide as all of them are aligned. Elements of 16 bits that are aligned to
less than 4 bytes are loaded into registers before the products of a stage, and stored after them.

`parts.py` gives the constants: GRAD and X, what is known of both operands, with the snippets `pixel` and `column`;
PIXELS of all images; GROUPS, the matrices of a part. The families add those of their products, and SUMS of a thread.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.ptx import *
from aicf.backends.cuda.compiler.specializer import Snippet, part, registers, splice, unrolled


def row_offset(row, chunk, tile):
    """Bytes from the start of a tile to a chunk, where rows lie one after the other."""
    return u32(row * tile["row_bytes"] + chunk * 16)


def find_columns(side, first, column):
    """Finds where the chunks of a thread lie within a pixel."""
    for j in unrolled(side["chunk_items"]):
        number = i32((column >> CHUNK_SHIFT) + first + j * side["chunk_step"])
        splice(FIND_COLUMN, side, number, side["columns_at"] + j * side["facts"])


def find_column(side, number, at):
    """Keeps where a chunk lies, from register `at` on. Past the last chunk of a side there are no elements."""
    found = splice(side["column"], number)
    for index in unrolled(side["facts"]):
        columns[at + index] = found[index]
    if side["is_over"]:
        columns[at + 1] = i32(columns[at + 1] if number < side["chunk_count"] else 0)


def is_in_operand(side, there, pixel, at, element):
    """Whether an element of the chunk of registers `at` lies in the operand at a pixel that is `there`."""
    inside = there
    for d in unrolled(len(side["padded"])):
        along = element * side["run_move"] if d == side["run_padded"] else 0
        inside = inside & (u32(pixel[1 + d] + columns[at + 2 + d] + along) < u32(side["padded"][d]))
    return inside


def copy_chunks(shared, k, side, first_row, first_chunk, tile):
    """Starts the copies of a tile."""
    for i in unrolled(side["row_items"]):
        row = i32(first_row + i * side["row_step"])
        pixel = splice(side["pixel"], u32(k + row))
        there = k + row < PIXELS
        for j in unrolled(side["chunk_items"]):
            chunk = i32(first_chunk + j * side["chunk_step"])
            place = splice(CHUNK_OFFSET, row, chunk, tile)
            if not side["over"] or (row < side["rows"] and chunk < side["chunks"]):
                splice(
                    COPY_PIECES,
                    u32(shared + place),
                    side,
                    pixel,
                    there,
                    side["columns_at"] + j * side["facts"],
                )


def copy_pieces(target, side, pixel, there, at):
    """Starts the copies of the chunk of registers `at`."""
    source = u64(pixel[0] + u64(i64(columns[at])))
    for piece in unrolled(16 // side["width"]):
        inside = splice(IS_IN_OPERAND, side, there, pixel, at, piece)
        size = splice(PIECE_SIZE, inside, columns[at + 1], piece, side)
        to = u32(target + piece * side["width"])
        splice(COPY_PIECE, to, u64(source + u64(piece * side["piece_step"])), size, side)


def fetch_chunks(k, side, first_row):
    """Loads the elements of a tile."""
    for i in unrolled(side["row_items"]):
        row = i32(first_row + i * side["row_step"])
        there = k + row < PIXELS
        if side["over"]:
            there = there & (row < side["rows"])
        pixel = splice(side["pixel"], u32(k + row))
        for j in unrolled(side["chunk_items"]):
            splice(
                FETCH_CHUNK,
                side,
                pixel,
                there,
                side["columns_at"] + j * side["facts"],
                side["words_at"] + (i * side["chunk_items"] + j) * 4,
            )


def fetch_chunk(side, pixel, there, at, own):
    """Loads the elements of the chunk of registers `at` into the words from `own` on."""
    source = u64(pixel[0] + u64(i64(columns[at])))
    for word in unrolled(4):
        several = registers(PER_WORD, u32(0))
        for each in unrolled(PER_WORD):
            if word * PER_WORD + each < side["run_most"]:
                inside = splice(IS_IN_OPERAND, side, there, pixel, at, word * PER_WORD + each)
                if side["ends"]:
                    inside = inside & (columns[at + 1] > word * PER_WORD + each)
                element = u64(source + u64((word * PER_WORD + each) * side["piece_step"]))
                several[each] = splice(LOAD_ELEMENT, element, inside)
        words[own + word] = splice(WORD_OF, several[0:PER_WORD])


def put_chunks(shared, side, first_row, first_chunk, tile):
    """Stores what `fetch_chunks` has loaded."""
    for i in unrolled(side["row_items"]):
        row = i32(first_row + i * side["row_step"])
        for j in unrolled(side["chunk_items"]):
            chunk = i32(first_chunk + j * side["chunk_step"])
            place = splice(CHUNK_OFFSET, row, chunk, tile)
            if not side["over"] or (row < side["rows"] and chunk < side["chunks"]):
                splice(PUT_CHUNK, u32(shared + place), side["words_at"] + (i * side["chunk_items"] + j) * 4)


def put_chunk(target, own):
    """Stores the words from `own` on."""
    store_shared_u32x4(target, *words[own : own + 4])


def bring_grad(shared, k):
    """Brings a tile of A: held elements now, others as copies that are awaited later."""
    if GRAD["held"]:
        splice(FETCH_CHUNKS, k, GRAD, a_row)
        splice(PUT_CHUNKS, shared, GRAD, a_row, a_chunk, TILE_A)
    else:
        splice(COPY_CHUNKS, shared, k, GRAD, a_row, a_chunk, TILE_A)


def bring_x(shared, k):
    """Brings a tile of B, as `bring_grad`."""
    if X["held"]:
        splice(FETCH_CHUNKS, k, X, b_row)
        splice(PUT_CHUNKS, u32(shared + B_OFFSETS[0]), X, b_row, b_chunk, TILE_B)
    else:
        splice(COPY_CHUNKS, u32(shared + B_OFFSETS[0]), k, X, b_row, b_chunk, TILE_B)


def weight_grad():
    """One tile of the sums of a part. Its parameters are the addresses of what is passed back, of the operand, and of
    the sums."""
    tid = u32(cuda.threadIdx.x)
    lane = i32(tid & 31)
    warp_m, warp_n, warp_k = splice(WARP_ORIGIN, tid)
    rank = i32(0)
    batch = u32(cuda.blockIdx.z)
    if PROGRAMMATIC:
        launch_dependents()
    m0, n0 = splice(TILE_ORIGIN)
    k0 = i32(quotient(batch, GROUPS)) * (LOOPS * BK)

    pointers = registers(POINTERS, u64(0))
    pointers[0:POINTERS] = splice(CHOOSE_POINTERS, 0)
    a_base = splice(A_BATCH, a, batch)
    b_base = splice(B_BATCH, pointers[0], batch)

    a_row, a_chunk = splice(FIRST_CHUNK, GRAD)
    b_row, b_chunk = splice(FIRST_CHUNK, X)
    columns = registers(COLUMN_REGISTERS, i32(0))
    words = registers(WORDS, u32(0))
    splice(FIND_COLUMNS, GRAD, a_chunk, m0)
    splice(FIND_COLUMNS, X, b_chunk, n0)

    base = shared_base(cuda.shared.array(0, u8))
    splice(FIRST_STAGES)

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
                if not GRAD["held"]:
                    splice(COPY_CHUNKS, writing, deep, GRAD, a_row, a_chunk, TILE_A)
                if not X["held"]:
                    splice(COPY_CHUNKS, u32(writing + B_OFFSETS[0]), deep, X, b_row, b_chunk, TILE_B)
            # After the last stage these load what is stored where nothing reads it any more.
            if GRAD["held"]:
                splice(FETCH_CHUNKS, deep, GRAD, a_row)
            if X["held"]:
                splice(FETCH_CHUNKS, deep, X, b_row)
        commit_copies()
        splice(MULTIPLY_STAGE)
        if AHEAD < LOOPS:
            if GRAD["held"]:
                splice(PUT_CHUNKS, writing, GRAD, a_row, a_chunk, TILE_A)
            if X["held"]:
                splice(PUT_CHUNKS, u32(writing + B_OFFSETS[0]), X, b_row, b_chunk, TILE_B)
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
        *(row_offset, find_columns, find_column, is_in_operand, copy_chunks, copy_pieces),
        *(fetch_chunks, fetch_chunk, put_chunks, put_chunk, bring_grad, bring_x),
    )
}
"""By the names that templates splice."""
