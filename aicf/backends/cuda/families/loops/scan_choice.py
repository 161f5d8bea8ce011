"""The choice for prefix sums. Imports no code generator."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.backends.common.loop_nest import LoopNest
from aicf.backends.cuda.families.loops.schedule import CHAIN_TILES, GeneratedSpec
from aicf.backends.cuda.families.loops.spaces import partial_size, power_of_two, scan_ops, vector_along
from aicf.backends.cuda.target import GpuArch


def scan_rows(nest: LoopNest, offsets: Sequence[int], arch: GpuArch) -> GeneratedSpec:
    """Part of a warp for short rows, a block for long ones; parts of a row where rows are few."""
    size, points = nest.reduce_size, nest.parallel_size
    vector = vector_along(nest, nest.reduce_dims[-1], offsets) if nest.reduce_dims else 1
    vectors = -(-size // vector)
    if vectors <= 4 * 32:
        lanes = min(32, power_of_two(-(-vectors // 2)))
        threads = 32
        while threads < 256 and points * lanes >= 2 * threads * arch.multiprocessors:
            threads *= 2
        unroll = -(-vectors // lanes)
        return GeneratedSpec("scan_rows", vector, threads, lanes, unroll, 1, blocks_per_sm=1024 // threads)
    threads = min(256, power_of_two(-(-vectors // 4)))
    splits = 1
    if points < 2 * arch.multiprocessors:
        if (chain := _scan_chain(nest, vector)) is not None:
            return chain
        splits = max(1, min(-(-4 * arch.multiprocessors // points), size // (threads * vector * 4 * 4)))
    return GeneratedSpec("scan_rows", vector, threads, threads, 4, splits, blocks_per_sm=1024 // threads)


_CHAINS = ((32 << 20, 512, 32), (4 << 20, 512, 16), (0, 256, 16))
"""Elements of all rows from which on blocks have so many threads, and those so many elements. Measured on an H100: one
row of 64 Mi f32 takes 236 us so (256 threads 237, with half the elements 267), of 16 Mi 71 (77), of 1 Mi 7.2; two
readings take 285, 76 and 8.4."""


def _scan_chain(nest: LoopNest, vector: int) -> GeneratedSpec | None:
    """A chain of tiles that reads rows once; None where values do not fit its words, or there are no more tiles than
    steps of one, which the last tile needs to be as long as the others."""
    _, threads, elements = next(
        entry for entry in _CHAINS if nest.parallel_size * nest.reduce_size >= entry[0]
    )
    unroll = max(1, min(8, elements // vector))
    tiles = -(-nest.reduce_size // (threads * vector * unroll))
    if not unroll <= tiles <= CHAIN_TILES or any(partial_size(op) > 4 for op in scan_ops(nest)):
        return None
    return GeneratedSpec("scan_chain", vector, threads, threads, unroll, tiles, blocks_per_sm=1024 // threads)


def scan_columns(nest: LoopNest, offsets: Sequence[int], arch: GpuArch) -> GeneratedSpec:
    """A thread for each vector of points, narrower ones and more in flight where points are few; parts of a column
    only where those leave most of the GPU idle: another reading of everything costs more than half of it."""
    vector, threads, points = vector_along(nest, nest.parallel_dims[-1], offsets), 128, nest.parallel_size
    while vector > 1 and points // vector < arch.multiprocessors * 512:
        vector //= 2
    while threads > 32 and points // vector < threads * 2 * arch.multiprocessors:
        threads //= 2
    unroll, splits = (8 if points // vector >= arch.multiprocessors * 512 else 16), 1
    if points // vector < arch.multiprocessors * 96:
        splits = max(1, min(arch.multiprocessors * 256 // points, nest.reduce_size // 64))
    return GeneratedSpec("scan_columns", vector, threads, 1, unroll, splits)
