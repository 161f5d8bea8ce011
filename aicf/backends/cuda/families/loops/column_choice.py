"""The choice for columns: which threads and blocks share them, and in how many parts they come; and for sums of columns
beside rows. Imports no code generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aicf.backends.common.loop_nest import LoopNest, accumulate_ops
from aicf.backends.cuda.families.loops.moments import moments_of
from aicf.backends.cuda.families.loops.schedule import (
    EXCHANGE_BYTES,
    GeneratedSpec,
    block_bytes,
    board_bytes,
    exchange_bytes,
)
from aicf.backends.cuda.families.loops.spaces import (
    element_words,
    inputs_of_cells,
    narrowest,
    nest_moves,
    partial_size,
    power_of_two,
    row_bytes,
    vector_along,
)
from aicf.backends.cuda.families.records import CLUSTER_BLOCKS
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch

_LINE_BYTES = 128
"""What a block has of each row where columns are few: they come together in a line of the cache."""
_ALONE_READS = {"cluster": 64 << 10, "parts": 128 << 10}
"""Most bytes that a block reads by itself before blocks of a cluster share columns, and before they come in parts,
which take another launch."""


_PARTS_THREADS = 512
_PARTS_WORDS = 40
"""Registers of a thread for what is in flight where columns come in parts: 16 warps keep memory busy so."""


def by_columns(nest: LoopNest, offsets: Sequence[int], arch: GpuArch) -> GeneratedSpec:
    """Wide blocks where they fill the GPU; else narrow ones, which share columns where those are long."""
    vector = vector_along(nest, nest.parallel_dims[-1], offsets)
    strategy = "columns" if moments_of(nest.kernel) is None else "online_columns"
    across = min(32, power_of_two(-(-nest.parallel_size // vector)))
    threads = 256
    while threads > 64 and threads // across > nest.reduce_size:
        threads //= 2
    blocks = -(-nest.parallel_size // (vector * across))
    if blocks >= 2 * arch.multiprocessors:
        return _in_shared_memory(nest, GeneratedSpec(strategy, vector, threads, threads // across, 4, 1))
    spec = _narrow_columns(nest, strategy, vector, arch)
    is_long = block_bytes(nest, replace(spec, splits=1)) > _ALONE_READS["cluster"]
    return (is_long and arch.has_clusters and _cluster_of(nest, spec, arch)) or spec


def _narrow_columns(nest: LoopNest, strategy: str, vector: int, arch: GpuArch) -> GeneratedSpec:
    """As few parts as fill the GPU, since every block of a later launch reads what all parts left of its columns."""
    line = max(1, _LINE_BYTES // (vector * narrowest(nest)))
    across = min(power_of_two(-(-nest.parallel_size // vector)), line)
    blocks = -(-nest.parallel_size // (vector * across))
    wanted = 1
    if nest.reduce_size * across * vector * row_bytes(nest) > _ALONE_READS["parts"]:
        wanted = arch.multiprocessors // blocks
        wanted = wanted if wanted > 1 else max(1, 2 * arch.multiprocessors // blocks)
    threads = _PARTS_THREADS
    while threads > max(64, across) and wanted * 2 * (threads // across) > nest.reduce_size:
        threads //= 2
    lanes = threads // across
    splits = max(1, min(wanted, nest.reduce_size // (2 * lanes)))
    rows = -(-nest.reduce_size // (splits * lanes))
    turns = -(-rows // max(1, 4 * _PARTS_WORDS // (vector * max(1, row_bytes(nest)))))
    return _in_shared_memory(nest, GeneratedSpec(strategy, vector, threads, lanes, -(-rows // turns), splits))


def _in_shared_memory(nest: LoopNest, spec: GeneratedSpec) -> GeneratedSpec:
    """With fewer threads to a column if what they add up does not fit."""
    while spec.threads > max(32, spec.threads // spec.lanes) and board_bytes(nest, spec) > EXCHANGE_BYTES:
        spec = replace(spec, threads=spec.threads // 2, lanes=spec.lanes // 2)
    return spec


_CLUSTER_READS = 256 << 10
"""Most bytes that a block of a cluster reads by itself: about what another launch takes."""
_CLUSTER_WORDS = 64
"""Registers of a thread for what is in flight."""


def _cluster_of(nest: LoopNest, parts: GeneratedSpec, arch: GpuArch) -> GeneratedSpec | None:
    """What would be launches over `parts` of columns as one launch of clusters; None where columns are too few to fill
    the GPU that way and too long, or too short, or where more is written than one element a column.

    Blocks have 128 bytes of each row, and where that leaves most of the GPU idle 64: those come together.
    """
    if any(nest.kernel.writes_reduce_space(output) for output in range(len(nest.kernel.out_maps))):
        return None
    threads, across = 256, min(8, parts.threads // parts.lanes)
    vectors = nest.parallel_size // parts.vector
    while across * parts.vector * narrowest(nest) > 64 and -(-vectors // across) * CLUSTER_BLOCKS < (
        arch.multiprocessors // 3
    ):
        across //= 2
    lanes, cluster = threads // across, CLUSTER_BLOCKS
    while cluster > 1 and cluster * lanes > nest.reduce_size:
        cluster //= 2
    spec = GeneratedSpec("columns", parts.vector, threads, lanes, 1, 1, cluster=cluster)
    if cluster == 1 or block_bytes(nest, spec) > _CLUSTER_READS or spec.problem(nest) is not None:
        return None
    words = max(1, parts.vector * row_bytes(nest) // 4)
    steps = min(-(-spec.span(nest) // lanes), max(1, _CLUSTER_WORDS // words))
    return replace(spec, unroll=1 << (steps.bit_length() - 1))


FIXED_ACROSS = 32
"""Neighbouring columns of a block."""


def fixed_columns(nest: LoopNest) -> GeneratedSpec:
    """Threads to a column by its length alone."""
    threads = 256
    while threads > 64 and threads // FIXED_ACROSS > nest.reduce_size:
        threads //= 2
    return GeneratedSpec("columns", 1, threads, threads // FIXED_ACROSS, 4, 1)


# Sums of columns beside rows

_SUM_WORDS = {32: 176, 128: 64, 256: 64, 512: 64}
"""For each number of threads that a row may have, the most registers of one for its elements and the sums of their
columns: where a warp has a row nobody waits at barriers, which is worth fewer warps."""
_OTHER_WORDS = 48
"""Registers of a thread for the rest."""
_SM_WORDS = 64 << 10
"""Registers of a multiprocessor."""
_SM_THREADS = 512
"""Threads of a multiprocessor that walk over rows: enough to keep memory busy, and few parts to combine."""


def sums_of_columns(nest: LoopNest, offsets: Sequence[int], arch: GpuArch) -> GeneratedSpec:
    """As many blocks as are on the GPU together, each of which walks over rows: the fewer, the fewer parts."""
    vector = vector_along(nest, nest.reduce_dims[-1], offsets) if nest.reduce_dims else 1
    spec = _walking(nest, vector, arch)
    while spec.vector > 1 and exchange_bytes(nest, spec) > EXCHANGE_BYTES:
        spec = _walking(nest, spec.vector // 2, arch)
    return spec


def _walking(nest: LoopNest, vector: int, arch: GpuArch) -> GeneratedSpec:
    """The same with vectors of so many elements."""
    vectors, words = -(-nest.reduce_size // vector), vector * words_with_sums(nest)
    fitting = (lanes for lanes, held in _SUM_WORDS.items() if -(-vectors // lanes) * words <= held)
    lanes = min(next(fitting, max(_SUM_WORDS)), max(1, power_of_two(vectors)))
    chunks, threads = -(-vectors // lanes), max(128, lanes)
    together = int(_SM_WORDS / (threads * (chunks * words + _OTHER_WORDS)))
    blocks_per_sm = max(1, min(together, _SM_THREADS // threads))
    rows = -(-nest.parallel_size // (threads // lanes))
    splits = max(2, min(blocks_per_sm * arch.multiprocessors, rows))
    return GeneratedSpec(
        "column_sums", vector, threads, lanes, chunks, splits, blocks_per_sm=blocks_per_sm, late=True
    )


def words_with_sums(nest: LoopNest) -> float:
    """Registers that an element of a row takes between two phases, with that of the next row and what is summed of its
    column."""
    moving = (n for n in inputs_of_cells(nest) if nest_moves(nest, n))
    ahead = sum(ELEMENT_BYTES[nest.accesses[number].dtype] for number in moving)
    return element_words(nest) + (ahead + sum(map(partial_size, accumulate_ops(nest.kernel)))) / 4


def holds_sums(nest: LoopNest, spec: GeneratedSpec) -> bool:
    """Whether a thread has registers for its part of a row and the sums of its columns."""
    held = _SUM_WORDS[32 if spec.lanes <= 32 else max(_SUM_WORDS)]
    return spec.unroll * spec.vector * words_with_sums(nest) <= held
