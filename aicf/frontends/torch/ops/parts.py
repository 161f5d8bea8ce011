"""ATen ops that view slices of a tensor, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer, empty_row, row

# Slices


def bounds(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """Where a slice starts and ends, as Python clamps them."""
    first, last, _ = slice(start, end).indices(size)
    return first, max(first, last)


@row("select.int", "select_copy.int")
def _select(writer: Writer, x: Value, dim: int, index: int) -> Value:
    """The elements at one index along a dimension, without that dimension."""
    axis = writer.axis(dim, x.rank)
    at = index % writer.sizes(x)[axis]
    return writer.drop(writer.part(x, axis, at, at + 1), axis)


@row("slice.Tensor", "slice_copy.Tensor")
def _slice(
    writer: Writer, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    """Every step-th element along a dimension from start to before end."""
    axis = writer.axis(dim, x.rank)
    first, last = bounds(start, end, writer.sizes(x)[axis])
    return writer.part(x, axis, first, last, step)


@row("narrow.default", "narrow_copy.default")
def _narrow(writer: Writer, x: Value, dim: int, start: int, length: int) -> Value:
    """Some elements along a dimension, from a first one on."""
    axis = writer.axis(dim, x.rank)
    first = start + writer.sizes(x)[axis] if start < 0 else start
    return writer.part(x, axis, first, first + length)


@row(
    *("split.Tensor", "split.sizes", "split_with_sizes.default", "chunk.default"),
    *("split_copy.Tensor", "split_with_sizes_copy.default"),
    *("unsafe_split.Tensor", "unsafe_split_with_sizes.default", "unsafe_chunk.default"),
    *("tensor_split.sections", "tensor_split.indices"),
)
def _split(writer: Writer, x: Value, how: object, dim: int = 0) -> list[Value | None]:
    """Consecutive parts along a dimension, with the sizes of PyTorch's results."""
    return _parts(writer, x, writer.axis(dim, x.rank))


@row("hsplit.int", "hsplit.array")
def _split_columns(writer: Writer, x: Value, how: object) -> list[Value | None]:
    """Consecutive parts along the second dimension, or that of a vector."""
    return _parts(writer, x, min(1, x.rank - 1))


@row("vsplit.int", "vsplit.array")
def _split_rows(writer: Writer, x: Value, how: object) -> list[Value | None]:
    """Consecutive parts along the first dimension."""
    return _parts(writer, x, 0)


@row("dsplit.int", "dsplit.array")
def _split_depth(writer: Writer, x: Value, how: object) -> list[Value | None]:
    """Consecutive parts along the third dimension."""
    return _parts(writer, x, 2)


def _parts(writer: Writer, x: Value, axis: int) -> list[Value | None]:
    found: list[Value | None] = []
    start = 0
    for index, result in enumerate(writer.results):
        stop = start + result.shape[axis]
        is_read = result.count and index in writer.used
        found.append(writer.part(x, axis, start, stop) if is_read else None)
        start = stop
    return found


@row("unbind.int", "unbind_copy.int")
def _unbind(writer: Writer, x: Value, dim: int = 0) -> list[Value | None]:
    """The elements at each index along a dimension, without that dimension."""
    axis = writer.axis(dim, x.rank)
    return [
        writer.drop(writer.part(x, axis, index, index + 1), axis) if index in writer.used else None
        for index in range(writer.sizes(x)[axis])
    ]


# Writing into a slice of a larger tensor


def among_zeros(writer: Writer, x: Value, axis: int, start: int, step: int, size: int) -> Value:
    """A tensor with the elements of x along an axis from start on, step apart, and zeros elsewhere."""
    shape = writer.sizes(x)
    count = shape[axis]
    if step > 1:
        apart = writer.reshape(x, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
        apart = padded(writer, apart, axis + 1, 0, step - 1)
        x = writer.reshape(apart, [*shape[:axis], count * step, *shape[axis + 1 :]])
        x = writer.part(x, axis, 0, min(count * step, size - start))
        count = writer.sizes(x)[axis]
    return padded(writer, x, axis, start, size - start - count)


def padded(writer: Writer, x: Value, axis: int, low: int, high: int) -> Value:
    """Zeros before and after the elements along an axis."""
    if not low and not high:
        return x
    lows, highs = [0] * x.rank, [0] * x.rank
    lows[axis], highs[axis] = low, high
    return writer.graph.pad(x, lows, highs)


def within(writer: Writer, x: Value, new: Value, axis: int, start: int, step: int) -> Value:
    """x with other elements along an axis from start on, step apart."""
    graph, shape, count = writer.graph, writer.sizes(x), writer.sizes(new)[axis]
    size, stop = shape[axis], start + count * step
    if step == 1:
        parts = [new]
        if start:
            parts.insert(0, writer.part(x, axis, 0, start))
        if stop < size:
            parts.append(writer.part(x, axis, stop, size))
        return graph.concat(parts, axis) if len(parts) > 1 else new
    offset = graph.sub(graph.iota(shape, axis, "i64"), start)
    inside = graph.and_(graph.ge(offset, 0), graph.eq(graph.mod(offset, step), 0))
    if stop < size:
        inside = graph.and_(inside, graph.lt(offset, count * step))
    return graph.select(inside, among_zeros(writer, new, axis, start, step, size), x)


@row("slice_scatter.default")
def _slice_scatter(
    writer: Writer,
    x: Value,
    src: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    """The tensor with a slice of it replaced."""
    axis = writer.axis(dim, x.rank)
    first, _ = bounds(start, end, writer.sizes(x)[axis])
    return within(writer, x, writer.cast(src, x.dtype), axis, first, step)


@row("select_scatter.default")
def _select_scatter(writer: Writer, x: Value, src: Value, dim: int, index: int) -> Value:
    """The tensor with the elements at one index along a dimension replaced."""
    axis = writer.axis(dim, x.rank)
    new = writer.insert(writer.cast(src, x.dtype), axis)
    return within(writer, x, new, axis, index % writer.sizes(x)[axis], 1)


@row("slice_backward.default")
def _slice_backward(
    writer: Writer, grad: Value, sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Value:
    """The gradient in its slice, zeros elsewhere."""
    axis = writer.axis(dim, len(sizes))
    first, _ = bounds(start, end, sizes[axis])
    return among_zeros(writer, grad, axis, first, step, sizes[axis])


@row("select_backward.default")
def _select_backward(writer: Writer, grad: Value, sizes: Sequence[int], dim: int, index: int) -> Value:
    """The gradient at its index, zeros elsewhere."""
    axis = writer.axis(dim, len(sizes))
    return among_zeros(writer, writer.insert(grad, axis), axis, index % sizes[axis], 1, sizes[axis])


@empty_row("slice_scatter.default", "diagonal_scatter.default", "as_strided_scatter.default")
def _nothing_replaced(writer: Writer, x: Value, *rest: object) -> Value:
    """No element is replaced."""
    return x


@empty_row(
    *("slice_backward.default", "select_backward.default", "diagonal_backward.default"),
    *("diag_embed.default", "diag.default", "trace.default", "unfold_backward.default"),
    *("searchsorted.Tensor", "searchsorted.Scalar", "bucketize.Tensor", "bucketize.Scalar"),
)
def _zeros(writer: Writer, *rest: object, **how: object) -> Value:
    """Zeros around nothing; the sum of nothing, and the insertion point in nothing."""
    return writer.full(writer.shape, 0, writer.dtype)
