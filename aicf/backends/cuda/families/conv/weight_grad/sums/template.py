# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportUnboundVariable=false, reportCallIssue=false, reportArgumentType=false, reportUndefinedVariable=false
# pyright: reportOptionalSubscript=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Adds the parts of a gradient: a thread has VECTOR neighbouring columns and RUN parts in a row, which it adds in
ascending order; then the sums of the SHARERS threads of a vector are added in ascending order.

`codegen.py` gives the constants: LINES of COLUMNS sums in each of PARTS parts; VECTORS of a block; SHIFT, the bits of
an element in its chunk of columns; COLUMN, from the number of a chunk to its offset in a line of the result, in bytes,
and how many elements of the result it holds; ELEMENT_STEP, bytes from one of these to the next. ELEMENT is the type of
the sums.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.ptx import *
from aicf.backends.cuda.compiler.specializer import Snippet, part, registers, splice, unrolled


def add_run():
    """Adds the parts of a thread, AT_ONCE of them under way at a time."""
    count = i32(min(i32(RUN), i32(PARTS) - share * RUN))
    at = u64(parts + u64(i64(index) * (VECTOR * SUM_BYTES) + i64(share) * (RUN * PART_BYTES)))
    for _ in range(count // AT_ONCE):
        for each in unrolled(AT_ONCE):
            splice(LOAD, at, each)
        for each in unrolled(AT_ONCE):
            for lane in unrolled(VECTOR):
                sums[lane] = ELEMENT(sums[lane] + added[each * VECTOR + lane])
        at = u64(at + u64(AT_ONCE * PART_BYTES))
    left = i32(count % AT_ONCE)
    for each in unrolled(AT_ONCE - 1):
        if each < left:
            splice(LOAD, at, each)
    for each in unrolled(AT_ONCE - 1):
        if each < left:
            for lane in unrolled(VECTOR):
                sums[lane] = ELEMENT(sums[lane] + added[each * VECTOR + lane])


def finish_vector():
    """Stores a vector of columns of a line of the result."""
    line = i32(quotient(u32(index), COLUMNS // VECTOR))
    column = i32(remainder(u32(index), COLUMNS // VECTOR)) * VECTOR
    place = splice(COLUMN, i32(column >> SHIFT))
    first = i32(column & ((1 << SHIFT) - 1))
    start = u64(result + u64(i64(line) * LINE_BYTES + i64(place[0]) + i64(first) * ELEMENT_STEP))
    for lane in unrolled(VECTOR):
        if first + lane < place[1]:
            splice(STORE, u64(start + u64(lane * ELEMENT_STEP)), sums[lane])


def add_parts(parts, result):
    """Some vectors of all columns."""
    thread = i32(cuda.threadIdx.x)
    share = i32(quotient(u32(thread), VECTORS))
    own = i32(remainder(u32(thread), VECTORS))
    index = i32(i32(cuda.blockIdx.x) * VECTORS + own)
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    sums = registers(VECTOR, ELEMENT(0))
    added = registers(AT_ONCE * VECTOR, ELEMENT(0))
    if index < LINES * (COLUMNS // VECTOR) and share * RUN < PARTS:
        splice(ADD_RUN)
    if SHARERS > 1:
        shared = cuda.shared.array(THREADS * VECTOR, ELEMENT)
        for lane in unrolled(VECTOR):
            shared[thread * VECTOR + lane] = sums[lane]
        cuda.syncthreads()
        for other in range(1, SHARERS):
            for lane in unrolled(VECTOR):
                sums[lane] = ELEMENT(sums[lane] + shared[(other * VECTORS + own) * VECTOR + lane])
    if index < LINES * (COLUMNS // VECTOR) and share == 0:
        splice(FINISH_VECTOR)


SNIPPETS: dict[str, Snippet] = {"ADD_RUN": part(add_run), "FINISH_VECTOR": part(finish_vector)}
"""By the names that the template splices."""
