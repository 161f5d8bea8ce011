"""ONNX ops that read at indices: gathers, one-hot, and those whose indices must be known.

An index counts from the end if it is negative. ONNX leaves open what one out of range gives; here it is clamped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.onnx.ops.base import Counted, Node, Result, row
from aicf.passes.onnx.ops.compacting import compacted, coordinates
from aicf.passes.onnx.ops.elementwise import compare, select


def as_indices(node: Node, value: SSAValue) -> SSAValue:
    """Whole numbers as i64, unless they are of a type that indices may have."""
    return value if element_of(value.type).name in ("i32", "i64") else node.add(logical.CastOp(value, "i64"))


@row("Gather")
def _gather(node: Node) -> Result:
    """Slices along ``axis``, one for each index."""
    shape, indices = node.shape(0), node.shape(1)
    axis = node.axis(node.attributes.int("axis", 0), len(shape))
    sizes = (*shape[:axis], *indices, *shape[axis + 1 :])
    if 0 in sizes:
        return np.empty(sizes, node.element(0).dtype)
    return node.apply(logical.GatherOp, node.operand(0), as_indices(node, node.operand(1)), axis=axis)


@row("GatherElements", since=11)
def _gather_elements(node: Node) -> Result:
    """Single elements, the indices saying at which index along ``axis``."""
    axis = node.axis(node.attributes.int("axis", 0), len(node.shape(0)))
    if 0 in node.shape(1):
        return np.empty(node.shape(1), node.element(0).dtype)
    indices = as_indices(node, node.operand(1))
    return node.apply(logical.GatherElementsOp, node.operand(0), indices, axis=axis)


@row("GatherND", since=11)
def _gather_nd(node: Node) -> Result:
    """Slices at indices of several dimensions, after ``batch_dims`` dimensions that both operands have."""
    shape, given = node.shape(0), node.shape(1)
    batch = node.attributes.int("batch_dims", 0)
    if not given or not 0 <= batch < min(len(shape), len(given)):
        raise node.invalid(
            f"indices have shape {list(given)}, the data {list(shape)}, with {batch} in common"
        )
    depth = given[-1]
    if batch + depth > len(shape):
        raise node.invalid(
            f"indices have shape {list(given)}: the last dimension names {depth} dimensions, and the data "
            f"{list(shape)} has {len(shape) - batch} after those in common"
        )
    inner = shape[batch + depth :]
    sizes = (*given[:-1], *inner)
    if 0 in sizes:
        return np.empty(sizes, node.element(0).dtype)
    counted = shape[batch : batch + depth]
    indices = flat_indices(node, as_indices(node, node.operand(1)), counted)
    groups, count = math.prod(shape[:batch]), math.prod(counted)
    if groups > 1:
        indices = node.reshape(indices, (groups, -(-math.prod(given[:-1]) // groups)))
        number = node.add(logical.IotaOp(0, tensor_info(indices.type).shape, element_of(indices.type)))
        indices = node.apply(logical.AddOp, indices, node.apply(logical.MulOp, number, count))
    rows = node.reshape(node.operand(0), (groups * count, *inner))
    taken = node.apply(logical.GatherOp, rows, node.reshape(indices, (math.prod(given[:-1]),)), axis=0)
    return node.reshape(taken, sizes)


def flat_indices(node: Node, indices: SSAValue, sizes: Sequence[int]) -> SSAValue:
    """Row-major numbers of indices in a tensor of ``sizes``, of indices whose last dimension names one."""
    shape = tensor_info(indices.type).shape
    flat: SSAValue | None = None
    for dim, size in enumerate(sizes):
        part = node.slice(indices, [0] * (len(shape) - 1) + [dim], [*shape[:-1], 1])
        part = node.reshape(part, shape[:-1])
        shifted = node.apply(logical.AddOp, part, size)
        part = select(node, compare(node, "lt", part, 0), shifted, part)
        flat = (
            part if flat is None else node.apply(logical.AddOp, node.apply(logical.MulOp, flat, size), part)
        )
    if flat is None:
        raise node.invalid("the last dimension of the indices is empty; it names an element")
    return flat


@row("OneHot", since=9)
def _one_hot(node: Node) -> Result:
    """Along a new ``axis`` of ``depth`` elements the second value where the index is, the first one elsewhere."""
    shape = node.shape(0)
    depth = int(node.value(1, "depth").reshape(()).item())
    axis = node.axis(node.attributes.int("axis", -1), len(shape) + 1)
    sizes = (*shape[:axis], depth, *shape[axis:])
    if 0 in sizes:
        return np.empty(sizes, node.element(2).dtype)
    off, on = (node.reshape(node.slice(node.operand(2), [index], [1]), ()) for index in (0, 1))
    indices = as_indices(node, node.operand(0))
    return node.apply(logical.OneHotOp, indices, on, off, axis=axis, depth=depth)


@row("Compress", since=9)
def _compress(node: Node) -> Result:
    """The slices along ``axis``, or elements of the flat operand, whose condition holds."""
    conditions = node.known(1)
    shape, axis = node.shape(0), node.attributes.int("axis", None)
    flat = axis is None
    sizes = [math.prod(shape)] if flat else list(shape)
    axis = 0 if axis is None else node.axis(axis, len(shape))
    most = math.prod(node.shape(1)) if conditions is None else int(np.count_nonzero(conditions))
    if not most * math.prod(sizes):
        sizes[axis] = min(sizes[axis], most)
        return np.empty(sizes, node.element(0).dtype)
    x = node.reshape(node.operand(0), sizes) if flat else node.operand(0)
    if conditions is not None:
        indices = node.constant(np.flatnonzero(conditions).astype(np.int64))
        return node.apply(logical.GatherOp, x, indices, axis=axis)
    holds = node.reshape(node.operand(1), (most,), "holds")
    indices, count = compacted(node, holds, coordinates(node, (most,), (0,))[0])
    taken = node.apply(logical.GatherOp, x, node.reshape(indices, (most,), "kept"), axis=axis)
    return Counted(taken, count, axis)


@row("NonZero", since=9)
def _non_zero(node: Node) -> Result:
    """The indices of all elements that are not 0, one a column."""
    if (array := node.known(0)) is not None:
        return np.array(np.nonzero(np.atleast_1d(array)), np.int64)
    sizes = node.shape(0) or (1,)
    if 0 in sizes:
        return np.empty((len(sizes), 0), np.int64)
    x = node.reshape(node.operand(0), (math.prod(sizes),), "flat")
    holds = x if node.element(0).kind == "bool" else compare(node, "ne", x, 0)
    columns = node.concat(coordinates(node, sizes, range(len(sizes))), 1, "places")
    rows, count = compacted(node, holds, columns)
    return Counted(node.transpose(rows, (1, 0)), count, 1)


@row("Unique", since=11)
def _unique(node: Node) -> Result:
    """Different slices along ``axis``, or elements; where each is first and how often, and which one each is."""
    array = node.value(0, "the number of different elements, and so the operand")
    axis = node.attributes.int("axis", None)
    if axis is None:
        array, axis = array.reshape(-1), 0
    # bfloat16 has no order in NumPy's sense of a void type.
    sortable = array.astype(np.float32) if array.dtype.kind == "V" else array
    _, first, inverse, counts = np.unique(
        sortable, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    order = np.arange(len(first)) if node.attributes.int("sorted", 1) else np.argsort(first)
    rank = np.argsort(order)
    numbers = (first[order], rank[inverse.reshape(-1)], counts[order])
    return [np.take(array, first[order], axis), *(number.astype(np.int64) for number in numbers)][
        : node.outputs
    ]


@row("ReverseSequence", since=10)
def _reverse_sequence(node: Node) -> Result:
    """For each entry of ``batch_axis`` the first ``sequence_lens`` elements along ``time_axis`` in reverse order."""
    shape = node.shape(0)
    batch, time = node.attributes.int("batch_axis", 1), node.attributes.int("time_axis", 0)
    if {batch, time} != {0, 1} or len(shape) < 2:
        raise node.invalid(f"batch_axis {batch} and time_axis {time} of {list(shape)} are 0 and 1")
    if 0 in shape:
        return node.raw(0)
    lengths = as_indices(node, node.operand(1))
    pair = shape[:2]
    position = node.add(logical.IotaOp(time, pair, element_of(lengths.type)))
    lengths = node.broadcast_axis(lengths, batch, pair)
    turned = node.apply(logical.SubOp, node.apply(logical.SubOp, lengths, 1), position)
    sources = select(node, compare(node, "lt", position, lengths), turned, position)
    sources = node.broadcast(sources, [0, 1], shape, "broadcast")
    return node.apply(logical.GatherElementsOp, node.operand(0), sources, axis=time)
