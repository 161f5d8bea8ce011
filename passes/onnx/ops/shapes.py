"""ONNX ops about shapes: what they are, other shapes for the same elements, and tensors made of a shape alone.

A tensor without elements is known, so these ops give it as an array.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from aicf.dialects import logical
from aicf.dialects.types import element_named
from aicf.passes.onnx.ops.base import Node, OneResult, Result, row
from aicf.passes.onnx.ops.casts import element_attribute
from aicf.passes.onnx.ops.elementwise import compare

# What a shape is


@row("Shape")
def _shape(node: Node) -> Result:
    """The sizes, or those from ``start`` up to ``end``, both clamped."""
    start, end = node.attributes.int("start", 0), node.attributes.int("end", None)
    return np.array(node.shape(0)[slice(start, end)], np.int64)


@row("Size")
def _size(node: Node) -> Result:
    """The number of elements."""
    return np.array(math.prod(node.shape(0)), np.int64)


# The same elements


@row("Identity")
def _identity(node: Node) -> Result:
    """The operand, which may be a sequence."""
    return node.raw(0)


def reshaped(node: Node, sizes: Sequence[int]) -> OneResult:
    """Operand 0 under another shape."""
    array = node.known(0)
    if array is not None and array.size == 0:
        return array.reshape(tuple(sizes))
    return node.reshape(node.operand(0), sizes)


@row("Reshape", since=5)
def _reshape(node: Node) -> Result:
    """Another shape: 0 keeps a size (unless ``allowzero`` is set), -1 is what remains."""
    sizes, given = node.ints(1, "shape"), node.shape(0)
    if not node.attributes.int("allowzero", 0):
        if any(size == 0 and axis >= len(given) for axis, size in enumerate(sizes)):
            raise node.invalid(f"shape {sizes} keeps a size (0) that {list(given)} does not have")
        sizes = [given[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    if sizes.count(-1) > 1 or any(size < -1 for size in sizes):
        raise node.invalid(f"shape {sizes} has more than one -1, or a size below it")
    total, rest = math.prod(given), math.prod(size for size in sizes if size != -1)
    if -1 in sizes and rest and total % rest == 0:
        sizes[sizes.index(-1)] = total // rest
    if math.prod(sizes) != total or -1 in sizes:
        raise node.invalid(f"{list(given)} has {total} elements, which do not fit into shape {sizes}")
    return reshaped(node, sizes)


@row("Flatten")
def _flatten(node: Node) -> Result:
    """A matrix: the dimensions before ``axis``, and the others."""
    shape, axis = node.shape(0), node.attributes.int("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise node.invalid(f"axis {axis} is out of range for rank {len(shape)}")
    axis = axis + len(shape) if axis < 0 else axis
    return reshaped(node, (math.prod(shape[:axis]), math.prod(shape[axis:])))


@row("Squeeze")
def _squeeze(node: Node) -> Result:
    """Without the given dimensions of size 1, or without all of them."""
    shape, given = node.shape(0), node.ints_of("axes", 1)
    axes = (
        [axis for axis, size in enumerate(shape) if size == 1]
        if given is None
        else node.axes(given, len(shape))
    )
    if any(shape[axis] != 1 for axis in axes):
        raise node.invalid(f"axes {axes} of {list(shape)} are not all of size 1")
    return reshaped(node, [size for axis, size in enumerate(shape) if axis not in axes])


@row("Unsqueeze")
def _unsqueeze(node: Node) -> Result:
    """With dimensions of size 1 where the result has ``axes``."""
    shape, given = list(node.shape(0)), node.ints_of("axes", 1)
    if given is None:
        raise node.invalid("axes are missing; they say where sizes of 1 are inserted")
    for axis in node.axes(given, len(shape) + len(given)):
        shape.insert(axis, 1)
    return reshaped(node, shape)


@row("Transpose")
def _transpose(node: Node) -> Result:
    """Result dimension i is dimension ``perm[i]``; in reverse order by default."""
    rank = len(node.shape(0))
    permutation = node.attributes.ints("perm", None)
    permutation = list(reversed(range(rank))) if permutation is None else permutation
    array = node.known(0)
    if array is not None and 0 in array.shape:
        return array.transpose(permutation)
    return node.transpose(node.operand(0), permutation)


@row("Expand", since=8)
def _expand(node: Node) -> Result:
    """Repeated to a shape, as far as it broadcasts with the operand's own."""
    sizes = node.joint_shape(node.shape(0), node.ints(1, "shape"))
    if 0 in sizes:
        return np.empty(sizes, node.element(0).dtype)
    return node.broadcast_to(node.operand(0), sizes)


@row("Tile", since=6)
def _tile(node: Node) -> Result:
    """``repeats[i]`` times along dimension i."""
    shape, repeats = node.shape(0), node.ints(1, "repeats")
    if len(repeats) != len(shape) or any(count < 0 for count in repeats):
        raise node.invalid(f"repeats {repeats} is one count of at least 0 for each size of {list(shape)}")
    sizes = [size * count for size, count in zip(shape, repeats, strict=True)]
    if 0 in sizes:
        return np.empty(sizes, node.element(0).dtype)
    if not sizes:
        return node.raw(0)
    return node.apply(logical.TileOp, node.operand(0), repeats=repeats)


# Parts


@row("Concat", since=4)
def _concat(node: Node) -> Result:
    """The operands one after the other along ``axis``."""
    axis = node.attributes.int("axis", None)
    if axis is None:
        raise node.invalid("attribute axis is missing; it says along which dimension")
    axis = node.axis(axis, len(node.shape(0)))
    held = [index for index in range(node.count) if 0 not in node.shape(index)]
    if not held:
        arrays = [node.value(index, "an empty operand") for index in range(node.count)]
        return np.concatenate(arrays, axis)
    return node.concat([node.operand(index) for index in held], axis)


@row("Split", since=2, until=12)
@row("Split", since=13)
def _split(node: Node) -> Result:
    """Parts along ``axis``: of given sizes, or as many as there are outputs, the last one smaller if need be."""
    shape = node.shape(0)
    axis = node.axis(node.attributes.int("axis", 0), len(shape))
    sizes = node.ints_of("split", 1)
    if sizes is None:
        count = node.attributes.int("num_outputs", node.outputs)
        if not 0 < count <= max(node.outputs, shape[axis]):
            raise node.invalid(f"num_outputs is {count}; it is the number of outputs, {node.outputs}")
        part = -(-shape[axis] // count)
        sizes = [min(part, max(shape[axis] - part * index, 0)) for index in range(count)]
    if sum(sizes) != shape[axis] or any(size < 0 for size in sizes):
        raise node.invalid(f"sizes {sizes} do not add up to {shape[axis]}, the size of axis {axis}")
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    return [_part(node, axis, start, size) for start, size in zip(starts, sizes, strict=True)]


def _part(node: Node, axis: int, start: int, size: int) -> OneResult:
    shape = list(node.shape(0))
    starts = [0] * len(shape)
    shape[axis], starts[axis] = size, start
    if 0 in shape:
        return np.empty(shape, node.element(0).dtype)
    return node.slice(node.operand(0), starts, shape)


# Made of a shape


@row("ConstantOfShape", since=9)
def _constant_of_shape(node: Node) -> Result:
    """One value everywhere, 0.0 in f32 by default."""
    value = node.attributes.tensor("value", np.zeros(1, np.float32))
    if value.size != 1:
        raise node.invalid(f"value has {value.size} elements; it has one")
    sizes = node.ints(0, "shape")
    if any(size < 0 for size in sizes):
        raise node.invalid(f"shape {sizes} has a negative size")
    return np.broadcast_to(value.reshape(()), sizes)


@row("EyeLike", since=9)
def _eye_like(node: Node) -> Result:
    """Ones on a diagonal, ``k`` diagonals above the main one."""
    shape, element = node.shape(0), element_attribute(node, "dtype", node.element(0))
    if len(shape) != 2:
        raise node.invalid(f"the operand has shape {list(shape)}; it is a matrix")
    if 0 in shape:
        return np.empty(shape, element.dtype)
    row_number, column = (node.add(logical.IotaOp(axis, shape, "i64")) for axis in (0, 1))
    diagonal = node.apply(logical.SubOp, column, row_number)
    return node.cast(compare(node, "eq", diagonal, node.attributes.int("k", 0)), element, "cast")


@row("Range", since=11)
def _range(node: Node) -> Result:
    """start, start + delta and so on, up to but without limit."""
    start, limit, delta = (
        node.value(index, what).reshape(()).item() for index, what in enumerate(("start", "limit", "delta"))
    )
    if delta == 0:
        raise node.invalid("delta is 0; it is the distance of two elements")
    element, count = node.element(0), max(math.ceil((limit - start) / delta), 0)
    if count == 0:
        return np.empty(0, element.dtype)
    wide = element_named("f64") if element.is_float else element
    position = node.add(logical.IotaOp(0, [count], wide))
    scaled = node.apply(logical.MulOp, position, delta)
    return node.cast(node.apply(logical.AddOp, scaled, start), element, "cast")


@row("Trilu", since=14)
def _trilu(node: Node) -> Result:
    """The upper or the lower triangle of matrices with the diagonal ``k``, and 0 elsewhere."""
    shape = node.shape(0)
    if 0 in shape:
        return np.empty(shape, node.element(0).dtype)
    if len(shape) < 2:
        raise node.invalid(f"the operand has shape {list(shape)}; it holds matrices")
    matrix = shape[-2:]
    row_number, column = (node.add(logical.IotaOp(axis, matrix, "i64")) for axis in (0, 1))
    diagonal = node.apply(logical.SubOp, column, row_number)
    bound = node.reshape(node.operand(1), ()) if node.has(1) else 0
    kept = compare(node, "ge" if node.attributes.int("upper", 1) else "le", diagonal, bound)
    return node.elementwise(logical.SelectOp, kept, node.operand(0), node.full(0, (), node.element(0)))
