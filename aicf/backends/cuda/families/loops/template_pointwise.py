# pyright: basic, reportUndefinedVariable=false
# ruff: noqa: SIM102
"""Pointwise kernels: a thread loads a few vectors, computes, stores. Index maps make them slices and broadcasts.

Constants: THREADS, UNROLL (vectors of a thread), VECTOR (elements of one), VECTORS (all), WORDS (registers of a loaded
vector), TAIL (elements after the last vector), and the snippets LOAD, CELL, LOAD_ONE, CELL_ONE.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.specializer import registers, splice, unrolled


def pointwise(operands: object):
    """One tile of THREADS * UNROLL vectors a block; neighbouring threads have neighbouring vectors."""
    thread = index(cuda.threadIdx.x)
    first = index(index(cuda.blockIdx.x) * (THREADS * UNROLL) + thread)
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    x = registers(UNROLL * WORDS, 0)
    for i in unrolled(UNROLL):
        at = index(first + i * THREADS)
        if VECTORS % (THREADS * UNROLL):
            at = index(min(at, index(VECTORS - 1)))
        x[i * WORDS : (i + 1) * WORDS] = splice(LOAD, index(at * VECTOR), index(0))
    for i in unrolled(UNROLL):
        at = index(first + i * THREADS)
        if VECTORS % (THREADS * UNROLL):
            if at < VECTORS:
                splice(CELL, index(at * VECTOR), x[i * WORDS : (i + 1) * WORDS])
        else:
            splice(CELL, index(at * VECTOR), x[i * WORDS : (i + 1) * WORDS])
    if TAIL:
        if first < TAIL:
            at = index(VECTORS * VECTOR + first)
            one = registers(WORDS_ONE, 0)
            one[0:WORDS_ONE] = splice(LOAD_ONE, at, index(0))
            splice(CELL_ONE, at, one[0:WORDS_ONE])
