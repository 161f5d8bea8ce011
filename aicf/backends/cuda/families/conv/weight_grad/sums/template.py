# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportUnboundVariable=false, reportCallIssue=false, reportArgumentType=false, reportUndefinedVariable=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Adds the parts of a gradient: a thread has VECTOR neighbouring columns, and adds their parts in ascending order.

`codegen.py` gives the constants: LINES of COLUMNS sums in each of PARTS parts; SHIFT, the bits of an element in its
chunk of columns; COLUMN, from the number of a chunk to its offset in a line of the result, in bytes, and how many
elements of the result it holds; ELEMENT_STEP, bytes from one of these to the next. ELEMENT is the type of the sums.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.ptx import *
from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def add_parts(parts, result):
    """One vector of columns of a line."""
    index = i32(i32(cuda.blockIdx.x) * THREADS + i32(cuda.threadIdx.x))
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    if index < LINES * (COLUMNS // VECTOR):
        line = i32(quotient(u32(index), COLUMNS // VECTOR))
        column = i32(remainder(u32(index), COLUMNS // VECTOR)) * VECTOR
        at = u64(parts + u64(i64(index) * (VECTOR * SUM_BYTES)))
        sums = registers(VECTOR, ELEMENT(0))
        added = registers(AT_ONCE * VECTOR, ELEMENT(0))
        for _ in range(PARTS // AT_ONCE):
            for each in unrolled(AT_ONCE):
                splice(LOAD, each)
            for each in unrolled(AT_ONCE):
                for lane in unrolled(VECTOR):
                    sums[lane] = ELEMENT(sums[lane] + added[each * VECTOR + lane])
            at = u64(at + u64(AT_ONCE * PART_BYTES))
        for each in unrolled(PARTS % AT_ONCE):
            splice(LOAD, each)
        for each in unrolled(PARTS % AT_ONCE):
            for lane in unrolled(VECTOR):
                sums[lane] = ELEMENT(sums[lane] + added[each * VECTOR + lane])
        place = splice(COLUMN, i32(column >> SHIFT))
        first = i32(column & ((1 << SHIFT) - 1))
        start = u64(result + u64(i64(line) * LINE_BYTES + i64(place[0]) + i64(first) * ELEMENT_STEP))
        for lane in unrolled(VECTOR):
            if first + lane < place[1]:
                splice(STORE, u64(start + u64(lane * ELEMENT_STEP)), sums[lane])
