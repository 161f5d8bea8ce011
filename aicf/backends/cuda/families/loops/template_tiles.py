# pyright: basic, reportUndefinedVariable=false
"""Transposing kernels: one tile a block, through shared memory.

Constants: THREADS, STEPS (vectors of the result that a thread makes), TILED (inputs that go through shared memory),
and for each of those FETCHES (vectors that a thread reads), FETCH_WORDS, FETCH, KEEP; BESIDE_WORDS and BESIDE load the
other inputs; START says where the tile lies, CELL computes and stores a vector. The snippets come from `tiles.py`.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def tiles(operands: object):
    """Reads the tile along one dim, writes it along the other."""
    thread = index(cuda.threadIdx.x)
    coordinates = registers(DIMS, 0)
    coordinates[0:DIMS] = splice(START, index(cuda.blockIdx.x))
    tile = registers(TILED, 0)
    tile[0:TILED] = splice(SHARED)
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    for k in unrolled(TILED):
        x = registers(FETCHES[k] * FETCH_WORDS[k], 0)
        for i in unrolled(FETCHES[k]):
            number = index(thread + i * THREADS)
            x[i * FETCH_WORDS[k] : (i + 1) * FETCH_WORDS[k]] = splice(FETCH[k], coordinates[0:DIMS], number)
        for i in unrolled(FETCHES[k]):
            number = index(thread + i * THREADS)
            splice(KEEP[k], tile[0:TILED], number, x[i * FETCH_WORDS[k] : (i + 1) * FETCH_WORDS[k]])
    y = registers(STEPS * BESIDE_WORDS, 0)
    for i in unrolled(STEPS):
        y[i * BESIDE_WORDS : (i + 1) * BESIDE_WORDS] = splice(
            BESIDE, coordinates[0:DIMS], index(thread + i * THREADS)
        )
    cuda.syncthreads()
    for i in unrolled(STEPS):
        splice(
            CELL,
            coordinates[0:DIMS],
            index(thread + i * THREADS),
            y[i * BESIDE_WORDS : (i + 1) * BESIDE_WORDS],
            tile[0:TILED],
        )
