"""The scalar form of ops that read memory at computed indices: one row an op, from coordinates to indices.

Indices come out in range for every input: negative ones count from the end, and what is out of range is clamped, or
guarded where an op says what stands there instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import i32, i64
from xdsl.ir import Attribute, Block, Operation, SSAValue

from aicf.dialects import logical
from aicf.dialects.emit_kernels import CastOp, IndexOp, LoadOp
from aicf.dialects.logical import int_values
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.scalar_ops import scalar_constant

I32_ELEMENTS = 1 << 31
"""Operands of fewer elements have indices of type i32."""


@dataclass
class PointWriter:
    """Adds ops to a phase for one op of the body.

    Args:
        body: The phase.
        dims: The dim of the kernel that each dim of the op's result follows, None for one of size 1.
        type: Of indices.
    """

    body: Block
    dims: Sequence[int | None]
    type: Attribute
    known: dict[tuple[int | None, Attribute], SSAValue] = field(
        default_factory=dict[tuple[int | None, Attribute], SSAValue]
    )

    def add(self, op: Operation) -> SSAValue:
        """The result of an op, added."""
        self.body.add_op(op)
        return op.results[0]

    def number(self, value: int, type_: Attribute | None = None) -> SSAValue:
        """A constant, by default of the indices' type."""
        made = scalar_constant(value, type_ or self.type)
        self.body.add_ops(made)
        return made[-1].results[0]

    def coordinate(self, dim: int) -> SSAValue:
        """Where the point lies along a dim of the op's result."""
        loop = self.dims[dim]
        key = loop, self.type
        if key not in self.known:
            self.known[key] = self.number(0) if loop is None else self.add(IndexOp(loop, self.type))
        return self.known[key]

    def times(self, index: SSAValue, factor: int) -> SSAValue:
        """A multiple of an index."""
        return index if factor == 1 else self.add(arith.MuliOp(index, self.number(factor)))

    def from_the_end(self, index: SSAValue, size: int) -> SSAValue:
        """A loaded index, counted from the end if it is negative."""
        negative = self.add(arith.CmpiOp(index, self.number(0, index.type), "slt"))
        from_end = self.add(arith.AddiOp(index, self.number(size, index.type)))
        return self.add(arith.SelectOp(negative, from_end, index))

    def in_range(self, index: SSAValue, size: int) -> SSAValue:
        """A loaded index counted from the end if it is negative, then clamped, in the indices' type."""
        type_ = index.type
        chosen = self.from_the_end(index, size)
        above = self.add(arith.MaxSIOp(chosen, self.number(0, type_)))
        inside = self.add(arith.MinSIOp(above, self.number(size - 1, type_)))
        return inside if type_ == self.type else self.add(CastOp(inside, self.type))


Read = Callable[[PointWriter, Any, Sequence[SSAValue]], LoadOp]
"""From an op and the scalars of its operands, the first a memref, to the load; writes what the indices take."""


def _pad(w: PointWriter, op: logical.PadOp, operands: Sequence[SSAValue]) -> LoadOp:
    return _padded(w, op, (w.coordinate(dim) for dim in range(op.info.rank)), operands)


def _window(w: PointWriter, op: logical.WindowOp, operands: Sequence[SSAValue]) -> LoadOp:
    pad = border_of(op)
    assert pad is not None
    return _padded(w, pad, _pad_coordinates(w, op), operands)


def _pad_coordinates(w: PointWriter, op: logical.WindowOp) -> Iterator[SSAValue]:
    strides, dilations = int_values(op.strides), int_values(op.dilations)
    lead = op.info.rank - 2 * len(strides)
    for dim in range(lead):
        yield w.coordinate(dim)
    for dim, (stride, dilation) in enumerate(zip(strides, dilations, strict=True), lead):
        start, step = w.times(w.coordinate(dim), stride), w.times(w.coordinate(dim + len(strides)), dilation)
        yield w.add(arith.AddiOp(start, step))


def _padded(
    w: PointWriter, op: logical.PadOp, coordinates: Iterable[SSAValue], operands: Sequence[SSAValue]
) -> LoadOp:
    """The element of a pad's result at `coordinates`, one for each of its dims, which lie in it."""
    memory, value = operands
    indices: list[SSAValue] = []
    inside: SSAValue | None = None
    amounts = zip(coordinates, int_values(op.low), int_values(op.high), strict=True)
    for size, (coordinate, low, high) in zip(tensor_info(op.operand.type).shape, amounts, strict=True):
        index = w.add(arith.SubiOp(coordinate, w.number(low))) if low else coordinate
        indices.append(index)
        if low or high:
            below = w.add(arith.CmpiOp(index, w.number(size), "ult"))
            inside = below if inside is None else w.add(arith.AndIOp(inside, below))
    if inside is None:
        return LoadOp(memory, indices)
    return LoadOp(memory, indices, inside, value)


def _gather(w: PointWriter, op: logical.GatherOp, operands: Sequence[SSAValue]) -> LoadOp:
    memory, index = operands
    axis, shape = op.axis.value.data, tensor_info(op.operand.type).shape
    end = axis + tensor_info(op.indices.type).rank
    before = [w.coordinate(dim) for dim in range(axis)]
    after = [w.coordinate(dim) for dim in range(end, op.info.rank)]
    return LoadOp(memory, [*before, w.in_range(index, shape[axis]), *after])


def _gather_elements(w: PointWriter, op: logical.GatherElementsOp, operands: Sequence[SSAValue]) -> LoadOp:
    memory, index = operands
    axis, shape = op.axis.value.data, tensor_info(op.operand.type).shape
    indices = [
        w.in_range(index, size) if dim == axis else w.coordinate(dim) for dim, size in enumerate(shape)
    ]
    return LoadOp(memory, indices)


def _flip(w: PointWriter, op: logical.FlipOp, operands: Sequence[SSAValue]) -> LoadOp:
    axes = int_values(op.axes)
    indices = [
        w.add(arith.SubiOp(w.number(size - 1), w.coordinate(dim))) if dim in axes else w.coordinate(dim)
        for dim, size in enumerate(op.info.shape)
    ]
    return LoadOp(operands[0], indices)


def _write_row(w: PointWriter, op: logical.WriteRowOp, operands: Sequence[SSAValue]) -> LoadOp:
    row, index, old = operands
    axis, shape = op.axis.value.data, op.info.shape
    if op.rows > 1:
        return _write_rows(w, op, operands)
    named, coordinate = w.from_the_end(index, shape[axis]), w.coordinate(axis)
    if named.type != coordinate.type:
        named, coordinate = (x if x.type == i64 else w.add(CastOp(x, i64)) for x in (named, coordinate))
    here = w.add(arith.CmpiOp(named, coordinate, "eq"))
    indices = [w.number(0) if dim == axis else w.coordinate(dim) for dim in range(len(shape))]
    return LoadOp(row, indices, here, old)


def _write_rows(w: PointWriter, op: logical.WriteRowOp, operands: Sequence[SSAValue]) -> LoadOp:
    """The row that is written to a coordinate is its distance from the index, or from where that is counted from the
    end, whichever is one of the rows."""
    rows, index, old = operands
    axis, shape = op.axis.value.data, op.info.shape

    def wide(value: SSAValue) -> SSAValue:
        return value if value.type == i64 else w.add(CastOp(value, i64))

    def is_row(number: SSAValue) -> SSAValue:
        return w.add(arith.CmpiOp(number, w.number(op.rows, i64), "ult"))

    from_start = w.add(arith.SubiOp(wide(w.coordinate(axis)), wide(index)))
    from_end = w.add(arith.SubiOp(from_start, w.number(shape[axis], i64)))
    number = w.add(arith.SelectOp(is_row(from_start), from_start, from_end))
    row = number if w.type == i64 else w.add(CastOp(number, w.type))
    indices = [row if dim == axis else w.coordinate(dim) for dim in range(len(shape))]
    return LoadOp(rows, indices, is_row(number), old)


_READS: Mapping[type[Operation], Read] = {
    logical.PadOp: _pad,
    logical.GatherOp: _gather,
    logical.GatherElementsOp: _gather_elements,
    logical.FlipOp: _flip,
    logical.WriteRowOp: _write_row,
    logical.WindowOp: _window,
}


def border_of(op: Operation) -> logical.PadOp | None:
    """The pad that windows are of, if nothing reads its result but windows: they read its operand, and what lies beyond
    it where they reach there, and no padded copy is written. None for other ops."""
    if not isinstance(op, logical.WindowOp) or not isinstance(op.operand.owner, logical.PadOp):
        return None
    return op.operand.owner if is_border(op.operand.owner) else None


def is_border(op: Operation) -> bool:
    """Whether an op is a pad of which only windows read the result."""
    return isinstance(op, logical.PadOp) and all(
        isinstance(use.operation, logical.WindowOp) for use in op.result.uses
    )


def reads_elements(op: Operation) -> bool:
    """Whether an op of a body reads memory at computed indices, `operands_of(op)[0]`."""
    return op.has_trait(logical.IndexedRead) or border_of(op) is not None


def operands_of(op: Operation) -> Sequence[SSAValue]:
    """The values that an op of a body is computed of: of windows in a pad, those of the pad."""
    return (border_of(op) or op).operands


def write_read(
    body: Block, op: Operation, operands: Sequence[SSAValue], dims: Sequence[int | None]
) -> SSAValue:
    """Adds the load of an indexed read to a phase, with what its indices take; gives the element."""
    reach = max(*(prod(tensor_info(value.type).shape) for value in (op.operands[0], op.results[0])))
    writer = PointWriter(body, dims, i32 if reach < I32_ELEMENTS else i64)
    return writer.add(_READS[type(op)](writer, op, operands))


def write_coordinate(body: Block, type_: Attribute, dim: int | None) -> SSAValue:
    """Adds a coordinate in an element type to a phase; gives it."""
    if dim is None:
        zero = scalar_constant(0, type_)
        body.add_ops(zero)
        return zero[-1].results[0]
    direct = type_ in (i32, i64)
    counter = IndexOp(dim, type_ if direct else i64)
    body.add_op(counter)
    if direct:
        return counter.results[0]
    cast = CastOp(counter.results[0], type_)
    body.add_op(cast)
    return cast.result


def index_operand_dims(op: Operation, number: int) -> range | None:
    """The dims of the result along which an indexed read walks operand `number`; None for the operand that it reads at
    indices."""
    if number == 0:
        return None
    match op:
        case logical.GatherOp():
            axis = op.axis.value.data
            return range(axis, axis + tensor_info(op.indices.type).rank)
        case logical.GatherElementsOp():
            return range(op.info.rank)
        case logical.WriteRowOp():
            return range(op.info.rank if number == 2 else tensor_info(op.index.type).rank)
        case _:
            return range(0)
