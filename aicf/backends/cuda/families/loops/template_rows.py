# pyright: basic, reportUndefinedVariable=false
# ruff: noqa: SIM102
"""Reductions: rows held in registers, and sweeps over rows or columns of any length.

The snippets are those of `PhaseCode` in `phases.py`, by phase in tuples; KNOWN, TOTALS, BEFORES, KEPT and CELL are
their register counts, KNOWN_AT, KNOWN_TO, KEPT_AT where results of a phase lie. A *row* is one point of the parallel
space with its reduce space of REDUCE elements; LANES threads share it, VECTOR elements a step. In a sweep over columns
a thread has VECTOR neighbouring points, and LANES threads share the reduce space. Threads past the last row or cell
work on the last one and store nothing, so that all meet at the barriers.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def resident(operands: object):
    """Rows in registers: all elements are loaded at once, and every phase works on them where they are. The blocks of a
    cluster share a row of SPAN elements each: they tell each other their totals."""
    thread = index(cuda.threadIdx.x)
    lane = index(thread % LANES)
    row = index(index(cuda.blockIdx.x) * (THREADS // LANES) + index(thread // LANES))
    inside = True
    if POINTS % (THREADS // LANES):
        inside = row < POINTS
        row = index(min(row, index(POINTS - 1)))
    part = index(0)
    if CLUSTER > 1:
        part = index(cuda.blockIdx.y)
    if CLUSTER > 1:
        heard = shared_base(cuda.shared.array(PHASES, u64))
        if thread == 0:
            for k in unrolled(PHASES):
                if REDUCTIONS[k]:
                    barrier_init(u32(heard + 8 * k), u32(1))
            fence_barrier_init()
        cluster_arrive_relaxed()
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    if CLUSTER > 1:  # whom a block tells something has begun
        cluster_wait()
        if thread == 0:  # it may hear the first already: a barrier waits for this arrival too
            for k in unrolled(PHASES):
                if REDUCTIONS[k]:
                    barrier_expect(u32(heard + 8 * k), u32(EXCHANGED_BYTES[k]))
    x = registers(CHUNKS * CELL, 0)
    for c in unrolled(CHUNKS):
        at = index((c * LANES + lane) * VECTOR)
        if CLUSTER > 1:
            at = index(at + part * SPAN)
        if (CLUSTER - 1) * SPAN + (c + 1) * LANES * VECTOR > REDUCE:
            at = index(min(at, index(REDUCE - VECTOR)))
        x[c * CELL : c * CELL + WORDS] = splice(LOAD, row, at)
    known = registers(KNOWN, 0)
    known[0:KNOWN_INPUTS] = splice(LOAD_POINT, row, index(0))
    for k in unrolled(PHASES):
        if POINT_STORES[k]:
            if lane == 0:
                if inside:
                    if CLUSTER == 1 or part == 0:
                        splice(POINT_STORE[k], known[0:KNOWN], row)
        if SWEEPS[k]:
            before = registers(BEFORES[k], 0)
            before[0 : BEFORES[k]] = splice(BEFORE[k], known[0:KNOWN])
            total = registers(TOTALS[k], 0)
            total[0 : TOTALS[k]] = splice(START[k])
            for c in unrolled(CHUNKS):
                at = index((c * LANES + lane) * VECTOR)
                if CLUSTER > 1:
                    at = index(at + part * SPAN)
                valid = True
                if (CLUSTER - 1) * SPAN + (c + 1) * LANES * VECTOR > REDUCE:
                    valid = at < REDUCE
                    at = index(min(at, index(REDUCE - VECTOR)))
                total[0 : TOTALS[k]], x[c * CELL + KEPT_AT[k] : c * CELL + KEPT_AT[k] + KEPT[k]] = splice(
                    SWEEP[k],
                    row,
                    at,
                    valid,
                    inside,
                    x[c * CELL : (c + 1) * CELL],
                    before[0 : BEFORES[k]],
                    total[0 : TOTALS[k]],
                )
            if REDUCTIONS[k]:
                known[KNOWN_AT[k] : KNOWN_AT[k + 1]] = splice(COMBINE[k], total[0 : TOTALS[k]], thread)


def sweep(operands: object):
    """Phases FIRST to LAST, each a loop over the row: `splits` blocks share one, if there is one phase in a launch.
    With ENDS the loops are over the whole vectors of a row; its other elements come after them, one to a thread.

    The totals of earlier launches are combined from what their parts left in the workspace, those of TOGETHER parts on
    their way at once. The blocks of a cluster share columns in all phases: they tell each other their totals. BACKWARDS
    phases walk over a column from its end: what the phase before has read last is still in L2.
    """
    thread = index(cuda.threadIdx.x)
    lane = index(thread // (THREADS // LANES) if COLUMNS else thread % LANES)
    own = index(thread % (THREADS // LANES) if COLUMNS else thread // LANES)
    point = index(index(cuda.blockIdx.x) * (THREADS // LANES) + own)
    part = index(cuda.blockIdx.y)
    inside = True
    if POINT_VECTORS % (THREADS // LANES):
        inside = point < POINT_VECTORS
        point = index(min(point, index(POINT_VECTORS - 1)))
    point = index(point * POINT_VECTOR)
    begin = index(part * SPAN)
    end = index(min(index(begin + SPAN), index(REDUCE)))
    if ENDS:
        head = splice(HEAD, point)
        whole = index((index(REDUCE) - head) // index(REDUCE_VECTOR) * index(REDUCE_VECTOR))
        end = index(head + min(index(begin + SPAN), whole))
        begin = index(begin + head)
    if CLUSTER > 1:
        heard = shared_base(cuda.shared.array(PHASES, u64))
        if thread == 0:
            for k in unrolled(PHASES):
                if REDUCTIONS[k]:
                    barrier_init(u32(heard + 8 * k), u32(1))
            fence_barrier_init()
        cluster_arrive_relaxed()
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    if CLUSTER > 1:  # whom a block tells something has begun
        cluster_wait()
        if thread == 0:  # it may hear the first already: a barrier waits for this arrival too
            for k in unrolled(PHASES):
                if REDUCTIONS[k]:
                    barrier_expect(u32(heard + 8 * k), u32(EXCHANGED_BYTES[k]))
    known = registers(KNOWN, 0)
    known[0:KNOWN_INPUTS] = splice(LOAD_POINT, point, index(0))
    for k in unrolled(FIRST):
        if REDUCTIONS[k]:
            total = registers(TOTALS[k], 0)
            total[0 : TOTALS[k]] = splice(START[k])
            if FIRST_AT[k] < TOTALS[k]:
                before = registers(BEFORES[k], 0)
                before[0 : BEFORES[k]] = splice(BEFORE[k], known[0:KNOWN])
                x = registers(WORDS, 0)
                x[0:WORDS] = splice(LOAD, point, index(0))
                total[FIRST_AT[k] : TOTALS[k]] = splice(
                    FROM_FIRST[k], point, index(0), x[0:WORDS], before[0 : BEFORES[k]]
                )
            first = lane
            while first < SPLITS:
                found = registers(TOGETHER * PARTIALS[k], 0)
                for i in unrolled(TOGETHER):
                    other = index(first + i * LANES)
                    if SPLITS % (TOGETHER * LANES):
                        other = index(min(other, index(SPLITS - 1)))
                    found[i * PARTIALS[k] : (i + 1) * PARTIALS[k]] = splice(READ[k], point, other)
                for i in unrolled(TOGETHER):
                    other = index(first + i * LANES)
                    valid = True
                    if SPLITS % (TOGETHER * LANES):
                        valid = other < SPLITS
                    total[0 : TOTALS[k]] = splice(
                        ADD[k],
                        total[0 : TOTALS[k]],
                        found[i * PARTIALS[k] : (i + 1) * PARTIALS[k]],
                        other,
                        valid,
                    )
                first = index(first + TOGETHER * LANES)
            known[KNOWN_AT[k] : KNOWN_TO[k]] = splice(COMBINE[k], total[0 : TOTALS[k]], thread)
    for k in unrolled(FIRST, LAST + 1):
        if POINT_STORES[k]:
            if lane == 0:
                if inside:
                    if part == 0:
                        splice(POINT_STORE[k], known[0:KNOWN], point)
        if SWEEPS[k]:
            before = registers(BEFORES[k], 0)
            before[0 : BEFORES[k]] = splice(BEFORE[k], known[0:KNOWN])
            total = registers(TOTALS[k], 0)
            total[0 : TOTALS[k]] = splice(START[k])
            if FIRST_AT[k] < TOTALS[k]:
                x = registers(WORDS, 0)
                x[0:WORDS] = splice(LOAD, point, index(0))
                total[FIRST_AT[k] : TOTALS[k]] = splice(
                    FROM_FIRST[k], point, index(0), x[0:WORDS], before[0 : BEFORES[k]]
                )
            at = index(begin + lane * REDUCE_VECTOR)
            while at < end:
                x = registers(UNROLL * WORDS, 0)
                for i in unrolled(UNROLL):
                    here = index(at + i * (LANES * REDUCE_VECTOR))
                    if ENDS or SPAN % (UNROLL * LANES * REDUCE_VECTOR) or REDUCE % SPAN:
                        here = index(min(here, index(end - REDUCE_VECTOR)))
                    if BACKWARDS[k]:
                        here = index(begin + end - 1 - here)
                    x[i * WORDS : (i + 1) * WORDS] = splice(LOAD, point, here)
                for i in unrolled(UNROLL):
                    here = index(at + i * (LANES * REDUCE_VECTOR))
                    valid = True
                    if ENDS or SPAN % (UNROLL * LANES * REDUCE_VECTOR) or REDUCE % SPAN:
                        valid = here < end
                        here = index(min(here, index(end - REDUCE_VECTOR)))
                    if BACKWARDS[k]:
                        here = index(begin + end - 1 - here)
                    kept = registers(KEPT[k], 0)
                    total[0 : TOTALS[k]], kept[0 : KEPT[k]] = splice(
                        SWEEP[k],
                        point,
                        here,
                        valid,
                        inside,
                        x[i * WORDS : (i + 1) * WORDS],
                        before[0 : BEFORES[k]],
                        total[0 : TOTALS[k]],
                    )
                at = index(at + UNROLL * LANES * REDUCE_VECTOR)
            if ENDS:
                if part == 0:
                    if lane < index(REDUCE) - whole:
                        here = index(lane if lane < head else lane + whole)
                        x = registers(WORDS_ONE, 0)
                        x[0:WORDS_ONE] = splice(LOAD_ONE, point, here)
                        kept = registers(KEPT[k], 0)
                        total[0 : TOTALS[k]], kept[0 : KEPT[k]] = splice(
                            SWEEP_ONE[k],
                            point,
                            here,
                            True,
                            inside,
                            x[0:WORDS_ONE],
                            before[0 : BEFORES[k]],
                            total[0 : TOTALS[k]],
                        )
            if REDUCTIONS[k]:
                if SPLITS > 1:
                    total[0 : TOTALS[k]] = splice(PARTIAL[k], total[0 : TOTALS[k]], thread)
                    if lane == 0:
                        if inside:
                            splice(WRITE[k], total[0 : TOTALS[k]], point, part)
                else:
                    known[KNOWN_AT[k] : KNOWN_TO[k]] = splice(COMBINE[k], total[0 : TOTALS[k]], thread)
