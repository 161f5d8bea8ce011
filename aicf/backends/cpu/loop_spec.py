"""The loops of a generated kernel and every decision about them, with a cost prior. Imports no code generator.

An `emit.kernel` and the strides of its operands become a `LoopNest` in normal form (sizes above 1, neighbouring
dims merged where every operand allows it). `choose` decides how it is vectorised; `loops.py` emits that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from xdsl.dialects import arith, math
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineExpr, AffineMap

from aicf.backends.cpu.gemm_spec import NOMINAL_GHZ
from aicf.backends.cpu.target import ELEMENT_BYTES, CpuLevel
from aicf.dialects.emit_kernels import (
    CastOp,
    DivIntOp,
    KernelOp,
    PhaseOp,
    ReduceOp,
    SigmoidOp,
    StoreOp,
    YieldOp,
)
from aicf.dialects.types import element_of

RESIDENT_VECTORS = 8
"""Rows of up to this many vectors stay in registers from phase to phase."""
SCRATCH_BYTES = 32 << 10
"""Per-point values that a later phase reads again are kept on the stack up to this size, else computed again."""

_OP_CYCLES: dict[type[Operation], float] = {
    math.ExpOp: 11,
    math.LogOp: 20,
    math.TanhOp: 16,
    math.ErfOp: 20,
    SigmoidOp: 20,
    math.SqrtOp: 14,
    math.RsqrtOp: 22,
    arith.DivfOp: 9,
    DivIntOp: 60,
    CastOp: 2,
    arith.MaximumfOp: 1.5,
    arith.MinimumfOp: 1.5,
    arith.ConstantOp: 0,
    YieldOp: 0,
    StoreOp: 1,
    ReduceOp: 1,
}
"""Cycles for one vector of f32; everything else takes half a cycle."""


@dataclass(frozen=True)
class Access:
    """Where a kernel reads or writes one operand: element ``offset + sum(strides[d] * i[d])``."""

    dtype: str
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Dim:
    """One loop. `strides` has one entry per access, inputs first."""

    size: int
    is_reduce: bool
    strides: tuple[int, ...]


@dataclass(frozen=True)
class LoopNest:
    """A generated kernel with its loops in normal form."""

    kernel: KernelOp
    dims: tuple[Dim, ...]
    """Parallel dims, then reduce dims, outermost first."""
    accesses: tuple[Access, ...]
    inputs: int
    """How many of the accesses are reads."""

    @property
    def reduce_size(self) -> int:
        """Points of the reduce space."""
        return prod(self.kernel.reduce_sizes)

    @property
    def parallel_size(self) -> int:
        """Points of the parallel space."""
        return prod(self.kernel.parallel_sizes)

    @property
    def parallel_dims(self) -> tuple[int, ...]:
        """Indices into `dims`."""
        return tuple(i for i, dim in enumerate(self.dims) if not dim.is_reduce)

    @property
    def reduce_dims(self) -> tuple[int, ...]:
        """Indices into `dims`."""
        return tuple(i for i, dim in enumerate(self.dims) if dim.is_reduce)


@dataclass(frozen=True)
class LoopSpec:
    """Every decision about the code of a nest."""

    vector_dim: int
    """Index into the nest's dims, -1 for scalar code."""
    lanes: int
    unroll: int
    """Vectors handled side by side."""
    threads: int = 1
    partition_dim: int = -1
    """The parallel dim whose range is cut into one share per thread; -1 if one thread does it all."""

    def combination_order(self, nest: LoopNest) -> str:
        """How reductions are combined, for the kernel record."""
        if not nest.reduce_dims:
            return "none"
        if self.vector_dim in nest.reduce_dims:
            return f"{self.unroll * self.lanes} strided partial results, added pairwise"
        return "ascending"


def is_linear(map_: AffineMap) -> bool:
    """Whether every result is a sum of dims times constants."""
    return all(_is_linear(expr) for expr in map_.results)


def _is_linear(expr: AffineExpr) -> bool:
    if not isinstance(expr, AffineBinaryOpExpr):
        return True
    return (
        expr.kind in (AffineBinaryOpKind.Add, AffineBinaryOpKind.Mul)
        and _is_linear(expr.lhs)
        and _is_linear(expr.rhs)
    )


def access_of(map_: AffineMap, strides: Sequence[int], dtype: str) -> Access:
    """The access that a linear index map makes to a buffer with element strides `strides`."""

    return _access_of(map_, tuple(strides), dtype)


@lru_cache(maxsize=4096)
def _access_of(map_: AffineMap, strides: tuple[int, ...], dtype: str) -> Access:
    def element(point: list[int]) -> int:
        return sum(index * step for index, step in zip(map_.eval(point, []), strides, strict=True))

    rank = map_.num_dims
    offset = element([0] * rank)
    units = [[int(dim == other) for other in range(rank)] for dim in range(rank)]
    return Access(dtype, offset, tuple(element(unit) - offset for unit in units))


def nest_of(kernel: KernelOp, strides: Sequence[Sequence[int]], dtypes: Sequence[str]) -> LoopNest:
    """The nest of `kernel` for buffers (inputs, then outputs) with these strides and element types."""
    maps = (*kernel.in_maps, *kernel.out_maps)
    accesses = tuple(access_of(m, s, d) for m, s, d in zip(maps, strides, dtypes, strict=True))
    sizes = [(size, False) for size in kernel.parallel_sizes] + [(size, True) for size in kernel.reduce_sizes]
    dims: list[Dim] = []
    for index, (size, is_reduce) in enumerate(sizes):
        if size == 1:
            continue
        dim = Dim(size, is_reduce, tuple(access.strides[index] for access in accesses))
        if dims and dims[-1].is_reduce == is_reduce and _steps_over(dims[-1], dim):
            dims[-1] = Dim(dims[-1].size * size, is_reduce, dim.strides)
        else:
            dims.append(dim)
    return LoopNest(kernel, tuple(dims), accesses, len(kernel.in_maps))


def _steps_over(outer: Dim, inner: Dim) -> bool:
    """Whether for every access the outer dim continues where the inner one ends."""
    return all(o == i * inner.size for o, i in zip(outer.strides, inner.strides, strict=True))


def value_types(kernel: KernelOp) -> set[str]:
    """Element types of all values of a kernel."""
    values: list[SSAValue] = list(kernel.body.block.args)
    for phase in kernel.phases:
        for op in phase.body.block.ops:
            values.extend(op.results)
    return {element_of(value.type).name for value in values}


def _vector_score(nest: LoopNest, index: int, lanes: int) -> float:
    """Higher is better: contiguous accesses, full vectors, inner position."""
    dim = nest.dims[index]
    strided = sum(stride not in (0, 1) for stride in dim.strides)
    strided += 2 * sum(stride != 1 for stride in dim.strides[nest.inputs :] if not dim.is_reduce)
    filled = dim.size / (max(1, -(-dim.size // lanes)) * lanes)
    horizontal = 0.3 if dim.is_reduce else 0.0
    return filled * 2 - strided * 1.5 - horizontal + 0.01 * index


def choose(nest: LoopNest, level: CpuLevel, threads: int) -> LoopSpec:
    """The decisions: the dim with contiguous, full vectors is vectorised; the outermost parallel dim is shared."""
    widest = max((ELEMENT_BYTES[dtype] for dtype in value_types(nest.kernel) if dtype != "i1"), default=4)
    lanes = max(1, level.vector_bytes // widest)
    if not nest.dims:
        return LoopSpec(-1, 1, 1)
    vector = max(range(len(nest.dims)), key=lambda index: _vector_score(nest, index, lanes))
    dim = nest.dims[vector]
    vectors = max(1, -(-dim.size // lanes))
    resident = dim.is_reduce and len(nest.reduce_dims) == 1 and vectors <= RESIDENT_VECTORS
    light = point_cycles(nest.kernel) < 12
    unroll = vectors if resident else max(1, min(4 if light or nest.reduce_dims else 1, dim.size // lanes))
    partition = _partition(nest, vector, lanes * unroll, threads)
    return LoopSpec(vector, lanes, unroll, 1 if partition < 0 else threads, partition)


def _partition(nest: LoopNest, vector: int, chunk: int, threads: int) -> int:
    """The parallel dim to share among threads, -1 if the work is too little for a barrier to pay."""
    if threads == 1 or not nest.parallel_dims or prod(dim.size for dim in nest.dims) < 16384:
        return -1
    shares = {i: nest.dims[i].size // chunk if i == vector else nest.dims[i].size for i in nest.parallel_dims}
    best = max(nest.parallel_dims, key=lambda i: (shares[i] >= threads, -i))
    return best if shares[best] >= threads else -1


def point_cycles(kernel: KernelOp, *, sweeping: bool | None = None) -> float:
    """Cycles of one vector through all phases, or only those that sweep the reduce space, or only the others."""
    total = 0.0
    for phase in kernel.phases:
        if sweeping is None or kernel.sweeps_reduce_space(phase) == sweeping:
            total += sum(_OP_CYCLES.get(type(op), 0.5) for op in phase.body.block.ops)
    return total


def cost_us(nest: LoopNest, spec: LoopSpec) -> float:
    """Predicted microseconds of one thread's share: arithmetic against memory traffic from L2."""
    points = max(1, nest.parallel_size)
    sweep = points * max(1, nest.reduce_size)
    wide = max(1, spec.lanes)
    inner = spec.vector_dim in nest.reduce_dims
    size = max((ELEMENT_BYTES[access.dtype] for access in nest.accesses), default=4)
    width = size / 4
    arithmetic = point_cycles(nest.kernel, sweeping=True) * width * sweep / wide
    arithmetic += point_cycles(nest.kernel, sweeping=False) * width * points / (1 if inner else wide)
    if inner:
        reductions = sum(
            isinstance(op, ReduceOp) for phase in nest.kernel.phases for op in phase.body.block.ops
        )
        arithmetic += points * (8 + 14 * reductions)
    traffic = 0.0
    for number, access in enumerate(nest.accesses):
        touched = prod(dim.size for dim in nest.dims if dim.strides[number])
        contiguous = spec.vector_dim < 0 or nest.dims[spec.vector_dim].strides[number] in (0, 1)
        traffic += touched * (ELEMENT_BYTES[access.dtype] / 24 if contiguous else 2.0)
    return (max(arithmetic, traffic) / spec.threads + 20) / NOMINAL_GHZ / 1000


def varying_values(kernel: KernelOp) -> set[SSAValue]:
    """Values that differ from point to point of the reduce space; reduced values do not."""
    varying: set[SSAValue] = {
        argument for argument in kernel.body.block.args if kernel.reads_reduce_space(argument)
    }
    for phase in kernel.phases:
        for op in phase.body.block.ops:
            if not isinstance(op, ReduceOp) and any(operand in varying for operand in op.operands):
                varying.update(op.results)
        for result, yielded in zip(phase.results, phase.terminator.operands, strict=True):
            if yielded in varying:
                varying.add(result)
    return varying


def origin(value: SSAValue) -> SSAValue:
    """The value behind the result of a phase: what the phase yields there."""
    while isinstance(value, OpResult) and isinstance(value.op, PhaseOp):
        value = value.op.terminator.operands[value.index]
    return value


def reads(value: SSAValue) -> tuple[SSAValue, ...]:
    """What must be known before `value` can be computed."""
    if isinstance(value, BlockArgument) or not isinstance(value, OpResult):
        return ()
    if isinstance(value.op, PhaseOp):
        return (value.op.terminator.operands[value.index],)
    return tuple(value.op.operands)
