# pyright: basic, reportUndefinedVariable=false
"""Prefix sums: rows scanned by warps and blocks, tile by tile, and columns by the threads that own them.

The snippets are those of `scan_code.ScanCode`; SCANS is how many scans there are. A *part* is the share of a row or
column that one block (grid dim y, SPLITS of them) visits: SPAN elements. What the parts before it give is added up from
the workspace (READ) in a fixed order. With CHAIN a part is one tile, and blocks tell each other: see `rows`. With
REVERSE all ways lead from the end to the start. Cells are loaded VECTOR elements at once, UNROLL of a thread together;
those past the end of a part are computed on the last one and count for nothing.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def rows(operands: object):
    """LANES threads a row. A tile of it is cut among their warps (GROUP threads each), and that into UNROLL rounds.

    A round is a vector for each thread: scanned by the thread, then over the warp. Rounds of a warp are joined one
    after the other, then the WARPS of the row, then the tiles.

    With CHAIN each tile has a block, which tells what its tile gives (TELL), waits for what the tiles before it in
    their group of THREADS give and for what all groups before that give (ASK), and tells the latter on if it is the
    last of its group. The row is read once, and whatever the timing, the same values are joined in the same order.
    Blocks start in the order of their numbers, so that those waited for are under way.
    """
    thread = index(cuda.threadIdx.x)
    lane = index(thread % LANES)
    warp = index(lane // GROUP)
    row = index(index(cuda.blockIdx.x) * (THREADS // LANES) + index(thread // LANES))
    part = index(cuda.blockIdx.y)
    if CHAIN and REVERSE:
        part = index(SPLITS - 1 - part)
    inside = True
    if POINTS % (THREADS // LANES):
        inside = row < POINTS
        row = index(min(row, index(POINTS - 1)))
    begin = index(part * SPAN)
    end = index(min(index(begin + SPAN), index(REDUCE)))
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    known = registers(KNOWN, 0)
    known[0:KNOWN_INPUTS] = splice(LOAD_POINT, row, index(0))
    before = registers(BEFORES, 0)
    before[0:BEFORES] = splice(BEFORE, known[0:KNOWN])
    carry = registers(SCANS, 0)
    carry[0:SCANS] = splice(START)
    if SPLITS > 1 and not CHAIN:
        earlier = index(SPLITS - 1 - part) if REVERSE else part
        other = lane
        while other < earlier:
            found = registers(SCANS, 0)
            found[0:SCANS] = splice(READ, row, index(SPLITS - 1 - other) if REVERSE else other)
            carry[0:SCANS] = splice(ADD, carry[0:SCANS], found[0:SCANS], other, True)
            other = index(other + LANES)
        carry[0:SCANS] = splice(COMBINE, carry[0:SCANS], thread)
    board = registers(SCANS, 0)
    if WARPS > 1:
        board[0:SCANS] = splice(BOARD)
        turn = index(0)
    length = index(end - begin)
    first = index(warp * (GROUP * VECTOR * UNROLL) + index(lane % GROUP) * VECTOR)
    tile = index(0)
    while tile < length:
        x = registers(UNROLL * WORDS, 0)
        for i in unrolled(UNROLL):
            ahead_of = index(tile + first + i * (GROUP * VECTOR))
            if SPAN % (LANES * VECTOR * UNROLL) or REDUCE % SPAN:
                ahead_of = index(min(ahead_of, index(length - VECTOR)))
            here = index(end - VECTOR - ahead_of) if REVERSE else index(begin + ahead_of)
            x[i * WORDS : (i + 1) * WORDS] = splice(LOAD, row, here)
        prefix = registers(UNROLL * SCANS * VECTOR, 0)
        upto = registers(UNROLL * SCANS, 0)
        for i in unrolled(UNROLL):
            ahead_of = index(tile + first + i * (GROUP * VECTOR))
            valid = True
            if SPAN % (LANES * VECTOR * UNROLL) or REDUCE % SPAN:
                valid = ahead_of < length
                ahead_of = index(min(ahead_of, index(length - VECTOR)))
            here = index(end - VECTOR - ahead_of) if REVERSE else index(begin + ahead_of)
            prefix[i * SCANS * VECTOR : (i + 1) * SCANS * VECTOR] = splice(
                PREFIX, row, here, valid, x[i * WORDS : (i + 1) * WORDS], before[0:BEFORES]
            )
            upto[i * SCANS : (i + 1) * SCANS] = splice(
                UP_TO, prefix[i * SCANS * VECTOR : (i + 1) * SCANS * VECTOR], thread
            )
        ahead = registers(UNROLL * SCANS, 0)
        running = registers(SCANS, 0)
        running[0:SCANS] = splice(START)
        own = registers(SCANS, 0)
        for i in unrolled(UNROLL):
            own[0:SCANS] = splice(AHEAD, upto[i * SCANS : (i + 1) * SCANS], thread)
            ahead[i * SCANS : (i + 1) * SCANS] = splice(JOIN, running[0:SCANS], own[0:SCANS])
            own[0:SCANS] = splice(WHOLE, upto[i * SCANS : (i + 1) * SCANS], thread)
            running[0:SCANS] = splice(JOIN, running[0:SCANS], own[0:SCANS])
        mine = registers(SCANS, 0)
        for s in unrolled(SCANS):
            mine[s] = carry[s]
        if WARPS > 1:
            if thread % 32 == 0:
                splice(PUT, board[0:SCANS], index(turn + warp), running[0:SCANS])
            cuda.syncthreads()
            for w in unrolled(WARPS):
                if warp == w:
                    for s in unrolled(SCANS):
                        mine[s] = carry[s]
                own[0:SCANS] = splice(GET, board[0:SCANS], index(turn + w))
                carry[0:SCANS] = splice(JOIN, carry[0:SCANS], own[0:SCANS])
            turn = index(WARPS - turn)
        else:
            carry[0:SCANS] = splice(JOIN, carry[0:SCANS], running[0:SCANS])
        if CHAIN:
            step = index(SPLITS - 1 - part) if REVERSE else part
            group = index(step // THREADS)
            if thread == 0:
                splice(TELL, row, step, carry[0:SCANS])
            own[0:SCANS] = splice(START)
            if group * THREADS + thread < step:
                own[0:SCANS] = splice(ASK, row, index(group * THREADS + thread))
            own[0:SCANS] = splice(COMBINE, own[0:SCANS], thread)
            if group > 0:
                before_group = registers(SCANS, 0)
                before_group[0:SCANS] = splice(ASK, row, index(SPLITS + group - 1))
                own[0:SCANS] = splice(JOIN, before_group[0:SCANS], own[0:SCANS])
            mine[0:SCANS] = splice(JOIN, own[0:SCANS], mine[0:SCANS])
            if thread == 0 and step % THREADS == THREADS - 1:
                own[0:SCANS] = splice(JOIN, own[0:SCANS], carry[0:SCANS])
                splice(TELL, row, index(SPLITS + group), own[0:SCANS])
        for i in unrolled(UNROLL):
            ahead_of = index(tile + first + i * (GROUP * VECTOR))
            valid = True
            if SPAN % (LANES * VECTOR * UNROLL) or REDUCE % SPAN:
                valid = ahead_of < length
                ahead_of = index(min(ahead_of, index(length - VECTOR)))
            here = index(end - VECTOR - ahead_of) if REVERSE else index(begin + ahead_of)
            own[0:SCANS] = splice(JOIN, mine[0:SCANS], ahead[i * SCANS : (i + 1) * SCANS])
            splice(
                FINISH,
                row,
                here,
                valid,
                inside,
                x[i * WORDS : (i + 1) * WORDS],
                before[0:BEFORES],
                prefix[i * SCANS * VECTOR : (i + 1) * SCANS * VECTOR],
                own[0:SCANS],
            )
        tile = index(tile + LANES * VECTOR * UNROLL)


def columns(operands: object):
    """A thread has VECTOR neighbouring points and walks their part of the scanned dim."""
    point = index(index(cuda.blockIdx.x) * THREADS + index(cuda.threadIdx.x))
    part = index(cuda.blockIdx.y)
    inside = True
    if POINT_VECTORS % THREADS:
        inside = point < POINT_VECTORS
        point = index(min(point, index(POINT_VECTORS - 1)))
    point = index(point * VECTOR)
    begin = index(part * SPAN)
    end = index(min(index(begin + SPAN), index(REDUCE)))
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    known = registers(KNOWN, 0)
    known[0:KNOWN_INPUTS] = splice(LOAD_POINT, point, index(0))
    before = registers(BEFORES, 0)
    before[0:BEFORES] = splice(BEFORE, known[0:KNOWN])
    total = registers(SCANS * VECTOR, 0)
    total[0 : SCANS * VECTOR] = splice(START)
    if SPLITS > 1:
        earlier = index(SPLITS - 1 - part) if REVERSE else part
        other = index(0)
        while other < earlier:
            found = registers(SCANS * VECTOR, 0)
            found[0 : SCANS * VECTOR] = splice(READ, point, index(SPLITS - 1 - other) if REVERSE else other)
            total[0 : SCANS * VECTOR] = splice(
                ADD, total[0 : SCANS * VECTOR], found[0 : SCANS * VECTOR], other, True
            )
            other = index(other + 1)
    length = index(end - begin)
    at = index(0)
    while at < length:
        x = registers(UNROLL * WORDS, 0)
        for i in unrolled(UNROLL):
            ahead_of = index(at + i)
            if SPAN % UNROLL or REDUCE % SPAN:
                ahead_of = index(min(ahead_of, index(length - 1)))
            here = index(end - 1 - ahead_of) if REVERSE else index(begin + ahead_of)
            x[i * WORDS : (i + 1) * WORDS] = splice(LOAD, point, here)
        for i in unrolled(UNROLL):
            ahead_of = index(at + i)
            valid = True
            if SPAN % UNROLL or REDUCE % SPAN:
                valid = ahead_of < length
                ahead_of = index(min(ahead_of, index(length - 1)))
            here = index(end - 1 - ahead_of) if REVERSE else index(begin + ahead_of)
            total[0 : SCANS * VECTOR] = splice(
                STEP,
                point,
                here,
                valid,
                inside,
                x[i * WORDS : (i + 1) * WORDS],
                before[0:BEFORES],
                total[0 : SCANS * VECTOR],
            )
        at = index(at + UNROLL)


def clear(operands: object):
    """Clears what blocks published in an earlier launch: WORDS words of the workspace."""
    at = index(index(cuda.blockIdx.x) * THREADS + index(cuda.threadIdx.x))
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    if at < WORDS:
        publish_u64(w + u64(at) * u64(8), u64(0))
