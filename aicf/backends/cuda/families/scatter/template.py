# pyright: basic, reportUndefinedVariable=false
# ruff: noqa: SIM102
"""Kernels that write at computed indices, and that find the places of the largest elements.

Integer atomics only, whose results do not depend on their order. The snippets and constants come from `codegen.py`.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def clear(operands: object):
    """Row after row -1. Constants: THREADS, ROWS; the snippet ROW_ADDRESS."""
    row = i32(i32(cuda.blockIdx.x) * THREADS + i32(cuda.threadIdx.x))
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    if row < ROWS:
        address = splice(ROW_ADDRESS, row)
        store_i32(address, i32(-1))


def note(operands: object):
    """The largest number of the indices that name a row. Constants: THREADS, COUNT, ROWS; INDEX, ROW_ADDRESS."""
    number = i32(i32(cuda.blockIdx.x) * THREADS + i32(cuda.threadIdx.x))
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    if number < COUNT:
        row = splice(INDEX, number)
        if row >= 0:
            address = splice(ROW_ADDRESS, row)
            atomic_max_i32(address, number)


def combine(operands: object):
    """A tile of BLOCK_ROWS rows and BLOCK_COLUMNS columns of the result, in shared memory while updates come in order.

    Every block looks at all COUNT indices, LOOKS of each thread at a time. A warp votes on which of its indices fall
    into the tile; each hit is combined by the threads that own its elements, always the same ones: GROUPS of threads
    share the rows.
    Snippets: SUMS, INDEX, OPERAND, UPDATE, COMBINED, STORE.
    """
    thread = i32(cuda.threadIdx.x)
    first_row = i32(i32(cuda.blockIdx.x) * BLOCK_ROWS)
    first_column = i32(i32(cuda.blockIdx.y) * BLOCK_COLUMNS)
    sums = splice(SUMS)
    hits = cuda.shared.array(LOOKS * THREADS, i32)
    votes = cuda.shared.array(LOOKS * (THREADS // 32), u32)
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    at = thread
    while at < BLOCK_ROWS * BLOCK_COLUMNS:
        row = i32(first_row + at // BLOCK_COLUMNS)
        column = i32(first_column + at % BLOCK_COLUMNS)
        if row < ROWS:
            if column < COLUMNS:
                value = splice(OPERAND, row, column)
                sums[at] = value
        at = i32(at + THREADS)
    cuda.syncthreads()
    group = i32(thread // (THREADS // GROUPS))
    lane = i32(thread % (THREADS // GROUPS))
    start = i32(0)
    while start < COUNT:
        named = registers(LOOKS, 0)
        for i in unrolled(LOOKS):
            named[i] = splice(INDEX, i32(min(i32(start + i * THREADS + thread), i32(COUNT - 1))))
        for i in unrolled(LOOKS):
            mine = (named[i] >= first_row) & (named[i] < first_row + BLOCK_ROWS)
            mine = mine & (i32(start + i * THREADS + thread) < COUNT)
            hits[i * THREADS + thread] = i32(named[i] - first_row)
            vote = cuda.ballot_sync(ALL_LANES, mine)
            if thread % 32 == 0:
                votes[i * (THREADS // 32) + thread // 32] = u32(vote)
        cuda.syncthreads()
        for warp in range(LOOKS * (THREADS // 32)):
            rest = u32(votes[warp])
            while rest != u32(0):
                hit = i32(warp * 32 + i32(cuda.ffs(rest)) - 1)
                rest = u32(rest & u32(rest - u32(1)))
                target = i32(hits[hit])
                if target % GROUPS == group:
                    at = lane
                    while at < BLOCK_COLUMNS:
                        if first_column + at < COLUMNS:
                            update = splice(UPDATE, i32(start + hit), i32(first_column + at))
                            element = i32(target * BLOCK_COLUMNS + at)
                            old = sums[element]
                            new = splice(COMBINED, old, update)
                            sums[element] = new
                        at = i32(at + THREADS // GROUPS)
        cuda.syncthreads()
        start = i32(start + LOOKS * THREADS)
    at = thread
    while at < BLOCK_ROWS * BLOCK_COLUMNS:
        row = i32(first_row + at // BLOCK_COLUMNS)
        column = i32(first_column + at % BLOCK_COLUMNS)
        if row < ROWS:
            if column < COLUMNS:
                value = sums[at]
                splice(STORE, row, column, value)
        at = i32(at + THREADS)


def topk(operands: object):
    """One row a block, or one of PARTS of it: the K largest by digits of 8 bits from the top, then (FINAL) their order.

    A *rank key* is the element's order in DIGITS bytes, then its place turned round in four more, so that no two are
    equal. Each pass counts the elements that agree with the digits known so far by their next digit, in a histogram,
    and finds the digit of the K-th. It ends as soon as all elements of a digit are taken; the later digits are zeros
    then, below all that agree. What is at least that key is collected, in any order: its rank among the collected is
    its place in the result.
    Without FINAL they stay in the workspace, from KEPT_AT on, and those of all parts of a row are the row of another
    launch.
    Snippets: SOURCE_ROW, RESULT_ROW, KEY, TURNED, STORE.
    """
    thread = i32(cuda.threadIdx.x)
    row = i32(cuda.blockIdx.x)
    part = i32(cuda.blockIdx.y)
    counts = cuda.shared.array(256, i32)
    found = cuda.shared.array(3, i32)
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    first = splice(SOURCE_ROW, row)
    kept = w + u64(KEPT_AT) + u64((i64(row) * PARTS + i64(part)) * (K * 16))
    begin = i32(i64(part) * SIZE // PARTS)
    end = i32((i64(part) + 1) * SIZE // PARTS)
    word = u64(0)
    known = u64(0)
    left = i32(K)
    open_ = True
    for half in unrolled(2):
        if half == 1:
            key_of_kth = word
            word = u64(0)
            known = u64(0)
        shift = i32(8 * ((DIGITS if half == 0 else 4) - 1))
        while open_ & (shift >= 0):
            counts[thread] = i32(0)
            cuda.syncthreads()
            at = i32(begin + thread)
            while at < end:
                keys = registers(UNROLL, 0)
                for i in unrolled(UNROLL):
                    keys[i] = splice(KEY, first, i32(min(i32(at + i * THREADS), i32(end - 1))))
                for i in unrolled(UNROLL):
                    here = i32(at + i * THREADS)
                    own = keys[i]
                    agrees = here < end
                    if half == 1:
                        agrees = agrees & (own == key_of_kth)
                        own = splice(TURNED, first, i32(min(here, i32(end - 1))))
                    if agrees & (u64(own & known) == word):
                        cuda.atomic.add(counts, i32(u64(own >> u64(shift)) & u64(255)), i32(1))
                at = i32(at + UNROLL * THREADS)
            cuda.syncthreads()
            own_count = i32(counts[thread])
            total = own_count
            for s in unrolled(8):
                step = 1 << s
                other = i32(0)
                if thread + step < 256:
                    other = i32(counts[thread + step])
                cuda.syncthreads()
                total = i32(total + other)
                counts[thread] = total
                cuda.syncthreads()
            if total >= left:
                if total - own_count < left:
                    found[0] = thread
                    found[1] = i32(left - (total - own_count))
                    found[2] = own_count
            cuda.syncthreads()
            word = u64(word | u64(u64(found[0]) << u64(shift)))
            known = u64(known | u64(u64(255) << u64(shift)))
            left = i32(found[1])
            open_ = left < i32(found[2])
            shift = i32(shift - 8)
            cuda.syncthreads()
    if thread == 0:
        found[0] = i32(0)
    cuda.syncthreads()
    at = i32(begin + thread)
    while at < end:
        key = splice(KEY, first, at)
        turned = splice(TURNED, first, at)
        if (key > key_of_kth) | ((key == key_of_kth) & (turned >= word)):
            slot = i32(cuda.atomic.add(found, 0, i32(1)))
            store_u64(kept + u64(slot * 16), key)
            store_u64(kept + u64(slot * 16 + 8), turned)
        at = i32(at + THREADS)
    cuda.syncthreads()
    if FINAL:
        target = splice(RESULT_ROW, row)
        at = thread
        while at < K:
            key = load_u64(kept + u64(at * 16))
            turned = load_u64(kept + u64(at * 16 + 8))
            rank = i32(0)
            for other in range(K):
                other_key = load_u64(kept + u64(i32(other) * 16))
                other_turned = load_u64(kept + u64(i32(other) * 16 + 8))
                if (other_key > key) | ((other_key == key) & (other_turned > turned)):
                    rank = i32(rank + 1)
            splice(STORE, target, rank, i64(u64(u64(4294967295) - turned)))
            at = i32(at + THREADS)
