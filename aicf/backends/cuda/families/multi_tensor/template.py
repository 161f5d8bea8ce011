# pyright: basic, reportUndefinedVariable=false
"""Updates of many tensors: each block has a piece of one part, which it finds in a table in device memory.

The table, in words of 8 bytes: the first block of each part, ROUNDS * 32 of them (those after the last part are beyond
every block); from ELEMENTS_AT, in bytes, the elements of each; at TICKET_AT a counter; from POINTERS_AT the POINTERS
addresses of each. But for the counter nothing writes it while programs run, so that it is read before earlier
kernels have ended.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def update(operands: object):
    """THREADS * UNROLL vectors a block, and what is left of a part in its first one.

    A *variant* is a program with a width of vectors: parts are sorted by variant, FROM and UNTIL are the parts of each.
    Elements are counted as they lie in the results. Where these lie channels-last (CHANNELS of a line, WINDOW lines of
    an output), the neighbours of a vector lie WINDOW elements apart in the operands: blocks have whole lines, so that
    what one thread leaves of a sector is in L1 for the next ones.

    What is computed of numbers alone (BEFORE) is computed by one thread while the elements are on their way to all, and
    broadcast to the others; where nothing is (ONE false), each thread reads the numbers.

    New values of numbers (NUMBERS) may lie where every block reads the old ones. A block takes a ticket after the
    barrier: what was computed of the old ones went through shared memory, so they have arrived. The block with the last
    ticket writes the new ones, and the counter is 0 again. No fence is needed: a value that has arrived does not change
    by a store that is made later.
    """
    thread = index(cuda.threadIdx.x)
    block = i32(cuda.blockIdx.x)
    ticket = u32(0)
    part = i32(-1)
    for i in unrolled(ROUNDS):
        start = load_i64(table + u64(256 * i) + u64(i64(thread % 32) * 8))
        vote = cuda.ballot_sync(ALL_LANES, i64(block) >= start)
        part = i32(part + i32(cuda.popc(u32(vote))))
    first = load_i64(table + u64(i64(part) * 8))
    count = index(load_i64(table + u64(ELEMENTS_AT) + u64(i64(part) * 8)))
    pointer = registers(POINTERS, 0)
    for i in unrolled(POINTERS):
        pointer[i] = load_u64(table + u64(POINTERS_AT + 8 * i) + u64(i64(part) * (8 * POINTERS)))
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    begin = index(index(i64(block) - first) * (THREADS * UNROLL) + thread)
    for k in unrolled(VARIANTS):
        if (FROM[k] == 0 or part >= FROM[k]) and (UNTIL[k] == PARTS or part < UNTIL[k]):
            vectors = index(count // VECTOR[k])
            x = registers(UNROLL * WORDS[k], 0)
            for i in unrolled(UNROLL):
                at = index(min(index(begin + i * THREADS), index(vectors - 1)))
                if CHANNELS[k] == 0:
                    x[i * WORDS[k] : (i + 1) * WORDS[k]] = splice(LOAD[k], 0, index(at * VECTOR[k]))
                else:
                    source = splice(ROW_MAJOR, index(at * VECTOR[k]), CHANNELS[k], WINDOW[k])
                    for j in unrolled(VECTOR[k]):
                        one = registers(WORDS_ONE[k], 0)
                        one[0 : WORDS_ONE[k]] = splice(LOAD_ONE[k], 0, index(source + j * WINDOW[k]))
                        for n in unrolled(WORDS_ONE[k]):
                            x[i * WORDS[k] + n * VECTOR[k] + j] = one[n]
            before = registers(BEFORES[k], 0)
            if ONE[k]:
                board = registers(BEFORES[k], 0)
                board[0 : BEFORES[k]] = splice(BOARD[k])
                if thread == 0:
                    known = registers(KNOWN[k], 0)
                    known[0 : KNOWN_INPUTS[k]] = splice(LOAD_POINT[k], 0, 0)
                    computed = registers(BEFORES[k], 0)
                    computed[0 : BEFORES[k]] = splice(BEFORE[k], known[0 : KNOWN[k]])
                    splice(PUT[k], board[0 : BEFORES[k]], computed[0 : BEFORES[k]])
                cuda.syncthreads()
                if NUMBERS and thread == 0:
                    ticket = u32(take_ticket(table + u64(TICKET_AT), u32(BLOCKS - 1)))
                before[0 : BEFORES[k]] = splice(GET[k], board[0 : BEFORES[k]])
            else:
                known = registers(KNOWN[k], 0)
                known[0 : KNOWN_INPUTS[k]] = splice(LOAD_POINT[k], 0, 0)
                before[0 : BEFORES[k]] = splice(BEFORE[k], known[0 : KNOWN[k]])
            for i in unrolled(UNROLL):
                at = index(begin + i * THREADS)
                splice(
                    SWEEP[k],
                    0,
                    index(at * VECTOR[k]),
                    at < vectors,
                    True,
                    x[i * WORDS[k] : (i + 1) * WORDS[k]],
                    before[0 : BEFORES[k]],
                    0,
                )
            if VECTOR[k] > 1:
                at = index(vectors * VECTOR[k] + begin)
                if at < count:
                    one = registers(WORDS_ONE[k], 0)
                    one[0 : WORDS_ONE[k]] = splice(LOAD_ONE[k], 0, at)
                    splice(SWEEP_ONE[k], 0, at, True, True, one[0 : WORDS_ONE[k]], before[0 : BEFORES[k]], 0)
    if NUMBERS and thread == 0 and ticket == u32(BLOCKS - 1):
        numbers = registers(NUMBERS_WORDS, 0)
        numbers[0:NUMBERS_WORDS] = splice(NUMBERS_LOAD, 0, 0)
        splice(NUMBERS_CELL, 0, numbers[0:NUMBERS_WORDS])


def row_major(element, channels, window):
    """Where element number `element` of channels-last memory lies in row-major memory."""
    line = element // channels
    output = line // window
    return (output * channels + (element - line * channels)) * window + (line - output * window)
