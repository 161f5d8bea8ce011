"""What generated kernels are predicted to take, in microseconds. `schedule.py` decides about them."""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import MemRefType

from aicf.backends.common.lanes import LaneSteps
from aicf.backends.common.loop_nest import LoopNest, load_ops
from aicf.backends.cuda.families.loops.phase_pairs import reductions_of
from aicf.backends.cuda.families.loops.schedule import (
    GeneratedSpec,
    block_bytes,
    partial_bytes,
    parts_together,
)
from aicf.backends.cuda.families.loops.spaces import access_bytes, partial_size, scan_ops
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch
from aicf.dialects.emit_kernels import LoadOp, ReduceOp
from aicf.dialects.types import element_of

_START_US = {True: 0.9, False: 2.0}
"""Of a launch, with programmatic launch and without: with it, the blocks of the next kernel are there when the last of
its predecessor end. The first is what products inside a transformer take on an H100 before they read, as in
`gemm/mma/kernel.py`; the second is a round figure for an edge of a graph."""
_LATENCY_US = 0.4
"""From asking for memory to having it. What a thread loads before it waits comes together, however little it is."""


_BLOCK_GBS = 100
"""What one multiprocessor reads from L2: 64 bytes a cycle."""
_HANDOVER_US = 1.5
"""More for each launch that reads what the one before has left: that must have ended in every block. A group norm of
four rows of 262144 halves, three launches, took 8.9 us on an H100."""
_MEETING_US = 1.0
"""From the last element to the sums of a cluster: threads, warps, then blocks, which tell each other theirs.

Measured on an H100 against what `cost_us` says: sums of 4096 rows of bf16, 2.5 for 256 columns (2.5), 3.7 for 1024
(3.7); of 1024 rows of f32, 2.5 for 512 columns (2.5). Two launches take 5.6, 6.5 and 3.7.
"""


def cost_us(nest: LoopNest, spec: GeneratedSpec, arch: GpuArch) -> float:
    """Predicted microseconds: launches; reads, at the bandwidth or by latencies where those are longer; and writes,
    which nobody waits for.

    Measured on an H100 against what this says: layer norms of f16 with 768 columns between two products, 1.3 for 128
    rows (1.4) and 1.5 for 1024 (2.0, for they read what is still in L2); 180 for 16384 rows of 4096 in f32 (183).
    """
    launches = _launches(nest, spec)
    narrow = min(1.0, 0.4 + 0.15 * spec.vector * min(ELEMENT_BYTES[a.dtype] for a in nest.accesses))
    bandwidth = arch.bandwidth_gbs * narrow * 1e3
    read = _read(nest, spec)
    read += sum(_loaded(nest, spec, op) for op in load_ops(nest.kernel))
    written = sum(access_bytes(nest, number) for number in range(nest.inputs, len(nest.accesses)))
    if spec.strategy == "column_sums":
        written += 2 * partial_bytes(nest, spec)
    waits = max(1, _sweeps(nest, spec)) * _rounds(nest, spec) * _LATENCY_US
    if spec.cluster > 1:
        meetings = sum(
            any(isinstance(op, ReduceOp) for op in phase.body.block.ops) for phase in nest.kernel.phases
        )
        waits = max(waits, block_bytes(nest, spec) / _BLOCK_GBS / 1e3) + _MEETING_US * meetings
    handed_over = _HANDOVER_US * (launches - 1) + _parts_us(nest, spec)
    return start_us(arch) * launches + handed_over + max(read / bandwidth, waits) + written / bandwidth


def last_launch_us(nest: LoopNest, spec: GeneratedSpec, arch: GpuArch) -> float:
    """Predicted microseconds of the last launch alone, which reads the parts that another has left."""
    return start_us(arch) + _HANDOVER_US + _parts_us(nest, spec)


def _sweeps(nest: LoopNest, spec: GeneratedSpec) -> int:
    """How often a thread walks over its row or columns."""
    if not spec.by_columns:
        return spec.sweeps(nest)
    joined = spec.joined_phase(nest)
    return sum(
        nest.kernel.sweeps_reduce_space(phase) for at, phase in enumerate(nest.kernel.phases) if at != joined
    )


def _launches(nest: LoopNest, spec: GeneratedSpec) -> int:
    if spec.strategy == "column_sums":
        return 2
    return len(spec.launches(nest))


def start_us(arch: GpuArch) -> float:
    """Predicted microseconds of a launch that reads and writes nothing."""
    return _START_US[arch.has_programmatic_launch]


_WARP = 32
"""Threads that read at once."""
_SECTOR_BYTES = 32
"""What a multiprocessor asks of L2 at least."""


def _sectors(nest: LoopNest, spec: GeneratedSpec, number: int) -> float:
    """How many times an operand's bytes are moved, because neighbouring threads read what lies far apart: along rows,
    or along the innermost dim of the results, where that is another one of the operand and no tile turns it.

    Measured on an H100: a group norm of 128 x 64 x 64 in f16 along rows of channels-last memory took 34 us, and one of
    twice as many channels along rows that lie side by side 9.
    """
    dim = spec.vector_dim(nest)
    if dim is None or spec.strategy == "tiles":  # through shared memory
        return 1.0
    size, step = ELEMENT_BYTES[nest.accesses[number].dtype], abs(nest.dims[dim].strides[number])
    return min(_SECTOR_BYTES / size, max(1, step))


def _loaded(nest: LoopNest, spec: GeneratedSpec, op: LoadOp) -> float:
    """Bytes of what is read at indices: an element a point, but all of the memory at most, as windows share theirs.
    Half as often as other operands where neighbouring threads read what lies far apart: more of it is still in L2.

    Measured on an H100: 6.4 million halves with zeros between them, written along rows and read from channels-last
    memory, took 55 us (53).
    """
    memory = op.memory.type
    assert isinstance(memory, MemRefType)
    points, size = prod(dim.size for dim in nest.dims), ELEMENT_BYTES[element_of(op.result.type).name]
    again = max(1.0, min(_SECTOR_BYTES / size, _load_step(nest, spec, op)) / 2)
    return again * min(points, prod(memory.get_shape())) * size


def _load_step(nest: LoopNest, spec: GeneratedSpec, op: LoadOp) -> int:
    """Elements in memory between what neighbouring threads of a warp read at indices; 1 where it is no constant."""
    farthest, threads, dim = 1, 1, spec.vector_dim(nest)
    while dim is not None and dim >= 0 and threads < _WARP:
        farthest = max(farthest, abs(LaneSteps(nest, dim).load_step(op) or 1))
        threads *= nest.dims[dim].size
        dim -= 1
    return farthest


_PARTS_GBS = 6500
"""At what rate all multiprocessors together read from L2 what parts of rows or columns have left.

Measured on an H100 against what `cost_us` says, batch norms of bf16 in so many parts of 256 threads that this was most
of the time: of 32 x 56 x 56 elements in each of 64 columns, in 528 parts, 66 us (56); 256 columns in 264 parts, 127
(125), and two such norms in one kernel 193 (194); of 32 x 28 x 28 elements in 128 columns, in 392 parts, 43 (51).
Gradients of the first, 52 (58), and of the last, 52 (50).
"""
_TURN_US = 0.6
"""From asking for parts to having added them."""


def _parts_us(nest: LoopNest, spec: GeneratedSpec) -> float:
    """What later launches take for the totals of earlier ones: every block reads what all parts have of its rows or
    columns."""
    if spec.splits == 1 or spec.strategy == "column_sums":
        return 0.0
    each = -(-nest.parallel_size // spec.blocks(nest)) * spec.splits
    turns = -(-spec.splits // (spec.lanes * parts_together(nest, spec)))
    total = 0.0
    for run, parts in spec.launches(nest):
        sizes = [partial_size(op) for phase in nest.kernel.phases[: run[0]] for op in reductions_of(phase)]
        moved = spec.blocks(nest) * parts * each * sum(sizes)
        total += max(moved / _PARTS_GBS / 1e3, turns * _TURN_US) if sizes else 0.0
    return total


def _read(nest: LoopNest, spec: GeneratedSpec) -> float:
    """Bytes of all inputs, as often as they are read."""
    sizes = [access_bytes(nest, number) * _sectors(nest, spec, number) for number in range(nest.inputs)]
    if spec.by_columns:
        return sum(size * _phases_that_read(nest, spec, number) for number, size in enumerate(sizes))
    again = 2 if scan_ops(nest) and spec.splits > 1 and spec.strategy != "scan_chain" else 1
    return sum(sizes) * (1 + 0.5 * max(0, spec.sweeps(nest) - 1)) * again


def _phases_that_read(nest: LoopNest, spec: GeneratedSpec, number: int) -> int:
    """How many sweeps over columns read an input; one where it is read once for a column."""
    uses = {use.operation.parent_op() for use in nest.kernel.body.block.args[number].uses}
    joined = spec.joined_phase(nest)
    phases = [phase in uses for at, phase in enumerate(nest.kernel.phases) if at != joined]
    return sum(phases) if any(nest.dims[dim].strides[number] for dim in nest.reduce_dims) else 1


def _rounds(nest: LoopNest, spec: GeneratedSpec) -> int:
    """How often a thread loads and waits in one sweep."""
    if spec.strategy == "column_sums":
        rows = -(-nest.parallel_size // (spec.splits * (spec.threads // spec.lanes)))
        return rows + 1  # and what the second launch reads
    if not (spec.reads_again or spec.by_columns or spec.strategy in ("scan_rows", "scan_columns")):
        return 1
    together = spec.lanes * spec.unroll * (spec.vector if spec.by_rows else 1)
    return max(1, -(-spec.span(nest) // together))
