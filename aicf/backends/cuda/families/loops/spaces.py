"""What the loops of a kernel tell before anything is decided about them: what is reduced, how many bytes operands have,
where they are contiguous, and which tiles would turn them. Imports no code generator."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from aicf.backends.common.loop_nest import LoopNest, accumulate_ops, index_ops
from aicf.backends.cuda.target import ELEMENT_BYTES, PIECE_BYTES
from aicf.dialects.emit_kernels import AccumulateOp, ReduceOp, ScanOp, scans_of
from aicf.dialects.types import element_of

TILE = 64
"""Elements along each side of a tile."""


SHARED_BYTES = 48 << 10
"""Static shared memory of a block."""


# What is combined


def reduces(nest: LoopNest) -> bool:
    """Whether the kernel has a reduce space, be it of one point."""
    return bool(nest.kernel.reduce_sizes)


def reduce_ops(nest: LoopNest) -> list[ReduceOp]:
    """All reductions in order."""
    return [op for phase in nest.kernel.phases for op in phase.body.block.ops if isinstance(op, ReduceOp)]


def is_exact(nest: LoopNest) -> bool:
    """Whether the kernel reduces to what is the same in any order: maxima and minima alone. Those of f64 are not, which
    the hardware has no instruction for: of zeros of both signs the last one wins."""
    return not scan_ops(nest) and all(
        op.combine.data in ("max", "min") and element_of(op.value.type).name != "f64"
        for op in reduce_ops(nest)
    )


def scan_ops(nest: LoopNest) -> list[ScanOp]:
    """All scans in order."""
    return [op for phase in nest.kernel.phases for op in scans_of(phase.body.block.ops)]


def partial_size(op: ReduceOp | ScanOp | AccumulateOp) -> int:
    """Bytes of a partial result: a register's, i1 as i32."""
    return max(4, ELEMENT_BYTES[element_of(op.value.type).name])


# Bytes and registers


def access_bytes(nest: LoopNest, number: int) -> int:
    """Bytes that an access touches, each once."""
    touched = prod(dim.size for dim in nest.dims if dim.strides[number])
    return touched * ELEMENT_BYTES[nest.accesses[number].dtype]


def contiguous_bytes(nest: LoopNest, dims: Sequence[int]) -> int:
    """Bytes of the operands that are contiguous along the last of `dims`."""
    if not dims:
        return 0
    return sum(
        access_bytes(nest, number)
        for number, _ in enumerate(nest.accesses)
        if nest.dims[dims[-1]].strides[number] == 1
    )


def narrowest(nest: LoopNest) -> int:
    """Bytes of the narrowest element along the reduced dims; the widest there is where all follows from coordinates."""
    return min((ELEMENT_BYTES[nest.accesses[number].dtype] for number in inputs_of_cells(nest)), default=8)


def row_bytes(nest: LoopNest) -> int:
    """Bytes that one column has in each row."""
    return sum(ELEMENT_BYTES[nest.accesses[number].dtype] for number in inputs_of_cells(nest))


def element_words(nest: LoopNest, all_move: bool = False) -> float:
    """Most registers that one element of the reduce space takes between two phases: inputs read later, kept values.

    With `all_move` every input counts as having elements of its own for each row, also if there is one row.
    """
    kernel = nest.kernel
    most = 0.0
    for boundary in range(len(kernel.phases)):
        later = set(kernel.phases[boundary:])
        words = 0.0
        for argument in kernel.body.block.args:
            used = any(use.operation.parent_op() in later for use in argument.uses)
            moves = all_move or nest_moves(nest, argument.index)
            if used and moves and kernel.reads_reduce_space(argument):
                words += ELEMENT_BYTES[nest.accesses[argument.index].dtype] / 4
        for phase in kernel.phases[:boundary]:
            for result in phase.results:
                if kernel.varies(result) and any(use.operation.parent_op() in later for use in result.uses):
                    words += max(1.0, ELEMENT_BYTES[element_of(result.type).name] / 4)
        most = max(most, words)
    return most


def nest_moves(nest: LoopNest, number: int) -> bool:
    """Whether an access moves over the parallel space: each row has elements of its own."""
    return any(nest.dims[dim].strides[number] for dim in nest.parallel_dims)


def accesses_of_cells(nest: LoopNest) -> list[int]:
    """The accesses that have elements along the reduced dims."""
    return [
        n for n in range(len(nest.accesses)) if any(nest.dims[dim].strides[n] for dim in nest.reduce_dims)
    ]


def inputs_of_cells(nest: LoopNest) -> list[int]:
    """The inputs that have elements along the reduced dims."""
    return [n for n in range(nest.inputs) if any(nest.dims[dim].strides[n] for dim in nest.reduce_dims)]


# Vectors and tiles


def vector_along(nest: LoopNest, dim: int, offsets: Sequence[int], ragged: bool = False) -> int:
    """Elements of a vector along `dim`: 16 bytes of the widest operand that is contiguous and aligned along it. Sums of
    columns are no such operands, nor is what has one element for a column among others: it is touched once."""
    beside = {nest.inputs + op.output.value.data for op in accumulate_ops(nest.kernel)}
    if nest.reduce_dims and dim in nest.parallel_dims and (cells := accesses_of_cells(nest)):
        beside |= set(range(len(nest.accesses))) - set(cells)
    contiguous = [n for n, stride in enumerate(nest.dims[dim].strides) if stride == 1 and n not in beside]
    if not contiguous:
        return 1
    vector = PIECE_BYTES // max(ELEMENT_BYTES[nest.accesses[n].dtype] for n in contiguous)
    while vector > 1 and not any(_aligned(nest, n, dim, offsets[n], vector) for n in contiguous):
        vector //= 2
    size = nest.dims[dim].size
    while vector > 1 and (size % vector and not (ragged and size >= vector)):
        vector //= 2
    return vector


def _aligned(nest: LoopNest, number: int, dim: int, offset: int, vector: int) -> bool:
    others = (d.strides[number] for index, d in enumerate(nest.dims) if index != dim)
    return all(value % vector == 0 for value in (offset + nest.accesses[number].offset, *others))


def tile_dim(nest: LoopNest) -> int | None:
    """The dim other than the last along which operands are contiguous, where outputs are along the last; else None.

    Only where enough bytes move that way, and both dims fill a good part of a tile; never where the kernel asks for its
    coordinates or reads at indices, which tiles do not know.
    """
    if reduces(nest) or len(nest.dims) < 2 or nest.indexed or index_ops(nest.kernel):
        return None
    last = nest.dims[-1]
    if any(stride != 1 for stride in last.strides[nest.inputs :]) or last.size < TILE // 4:
        return None
    for dim in reversed(range(len(nest.dims) - 1)):
        tiled = tiled_inputs(nest, dim)
        words = sum(max(4, ELEMENT_BYTES[nest.accesses[number].dtype]) for number in tiled)
        if nest.dims[dim].size >= TILE // 4 and tiled and words * TILE * (TILE + 1) <= SHARED_BYTES:
            return dim
    return None


def tile_dims(nest: LoopNest) -> tuple[int, ...]:
    """`tile_dim` as a tuple, empty if there is none."""
    dim = tile_dim(nest)
    return () if dim is None else (dim,)


def tiled_inputs(nest: LoopNest, dim: int) -> list[int]:
    """The inputs that are contiguous along `dim` and move along the last dim."""
    return [
        number
        for number in range(nest.inputs)
        if nest.dims[dim].strides[number] == 1 and nest.dims[-1].strides[number] > 1
    ]


def power_of_two(at_least: int) -> int:
    return 1 << max(0, at_least - 1).bit_length()
