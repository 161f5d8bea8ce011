# pyright: basic, reportUndefinedVariable=false
"""The kernel of gradients of poolings. The snippets and constants come from `codegen.py`.

Places along the three dimensions are called deep, row and column.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def gather(operands: object):
    """One cell of the operand, for VECTOR channels: CELL elements, which the same windows reach.

    Constants: GROUPS, VECTOR, CELL; DEEPS, ROWS, COLUMNS: which windows reach a cell, counted from its own number;
    NUMBERS: for each of them which of its elements each element of the cell is, -1 for none; TESTED: whether some of
    them are no windows; ENDS: whether a cell may reach beyond the operand. Snippets: NUMBER, PLACE, ZERO, TAPS_PLANE,
    GRAD_PLANE, DEEP, ROW, COLUMN, LOAD_TAPS, LOAD_GRAD, RESULT, IS_THERE, STORE.
    """
    number = splice(NUMBER, i32(cuda.threadIdx.x))
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    if number < GROUPS:
        image, channel, deep, row, column = splice(PLACE, number)
        taps_plane = splice(TAPS_PLANE, image, channel)
        grad_plane = splice(GRAD_PLANE, image, channel)
        zero = splice(ZERO)
        total = registers(CELL * VECTOR, zero)
        found = registers(VECTOR, i32(-1))
        part = registers(VECTOR, zero)
        columns_at = registers(2 * len(COLUMNS), i64(0))
        columns_in = registers(len(COLUMNS), True)
        for k in unrolled(len(COLUMNS)):
            columns_at[2 * k], columns_at[2 * k + 1], columns_in[k] = splice(COLUMN, column, COLUMNS[k])
        for i in unrolled(len(DEEPS)):
            taps_deep, grad_deep, deep_in = splice(DEEP, deep, DEEPS[i])
            for j in unrolled(len(ROWS)):
                taps_row, grad_row, row_in = splice(ROW, row, ROWS[j])
                taps_line = i64(taps_plane + taps_deep + taps_row)
                grad_line = i64(grad_plane + grad_deep + grad_row)
                for k in unrolled(len(COLUMNS)):
                    splice(LOAD_TAPS, i64(taps_line + columns_at[2 * k]))
                    splice(LOAD_GRAD, i64(grad_line + columns_at[2 * k + 1]))
                    if TESTED:
                        inside = deep_in & row_in & columns_in[k]
                        for r in unrolled(VECTOR):
                            part[r] = cuda.selp(inside, part[r], zero)
                    for c in unrolled(CELL):
                        if NUMBERS[i][j][k][c] >= 0:
                            for r in unrolled(VECTOR):
                                term = cuda.selp(found[r] == NUMBERS[i][j][k][c], part[r], zero)
                                total[c * VECTOR + r] = total[c * VECTOR + r] + term
        first = splice(RESULT, image, channel, deep, row, column)
        for c in unrolled(CELL):
            if ENDS:
                is_there = splice(IS_THERE, c, deep, row, column)
                if is_there:
                    splice(STORE, c, first)
            else:
                splice(STORE, c, first)
