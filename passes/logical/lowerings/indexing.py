"""Ops that know indices, as counting and comparing."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.ir import SSAValue

from aicf.dialects import dims, logical
from aicf.dialects.logical import LogicalOp, int_values
from aicf.dialects.types import element_named, tensor_info
from aicf.passes.logical.lowerings.base import Formulas, Lowering
from aicf.passes.support.writing import static_size


def _tile(lower: Lowering, op: logical.TileOp) -> SSAValue:
    """Adds a dimension of repeats before each dimension, and merges the two."""
    info = tensor_info(op.operand.type)
    repeats = int_values(op.repeats)
    apart = [size for whole in info.sizes for size in (1, whole)]
    repeated = [size for pair in zip(repeats, info.sizes, strict=True) for size in pair]
    spread = lower.broadcast(
        lower.add(logical.ReshapeOp(op.operand, apart), "apart"), range(len(apart)), repeated, "repeated"
    )
    merged = [dims.multiply(*pair) for pair in zip(repeats, info.sizes, strict=True)]
    return lower.add(logical.ReshapeOp(spread, merged), "merged")


def _one_hot(lower: Lowering, op: logical.OneHotOp) -> SSAValue:
    """on where the index is the coordinate, else off."""
    sizes, axis, depth = op.info.sizes, op.axis.value.data, op.depth.value.data
    element = tensor_info(op.indices.type).element
    indices = from_the_end(lower, op.indices, depth)
    others = [dim for dim in range(len(sizes)) if dim != axis]
    spread = lower.broadcast(indices, others, sizes, "spread")
    coordinate = lower.add(logical.IotaOp(axis, sizes, element), "place")
    here = lower.add(logical.CompareOp("eq", spread, coordinate), "here")
    on, off = (lower.broadcast(value, (), sizes, name) for value, name in ((op.on, "on"), (op.off, "off")))
    return lower.add(logical.SelectOp(here, on, off), "chosen")


def from_the_end(lower: Lowering, indices: SSAValue, size: int) -> SSAValue:
    """Negative indices counted from the end of `size` elements."""
    zero, whole = lower.splat(0, indices, "zero"), lower.splat(size, indices, "size")
    negative = lower.add(logical.CompareOp("lt", indices, zero), "negative")
    return lower.apply(logical.SelectOp, negative, lower.apply(logical.AddOp, indices, whole), indices)


def _inside(lower: Lowering, indices: SSAValue, size: int) -> SSAValue:
    """Whether indices that count from 0 are below `size` and not negative: i1."""
    zero, whole = lower.splat(0, indices, "zero"), lower.splat(size, indices, "size")
    above = lower.add(logical.CompareOp("ge", indices, zero), "above")
    below = lower.add(logical.CompareOp("lt", indices, whole), "below")
    false = lower.splat(0, above, "false")
    return lower.apply(logical.SelectOp, above, below, false)


def _rows(
    lower: Lowering, coordinates: Sequence[SSAValue], checked: Sequence[bool], sizes: Sequence[int]
) -> SSAValue:
    """Row-major numbers (i64) of coordinates in `sizes`, of rank 1; past the last row where one is out of range.

    Args:
        checked: Which coordinates come from indices and may be out of range.
    """
    flat: SSAValue | None = None
    valid: SSAValue | None = None
    for coordinate, check, size in zip(coordinates, checked, sizes, strict=True):
        if check:
            coordinate = from_the_end(lower, coordinate, size)
            inside = _inside(lower, coordinate, size)
            false = lower.splat(0, inside, "false")
            valid = inside if valid is None else lower.apply(logical.SelectOp, valid, inside, false)
        if flat is None:
            flat = coordinate
        else:
            flat = lower.apply(
                logical.AddOp, lower.apply(logical.MulOp, flat, lower.splat(size, flat, "size")), coordinate
            )
    assert flat is not None and valid is not None
    rows = lower.apply(logical.SelectOp, valid, flat, lower.splat(prod(sizes), flat, "past"))
    return lower.add(logical.ReshapeOp(rows, [prod(tensor_info(rows.type).shape)]), "rows")


def _static_shape(op: LogicalOp, value: SSAValue) -> tuple[int, ...]:
    return tuple(static_size(op, size) for size in tensor_info(value.type).sizes)


def _scatter(lower: Lowering, op: logical.ScatterOp) -> SSAValue:
    """set: the last update of each row, where it has one; what writes one row, or rows that follow each other, or
    combines all updates of a row, is primitive."""
    if op.scatter_mode != "set":
        return lower.add(
            logical.ScatterCombineOp(op.operand, op.indices, op.updates, op.scatter_mode), op.scatter_mode
        )
    sizes = op.info.sizes
    if tensor_info(op.indices.type).sizes == (1,):
        index = lower.add(logical.ReshapeOp(op.indices, ()), "index")
        return lower.add(logical.WriteRowOp(op.updates, index, op.operand, 0), "written")
    if (first := _first_of_run(op)) is not None:
        index = lower.add(logical.ReshapeOp(first, ()), "index")
        return lower.add(logical.WriteRowOp(op.updates, index, op.operand, 0), "written")
    last = lower.add(logical.LastUpdateOp(op.indices, static_size(op, sizes[0])), "last")
    update = lower.add(logical.GatherOp(op.updates, last, 0), "update")
    updated = lower.add(logical.CompareOp("ge", last, lower.splat(0, last, "first")), "updated")
    return lower.add(
        logical.SelectOp(lower.broadcast(updated, [0], sizes, "rows"), update, op.operand), "chosen"
    )


def _first_of_run(op: logical.ScatterOp) -> SSAValue | None:
    """The first of indices that count up from it, one number of some shape, where there are no more of them than rows;
    None if they are others."""
    indices, rows = op.indices, static_size(op, op.info.sizes[0])
    count = tensor_info(indices.type).sizes
    if not isinstance(indices.owner, logical.AddOp) or len(count) != 1 or static_size(op, count[0]) > rows:
        return None
    for numbers, first in (indices.owner.operands, [*reversed(indices.owner.operands)]):
        if not isinstance(numbers.owner, logical.IotaOp) or not isinstance(first.owner, logical.BroadcastOp):
            continue
        if prod(tensor_info(first.owner.operand.type).shape) == 1:
            return first.owner.operand
    return None


def _scatter_elements(lower: Lowering, op: logical.ScatterElementsOp) -> SSAValue:
    """Every element is a row of its own: its number from the coordinates and the index. Where all elements of a slice
    share their index, and the slice is written whole, it is a row that is written."""
    if (index := _index_of_slices(op)) is not None:
        return lower.add(logical.WriteRowOp(op.updates, index, op.operand, op.axis.value.data), "written")
    shape, counts = _static_shape(op, op.operand), _static_shape(op, op.indices)
    axis, i64 = op.axis.value.data, element_named("i64")
    coordinates = [
        lower.cast(op.indices, i64, "index")
        if dim == axis
        else lower.add(logical.IotaOp(dim, counts, i64), "place")
        for dim in range(len(shape))
    ]
    rows = _rows(lower, coordinates, [dim == axis for dim in range(len(shape))], shape)
    flat = lower.add(logical.ReshapeOp(op.operand, [prod(shape)]), "flat")
    updates = lower.add(logical.ReshapeOp(op.updates, [prod(counts)]), "updates")
    scattered = lower.add(logical.ScatterOp(flat, rows, updates, op.scatter_mode), "scattered")
    return lower.add(logical.ReshapeOp(scattered, shape), "shaped")


def _index_of_slices(op: logical.ScatterElementsOp) -> SSAValue | None:
    """The indices by leading dimensions alone, before the axis, along which there is one; None if they are others."""
    axis, sizes = op.axis.value.data, op.info.sizes
    if op.scatter_mode != "set" or tensor_info(op.indices.type).sizes != (
        *sizes[:axis],
        1,
        *sizes[axis + 1 :],
    ):
        return None
    index = op.indices
    while isinstance(index.owner, logical.BroadcastOp | logical.ReshapeOp):
        source = index.owner.operand
        rank = tensor_info(source.type).rank
        if isinstance(index.owner, logical.BroadcastOp):
            keeps = [*index.owner.dimensions.get_values()] == [*range(rank)]
        else:
            keeps = True
        if not keeps or not _is_leading(tensor_info(source.type).sizes, tensor_info(index.type).sizes):
            break
        index = source
    found = tensor_info(index.type).sizes
    return index if len(found) <= axis and found == sizes[: len(found)] else None


def _is_leading(sizes: Sequence[dims.Size], of: Sequence[dims.Size]) -> bool:
    """Whether sizes are the first of others; ones at their end count as none."""
    count = len(sizes)
    while count and sizes[count - 1] == 1:
        count -= 1
    return tuple(sizes[:count]) == tuple(of[:count])


def _scatter_nd(lower: Lowering, op: logical.ScatterNdOp) -> SSAValue:
    """The leading dimensions that the indices name become one of rows."""
    shape, counts = _static_shape(op, op.operand), _static_shape(op, op.indices)
    *outer, depth = counts
    inner = shape[depth:]
    indices = lower.cast(op.indices, element_named("i64"), "index")
    coordinates: list[SSAValue] = []
    for dim in range(depth):
        part = logical.SliceOp(indices, [*[0] * len(outer), dim], [*outer, 1])
        coordinates.append(lower.add(logical.ReshapeOp(lower.add(part, "part"), [prod(outer)]), "place"))
    rows = _rows(lower, coordinates, [True] * depth, shape[:depth])
    flat = lower.add(logical.ReshapeOp(op.operand, [prod(shape[:depth]), *inner]), "flat")
    updates = lower.add(logical.ReshapeOp(op.updates, [prod(outer), *inner]), "updates")
    scattered = lower.add(logical.ScatterOp(flat, rows, updates, op.scatter_mode), "scattered")
    return lower.add(logical.ReshapeOp(scattered, shape), "shaped")


FORMULAS: Formulas = {
    logical.TileOp: _tile,
    logical.OneHotOp: _one_hot,
    logical.ScatterOp: _scatter,
    logical.ScatterElementsOp: _scatter_elements,
    logical.ScatterNdOp: _scatter_nd,
}
