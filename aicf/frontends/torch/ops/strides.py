"""ATen ops that view windows of a tensor, or its memory at strides, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import OtherGradient, Writer, row
from aicf.frontends.torch.ops.views import moved

# Windows


@row("unfold.default", "unfold_copy.default")
def _unfold(writer: Writer, x: Value, dimension: int, size: int, step: int) -> Value:
    """Windows of some elements along a dimension, step apart; their elements are the last dimension."""
    axis = writer.axis(dimension, x.rank)
    if not x.rank:
        return writer.reshape(x, [1])
    last = moved(writer, x, axis, x.rank - 1)
    return moved(writer, writer.graph.window(last, [size], [step]), x.rank - 1, axis)


@row("unfold_backward.default")
def _unfold_backward(
    writer: Writer, grad: Value, sizes: Sequence[int], dim: int, size: int, step: int
) -> Value:
    """The gradients of all windows, added up where they overlap."""
    graph, rank = writer.graph, len(sizes)
    if not rank:
        return writer.reshape(grad, [])
    axis = writer.axis(dim, rank)
    whole, count = sizes[axis], writer.sizes(grad)[axis]
    # [.., windows, .., elements] with both first: rows of what is added at one offset.
    first = moved(writer, moved(writer, grad, axis, 0), rank, 1)
    others = writer.sizes(first)[2:]
    rows = writer.widened(writer.reshape(first, [count * size, *others]))
    shape = [count, size]
    offsets = graph.add(graph.mul(graph.iota(shape, 0, "i64"), step), graph.iota(shape, 1, "i64"))
    zeros = writer.full([whole, *others], 0, rows.dtype)
    total = graph.scatter(zeros, writer.reshape(offsets, [count * size]), rows, "add")
    return moved(writer, writer.result(total), 0, axis)


# Strides


def strided_offsets(writer: Writer, sizes: Sequence[int], strides: Sequence[int], offset: int) -> Value:
    """Where in memory the elements are of a view by strides, row by row."""
    graph = writer.graph
    total = writer.full(sizes, offset, "i64")
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        if stride and size > 1:
            total = graph.add(total, graph.mul(graph.iota(sizes, axis, "i64"), stride))
    return total


def _is_dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    expected = math.prod(sizes)
    for size, stride in zip(sizes, strides, strict=True):
        expected //= size
        if size > 1 and stride != expected:
            return False
    return True


def _in_memory(writer: Writer, x: Value) -> tuple[Value, list[int]]:
    """The elements in the order of memory, and the order of the dimensions there.

    Raises:
        UnsupportedOp: there are gaps between them, which the program does not have.
    """
    shape, strides = writer.sizes(x), writer.memory().strides
    order = sorted(range(x.rank), key=lambda axis: (-strides[axis], axis))
    if not _is_dense([shape[axis] for axis in order], [strides[axis] for axis in order]):
        writer.unsupported(
            f"a tensor of strides {list(strides)}, which has gaps in memory", "call contiguous() before"
        )
    return writer.reshape(writer.permute(x, order), [math.prod(shape)]), order


def _first_offset(
    writer: Writer, size: Sequence[int], stride: Sequence[int], offset: int | None, total: int
) -> int:
    """Where a view by strides begins among the elements of the operand.

    Raises:
        UnsupportedOp: it reaches beyond them, into the rest of the storage.
    """
    own = writer.memory().offset
    start = 0 if offset is None else offset - own
    last = start + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    if start < 0 or last >= total:
        writer.unsupported(
            "a view by strides that reaches beyond its operand", "take it of the whole tensor, not of a part"
        )
    return start


@row("as_strided.default", "as_strided_copy.default")
def _as_strided(
    writer: Writer, x: Value, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Value:
    """The elements of memory at strides."""
    flat, _ = _in_memory(writer, x)
    start = _first_offset(writer, size, stride, offset, math.prod(writer.sizes(x)))
    order = sorted(range(len(size)), key=lambda axis: (-stride[axis], axis))
    repeated = [axis for axis in order if not stride[axis]]
    kept = [axis for axis in order if stride[axis]]
    if _is_dense([size[axis] for axis in kept], [stride[axis] for axis in kept]):
        part = writer.part(flat, 0, start, start + math.prod(size[axis] for axis in kept))
        apart = writer.reshape(part, [*(size[axis] for axis in kept), *(1 for _ in repeated)])
        back = [[*kept, *repeated].index(axis) for axis in range(len(size))]
        return writer.expand(writer.permute(apart, back), size)
    return writer.graph.gather(flat, strided_offsets(writer, size, stride, start), 0)


@row("as_strided_scatter.default", other_gradient=OtherGradient("overwritten elements also get a gradient"))
def _as_strided_scatter(
    writer: Writer,
    x: Value,
    src: Value,
    size: Sequence[int],
    stride: Sequence[int],
    offset: int | None = None,
) -> Value:
    """The tensor with the elements of memory at strides replaced."""
    flat, order = _in_memory(writer, x)
    shape, count = writer.sizes(x), math.prod(size)
    start = _first_offset(writer, size, stride, offset, math.prod(shape))
    offsets = writer.reshape(strided_offsets(writer, size, stride, start), [count])
    new = writer.reshape(writer.cast(src, x.dtype), [count])
    apart = writer.reshape(writer.graph.scatter(flat, offsets, new), [shape[axis] for axis in order])
    return writer.permute(apart, [order.index(axis) for axis in range(x.rank)])
