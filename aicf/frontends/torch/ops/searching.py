"""ATen ops that look values up in sorted sequences, and those with data-dependent sizes."""

from __future__ import annotations

import math
from collections.abc import Callable

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Operand, Writer, empty_row, is_float, result_type, row

_COUNTED = 64
"""Up to this size, all elements are compared and counted; above it, binary search is used."""


def insertion_points(writer: Writer, sorted_: Value, x: Value, right: bool) -> Value:
    """How many elements of an ascending vector precede each value, as i64.

    Args:
        right: Whether equal elements count too.
    """
    (size,) = writer.sizes(sorted_)
    if size <= _COUNTED:
        return _counted(writer, sorted_, writer.insert(x, x.rank), right)
    return _binary_search(writer, x, size, lambda index: writer.graph.gather(sorted_, index, 0), right)


def _precedes(writer: Writer, element: Value, x: Value, right: bool) -> Value:
    """Whether an element precedes a value. All elements precede NaN."""
    graph = writer.graph
    return graph.not_(graph.gt(element, x) if right else graph.ge(element, x))


def _counted(writer: Writer, rows: Value, x: Value, right: bool) -> Value:
    graph = writer.graph
    before = _precedes(writer, rows, x, right)
    return graph.reduce_sum(writer.cast(before, "i64"), [before.rank - 1])


def _binary_search(writer: Writer, x: Value, size: int, read: Callable[[Value], Value], right: bool) -> Value:
    """Binary search, with as many steps as a vector of this size can need."""
    graph, shape = writer.graph, writer.sizes(x)
    low, high = writer.full(shape, 0, "i64"), writer.full(shape, size, "i64")
    for _ in range(size.bit_length()):
        middle = graph.shift_right(graph.add(low, high), 1)
        is_left = graph.lt(low, high)
        after = _precedes(writer, read(middle), x, right)
        low = graph.select(graph.and_(is_left, after), graph.add(middle, 1), low)
        high = graph.select(after, high, middle)
    return low


@row("searchsorted.Tensor", "searchsorted.Scalar")
def _searchsorted(
    writer: Writer,
    rows: Value,
    x: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    """The insertion points of values into sorted rows of the last dimension, before or after equal elements."""
    graph = writer.graph
    right = right or side == "right"
    if sorter is not None:
        rows = graph.gather_elements(rows, sorter, rows.rank - 1)
    value = _comparable(writer, x, rows)
    rows = writer.cast(rows, value.dtype)
    if rows.rank == 1:
        return writer.result(insertion_points(writer, rows, value, right))
    *lead, size = writer.sizes(rows)
    if size <= _COUNTED:
        return writer.result(
            _counted(writer, writer.insert(rows, rows.rank - 1), writer.insert(value, value.rank), right)
        )
    flat = writer.reshape(rows, [math.prod(lead), size])
    wanted = writer.reshape(value, [math.prod(lead), writer.sizes(value)[-1]])
    points = _binary_search(writer, wanted, size, lambda index: graph.gather_elements(flat, index, 1), right)
    return writer.result(writer.reshape(points, writer.shape))


def _comparable(writer: Writer, x: Operand, rows: Value) -> Value:
    """A value as a tensor; a number in the type of the rows, unless it is a fraction and they are integers."""
    if isinstance(x, Value):
        return x
    is_wider = isinstance(x, float) and not is_float(rows.dtype)
    return writer.full((), x, "f32" if is_wider else rows.dtype)


@row("bucketize.Tensor", "bucketize.Scalar")
def _bucketize(
    writer: Writer, x: Operand, boundaries: Value, *, out_int32: bool = False, right: bool = False
) -> Value:
    """The number of the bucket of each value; a boundary belongs to the bucket before or after it."""
    return _searchsorted(writer, boundaries, x, right=right)


@row("isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor")
def _isin(
    writer: Writer, elements: Operand, tests: Operand, *, assume_unique: bool = False, invert: bool = False
) -> Value:
    """Whether each element is one of some others."""
    graph, dtype = writer.graph, result_type(elements, tests)
    each = writer.insert(writer.tensor(elements, dtype), len(writer.shape))
    others = writer.tensor(tests, dtype)
    is_same = graph.eq(each, writer.reshape(others, [math.prod(writer.sizes(others))]))
    found = graph.reduce_any(is_same, [is_same.rank - 1])
    return graph.not_(found) if invert else found


@empty_row("isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor")
def _in_nothing(
    writer: Writer, *operands: object, assume_unique: bool = False, invert: bool = False
) -> Value:
    """No element is one of none."""
    return writer.full(writer.shape, invert, "i1")


@row("nonzero_static.default")
def _nonzero_static(writer: Writer, x: Value, *, size: int, fill_value: int = -1) -> Value:
    """The indices of the first elements that are not 0, one a row; a number in the rows that are left."""
    graph, shape = writer.graph, writer.sizes(x)
    count = math.prod(shape)
    holds = writer.cast(writer.reshape(x, [count]), "i1")
    order = graph.sub(graph.cumsum(writer.cast(holds, "i64"), 0), 1)
    targets = graph.select(holds, order, writer.full((), size, "i64"))
    flat = graph.scatter(writer.full([size], -1, "i64"), targets, graph.iota([count], 0, "i64"))
    columns: list[Value] = []
    for axis, own in enumerate(shape):
        column = graph.mod(graph.floor_div(flat, math.prod(shape[axis + 1 :])), own)
        columns.append(graph.select(graph.lt(flat, 0), writer.full((), fill_value, "i64"), column))
    return graph.concat([writer.insert(column, 1) for column in columns], 1)


@empty_row("nonzero_static.default")
def _nonzero_of_nothing(writer: Writer, x: object, *, size: int, fill_value: int = -1) -> Value:
    """The number in all rows."""
    return writer.full(writer.shape, fill_value, writer.dtype)


@row(
    *("nonzero.default", "nonzero_numpy.default", "argwhere.default", "masked_select.default"),
    *("unique_consecutive.default", "unique_dim.default", "_unique2.default", "_unique.default"),
    *("unique_dim_consecutive.default", "bincount.default"),
)
def _sized_by_elements(writer: Writer, *operands: object) -> Value:
    """Refused: the sizes of a program are known before it runs."""
    writer.unsupported(
        "the size of its result follows from elements of a tensor",
        "keep all elements and mark them with a mask (torch.where), or compute that part outside",
    )
