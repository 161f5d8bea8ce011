# pyright: basic, reportUndefinedVariable=false
# ruff: noqa: SIM102
"""Kernels of a scatter that combines: a stable radix sort of its indices by row, then the updates of each row in order.

No result depends on when a block runs: counts are added up with integers, and entries with one digit keep their order.
The snippets and constants come from `codegen.py`, what lies where from `schedule.py`.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def count(operands: object):
    """How many entries of the block's SPAN have each value of the digit at SHIFT, into its row of the table.

    Snippet: ENTRY.
    """
    thread = i32(cuda.threadIdx.x)
    block = i32(cuda.blockIdx.x)
    counts = cuda.shared.array(256, i32)
    counts[thread] = i32(0)
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    cuda.syncthreads()
    at = i32(block * SPAN + thread)
    end = i32(min(i32(block * SPAN + SPAN), i32(COUNT)))
    while at < end:
        entries = registers(ITEMS, 0)
        for i in unrolled(ITEMS):
            entries[i] = splice(ENTRY, i32(min(i32(at + i * THREADS), i32(end - 1))))
        for i in unrolled(ITEMS):
            if i32(at + i * THREADS) < end:
                cuda.atomic.add(counts, i32(u64(entries[i] >> u64(SHIFT)) & u64(255)), i32(1))
        at = i32(at + ITEMS * THREADS)
    cuda.syncthreads()
    store_i32(w + u64(COUNTS_AT) + u64(i64(block * 256 + thread) * 4), i32(counts[thread]))


def place(operands: object):
    """Puts the entries of the block's SPAN where they belong by the digit at SHIFT; equal ones keep their order.

    Thread d knows where the entries with digit d begin: after those of lower digits and those of earlier blocks. A
    warp ranks 32 neighbours at a time by a vote on their digits, in order; the warps of a tile follow one another. The
    last pass also tells where the list of each row begins: as the most places from it to the end of all, since what no
    list begins at is -1.
    Snippets: ENTRY, FIRST_ADDRESS.
    """
    thread = i32(cuda.threadIdx.x)
    block = i32(cuda.blockIdx.x)
    warp = i32(thread // 32)
    lane = i32(thread % 32)
    counts = cuda.shared.array(WARPS * 256, i32)
    sums = cuda.shared.array(256, i32)
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    total = i32(0)
    begin = i32(0)
    other = i32(0)
    while other < BLOCKS:
        found = registers(8, 0)
        for i in unrolled(8):
            row = i32(min(i32(other + i), i32(BLOCKS - 1)))
            found[i] = load_i32(w + u64(COUNTS_AT) + u64(i64(row * 256 + thread) * 4))
        for i in unrolled(8):
            if i32(other + i) < BLOCKS:
                total = i32(total + found[i])
            if i32(other + i) < block:
                begin = i32(begin + found[i])
        other = i32(other + 8)
    upto = total
    for s in unrolled(8):
        sums[thread] = upto
        cuda.syncthreads()
        if thread >= 1 << s:
            upto = i32(upto + i32(sums[thread - (1 << s)]))
        cuda.syncthreads()
    begin = i32(begin + i32(upto - total))
    start = i32(block * SPAN)
    end = i32(min(i32(block * SPAN + SPAN), i32(COUNT)))
    while start < end:
        for v in unrolled(WARPS):
            counts[v * 256 + thread] = i32(0)
        cuda.syncthreads()
        entries = registers(ITEMS, 0)
        ranks = registers(ITEMS, 0)
        for i in unrolled(ITEMS):
            here = i32(start + i32(warp * ITEMS + i) * 32 + lane)
            entries[i] = splice(ENTRY, i32(min(here, i32(end - 1))))
        for i in unrolled(ITEMS):
            here = i32(start + i32(warp * ITEMS + i) * 32 + lane)
            digit = i32(256)
            if here < end:
                digit = i32(u64(entries[i] >> u64(SHIFT)) & u64(255))
            same = u32(cuda.match_any_sync(ALL_LANES, digit))
            ahead = i32(cuda.popc(u32(same & u32(u32(u32(1) << u32(lane)) - u32(1)))))
            slot = i32(warp * 256 + i32(min(digit, i32(255))))
            earlier = i32(counts[slot])
            cuda.syncwarp()
            if ahead == 0:
                if digit < 256:
                    counts[slot] = i32(earlier + i32(cuda.popc(same)))
            cuda.syncwarp()
            ranks[i] = i32(earlier + ahead)
        cuda.syncthreads()
        for v in unrolled(WARPS):
            mine = i32(counts[v * 256 + thread])
            counts[v * 256 + thread] = begin
            begin = i32(begin + mine)
        cuda.syncthreads()
        for i in unrolled(ITEMS):
            if i32(start + i32(warp * ITEMS + i) * 32 + lane) < end:
                digit = i32(u64(entries[i] >> u64(SHIFT)) & u64(255))
                at = i32(i32(counts[warp * 256 + digit]) + ranks[i])
                store_u64(w + u64(TARGET_AT) + u64(i64(at) * 8), entries[i])
                if LAST:
                    row = i32(entries[i] >> u64(32))
                    first = splice(FIRST_ADDRESS, row)
                    atomic_max_i32(first, i32(COUNT - 1 - at))
        cuda.syncthreads()
        start = i32(start + ITEMS * THREADS)


def combine(operands: object):
    """LANES threads a row, with VECTOR columns each: its elements of the operand, then its updates in order.

    LOOKS entries are read at a time. While all of them are of this row, so are their updates; the last ones of a list
    come one by one. An index out of range has a negative number: its update counts for nothing. IN_PLACE: a row without
    a list is there already.
    Snippets: FIRST_ADDRESS, LOAD_OPERAND, UNPACK_OPERAND, LOAD_UPDATE, COMBINED, STORE.
    """
    thread = i32(cuda.threadIdx.x)
    row = i32(i32(cuda.blockIdx.x) * (THREADS // LANES) + thread // LANES)
    column = i32(i32(cuda.blockIdx.y) * LANES + thread % LANES)
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    if (row < ROWS) & (column < VECTORS):
        column = i32(column * VECTOR)
        first = splice(FIRST_ADDRESS, row)
        at = i32(COUNT - 1 - load_i32(first))
        changed = True
        if IN_PLACE:
            changed = at < COUNT
        if changed:
            x = registers(WORDS, 0)
            x[0:WORDS] = splice(LOAD_OPERAND, row, column)
            sums = registers(VECTOR, 0)
            sums[0:VECTOR] = splice(UNPACK_OPERAND, x[0:WORDS])
            while at < COUNT:
                numbers = registers(LOOKS, 0)
                own = i32(0)
                for i in unrolled(LOOKS):
                    source = i32(min(i32(at + i), i32(COUNT - 1)))
                    entry = load_u64(w + u64(ENTRIES_AT) + u64(i64(source) * 8))
                    numbers[i] = i32(u32(entry & u64(4294967295)))
                    if (i32(at + i) < COUNT) & (i32(entry >> u64(32)) == row):
                        own = i32(own + 1)
                if own == LOOKS:
                    u = registers(LOOKS * WORDS, 0)
                    for i in unrolled(LOOKS):
                        u[i * WORDS : (i + 1) * WORDS] = splice(
                            LOAD_UPDATE, i32(max(numbers[i], i32(0))), column
                        )
                    for i in unrolled(LOOKS):
                        if numbers[i] >= 0:
                            sums[0:VECTOR] = splice(COMBINED, sums[0:VECTOR], u[i * WORDS : (i + 1) * WORDS])
                    at = i32(at + LOOKS)
                else:
                    for i in unrolled(LOOKS - 1):
                        if i < own:
                            if numbers[i] >= 0:
                                x[0:WORDS] = splice(LOAD_UPDATE, numbers[i], column)
                                sums[0:VECTOR] = splice(COMBINED, sums[0:VECTOR], x[0:WORDS])
                    at = i32(COUNT)
            splice(STORE, row, column, sums[0:VECTOR])
