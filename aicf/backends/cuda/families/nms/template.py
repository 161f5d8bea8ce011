# pyright: basic, reportUndefinedVariable=false
"""A kernel that keeps the best of boxes that overlap. The snippets and constants come from `codegen.py`."""

from __future__ import annotations

from aicf.backends.cuda.compiler.specializer import splice, unrolled


def suppress(operands: object):
    """One class of one sample a block: its BOXES boxes, of which up to KEPT are kept, best first.

    Each thread has a list of its own in the workspace: of its boxes, those that may still be kept, in rising order.
    Each round finds the best of all lists in shared memory, LEVELS times the better of two halves, and every thread
    takes out of its list what that box overlaps. Of equal scores the lower place wins, so no result depends on who is
    first.
    Snippets: HIGHEST, ZERO, SCORE, ALLOWED, BOX, TOO_MUCH, STORE.
    """
    thread = i32(cuda.threadIdx.x)
    number = i32(cuda.blockIdx.x)
    leaders = cuda.shared.array(THREADS, i32)
    heights = splice(HIGHEST)
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    listed = w + u64(i64(number) * LIST_BYTES + i64(thread * 4))
    count = i32(0)
    best = i32(-1)
    highest = splice(ZERO)
    box = thread
    while box < BOXES:
        score = splice(SCORE, number, box)
        allowed = splice(ALLOWED, score)
        if allowed:
            store_i32(listed + u64(i64(count) * (THREADS * 4)), box)
            count = i32(count + 1)
            if (best < 0) | (score > highest):
                best = box
                highest = score
        box = i32(box + THREADS)
    kept = i32(0)
    while kept < KEPT:
        leaders[thread] = best
        heights[thread] = highest
        cuda.syncthreads()
        for level in unrolled(LEVELS):
            step = THREADS >> (level + 1)
            if thread < step:
                mine = i32(leaders[thread])
                other = i32(leaders[thread + step])
                own = heights[thread]
                theirs = heights[thread + step]
                ahead = (theirs > own) | ((theirs == own) & (other < mine))
                if (other >= 0) & ((mine < 0) | ahead):
                    leaders[thread] = other
                    heights[thread] = theirs
            cuda.syncthreads()
        chosen = i32(leaders[0])
        cuda.syncthreads()
        if chosen < 0:
            at = i32(kept + thread)
            while at < KEPT:
                splice(STORE, number, at, i64(-1))
                at = i32(at + THREADS)
            kept = i32(KEPT)
        else:
            if thread == 0:
                splice(STORE, number, kept, i64(chosen))
            kept = i32(kept + 1)
            low0, high0, low1, high1, area = splice(BOX, number, chosen)
            left = i32(0)
            best = i32(-1)
            at = i32(0)
            while at < count:
                box = i32(load_i32(listed + u64(i64(at) * (THREADS * 4))))
                other_low0, other_high0, other_low1, other_high1, other_area = splice(BOX, number, box)
                start0 = cuda.selp(low0 > other_low0, low0, other_low0)
                start1 = cuda.selp(low1 > other_low1, low1, other_low1)
                end0 = cuda.selp(high0 < other_high0, high0, other_high0)
                end1 = cuda.selp(high1 < other_high1, high1, other_high1)
                goes = splice(TOO_MUCH, start0, end0, start1, end1, area, other_area)
                if (box != chosen) & (not goes):
                    store_i32(listed + u64(i64(left) * (THREADS * 4)), box)
                    left = i32(left + 1)
                    score = splice(SCORE, number, box)
                    if (best < 0) | (score > highest):
                        best = box
                        highest = score
                at = i32(at + 1)
            count = left
