"""The loops of a generated kernel and every decision about them, with a cost prior. Imports no code generator.

`choose` decides how a `LoopNest` is vectorised; `template.py` emits that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Annotated

from xdsl.ir import Operation, SSAValue

from aicf.backends.common.lanes import LaneSteps
from aicf.backends.common.loop_nest import LoopNest, element_types, load_ops, reduces_innermost
from aicf.backends.common.record import Entry, OneOf, Whole, illegal
from aicf.backends.cpu.families.gemm.schedule import MEETING_CYCLES, NOMINAL_GHZ
from aicf.backends.cpu.families.loops.scalar_costs import POINT_FACTORS, SCALAR_CYCLES
from aicf.backends.cpu.families.vectors import VECTOR_LANES, lanes_reason
from aicf.backends.cpu.target import ELEMENT_BYTES, FLOATS, MAX_SHUFFLED, CpuLevel, register_bytes
from aicf.dialects.emit_kernels import (
    IndexOp,
    KernelOp,
    LoadOp,
    ReduceOp,
    ScanOp,
    StoreOp,
    YieldOp,
    scans_of,
)
from aicf.dialects.types import element_of

RESIDENT_VECTORS = 8
"""Rows of up to this many vectors stay in registers from phase to phase."""
SCRATCH_BYTES = 32 << 10
"""Per-point values that a later phase reads again are kept on the stack up to this size, else computed again."""

SUM_BLOCK = 32
"""Terms that a sum adds one after the other. Its error grows with the longest chain of additions: blocks of 32, and
blocks of those, make a chain of 32 for each factor of 32 in the length. Measured to take no more time than one chain;
rows of norms up to a thousand have no blocks."""

_COLUMN_STORE_CYCLES = 30
"""Of each cache line of a result that is written down columns: one line of a page, then the next page. Measured on a
server core with 2 MiB of L2, beside the same writes along rows: 5 where all fits there, 30 for 1.5 MiB in all, 60 and
more beyond."""
_LINE_BYTES = 64

_ROW_CYCLES = 1.0
"""Of a point whose reduce space is walked in vectors: its loop, beside what else it does. Processors work on several
rows at once, so that little of what one row waits for is seen."""
_LANES_CYCLES = 3.0
"""Of one reduction of such a point: its partial results combined, first over vectors, then over lanes."""
_PARTIAL_STORE_CYCLES = 10.0
"""Of storing a part of a vector of less than `_MASKED_BYTES` bytes: there masks are a slow path. Measured between 3 and
20, by the maker of the processor."""
_MASKED_BYTES = 64

_STRUCTURE_CYCLES: Mapping[type[Operation], float] = {
    YieldOp: 0,
    StoreOp: 1,
    ReduceOp: 1,
    ScanOp: 8,
    IndexOp: 0.5,
    LoadOp: 1,
}
"""The same for what a phase holds besides scalar ops."""


@dataclass(frozen=True)
class LoopSpec:
    """Every decision about the code of a nest."""

    vector_dim: Annotated[int, Entry(Whole(-1))]
    """Index into the nest's dims, -1 for scalar code."""
    lanes: Annotated[int, Entry(VECTOR_LANES)]
    unroll: Annotated[int, Entry(Whole(1, RESIDENT_VECTORS))]
    """Vectors handled side by side."""
    threads: Annotated[int, Entry(Whole(1))] = 1
    partition_dim: Annotated[int, Entry(Whole(-1))] = -1
    """The parallel dim whose range is cut into one share per thread; -1 if one thread does it all."""
    rounding: str = "fused"
    """`fused` rounds f16 and bf16 values where they are stored or cast to, `strict` after every op."""
    sum_block: int = 0
    """Terms of a sum that are added one after the other: the sums of such blocks are added in blocks again. 0: all."""

    def blocks(self, count: int, terms: int) -> tuple[int, ...]:
        """Steps of a loop of `count` steps that become one block, of the innermost blocks first.

        Each step adds `terms` terms to a sum; there are no blocks where all of them fit one.
        """
        if not self.sum_block or count * terms <= self.sum_block:
            return ()
        sizes = [max(1, self.sum_block // terms)]
        while -(-count // sizes[-1]) > self.sum_block:
            sizes.append(sizes[-1] * self.sum_block)
        return tuple(sizes)

    def combination_order(self, nest: LoopNest) -> str:
        """How reductions are combined, for the kernel record."""
        if not nest.reduce_dims:
            return "none"
        ops = [op for phase in nest.kernel.phases for op in phase.body.block.ops]
        chain = (
            f"ascending in blocks of {self.sum_block}, and blocks of those" if self.sum_block else "ascending"
        )
        if self.vector_dim not in nest.reduce_dims:
            return f"in the order of the scans; {chain}" if scans_of(ops) else chain
        orders: list[str] = []
        if any(isinstance(op, ReduceOp) for op in ops):
            orders.append(f"{self.unroll * self.lanes} strided partial results, each {chain}, added pairwise")
        if scans_of(ops):
            orders.append(f"prefixes of {self.lanes} lanes, each added to the preceding prefix")
        return "; ".join(orders) or "none"


def check_loops(nest: LoopNest, spec: LoopSpec) -> str | None:
    """None if there is code for `spec`, else what contradicts."""
    dims = Whole(-1, len(nest.dims) - 1)
    if not dims.holds(spec.vector_dim):
        return f"its {illegal('vector_dim', spec.vector_dim, dims)}"
    scalar = OneOf((1,))
    if spec.vector_dim < 0 and (spec.lanes, spec.unroll) != (1, 1):
        key, value = ("lanes", spec.lanes) if spec.lanes != 1 else ("unroll", spec.unroll)
        return f"its {illegal(key, value, scalar)} where no loop is vectorised"
    if (reason := lanes_reason(spec.lanes, widest_type(nest))) is not None:
        return reason
    shared = OneOf((-1,) if spec.threads == 1 else nest.parallel_dims)
    if not shared.holds(spec.partition_dim):
        return f"its {illegal('partition_dim', spec.partition_dim, shared)} for {spec.threads} threads"
    if spec.sum_block == 1:
        return f"its {illegal('sum_block', 1, '0, or 2 or more')}"
    return None


def widest_type(nest: LoopNest) -> str:
    """The element type with the widest registers, of those that values of a nest have."""
    types = sorted(dtype for dtype in element_types(nest.kernel) if dtype != "i1")
    return max(types, key=register_bytes, default="f32")


def _vector_score(nest: LoopNest, index: int, lanes: int) -> float:
    """Higher is better: contiguous accesses, full vectors, inner position."""
    dim = nest.dims[index]
    strided = sum(map(_apart, dim.strides))
    if not dim.is_reduce:
        strided += 2 * sum(_apart(stride) if stride else 1.0 for stride in dim.strides[nest.inputs :])
    filled = dim.size / (max(1, -(-dim.size // lanes)) * lanes)
    horizontal = 0.3 if dim.is_reduce else 0.0
    return filled * 2 - strided * 1.5 - horizontal + 0.01 * index


def _apart(stride: int) -> float:
    """What it costs that the lanes of a vector are a stride apart, between 0 and 1."""
    if stride in (0, 1):
        return 0.0
    return 0.3 if stride <= MAX_SHUFFLED else 1.0


def sharings(
    nest: LoopNest, level: CpuLevel, threads: int, fixed: bool = False, rounding: str = "fused"
) -> list[LoopSpec]:
    """The decisions for one thread, and for all if there is a dim that they can share; otherwise as `choose`."""
    alone = _alone(nest, level, fixed, rounding)
    dim = _partition(nest, alone.vector_dim, alone.lanes * alone.unroll, threads)
    return [alone] if dim < 0 else [alone, replace(alone, threads=threads, partition_dim=dim)]


def choose(
    nest: LoopNest, level: CpuLevel, threads: int, fixed: bool = False, rounding: str = "fused"
) -> LoopSpec:
    """The decisions: the dim with contiguous, full vectors is vectorised; threads share a parallel dim if that is
    predicted to take less time, the meeting of the threads included.

    With `fixed` the order of combination depends on reduced sizes alone, and so does the choice between vectors along a
    reduce dim and along a parallel one.
    """
    found = sharings(nest, level, threads, fixed, rounding)
    return found[0] if len(found) == 1 else min(found, key=lambda spec: cost_us(nest, spec))


def _alone(nest: LoopNest, level: CpuLevel, fixed: bool, rounding: str) -> LoopSpec:
    lanes = max(1, level.vector_bytes // register_bytes(widest_type(nest)))
    block = SUM_BLOCK if _adds_floats(nest) else 0
    scalar = LoopSpec(-1, 1, 1, rounding=rounding, sum_block=block)
    if not nest.dims:
        return scalar
    legal = _fixed_dims(nest) if fixed and nest.reduce_dims else range(len(nest.dims))
    if not legal:
        return scalar
    vector = max(legal, key=lambda index: _vector_score(nest, index, lanes))
    dim = nest.dims[vector]
    vectors = max(1, -(-dim.size // lanes))
    resident = dim.is_reduce and len(nest.reduce_dims) == 1 and vectors <= RESIDENT_VECTORS
    light = point_cycles(nest.kernel) < 12
    unroll = vectors if resident else max(1, min(4 if light or nest.reduce_dims else 1, dim.size // lanes))
    return LoopSpec(vector, lanes, unroll, rounding=rounding, sum_block=block)


def _adds_floats(nest: LoopNest) -> bool:
    """Whether the order of additions shows in a result."""
    ops = (op for phase in nest.kernel.phases for op in phase.body.block.ops)
    return any(
        isinstance(op, ReduceOp) and op.combine.data == "sum" and element_of(op.value.type).name in FLOATS
        for op in ops
    )


def _fixed_dims(nest: LoopNest) -> tuple[int, ...]:
    """The dims that may be vectorised if the order is fixed: the innermost reduce dim, or the parallel ones."""
    return nest.reduce_dims[-1:] if reduces_innermost(nest.kernel) else nest.parallel_dims


def _partition(nest: LoopNest, vector: int, chunk: int, threads: int) -> int:
    """The parallel dim to share among threads, -1 if none has enough for all of them."""
    if threads == 1 or not nest.parallel_dims:
        return -1
    shares = {i: nest.dims[i].size // chunk if i == vector else nest.dims[i].size for i in nest.parallel_dims}
    best = max(nest.parallel_dims, key=lambda i: (shares[i] >= threads, -i))
    return best if shares[best] >= threads else -1


def point_cycles(kernel: KernelOp) -> float:
    """Cycles of one vector through all phases."""
    return sum(_op_cycles(type(op)) for phase in kernel.phases for op in phase.body.block.ops)


def _cycles_by_nesting(kernel: KernelOp, scalar_points: bool) -> tuple[float, float]:
    """Cycles of one vector of the reduce space through all phases, and of what is computed once for a point, or for one
    vector of points."""
    varying = kernel.varying_values()
    cycles = {True: 0.0, False: 0.0}
    for phase in kernel.phases:
        for op in phase.body.block.ops:
            varies = _varies(kernel, op, varying)
            factor = POINT_FACTORS.get(type(op), 1.0) if scalar_points and not varies else 1.0
            cycles[varies] += factor * _op_cycles(type(op))
    return cycles[True], cycles[False]


def _varies(kernel: KernelOp, op: Operation, varying: Collection[SSAValue]) -> bool:
    """Whether an op of a phase runs at every point of the reduce space."""
    if isinstance(op, StoreOp):
        return kernel.writes_reduce_space(op.output.value.data)
    return isinstance(op, ReduceOp) or any(result in varying for result in op.results)


def _op_cycles(op: type[Operation]) -> float:
    return SCALAR_CYCLES[op] if op in SCALAR_CYCLES else _STRUCTURE_CYCLES[op]


def cost_us(nest: LoopNest, spec: LoopSpec) -> float:
    """Predicted microseconds of one thread's share: arithmetic against memory traffic from L2."""
    cycles = max(_arithmetic_cycles(nest, spec), _traffic_cycles(nest, spec))
    meeting = MEETING_CYCLES if spec.threads > 1 else 0.0
    return (cycles / spec.threads + 20 + meeting) / NOMINAL_GHZ / 1000


def _arithmetic_cycles(nest: LoopNest, spec: LoopSpec) -> float:
    """Cycles of all vectors, a part of one as a whole one, and of what each point or part of a vector takes besides."""
    points, steps = max(1, nest.parallel_size), max(1, nest.reduce_size)
    inner = spec.vector_dim in nest.reduce_dims
    size = nest.dims[spec.vector_dim].size if spec.vector_dim >= 0 else 1
    vectors = points * steps * -(-size // spec.lanes) / max(1, size)
    width = max((register_bytes(access.dtype) / 4 for access in nest.accesses), default=1.0)
    swept, hoisted = _cycles_by_nesting(nest.kernel, scalar_points=inner)
    cycles = swept * width * vectors + _partial_store_cycles(nest, spec)
    if not inner:
        return cycles + hoisted * width * vectors / steps
    reductions = sum(isinstance(op, ReduceOp) for op in _ops(nest.kernel))
    return cycles + points * (hoisted * width + _ROW_CYCLES + _LANES_CYCLES * reductions)


def _partial_store_cycles(nest: LoopNest, spec: LoopSpec) -> float:
    """Cycles of the stores of what is left over where vectors do not fill a dimension, beyond those of whole vectors.
    One element needs no mask."""
    vector = nest.dims[spec.vector_dim] if spec.vector_dim >= 0 else None
    if vector is None or vector.size % spec.lanes < 2:
        return 0.0
    rows = nest.parallel_size // (1 if vector.is_reduce else vector.size)
    steps = nest.reduce_size // (vector.size if vector.is_reduce else 1)
    cycles = 0.0
    for op in _ops(nest.kernel):
        if not isinstance(op, StoreOp) or not vector.strides[number := nest.inputs + op.output.value.data]:
            continue
        masked = spec.lanes * register_bytes(nest.accesses[number].dtype) >= _MASKED_BYTES
        times = rows * (steps if nest.kernel.writes_reduce_space(op.output.value.data) else 1)
        cycles += times * (1.0 if masked else _PARTIAL_STORE_CYCLES)
    return cycles


def _ops(kernel: KernelOp) -> Iterator[Operation]:
    return (op for phase in kernel.phases for op in phase.body.block.ops)


def _traffic_cycles(nest: LoopNest, spec: LoopSpec) -> float:
    """Cycles of all reads and writes, from L2."""
    cycles = 0.0
    for number, access in enumerate(nest.accesses):
        size = ELEMENT_BYTES[access.dtype]
        touched = prod(dim.size for dim in nest.dims if dim.strides[number])
        stride = 1 if spec.vector_dim < 0 else nest.dims[spec.vector_dim].strides[number]
        cycles += touched * (max(stride, 1) * size / 24 if stride <= MAX_SHUFFLED else 2.0)
        if number >= nest.inputs and _goes_down_columns(nest, spec, number):
            cycles += touched * size / _LINE_BYTES * _COLUMN_STORE_CYCLES
    steps = LaneSteps(nest, spec.vector_dim if spec.vector_dim >= 0 else None, spec.lanes)
    for load in load_ops(nest.kernel):
        size = ELEMENT_BYTES[element_of(load.result.type).name]
        points = max(1, nest.parallel_size) * max(1, nest.reduce_size)
        cycles += points * (size / 24 if steps.load_step(load) in (0, 1) else 2.0)
    return cycles


def _goes_down_columns(nest: LoopNest, spec: LoopSpec, number: int) -> bool:
    """Whether an access has a vector of neighbouring columns in one row after the other."""
    across = spec.vector_dim in nest.parallel_dims
    return across and any(nest.dims[dim].strides[number] for dim in nest.reduce_dims)
