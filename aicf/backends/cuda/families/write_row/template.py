# pyright: basic, reportUndefinedVariable=false
"""Kernels that write rows into a state. The snippets and constants come from `codegen.py`."""

from __future__ import annotations

from aicf.backends.cuda.compiler.specializer import splice


def copy(operands: object):
    """The state, element by element. Constants: THREADS, COUNT; the snippet MOVE."""
    flat = i32(i32(cuda.blockIdx.x) * THREADS + i32(cuda.threadIdx.x))
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    if flat < COUNT:
        splice(MOVE, flat)


def write(operands: object):
    """The rows, element by element. Constants: THREADS, COUNT; the snippets AT, which is -1 out of range, and MOVE."""
    flat = i32(i32(cuda.blockIdx.x) * THREADS + i32(cuda.threadIdx.x))
    if PROGRAMMATIC:
        launch_dependents()
        wait_for_predecessors()
    if flat < COUNT:
        at = splice(AT, flat)
        if at >= i64(0):
            splice(MOVE, flat, at)
