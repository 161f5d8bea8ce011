# pyright: basic, reportUndefinedVariable=false
"""The kernel that finds the largest element of each window. The snippets and constants come from `codegen.py`."""

from __future__ import annotations

from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def taps(operands: object):
    """As `short` of the pooling, with the number of an element beside each maximum.

    Elements come last to first, and one takes the place of another that is not larger: so the first of equal ones
    stays, and the first NaN. The lowest number takes the place of nothing at all, which is not larger either.

    Constants: those of `short`; NUMBERS: at each place which element of each window it is, -1 for none; NONE: of a
    window that finds nothing. Snippets: those of `short`, and REPLACES.
    """
    group = splice(NUMBER, i32(cuda.threadIdx.x))
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    if group < GROUPS:
        image, channel, deep, row, column = splice(PLACE, group)
        plane = splice(PLANE, image, channel)
        nothing = splice(NOTHING)
        largest = registers(PIXELS * REGISTERS, nothing)
        number = registers(PIXELS * REGISTERS, i32(NONE))
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
                    inside = splice(INSIDE, deep_in, row_in, columns_in[k])
                    for p in unrolled(PIXELS):
                        if NUMBERS[i][j][k][p] >= 0:
                            for r in unrolled(REGISTERS):
                                replaces = splice(REPLACES, taken[r], largest[p * REGISTERS + r])
                                if TESTED:
                                    replaces = replaces & inside
                                largest[p * REGISTERS + r] = cuda.selp(
                                    replaces, taken[r], largest[p * REGISTERS + r]
                                )
                                number[p * REGISTERS + r] = cuda.selp(
                                    replaces, i32(NUMBERS[i][j][k][p]), number[p * REGISTERS + r]
                                )
        result = splice(RESULT, image, channel, deep, row, column)
        for p in unrolled(PIXELS):
            splice(STORE, p, result)
