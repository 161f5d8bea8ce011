"""ATen ops on diagonals and triangles of matrices, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer, row
from aicf.frontends.torch.ops.parts import padded


@row("diagonal.default", "diagonal_copy.default")
def _diagonal(writer: Writer, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """The diagonal of the planes of two dimensions, as the last dimension."""
    return diagonal(writer, _planes(writer, x, dim1, dim2), offset)


@row("linalg_diagonal.default")
def _matrix_diagonal(writer: Writer, x: Value, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    """The diagonal of matrices, as the last dimension."""
    return diagonal(writer, _planes(writer, x, dim1, dim2), offset)


def _planes(writer: Writer, x: Value, dim1: int, dim2: int) -> Value:
    """The two dimensions last."""
    first, second = writer.axis(dim1, x.rank), writer.axis(dim2, x.rank)
    others = [axis for axis in range(x.rank) if axis not in (first, second)]
    return writer.permute(x, [*others, first, second])


def diagonal(writer: Writer, x: Value, offset: int) -> Value:
    """The diagonal of the last two dimensions, offset columns to the right."""
    *lead, rows, columns = writer.sizes(x)
    start = offset if offset >= 0 else -offset * columns
    count = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    flat = writer.reshape(x, [*lead, rows * columns])
    return writer.part(flat, len(lead), start, start + (count - 1) * (columns + 1) + 1, columns + 1)


def on_diagonal(writer: Writer, x: Value, rows: int, columns: int, offset: int, rest: Value | None) -> Value:
    """Planes with the elements of the last dimension on a diagonal, and others, or zeros, elsewhere."""
    graph = writer.graph
    *lead, count = writer.sizes(x)
    rank = len(lead)
    if offset >= 0:
        spread = writer.insert(padded(writer, x, rank, 0, rows - count), rank + 1)
    else:
        spread = writer.insert(padded(writer, x, rank, 0, columns - count), rank)
    row_of, column_of = (graph.iota([rows, columns], axis, "i64") for axis in (0, 1))
    is_on = graph.eq(graph.sub(column_of, row_of), offset)
    shape = [*lead, rows, columns]
    other = writer.full((), 0, x.dtype) if rest is None else rest
    return graph.select(
        writer.expand(is_on, shape), writer.expand(spread, shape), writer.expand(other, shape)
    )


def _unplaned(writer: Writer, x: Value, dim1: int, dim2: int) -> Value:
    """The last two dimensions in their places."""
    first, second = writer.axis(dim1, x.rank), writer.axis(dim2, x.rank)
    others = iter(range(x.rank - 2))
    order = [
        x.rank - 2 if axis == first else x.rank - 1 if axis == second else next(others)
        for axis in range(x.rank)
    ]
    return writer.permute(x, order)


@row("diag_embed.default")
def _diag_embed(writer: Writer, x: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    """Square planes of two new dimensions with the elements of the last dimension on a diagonal."""
    size = writer.sizes(x)[-1] + abs(offset)
    return _unplaned(writer, on_diagonal(writer, x, size, size, offset, None), dim1, dim2)


@row("diagonal_scatter.default")
def _diagonal_scatter(
    writer: Writer, x: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    """The tensor with a diagonal replaced."""
    planes = _planes(writer, x, dim1, dim2)
    *_, rows, columns = writer.sizes(planes)
    new = writer.cast(src, x.dtype)
    return _unplaned(writer, on_diagonal(writer, new, rows, columns, offset, planes), dim1, dim2)


@row("diagonal_backward.default")
def _diagonal_backward(
    writer: Writer, grad: Value, sizes: Sequence[int], offset: int, dim1: int, dim2: int
) -> Value:
    """The gradient on its diagonal, zeros elsewhere."""
    rank = len(sizes)
    rows, columns = sizes[writer.axis(dim1, rank)], sizes[writer.axis(dim2, rank)]
    return _unplaned(writer, on_diagonal(writer, grad, rows, columns, offset, None), dim1, dim2)


@row("diag.default")
def _diag(writer: Writer, x: Value, offset: int = 0) -> Value:
    """A square with a vector on its diagonal, or the diagonal of a matrix."""
    if x.rank == 2:
        return diagonal(writer, x, offset)
    return _diag_embed(writer, x, offset)


@row("trace.default")
def _trace(writer: Writer, x: Value) -> Value:
    """The sum of the diagonal."""
    graph = writer.graph
    on = writer.cast(diagonal(writer, x, 0), writer.dtype)
    return writer.result(graph.reduce_sum(writer.widened(on), [0]))


# Triangles


@row("tril.default")
def _tril(writer: Writer, x: Value, diagonal: int = 0) -> Value:
    """The elements of the last two dimensions on a diagonal and below it, zeros elsewhere."""
    graph = writer.graph
    return _triangle(writer, x, lambda row, column: graph.le(graph.sub(column, row), diagonal))


@row("triu.default")
def _triu(writer: Writer, x: Value, diagonal: int = 0) -> Value:
    """The elements of the last two dimensions on a diagonal and above it, zeros elsewhere."""
    graph = writer.graph
    return _triangle(writer, x, lambda row, column: graph.ge(graph.sub(column, row), diagonal))


def _triangle(writer: Writer, x: Value, holds: Callable[[Value, Value], Value]) -> Value:
    graph, plane = writer.graph, writer.sizes(x)[-2:]
    mask = holds(graph.iota(plane, 0, "i64"), graph.iota(plane, 1, "i64"))
    zero = writer.full((), 0, x.dtype)
    return graph.select(mask, x, zero)
