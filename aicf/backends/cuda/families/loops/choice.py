"""The choice of a strategy for the loops of a kernel, and everything about rows and pointwise loops. Columns and scans
have files of their own. Imports no code generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aicf.backends.common.loop_nest import LoopNest, accumulate_ops, reduces_innermost
from aicf.backends.cuda.families.loops.column_choice import by_columns, fixed_columns, sums_of_columns
from aicf.backends.cuda.families.loops.ends import vector_with_ends
from aicf.backends.cuda.families.loops.exponential_sums import exponential_sum_of
from aicf.backends.cuda.families.loops.scan_choice import scan_columns, scan_rows
from aicf.backends.cuda.families.loops.schedule import (
    RESIDENT_THREADS,
    RESIDENT_WORDS,
    TILE_THREADS,
    GeneratedSpec,
)
from aicf.backends.cuda.families.loops.spaces import (
    TILE,
    contiguous_bytes,
    element_words,
    is_exact,
    power_of_two,
    reduces,
    scan_ops,
    tile_dim,
    vector_along,
)
from aicf.backends.cuda.families.records import CLUSTER_BLOCKS
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch


def choose(nest: LoopNest, offsets: Sequence[int], arch: GpuArch, fixed: bool = False) -> GeneratedSpec:
    """The decisions for `nest`.

    Args:
        offsets: Elements from an aligned address to the start of each operand, inputs first.
        fixed: Whether the order of combination may depend on reduced sizes alone, where there is one.
    """
    if not reduces(nest):
        return _pointwise(nest, offsets, arch)
    fixed = fixed and not is_exact(nest)
    if accumulate_ops(nest.kernel):
        return sums_of_columns(nest, offsets, arch)
    rows = contiguous_bytes(nest, nest.reduce_dims) >= contiguous_bytes(nest, nest.parallel_dims)
    if scan_ops(nest):
        if fixed:
            return _fixed_scan(nest, offsets, arch)
        return scan_rows(nest, offsets, arch) if rows else scan_columns(nest, offsets, arch)
    if fixed:
        return _fixed_rows(nest, arch) if reduces_innermost(nest.kernel) else fixed_columns(nest)
    if rows:
        return _by_rows(nest, offsets, arch)
    return by_columns(nest, offsets, arch)


def _pointwise(nest: LoopNest, offsets: Sequence[int], arch: GpuArch) -> GeneratedSpec:
    if not nest.dims:
        return GeneratedSpec("pointwise", 1, 32, 1, 1, 1)
    vector = vector_along(nest, len(nest.dims) - 1, offsets, ragged=len(nest.dims) == 1)
    if tile_dim(nest) is not None:
        return GeneratedSpec("tiles", vector, TILE_THREADS, 1, TILE * TILE // (TILE_THREADS * vector), 1)
    vectors = -(-nest.parallel_size // vector)
    widest = max(ELEMENT_BYTES[access.dtype] for access in nest.accesses)
    threads = 256
    unroll = max(1, 32 // (vector * widest))
    while unroll > 1 and vectors < 4 * arch.multiprocessors * threads * unroll:
        unroll //= 2
    while threads > 64 and vectors < arch.multiprocessors * threads:
        threads //= 2
    return GeneratedSpec("pointwise", vector, threads, 1, unroll, 1)


def _by_rows(nest: LoopNest, offsets: Sequence[int], arch: GpuArch) -> GeneratedSpec:
    size, points = nest.reduce_size, nest.parallel_size
    vector = vector_along(nest, nest.reduce_dims[-1], offsets) if nest.reduce_dims else 1
    held = max(vector, int(RESIDENT_WORDS / max(0.25, element_words(nest))) // vector * vector)
    busy = -(-size // (RESIDENT_THREADS * vector)) * vector
    if busy <= held and not (points * 8 < arch.multiprocessors and size > 16384):
        return _resident(size, points, vector, held, arch)
    if size % (wider := vector_with_ends(nest, offsets)):
        vector = max(vector, wider)
    threads = 512 if size >= 512 * vector * 4 else max(32, power_of_two(-(-size // vector)) // 2)
    splits = 1
    if points < arch.multiprocessors:
        wanted = 2 * arch.multiprocessors // points
        splits = max(1, min(wanted, size // (threads * vector * 4)))
    if splits > 1 and (cluster := _row_of_cluster(size, vector, held, arch)) is not None:
        return cluster
    online = splits == 1 and exponential_sum_of(nest.kernel) is not None
    strategy = "online_rows" if online else "rows"
    return GeneratedSpec(strategy, vector, threads, threads, 4, splits, blocks_per_sm=1024 // threads)


def _resident(size: int, points: int, vector: int, held: int, arch: GpuArch) -> GeneratedSpec:
    """One warp or part of one for short rows, a block for long ones; more threads a row where rows are few."""
    vectors = -(-size // vector)
    few = points < 4 * arch.multiprocessors
    target = max(1, min(held, 2 * vector if few else 4 * vector) // vector)
    if size <= 1024 and -(-vectors // 32) * vector <= min(held, 32):
        lanes = min(32, power_of_two(-(-vectors // max(1, 4 // vector))))
    else:
        lanes = min(RESIDENT_THREADS, max(64, power_of_two(-(-vectors // target))))
    threads = lanes
    while threads < 128 and lanes <= 32 and points * lanes >= 2 * threads * arch.multiprocessors:
        threads *= 2
    chunks = -(-vectors // lanes)
    return GeneratedSpec(
        "resident", vector, max(32, threads), lanes, chunks, 1, late=lanes > 32 and chunks * vector > 12
    )


def _row_of_cluster(size: int, vector: int, held: int, arch: GpuArch) -> GeneratedSpec | None:
    """A row in the registers of a cluster: one launch that reads it once, where parts of it would take a launch for
    each phase. None where it does not fit."""
    vectors = -(-size // (CLUSTER_BLOCKS * vector))
    lanes = min(RESIDENT_THREADS, max(64, power_of_two(-(-vectors // 2))))
    chunks = -(-vectors // lanes)
    if not arch.has_clusters or size % vector or chunks * vector > held:
        return None
    late = chunks * vector > 12
    return GeneratedSpec("resident", vector, lanes, lanes, chunks, 1, late=late, cluster=CLUSTER_BLOCKS)


# Where the order of combination may not depend on the parallel space


def _fixed_scan(nest: LoopNest, offsets: Sequence[int], arch: GpuArch) -> GeneratedSpec:
    """Threads to a row by its length alone, as in `_fixed_rows`; columns are scanned in one order in any case."""
    if not reduces_innermost(nest.kernel):
        return replace(scan_columns(nest, offsets, arch), splits=1)
    size = nest.reduce_size
    lanes = min(256, power_of_two(-(-size // 4)))
    return GeneratedSpec("scan_rows", 1, max(32, lanes), lanes, 4, 1)


def _fixed_rows(nest: LoopNest, arch: GpuArch) -> GeneratedSpec:
    """Threads to a row by its length alone, as if rows were few; elements one by one, because how far vectors are
    aligned depends on strides between rows, which a single row has not."""
    size = nest.reduce_size
    held = max(1, int(RESIDENT_WORDS / max(0.25, element_words(nest, all_move=True))))
    if -(-size // RESIDENT_THREADS) <= held:
        return _resident(size, 1, 1, held, arch)
    threads = 512 if size >= 512 * 4 else max(32, power_of_two(size) // 2)
    return GeneratedSpec("rows", 1, threads, threads, 4, 1)
