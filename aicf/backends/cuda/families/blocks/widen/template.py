# pyright: basic, reportUndefinedVariable=false
"""The kernel that widens rows of blocks, written for the specializer.

Names in capitals are constants that `codegen.py` gives.
"""

from __future__ import annotations

from aicf.backends.cuda.compiler.specializer import splice


def dequantize_blocks(packed: object, result: object):
    """Four threads take a block: each has a quarter of all of its runs, so that neighbours write neighbouring bytes."""
    if PROGRAMMATIC:
        launch_dependents()
    index = i32(cuda.blockIdx.x) * i32(THREADS) + i32(cuda.threadIdx.x)
    number = index >> i32(2)
    quarter = index & i32(3)
    row = i32(number // i32(ROW_BLOCKS))
    block = i32(number - row * i32(ROW_BLOCKS))
    if PROGRAMMATIC:
        wait_for_predecessors()
    if number < i32(BLOCKS):
        source = splice(SOURCE_ROW, row)
        target = splice(TARGET_ROW, row)
        at = packed + u64(source + i64(block) * i64(BLOCK_BYTES))
        out = result + u64((target + i64(block) * i64(LENGTH)) * i64(4))
        splice(WIDEN, at, out, quarter)
