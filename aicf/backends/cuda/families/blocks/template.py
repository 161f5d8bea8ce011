# pyright: basic, reportUndefinedVariable=false
"""Block-quantised weights times rows of x: one kernel that streams the weight, written for the specializer.

Tensor cores multiply halves and sum in f32. A code of up to 8 bits, put into the low bits of a half, is the subnormal
``code * 2^-24``, which they take as exactly as any other: so a shift and a mask make two factors, where a conversion
to f32 would take an instruction and more for each. A float of 8 bits, in the right bits of a half, is that float times
2^-8. An element of x is the sum of two halves, which are neighbouring
columns of the product; the power of two that a piece of a row is scaled by keeps them from overflow and from losing
bits. What is left is in f32, once for a part: scale, offset and minimum.

Names in capitals are constants that `codegen.py` gives.
"""

from __future__ import annotations

from typing import Any

from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled

# Parts: they work on the registers and indices of the kernel that splices them.


def load_next(base: Any) -> None:
    """Loads tile `tile` of the panel into the words from `base` on, if there is one."""
    if IS_EVEN:
        splice(LOAD_TILE, panel_at + u64(tile) * u64(TILE_BYTES), base)
    else:
        if tile < i32(TILES):
            splice(LOAD_TILE, panel_at + u64(tile) * u64(TILE_BYTES), base)


def fetch_ahead() -> None:
    """Starts to bring AHEAD panels into the second cache, of the first one what no lane has loaded: memory is busy
    while this kernel waits for others, and until it has prepared x."""
    if (part == i32(0)) & (lane < i32(AHEAD)):
        fetched = first_panel + lane
        loaded = cuda.selp(lane == i32(0), i32(LOADED_TILES), i32(0))
        if (fetched < i32(PANELS)) & (loaded < i32(TILES)):
            start = weight + u64(fetched) * u64(TILES * TILE_BYTES) + u64(loaded) * u64(TILE_BYTES)
            prefetch_l2(start, u32((i32(TILES) - loaded) * i32(TILE_BYTES)))


def halves(base: Any, chunk: Any) -> None:
    """The codes of a chunk of both rows of a lane as the left factors of two products, four registers each."""
    for half in unrolled(2):
        for i in unrolled(4):
            codes[2 * i + half] = u32(0)
            for f in unrolled(FIELD_COUNT):
                if FIELDS[chunk][half][i][f][1] >= 0:
                    field = u32(w[base + FIELDS[chunk][half][i][f][0]] >> u32(FIELDS[chunk][half][i][f][1]))
                else:
                    field = u32(w[base + FIELDS[chunk][half][i][f][0]] << u32(-FIELDS[chunk][half][i][f][1]))
                codes[2 * i + half] = u32(
                    codes[2 * i + half] | u32(field & u32(FIELDS[chunk][half][i][f][2]))
                )


def factors(base: Any, number: Any, each: Any) -> None:
    """Factor `number` of part `each` of the tile, of both rows of a lane, into `factor`."""
    if STORED[number] == "f16":
        factor[2 * number : 2 * number + 2] = unpack_f16(w[base + FLOAT_WORDS[number][each]])
    else:
        for half in unrolled(2):
            factor[2 * number + half] = bits_to_f32(w[base + FLOAT_WORDS[number][each] + half])
    if IS_NESTED[number]:
        for half in unrolled(2):
            # 2^23 and more: the lowest bits of such an f32 are the number.
            byte = u32(
                u32(w[base + NUMBERS[number][each][half][0]] >> u32(8 * NUMBERS[number][each][half][1]))
                & u32(255)
            )
            factor[2 * number + half] *= bits_to_f32(u32(byte | u32(0x4B000000))) - f32(
                NUMBER_OFFSETS[number]
            )


def multiply(base: Any) -> None:
    """Adds the products of the tile in the words from `base` on with its columns of x, `x_tile` bytes into them."""
    for chunk in unrolled(CHUNKS):
        splice(HALVES, base, chunk)
        for piece in unrolled(PIECES):
            if (32 * chunk + 32 // PIECES * piece) % PART == 0:
                splice(FACTORS, base, 0, (32 * chunk + 32 // PIECES * piece) // PART)
                if HAS_MINIMA:
                    splice(FACTORS, base, 1, (32 * chunk + 32 // PIECES * piece) // PART)
            for n in unrolled(ROW_GROUPS):
                b[0:4] = load_shared_u32x4(x_tile + x_column[n] + u32(chunk * ROWS * 128))
                for i in unrolled(4):
                    sums[i] = f32(0.0)
                for run in unrolled(piece * RUNS, piece * RUNS + RUNS):
                    sums[0:4] = mma_f16(
                        (sums[0], sums[1], sums[2], sums[3]),
                        codes[4 * run],
                        codes[4 * run + 1],
                        codes[4 * run + 2],
                        codes[4 * run + 3],
                        b[2 * run],
                        b[2 * run + 1],
                    )
                of_x[0:2] = load_shared_f32x2(
                    factors_tile + x_row[n] + u32((chunk * PIECES + piece) * ROWS * 8)
                )
                for half in unrolled(2):
                    # Both halves of the elements, at their size; all sums are divided by CODE_UNIT at the end.
                    product = (sums[2 * half] + sums[2 * half + 1]) * of_x[0]
                    if OFFSET != 0.0:
                        product = product - f32(OFFSET) * of_x[1]
                    total[2 * n + half] += product * factor[half]
                    if HAS_MINIMA:
                        total[2 * n + half] += f32(MINIMUM_SIGN) * factor[2 + half] * of_x[1]


def split_chunk(chunk: Any, row: Any, is_inside: Any) -> None:
    """Puts a chunk of a row of x, of which this thread has the elements of its `quarter` as bits of f32 in `v`, into
    shared memory: as halves, in the order in which lanes multiply them, and of each piece the scale of
    its products, and its sum times CODE_UNIT."""
    high = registers(4, u32(0))
    low = registers(4, u32(0))
    for piece in unrolled(PIECES):
        top = i32(0)
        for e in unrolled(4 * RUNS * piece, 4 * RUNS * piece + 4 * RUNS):
            top = max(top, i32(v[e] & u32(0x7FFFFFFF)))
        for s in unrolled(2):
            top = max(top, cuda.shfl_xor_sync(ALL_LANES, top, 1 << s))
        # The largest element becomes 2^14 or more, and less than 2^15.
        exponent = u32(max(i32(top >> i32(23)), i32(15)))
        scale = bits_to_f32(u32(u32(u32(268) - exponent) << u32(23)))
        unit = bits_to_f32(u32(u32(exponent - u32(14)) << u32(23)))
        # The sum is that of the halves, so that an offset takes off just what it has added to each code.
        added = f32(0.0)
        for pair in unrolled(2 * RUNS * piece, 2 * RUNS * piece + 2 * RUNS):
            first = bits_to_f32(v[2 * pair]) * scale
            second = bits_to_f32(v[2 * pair + 1]) * scale
            high[pair] = pack_f16(first, second)
            kept = unpack_f16(high[pair])
            low[pair] = pack_f16(first - kept[0], second - kept[1])
            rest = unpack_f16(low[pair])
            added += (kept[0] + rest[0]) + (kept[1] + rest[1])
        for s in unrolled(2):
            added += cuda.shfl_xor_sync(ALL_LANES, added, 1 << s)
        if is_inside & (quarter == i32(0)):
            store_shared_f32x2(
                memory
                + u32(FACTORS_AT)
                + u32(((chunk * i32(PIECES) + i32(piece)) * i32(ROWS) + row) * i32(8)),
                unit,
                added * f32(CODE_UNIT) * unit,
            )
    target = memory + u32((chunk * i32(ROWS) + row) * i32(128) + quarter * i32(16))
    if is_inside:
        store_shared_u32x4(target, high[0], high[1], high[2], high[3])
        store_shared_u32x4(target + u32(64), low[0], low[1], low[2], low[3])


def prepare_x() -> None:
    """Puts a slice of x into shared memory. Four threads take a chunk of a row."""
    for batch in range(-(-ROUNDS // BATCH)):
        for i in unrolled(BATCH):
            index = min((i32(batch) * i32(BATCH) + i32(i)) * i32(THREADS) + thread, i32(ITEMS - 4) + quarter)
            chunk = i32(index >> i32(2)) % i32(SLICE_TILES * CHUNKS)
            row = i32(i32(index >> i32(2)) // i32(SLICE_TILES * CHUNKS))
            column = (first_tile * i32(CHUNKS) + chunk) * i32(32) + quarter * i32(4)
            source = splice(X_ROW, min(first_row + row, i32(M - 1)))
            for run in unrolled(2):
                place = column + i32(16 * run)
                inside = cuda.selp(place < i32(K), i32(1), i32(0))
                raw[(2 * i + run) * X_WORDS : (2 * i + run + 1) * X_WORDS] = splice(
                    LOAD_X, x + u64((source + i64(place)) * i64(X_BYTES)), inside
                )
        for i in unrolled(BATCH):
            index = min((i32(batch) * i32(BATCH) + i32(i)) * i32(THREADS) + thread, i32(ITEMS - 4) + quarter)
            chunk = i32(index >> i32(2)) % i32(SLICE_TILES * CHUNKS)
            row = i32(i32(index >> i32(2)) // i32(SLICE_TILES * CHUNKS))
            for run in unrolled(2):
                v[4 * run : 4 * run + 4] = splice(
                    X_BITS, raw[(2 * i + run) * X_WORDS : (2 * i + run + 1) * X_WORDS]
                )
            splice(SPLIT_CHUNK, chunk, row, True)


def prepare_rows() -> None:
    """Puts what the row program makes of all rows of this block into shared memory: one row after the other, all
    threads of the block share it."""
    for row in range(ROWS):
        source = splice(X_ROW, min(first_row + i32(row), i32(M - 1)))
        for j in unrolled(2 * ROW_ROUNDS):
            place = k0 + i32(j // 2 * 8 * THREADS + j % 2 * 16)
            raw[j * X_WORDS : (j + 1) * X_WORDS] = splice(
                LOAD_X, x + u64((source + i64(place)) * i64(X_BYTES)), inside[j]
            )
        for j in unrolled(2 * ROW_ROUNDS):
            v[0:4] = splice(X_BITS, raw[j * X_WORDS : (j + 1) * X_WORDS])
            for e in unrolled(4):
                a[4 * j + e] = bits_to_f32(v[e])
        splice(ROW_PROGRAM)
        for i in unrolled(ROW_ROUNDS):
            index = i32(i * THREADS) + thread
            for e in unrolled(8):
                v[e] = f32_to_bits(a[8 * i + e])
            if ROW_TAIL:
                splice(SPLIT_CHUNK, i32(index >> i32(2)), i32(row), index < i32(4 * TILES * CHUNKS))
            else:
                splice(SPLIT_CHUNK, i32(index >> i32(2)), i32(row), True)
        if ROWS > 1:
            # Totals of this row are read before those of the next one are written.
            cuda.syncthreads()


def load_extras(number: Any) -> None:
    """What the epilogue reads beside the sums, for the results of this thread of a turn. Shared memory holds it: this
    thread has no registers to spare while it multiplies."""
    for r in unrolled(RESULT_ROUNDS):
        index = thread + i32(r * THREADS)
        of_group = i32(i32(index >> i32(4)) // i32(ROWS))
        panel = (i32(cuda.blockIdx.x) * i32(GROUPS) + of_group) * i32(PANEL_ROUNDS) + i32(number)
        column = min(panel * i32(16) + (index & i32(15)), i32(N - 1))
        if index < i32(RESULTS):
            loaded = registers(EXTRAS, f32(0.0))
            loaded[0:EXTRAS] = splice(
                LOAD_EXTRA, min(first_row + i32(index >> i32(4)) % i32(ROWS), i32(M - 1)), column
            )
            for e in unrolled(EXTRAS):
                store_shared_f32(memory + u32(EXTRAS_AT + 4 * RESULTS * e) + u32(index) * u32(4), loaded[e])


def finish_panels() -> None:
    """Adds the sums of the warps that share a panel, in their order, and ends with the epilogue.

    Sums of one panel and of the next lie apart: a warp that is ahead waits for the others before it comes to the one
    after that.
    """
    sums_at = memory + u32(SUMS_AT) + u32(i32(turn) & i32(1)) * u32(SUMS_BYTES)
    for n in unrolled(ROW_GROUPS):
        for half in unrolled(2):
            store_shared_f32(
                sums_at
                + u32((warp * i32(4 * ROW_GROUPS) + i32(4 * n) + quarter) * i32(64))
                + u32((shared + i32(8 * half)) * i32(4)),
                total[2 * n + half],
            )
    cuda.syncthreads()
    for r in unrolled(RESULT_ROUNDS):
        index = thread + i32(r * THREADS)
        row = i32(index >> i32(4)) % i32(ROWS)
        of_group = i32(i32(index >> i32(4)) // i32(ROWS))
        panel = (i32(cuda.blockIdx.x) * i32(GROUPS) + of_group) * i32(PANEL_ROUNDS) + i32(turn)
        column = panel * i32(16) + (index & i32(15))
        if (index < i32(RESULTS)) & (column < i32(N)) & (first_row + row < i32(M)):
            value = registers(PRODUCTS, f32(0.0))
            for each in unrolled(PRODUCTS):
                for p in unrolled(PARTS):
                    value[each] += load_shared_f32(
                        sums_at
                        + u32(
                            (
                                ((of_group * i32(PRODUCTS) + i32(each)) * i32(PARTS) + i32(p))
                                * i32(4 * ROW_GROUPS)
                                + row
                            )
                            * i32(64)
                        )
                        + u32((index & i32(15)) * i32(4))
                    )
                value[each] = value[each] * f32(1.0 / CODE_UNIT)
            for e in unrolled(EXTRAS):
                extra[e] = load_shared_f32(memory + u32(EXTRAS_AT + 4 * RESULTS * e) + u32(index) * u32(4))
            splice(FINISH, first_row + row, column, 0, value[0:PRODUCTS])


def matmul_blocks(pointers: object):
    """A warp has PANEL_ROUNDS panels of 16 rows of a weight, one after the other, or every `PARTS`-th tile of each,
    and up to ROWS rows of x. Where PRODUCTS weights meet in a result, warps of the same block have the same panel of
    each.

    Its first tiles are loaded before the wait. Lane ``4 g + t`` ends with the sums of rows g and g + 8 of the panel and
    of row ``t`` of each group of four of x; those of the warps that share a panel are added in their order.
    """
    if PROGRAMMATIC:
        launch_dependents()
    thread = i32(cuda.threadIdx.x)
    lane = thread & i32(31)
    quarter = thread & i32(3)
    shared = lane >> i32(2)
    warp = thread >> i32(5)
    slot = i32(warp // i32(PARTS))
    part = i32(warp - slot * i32(PARTS))
    group = i32(slot // i32(PRODUCTS))
    first_row = i32(cuda.blockIdx.y) * i32(ROWS)
    first_panel = (i32(cuda.blockIdx.x) * i32(GROUPS) + group) * i32(PANEL_ROUNDS)
    weight = splice(WEIGHT, slot - group * i32(PRODUCTS))
    panel_at = weight + u64(min(first_panel, i32(PANELS - 1))) * u64(TILES * TILE_BYTES)
    memory = shared_base(cuda.shared.array(0, u8))
    if IS_NORMED:
        totals = cuda.shared.array(TOTALS, f32)
        k0 = i32(thread >> i32(2)) * i32(32) + quarter * i32(4)
        inside = registers(2 * ROW_ROUNDS, i32(1))
        if K_TAIL:
            for j in unrolled(2 * ROW_ROUNDS):
                inside[j] = cuda.selp(k0 + i32(j // 2 * 8 * THREADS + j % 2 * 16) < i32(K), i32(1), i32(0))
        given = registers(GIVEN, f32(0.0))
        words = registers(GIVEN_WORDS, u32(0))

    w = registers(UNROLL * WORDS, u32(0))
    tile = part
    if EARLY:
        for j in unrolled(UNROLL):
            tile = part + i32(j * PARTS)
            splice(LOAD_NEXT, j * WORDS)
    if AHEAD > 0:
        splice(FETCH_AHEAD)
    if IS_NORMED:
        splice(EARLY_ROW_OPERANDS)
    if PROGRAMMATIC:
        wait_for_predecessors()
    if not EARLY:
        for j in unrolled(UNROLL):
            tile = part + i32(j * PARTS)
            splice(LOAD_NEXT, j * WORDS)

    # Columns of the product are the two halves of a row of x, rows side by side; past the last one it is read again.
    x_column = registers(ROW_GROUPS, u32(0))
    x_row = registers(ROW_GROUPS, u32(0))
    for n in unrolled(ROW_GROUPS):
        x_column[n] = u32(min(shared + i32(8 * n), i32(2 * ROWS - 1)) * i32(64) + quarter * i32(16))
        x_row[n] = u32(min(quarter + i32(4 * n), i32(ROWS - 1)) * i32(8))
    codes = registers(8, u32(0))
    b = registers(4, u32(0))
    factor = registers(4, f32(0.0))
    sums = registers(4, f32(0.0))
    of_x = registers(2, f32(0.0))
    total = registers(2 * ROW_GROUPS, f32(0.0))
    first_tile = i32(0)
    raw = registers(2 * X_WORDS * X_ROUNDS, u32(0))
    v = registers(8, u32(0))
    extra = registers(EXTRAS, f32(0.0))
    if EXTRAS > 0:
        splice(LOAD_EXTRAS, 0)
    if IS_NORMED:
        a = registers(8 * ROW_ROUNDS, f32(0.0))
        splice(LATE_ROW_OPERANDS)
        splice(PREPARE_ROWS)
        cuda.syncthreads()
    elif SLICES == 1:
        splice(PREPARE_X)
        cuda.syncthreads()
    for turn in range(PANEL_ROUNDS):
        for n in unrolled(2 * ROW_GROUPS):
            total[n] = f32(0.0)
        for number in range(SLICES):
            if SLICES > 1:
                first_tile = i32(number) * i32(SLICE_TILES)
                cuda.syncthreads()
                splice(PREPARE_X)
                cuda.syncthreads()
            for step in range(STEPS):
                for j in unrolled(UNROLL):
                    own = (i32(step) * i32(UNROLL) + i32(j)) * i32(PARTS) + part
                    x_tile = memory + u32(own) * u32(CHUNKS * ROWS * 128)
                    factors_tile = memory + u32(FACTORS_AT) + u32(own) * u32(CHUNKS * PIECES * ROWS * 8)
                    if IS_EVEN:
                        splice(MULTIPLY, j * WORDS)
                    else:
                        if (own < i32(SLICE_TILES)) & (first_tile + own < i32(TILES)):
                            splice(MULTIPLY, j * WORDS)
                    tile = first_tile + own + i32(UNROLL * PARTS)
                    if PANEL_ROUNDS > 1 and i32(step) == i32(STEPS - 1):
                        # After the last tiles of a panel come the first ones of the next.
                        tile = i32(j * PARTS) + part
                        panel = min(first_panel + i32(turn) + i32(1), i32(PANELS - 1))
                        panel_at = weight + u64(panel) * u64(TILES * TILE_BYTES)
                        if i32(turn) + i32(1) == i32(PANEL_ROUNDS):
                            tile = i32(TILES)
                    if tile < i32(TILES):
                        splice(LOAD_TILE, panel_at + u64(tile) * u64(TILE_BYTES), j * WORDS)
        splice(FINISH_PANELS)
        if EXTRAS > 0 and PANEL_ROUNDS > 1:
            splice(LOAD_EXTRAS, turn + i32(1))
