# pyright: basic, reportUndefinedVariable=false
"""Kernels of poolings. The snippets and constants come from `codegen.py`.

Places along the three dimensions of a window are called deep, row and column.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def short(operands: object):
    """Windows of few elements: a thread has REGISTERS for each of PIXELS results, and reads what their windows share
    once. Every address is written out, so that the loads of a thread are under way together.

    Constants: GROUPS, PIXELS, REGISTERS, TESTED; DEEPS, ROWS, COLUMNS: places from the start of the first window;
    DEEP_USES, ROW_USES, COLUMN_USES: whose windows have them. Snippets: NUMBER, PLACE, PLANE, DEEP, ROW, COLUMN,
    NOTHING, LOAD, INSIDE, COMBINED, RESULT, STORE.
    """
    number = splice(NUMBER, i32(cuda.threadIdx.x))
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    if number < GROUPS:
        image, channel, deep, row, column = splice(PLACE, number)
        plane = splice(PLANE, image, channel)
        nothing = splice(NOTHING)
        combined = registers(PIXELS * REGISTERS, nothing)
        taken = registers(REGISTERS, nothing)
        columns_at = registers(len(COLUMNS), i64(0))
        columns_in = registers(len(COLUMNS), True)
        for k in unrolled(len(COLUMNS)):
            columns_at[k], columns_in[k] = splice(COLUMN, column, COLUMNS[k])
        for i in unrolled(len(DEEPS)):
            deep_at, deep_in = splice(DEEP, deep, DEEPS[i])
            for j in unrolled(len(ROWS)):
                row_at, row_in = splice(ROW, row, ROWS[j])
                line = i64(plane + deep_at + row_at)
                for k in unrolled(len(COLUMNS)):
                    splice(LOAD, 0, i64(line + columns_at[k]))
                    if TESTED:
                        inside = splice(INSIDE, deep_in, row_in, columns_in[k])
                        for r in unrolled(REGISTERS):
                            taken[r] = cuda.selp(inside, taken[r], nothing)
                    for p in unrolled(PIXELS):
                        if DEEP_USES[i][p] and ROW_USES[j][p] and COLUMN_USES[k][p]:
                            for r in unrolled(REGISTERS):
                                combined[p * REGISTERS + r] = splice(
                                    COMBINED, combined[p * REGISTERS + r], taken[r]
                                )
        result = splice(RESULT, image, channel, deep, row, column)
        for p in unrolled(PIXELS):
            splice(STORE, p, result, deep, row, column)


def long(operands: object):
    """Windows of many elements: LANES threads share one, each takes every LANES-th element, TOGETHER of them at a time,
    and they come together by halves in shared memory. Threads past the last window read the last one and store nothing.

    Constants: GROUPS, TAPS, LANES, LEVELS, APART (threads between two of a window), TOGETHER, REGISTERS.
    Snippets: SHARED_BY, SHARED, EXISTING, TAP, and those of `short`.
    """
    thread = i32(cuda.threadIdx.x)
    slot, lane = splice(SHARED_BY, thread)
    number = splice(NUMBER, slot)
    parts = splice(SHARED)
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    group = splice(EXISTING, number)
    image, channel, deep, row, column = splice(PLACE, group)
    plane = splice(PLANE, image, channel)
    nothing = splice(NOTHING)
    combined = registers(REGISTERS, nothing)
    tap = lane
    while tap < TAPS:
        taken = registers(TOGETHER * REGISTERS, nothing)
        insides = registers(TOGETHER, True)
        for i in unrolled(TOGETHER):
            near = i32(min(i32(tap + i * LANES), i32(TAPS - 1)))
            deep_place, row_place, column_place = splice(TAP, near)
            deep_at, deep_in = splice(DEEP, deep, deep_place)
            row_at, row_in = splice(ROW, row, row_place)
            column_at, column_in = splice(COLUMN, column, column_place)
            insides[i] = splice(INSIDE, deep_in, row_in, column_in)
            splice(LOAD, i, i64(plane + deep_at + row_at + column_at))
        for i in unrolled(TOGETHER):
            counts = insides[i] & (i32(tap + i * LANES) < TAPS)
            for r in unrolled(REGISTERS):
                value = cuda.selp(counts, taken[i * REGISTERS + r], nothing)
                combined[r] = splice(COMBINED, combined[r], value)
        tap = i32(tap + TOGETHER * LANES)
    for r in unrolled(REGISTERS):
        parts[r * THREADS + thread] = combined[r]
    cuda.syncthreads()
    for level in unrolled(LEVELS):
        step = LANES >> (level + 1)
        if lane < step:
            for r in unrolled(REGISTERS):
                other = parts[r * THREADS + thread + step * APART]
                combined[r] = splice(COMBINED, combined[r], other)
                parts[r * THREADS + thread] = combined[r]
        cuda.syncthreads()
    if (lane == 0) & (number < GROUPS):
        result = splice(RESULT, image, channel, deep, row, column)
        splice(STORE, 0, result, deep, row, column)
