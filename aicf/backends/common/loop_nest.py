"""Generated kernels as loops over memory: what every backend that makes code from `emit.kernel` reads first.

An `emit.kernel` and the strides of its operands become a `LoopNest` in normal form: sizes above 1, neighbouring dims
merged where every operand allows it. How the loops run is each backend's own decision.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, prod

from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineDimExpr, AffineExpr, AffineMap

from aicf.dialects.emit_kernels import (
    AccumulateOp,
    IndexOp,
    KernelOp,
    LoadOp,
    PhaseOp,
    PhiloxOp,
    ReduceOp,
    ScanOp,
    StoreOp,
    YieldOp,
    accumulates_of,
)
from aicf.dialects.types import element_of


@dataclass(frozen=True)
class Strided:
    """An operand: sizes, element strides, element type."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


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
    coordinates: tuple[int | None, ...] = ()
    """For each dim of the kernel the loop that counts it, None if it has one point or none asks for it."""
    indexed: Mapping[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    """Element strides of the operands that are read at computed indices; as accesses they never move."""

    def memory_strides(self, load: LoadOp) -> tuple[int, ...]:
        """Element strides of what `load` reads."""
        assert isinstance(load.memory, BlockArgument)
        return self.indexed[load.memory.index]

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


def sums_type(code: KernelOp | None, results: Sequence[str]) -> str:
    """Element type of the sums of a product or convolution: what its scalar program starts from, or its result's."""
    return results[0] if code is None else element_of(code.body.block.args[0].type).name


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


_STRUCTURE = (YieldOp, StoreOp, ReduceOp, ScanOp, IndexOp, LoadOp)
"""What phases hold besides scalar ops."""


def uncoded_reason(
    code: KernelOp,
    device: str,
    scalar_ops: Container[type[Operation]],
    structure: tuple[type[Operation], ...] = _STRUCTURE,
) -> str | None:
    """Why a scalar program has no code on a device, in a user's words; None if all of its ops have."""
    if not all(is_linear(m) for m in (*code.in_maps, *code.out_maps)):
        return "an operand is not indexed by sums of the loop dims"
    for phase in code.phases:
        for op in phase.body.block.ops:
            if isinstance(op, AccumulateOp) and AccumulateOp not in structure:
                return f"sums of columns beside sums of rows have no code on {device}"
            if type(op) not in scalar_ops and not isinstance(op, structure):
                return f"scalar op {op.name} has no code on {device}"
    return None


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
    """The nest of `kernel` for buffers (inputs, then outputs) with these strides and element types.

    Parallel dims are in the order in which the first output lies, so that the innermost one has neighbours.
    """
    maps = (*kernel.in_maps, *kernel.out_maps)
    indexed = {number: tuple(strides[number]) for number in kernel.indexed}
    still = (0,) * (len(kernel.parallel_sizes) + len(kernel.reduce_sizes))
    accesses = tuple(
        Access(dtype, 0, still) if number in indexed else access_of(map_, steps, dtype)
        for number, (map_, steps, dtype) in enumerate(zip(maps, strides, dtypes, strict=True))
    )
    sizes = [(size, False) for size in kernel.parallel_sizes] + [(size, True) for size in kernel.reduce_sizes]
    counted = {op.number for op in index_ops(kernel)}
    coordinates: list[int | None] = [None] * len(sizes)
    dims: list[Dim] = []
    for index in _memory_order(kernel, accesses, bool(counted)):
        size, is_reduce = sizes[index]
        if size == 1:
            continue
        dim = Dim(size, is_reduce, tuple(access.strides[index] for access in accesses))
        apart = index in counted or len(dims) - 1 in coordinates
        if dims and dims[-1].is_reduce == is_reduce and _steps_over(dims[-1], dim) and not apart:
            dims[-1] = Dim(dims[-1].size * size, is_reduce, dim.strides)
        else:
            dims.append(dim)
        if index in counted:
            coordinates[index] = len(dims) - 1
    return LoopNest(kernel, tuple(dims), accesses, len(kernel.in_maps), tuple(coordinates), indexed)


def _memory_order(kernel: KernelOp, accesses: Sequence[Access], counted: bool) -> list[int]:
    """The dims of a kernel, far steps first: the parallel ones as the first output lies that moves along them, then the
    reduced ones as the first operand does that has all of them. Scans need theirs in the order of the kernel; what is
    `counted` keeps it, too, as its operands may be indexed, and say nothing."""
    count, sizes = len(kernel.parallel_sizes), kernel.reduce_sizes
    summed = {op.output.value.data for op in accumulate_ops(kernel)}
    stored = [number for number in range(len(kernel.out_maps)) if number not in summed]
    steps = accesses[len(kernel.in_maps) + stored[0]].strides if stored else (0,) * count
    parallel = sorted(range(count), key=lambda dim: -abs(steps[dim]))
    reduced = list(range(count, count + len(sizes)))
    if (
        len(sizes) > 1
        and not counted
        and not any(isinstance(op, ScanOp) for phase in kernel.phases for op in phase.body.block.ops)
    ):
        moving = [dim for dim in reduced if sizes[dim - count] > 1]
        whole = next((each for each in accesses if all(each.strides[dim] for dim in moving)), None)
        if whole is not None:
            reduced.sort(key=lambda dim: -abs(whole.strides[dim]) if dim in moving else -inf)
    return [*parallel, *reduced]


def load_ops(kernel: KernelOp) -> list[LoadOp]:
    """Where a kernel reads at computed indices."""
    return [op for phase in kernel.phases for op in phase.body.block.ops if isinstance(op, LoadOp)]


def accumulate_ops(kernel: KernelOp) -> list[AccumulateOp]:
    """Where a kernel combines over its parallel space."""
    return [op for phase in kernel.phases for op in accumulates_of(phase.body.block.ops)]


def index_ops(kernel: KernelOp) -> list[IndexOp]:
    """Where a kernel asks for its coordinates."""
    return [op for phase in kernel.phases for op in phase.body.block.ops if isinstance(op, IndexOp)]


@dataclass(frozen=True)
class Row:
    """A row program at one row.

    Args:
        nest: Its loops over the row.
        strides: From one row to the next, one per access.
    """

    nest: LoopNest
    strides: tuple[int, ...]


def has_even_rows(nest: LoopNest) -> bool:
    """Whether the parallel points of a nest are rows at one distance from each other in every operand."""
    return len(nest.parallel_dims) <= 1


def one_row(nest: LoopNest) -> Row:
    """A nest that `has_even_rows`, without the loop over its rows."""
    dims = tuple(dim for dim in nest.dims if dim.is_reduce)
    steps = [dim.strides for dim in nest.dims if not dim.is_reduce]
    strides = steps[0] if steps else (0,) * len(nest.accesses)
    return Row(LoopNest(nest.kernel, dims, nest.accesses, nest.inputs), strides)


def _steps_over(outer: Dim, inner: Dim) -> bool:
    """Whether for every access the outer dim continues where the inner one ends."""
    return all(o == i * inner.size for o, i in zip(outer.strides, inner.strides, strict=True))


def reduces_innermost(kernel: KernelOp) -> bool:
    """Whether an input has a reduce dim as its last index: read off the index maps, so that no size changes it."""
    first = len(kernel.parallel_sizes)
    last = (map_.results[-1] for map_ in kernel.in_maps if map_.results)
    return any(isinstance(expr, AffineDimExpr) and expr.position >= first for expr in last)


def value_types(kernel: KernelOp) -> set[str]:
    """Element types of all values of a kernel."""
    args, indexed = kernel.body.block.args, kernel.indexed
    values: list[SSAValue] = [argument for argument in args if argument.index not in indexed]
    for phase in kernel.phases:
        for op in phase.body.block.ops:
            values.extend(op.results)
    return {element_of(value.type).name for value in values}


def element_types(kernel: KernelOp) -> set[str]:
    """Element types of the values that reach a result; those that only say where to load from, or which random word
    to take, are not among them."""
    ends = [
        operand
        for phase in kernel.phases
        for op in phase.body.block.ops
        if isinstance(op, StoreOp | ReduceOp | AccumulateOp | YieldOp)
        for operand in op.operands
    ]

    def needs(value: SSAValue) -> Sequence[SSAValue]:
        if isinstance(value, OpResult) and isinstance(value.op, LoadOp):
            return () if value.op.otherwise is None else (value.op.otherwise,)
        return () if isinstance(value, OpResult) and isinstance(value.op, PhiloxOp) else reads(value)

    return {element_of(value.type).name for value in reached(ends, needs)}


def origin(value: SSAValue) -> SSAValue:
    """The value that a phase yields for a result; any other value as it is."""
    while isinstance(value, OpResult) and isinstance(value.op, PhaseOp):
        value = value.op.terminator.operands[value.index]
    return value


def reads(value: SSAValue) -> tuple[SSAValue, ...]:
    """What must be known before `value` can be computed."""
    if isinstance(value, BlockArgument) or not isinstance(value, OpResult):
        return ()
    if isinstance(value.op, PhaseOp):
        return (value.op.terminator.operands[value.index],)
    if isinstance(value.op, LoadOp):
        return tuple(value.op.operands[1:])
    return tuple(value.op.operands)


def reached(roots: Iterable[SSAValue], needs: Callable[[SSAValue], Iterable[SSAValue]]) -> Iterator[SSAValue]:
    """`roots` and what they need, directly or not, each value once; `needs` is asked when a value has been given."""
    seen: set[SSAValue] = set()
    stack = list(roots)
    while stack:
        value = stack.pop()
        if value not in seen:
            seen.add(value)
            yield value
            stack += needs(value)


def overwritable(kernel: KernelOp) -> list[tuple[int, int]]:
    """The (output, input) pairs that may share their elements, as far as the order of reading and writing goes.

    Both are the same element at every point, and no phase after the one that writes reads the input, nor a value kept
    of it, which may be computed again. An input that is read at computed indices is in no pair.
    """
    found: list[tuple[int, int]] = []
    later: set[int] = set()
    for phase in reversed(kernel.phases):
        for op in phase.body.block.ops:
            if isinstance(op, StoreOp):
                output = op.output.value.data
                found += [
                    (output, index)
                    for index, map_ in enumerate(kernel.in_maps)
                    if map_ == kernel.out_maps[output] and index not in later | kernel.indexed
                ]
        later |= _inputs_of(phase)
    return sorted(found)


def _inputs_of(phase: PhaseOp) -> set[int]:
    """The inputs that a phase reads, or needs to compute again what an earlier phase kept."""

    def needs(value: SSAValue) -> Sequence[SSAValue]:
        return () if isinstance(value, OpResult) and isinstance(value.op, ReduceOp) else reads(value)

    operands = (operand for op in phase.body.block.ops for operand in op.operands)
    return {value.index for value in reached(operands, needs) if isinstance(value, BlockArgument)}
