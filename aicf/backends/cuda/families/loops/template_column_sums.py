# pyright: basic, reportUndefinedVariable=false
# ruff: noqa: SIM102
"""Rows held in registers by blocks that walk over them, with what each thread has of the sums of its columns.

The snippets are those of `SumCode` in `column_sums.py`, the names those of `template_rows.py`. SUMS are the registers
that the sums of one cell take, PARTS the blocks that walk (the record's `splits`), COLUMNS the columns that a block of
`combine` has.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def walk(operands: object):
    """A block has THREADS // LANES rows at once, the next ones PARTS times as far on, and writes one part. While it
    computes with rows, the next ones are on their way.

    At its end it adds up, vector by vector, what its rows have of each column: in shared memory, ascending.
    """
    thread = index(cuda.threadIdx.x)
    lane = index(thread % LANES)
    own = index(thread // LANES)
    part = index(cuda.blockIdx.x)
    board = registers(BOARDS, 0)
    board[0:BOARDS] = splice(BOARD)
    sums = registers(CHUNKS * SUMS, 0)
    for c in unrolled(CHUNKS):
        sums[c * SUMS : (c + 1) * SUMS] = splice(SUM_START)
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    first = index(part * (THREADS // LANES))
    ahead = registers(CHUNKS * WORDS, 0)
    known_ahead = registers(KNOWN_INPUTS, 0)
    row = index(min(index(first + own), index(POINTS - 1)))
    for c in unrolled(CHUNKS):
        at = index((c * LANES + lane) * VECTOR)
        if (c + 1) * LANES * VECTOR > REDUCE:
            at = index(min(at, index(REDUCE - VECTOR)))
        ahead[c * WORDS : (c + 1) * WORDS] = splice(LOAD, row, at)
    known_ahead[0:KNOWN_INPUTS] = splice(LOAD_POINT, row, index(0))
    while first < POINTS:  # alike for all threads of a block, which meet at barriers
        row = index(first + own)
        inside = True
        if POINTS % (THREADS // LANES):
            inside = row < POINTS
            row = index(min(row, index(POINTS - 1)))
        x = registers(CHUNKS * CELL, 0)
        known = registers(KNOWN, 0)
        for c in unrolled(CHUNKS):
            for i in unrolled(WORDS):
                x[c * CELL + i] = ahead[c * WORDS + i]
        for i in unrolled(KNOWN_INPUTS):
            known[i] = known_ahead[i]
        first = index(first + PARTS * (THREADS // LANES))
        following = index(min(index(first + own), index(POINTS - 1)))
        for c in unrolled(CHUNKS):
            at = index((c * LANES + lane) * VECTOR)
            if (c + 1) * LANES * VECTOR > REDUCE:
                at = index(min(at, index(REDUCE - VECTOR)))
            ahead[c * WORDS : (c + 1) * WORDS] = splice(LOAD, following, at)
        known_ahead[0:KNOWN_INPUTS] = splice(LOAD_POINT, following, index(0))
        for k in unrolled(PHASES):
            if POINT_STORES[k]:
                if lane == 0:
                    if inside:
                        splice(POINT_STORE[k], known[0:KNOWN], row)
            if SWEEPS[k]:
                before = registers(BEFORES[k], 0)
                before[0 : BEFORES[k]] = splice(BEFORE[k], known[0:KNOWN])
                total = registers(TOTALS[k], 0)
                total[0 : TOTALS[k]] = splice(START[k])
                for c in unrolled(CHUNKS):
                    at = index((c * LANES + lane) * VECTOR)
                    valid = True
                    if (c + 1) * LANES * VECTOR > REDUCE:
                        valid = at < REDUCE
                        at = index(min(at, index(REDUCE - VECTOR)))
                    (
                        total[0 : TOTALS[k]],
                        x[c * CELL + KEPT_AT[k] : c * CELL + KEPT_AT[k] + KEPT[k]],
                        sums[c * SUMS : (c + 1) * SUMS],
                    ) = splice(
                        SWEEP[k],
                        row,
                        at,
                        valid,
                        inside,
                        x[c * CELL : (c + 1) * CELL],
                        before[0 : BEFORES[k]],
                        total[0 : TOTALS[k]],
                        sums[c * SUMS : (c + 1) * SUMS],
                    )
                if REDUCTIONS[k]:
                    known[KNOWN_AT[k] : KNOWN_AT[k + 1]] = splice(COMBINE[k], total[0 : TOTALS[k]], thread)
        if LANES > 32:  # the next row's totals go where this one's are read
            cuda.syncthreads()
    for c in unrolled(CHUNKS):
        splice(PUT, board[0:BOARDS], thread, sums[c * SUMS : (c + 1) * SUMS])
        cuda.syncthreads()
        column = thread
        while column < LANES * VECTOR:
            if c * LANES * VECTOR + column < REDUCE:
                splice(WRITE, board[0:BOARDS], column, index(c * LANES * VECTOR + column), part)
            column = index(column + THREADS)
        if c + 1 < CHUNKS:
            cuda.syncthreads()


def combine(operands: object):
    """The parts of COLUMNS columns of one sum: each thread adds up those THREADS // COLUMNS apart, a few on their way
    together, then one thread of each column what these have."""
    thread = index(cuda.threadIdx.x)
    which = index(index(cuda.blockIdx.x) // GROUPS)
    column = index(index(cuda.blockIdx.x) % GROUPS * COLUMNS + thread % COLUMNS)
    inside = column < REDUCE
    column = index(min(column, index(REDUCE - 1)))
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    for s in unrolled(BOARDS):
        if which == s:
            total = registers(1, 0)
            total[0] = splice(FIRST[s])
            part = index(thread // COLUMNS)
            while part < PARTS:
                y = registers(TOGETHER, 0)
                for i in unrolled(TOGETHER):
                    other = index(part + i * (THREADS // COLUMNS))
                    y[i] = splice(READ[s], column, index(min(other, index(PARTS - 1))))
                for i in unrolled(TOGETHER):
                    other = index(part + i * (THREADS // COLUMNS))
                    total[0] = splice(ADD[s], total[0], y[i], other < PARTS)
                part = index(part + TOGETHER * (THREADS // COLUMNS))
            splice(FINISH[s], thread, column, inside, total[0])
