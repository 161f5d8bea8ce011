# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportUndefinedVariable=false, reportCallIssue=false, reportArgumentType=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Which queries of which batch element a block of an attention kernel has. Parts of templates for the specializer.

The names in capitals are those of the template that takes the parts; `codegen.py` gives them.
"""

from __future__ import annotations

from typing import Any

from aicf.backends.cuda.compiler.ptx import cuda, i32, i64, u32, u64
from aicf.backends.cuda.compiler.specializer import splice, unrolled


def offset(index: Any, sizes: Any, strides: Any) -> Any:
    """Bytes of batch number `index`, the innermost dimension first."""
    total = u64(0)
    for d in unrolled(len(sizes)):
        if strides[d] != 0:
            total = u64(total + u64(index % u32(sizes[d])) * u64(strides[d]))
        index = u32(index // u32(sizes[d]))
    return total


def block_of(rows: Any) -> Any:
    """First query and batch element of this block, which has `rows` queries. Where blocks differ in length, those that
    see most keys are the first to start, for all batch elements: short ones fill the gaps at the end."""
    block = u32(cuda.blockIdx.x)
    if CAUSAL:
        first = i32(u32(u32(TILES_M - 1) - block // u32(COUNT)) * u32(rows))
        index = u32(block % u32(COUNT))
    else:
        first = i32(u32(block % u32(TILES_M)) * u32(rows))
        index = u32(block // u32(TILES_M))
    return first, index


def tiles_seen(last: Any, keys: Any, past: Any) -> Any:
    """Tiles of `keys` keys up to the last one that query number `last` sees, and with it those before it, where `past`
    keys come before the first query; one tile even if it is all hidden."""
    return max(i32(1), min(i32(TILES_N), i32(i32(last + past) // i32(keys) + i32(1))))


def before(base: Any, index: Any) -> Any:
    """How many keys come before the first query of batch number `index`, a number in memory; of those by which no key
    is seen, or every key is, the one nearest to 0."""
    offset_before = splice(OFFSET, index, BATCH, BEFORE_BATCH)
    count = splice(LOAD_BEFORE, u64(base + offset_before))
    return i32(min(max(count, i64(-M)), i64(N)))
