# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportUnboundVariable=false, reportCallIssue=false, reportArgumentType=false, reportUndefinedVariable=false
# pyright: reportOptionalSubscript=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Sums of depthwise gradients: a thread has VECTOR channels and ROWS rows of their windows, and walks from item to
item.

`codegen.py` gives the constants: LANES threads with neighbouring channels, and ITEM_LANES with items of their own;
PIXELS of an item; ROW elements of a window in a row, of WINDOW_ROWS; PLACES, which elements of a row the windows of an
item have, and USES, for each of these and each pixel which element of its window that is, -1 for none; EACH stages of a
part, of ITEMS. Snippets: ITEM, ROW_OF, PLANE, ROW_AT, LOAD_GRAD, LOAD_X. In the name of an intrinsic, ELEMENT is the
element type of the sums.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.ptx import *
from aicf.backends.cuda.compiler.specializer import Snippet, part, registers, splice, unrolled


def add_row(row, rows_at):
    """Adds the products of one row of the windows of an item. All loads come first, to be under way together."""
    place = splice(ROW_AT, item, rows_at)
    for s in unrolled(len(PLACES)):
        column = i32(item[2] + PLACES[s])
        found[s * VECTOR : (s + 1) * VECTOR] = splice(
            LOAD_X, i64(x_channel + item[1] + place[0]), column, place[1] & (u32(column) < u32(COLUMNS))
        )
    for s in unrolled(len(PLACES)):
        for p in unrolled(PIXELS):
            if USES[s][p] >= 0:
                for v in unrolled(VECTOR):
                    sums[(row * ROW + USES[s][p]) * VECTOR + v] = cuda.fma(
                        found[s * VECTOR + v],
                        passed[p * VECTOR + v],
                        sums[(row * ROW + USES[s][p]) * VECTOR + v],
                    )


def depthwise_grad(grad, x, parts):
    """The sums of a part for LANES * VECTOR channels and ROWS rows of their windows."""
    thread = i32(cuda.threadIdx.x)
    lane = i32(remainder(u32(thread), LANES))
    first = i32(quotient(u32(thread), LANES))
    output = i32((i32(cuda.blockIdx.x) * LANES + lane) * VECTOR)
    first_row = i32(cuda.blockIdx.z) * ROWS
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    sums = registers(ROWS * ROW * VECTOR, ELEMENT(0))
    if output < OUTPUTS:
        taps = registers(ROWS * FACTS, i32(0))
        for row in unrolled(ROWS):
            taps[row * FACTS : (row + 1) * FACTS] = splice(ROW_OF, i32(first_row + row))
        grad_channel, x_channel = splice(PLANE, output)
        passed = registers(PIXELS * VECTOR, ELEMENT(0))
        found = registers(len(PLACES) * VECTOR, ELEMENT(0))
        start = i32(cuda.blockIdx.y) * (EACH * ITEM_LANES) + first
        for number in range(
            start, min(i32((i32(cuda.blockIdx.y) + 1) * (EACH * ITEM_LANES)), ITEMS), ITEM_LANES
        ):
            item = splice(ITEM, number)
            for p in unrolled(PIXELS):
                passed[p * VECTOR : (p + 1) * VECTOR] = splice(LOAD_GRAD, grad_channel, item[0], p, item[3])
            for row in unrolled(ROWS):
                splice(ADD_ROW, row, taps[row * FACTS : (row + 1) * FACTS])
    shared = cuda.shared.array(THREADS * ROWS * ROW * VECTOR, ELEMENT)
    for i in unrolled(ROWS * ROW * VECTOR):
        shared[thread * (ROWS * ROW * VECTOR) + i] = sums[i]
    cuda.syncthreads()
    for index in range(thread, LANES * ROWS * ROW * VECTOR, THREADS):
        own = i32(quotient(u32(index), ROWS * ROW * VECTOR))
        each = i32(remainder(u32(index), ROWS * ROW * VECTOR))
        total = shared[index]
        for other in range(1, ITEM_LANES):
            total = ELEMENT(total + shared[index + other * (LANES * ROWS * ROW * VECTOR)])
        tap = i32(quotient(u32(each), VECTOR))
        channel = i32((i32(cuda.blockIdx.x) * LANES + own) * VECTOR + remainder(u32(each), VECTOR))
        if channel < OUTPUTS and first_row * ROW + tap < WINDOW_ROWS * ROW:
            line = i64(i64(cuda.blockIdx.y) * OUTPUTS + channel) * (WINDOW_ROWS * ROW)
            splice(STORE, u64(parts + u64((line + first_row * ROW + tap) * SUM_BYTES)), total)


PARTS: dict[str, Snippet] = {"ADD_ROW": part(add_row)}
"""By the names that the template splices."""
