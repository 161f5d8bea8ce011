# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportUndefinedVariable=false, reportCallIssue=false, reportArgumentType=false, reportAssignmentType=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""What is between the products of attention's gradients, whoever multiplies: which rows a block has, scores, the
softmax and its gradient. Parts of templates for the specializer.

`score` holds products as both mma.sync and wgmma leave them, four registers for each 8 columns: two neighbours of one
row, then two of the row 8 below. First come all scores, then D, see `tensor/template.py`.

The names in capitals are those of the template that takes the parts; `codegen.py` gives them.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.ptx import *
from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def block_of():
    """First held row and batch element of this block. Of causal blocks those that walk furthest start first, for all
    batch elements: short ones fill the gaps at the end."""
    block = u32(cuda.blockIdx.x)
    if CAUSAL:
        number = u32(block // u32(COUNT))
        if ROWS:
            number = u32(u32(BLOCKS - 1) - number)
        index = u32(block % u32(COUNT))
    else:
        number = u32(block % u32(BLOCKS))
        index = u32(block // u32(BLOCKS))
    first = i32(number * u32(BLOCK))
    return first, index


def tiles_seen(first):
    """The first tile that this block walks over, and the one after its last: of keys those up to the last one that one
    of its queries sees, of queries those from the first one on that sees one of its keys. It may be that none does."""
    begin = i32(0)
    end = i32(TILES)
    if CAUSAL and ROWS:
        end = min(end, i32(i32(first + i32(BLOCK - 1 + PAST)) // i32(TILE) + i32(1)))
    if CAUSAL and not ROWS:
        begin = i32(max(i32(first - i32(PAST)), i32(0)) // i32(TILE))
    return begin, end


def scale_and_hide(tile, chunk, width):
    """Scales scores where the exponential does not, adds the mask, and makes those -inf that a query does not see.
    Where it is GUARDED, tiles in which all rows of this warp see everything are left alone."""
    column = i32(tile * i32(TILE) + i32(pair) + i32(chunk))
    if MASKED:
        for r in unrolled(ROW_TILES * 2):
            row = i32(own + i32(r * 8))
            if HELD % BLOCK != 0:
                row = min(row, i32(HELD - 1))
            line = u64(mask + u64(row) * u64(MASK_HELD))
            for s in unrolled(0, width, 4):
                for c in unrolled(2):
                    if MASK_STREAMED == 0:
                        bias = bias_held[r]
                    else:
                        position = i32(column + i32(s * 2 + c))
                        if STREAMED % TILE != 0:
                            position = min(position, i32(STREAMED - 1))
                        bias = splice(LOAD_MASK, u64(line + u64(position) * u64(MASK_STREAMED)))
                    score[r // 2 * width + s + r % 2 * 2 + c] = cuda.fma(
                        score[r // 2 * width + s + r % 2 * 2 + c], f32(SCALE), bias
                    )
    elif not FOLDED:
        for s in unrolled(ROW_TILES * width):
            score[s] = score[s] * f32(SCALE)
    if ROWS and STREAMED % TILE != 0 and (not GUARDED or tile == i32(TILES - 1)):
        left = i32(i32(STREAMED) - column)
        for s in unrolled(0, width, 4):
            for c in unrolled(2):
                for r in unrolled(ROW_TILES * 2):
                    score[r // 2 * width + s + r % 2 * 2 + c] = cuda.selp(
                        i32(s * 2 + c) < left, score[r // 2 * width + s + r % 2 * 2 + c], NEGATIVE_INFINITY
                    )
    if CAUSAL and (
        not GUARDED
        or (
            i32(tile * i32(TILE) + i32(TILE - 1)) > i32(first + i32(warp_row) + i32(PAST))
            if ROWS
            else i32(tile * i32(TILE)) < i32(first + i32(warp_row) + i32(16 * ROW_TILES - 1 - PAST))
        )
    ):
        for r in unrolled(ROW_TILES * 2):
            # Past the last key of a query, before the first query of a key.
            bound = i32(i32(own + i32(r * 8 + (PAST if ROWS else -PAST))) - column)
            for s in unrolled(0, width, 4):
                for c in unrolled(2):
                    score[r // 2 * width + s + r % 2 * 2 + c] = cuda.selp(
                        i32(s * 2 + c) <= bound if ROWS else i32(s * 2 + c) >= bound,
                        score[r // 2 * width + s + r % 2 * 2 + c],
                        NEGATIVE_INFINITY,
                    )


def power(x, base):
    """The exponential of a score less the maximum of its row."""
    if FOLDED:
        x = cuda.fma(x, f32(SCALE), -base)
    elif MASKED:
        x = (x - base) * f32(LOG2_E)
    else:
        x = x - base
    return exp2_approx(x)


def sum_up():
    """Takes a chunk into the maxima, sums and weighted sums. Each lane has its own, of its columns."""
    for r in unrolled(ROW_TILES * 2):
        here = NEGATIVE_INFINITY
        for s in unrolled(r // 2 * FIRST_WIDTH + r % 2 * 2, (r // 2 + 1) * FIRST_WIDTH, 4):
            here = larger(here, larger(score[s], score[s + 1]))
        if FOLDED:
            here = here * f32(SCALE)
        here = larger(here, top[r])
        # A row that has seen only -inf so far: 0 in place of the maximum keeps its exponentials at 0.
        base = f32(0.0) if here == NEGATIVE_INFINITY else here
        decay = top[r] - base
        if MASKED:
            decay = decay * f32(LOG2_E)
        decay = exp2_approx(decay)
        sums[r] = sums[r] * decay
        weighted[r] = weighted[r] * decay
        top[r] = here
        for s in unrolled(r // 2 * FIRST_WIDTH + r % 2 * 2, (r // 2 + 1) * FIRST_WIDTH, 4):
            for c in unrolled(2):
                exponential = splice(POWER, score[s + c], base)
                sums[r] = sums[r] + exponential
                weighted[r] = cuda.fma(exponential, score[ROW_TILES * FIRST_WIDTH + s + c], weighted[r])


def merge_lanes():
    """The state of each row from those of its four lanes: registers of all of them have it, one lane stores it."""
    for r in unrolled(ROW_TILES * 2):
        whole = larger(top[r], cuda.shfl_xor_sync(ALL_LANES, top[r], 1))
        whole = larger(whole, cuda.shfl_xor_sync(ALL_LANES, whole, 2))
        whole = f32(0.0) if whole == NEGATIVE_INFINITY else whole
        factor = top[r] - whole
        if MASKED:
            factor = factor * f32(LOG2_E)
        factor = exp2_approx(factor)
        top[r] = whole
        sums[r] = sums[r] * factor
        weighted[r] = weighted[r] * factor
        sums[r] = sums[r] + cuda.shfl_xor_sync(ALL_LANES, sums[r], 1)
        sums[r] = sums[r] + cuda.shfl_xor_sync(ALL_LANES, sums[r], 2)
        weighted[r] = weighted[r] + cuda.shfl_xor_sync(ALL_LANES, weighted[r], 1)
        weighted[r] = weighted[r] + cuda.shfl_xor_sync(ALL_LANES, weighted[r], 2)
        inverse[r] = rcp_approx(sums[r])
        if EMPTY_AS_ZERO:
            # The exponentials of such a row are 0, their sum is, and so is any multiple of them.
            inverse[r] = cuda.selp(sums[r] == f32(0.0), f32(0.0), inverse[r])
        shift[r] = (weighted[r] * inverse[r]) * inverse[r]
        row = i32(own + i32(r * 8))
        if pair == u32(0) and row < i32(LAST_STATE):
            at = u64(states + u64(row) * u64(4))
            there = row < i32(HELD)
            store_f32(at, cuda.selp(there, top[r], INFINITY))
            store_f32(u64(at + u64(PLANE)), cuda.selp(there, inverse[r], f32(0.0)))
            store_f32(u64(at + u64(2 * PLANE)), cuda.selp(there, shift[r], f32(0.0)))


def weigh_rows():
    """The gradient of the scores in place of D, where a row has a state."""
    for r in unrolled(ROW_TILES * 2):
        for s in unrolled(r // 2 * WIDTH + r % 2 * 2, (r // 2 + 1) * WIDTH, 4):
            for c in unrolled(2):
                exponential = splice(POWER, score[s + c], top[r])
                score[ROW_TILES * WIDTH + s + c] = exponential * cuda.fma(
                    score[ROW_TILES * WIDTH + s + c], inverse[r], -shift[r]
                )


def weigh_columns(at):
    """Probabilities in place of scores, and the gradient of scores in place of D, where a column has a state; that of
    this lane's first one is `at`."""
    for s in unrolled(0, WIDTH, 4):
        base = registers(2, f32(0.0))
        scale = registers(2, f32(0.0))
        less = registers(2, f32(0.0))
        base[0:2] = load_shared_f32x2(u32(at + u32(s * 8)))
        scale[0:2] = load_shared_f32x2(u32(at + u32(s * 8 + TILE * 4)))
        less[0:2] = load_shared_f32x2(u32(at + u32(s * 8 + TILE * 8)))
        for r in unrolled(ROW_TILES * 2):
            for c in unrolled(2):
                exponential = splice(POWER, score[r // 2 * WIDTH + s + r % 2 * 2 + c], base[c])
                score[r // 2 * WIDTH + s + r % 2 * 2 + c] = exponential * scale[c]
                score[ROW_TILES * WIDTH + r // 2 * WIDTH + s + r % 2 * 2 + c] = exponential * cuda.fma(
                    score[ROW_TILES * WIDTH + r // 2 * WIDTH + s + r % 2 * 2 + c], scale[c], -less[c]
                )
