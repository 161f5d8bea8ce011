"""ATen ops that sort the elements along an axis, or find those at a position in that order. NaN is the largest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer, is_bool, is_float, row

Middle: TypeAlias = Callable[[Writer, Value, Value, int], Value]
"""Gives the index of the element in the middle, of a tensor, the first half of its order, and an axis."""

# Orders


@row("sort.default", "sort.stable")
def _sort(
    writer: Writer, x: Value, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> Sequence[Value | None]:
    """The elements in order, and the index of each; equal ones stay in their order."""
    return _best(writer, x, _size(writer, x, dim), dim, descending)


@row("argsort.default", "argsort.stable")
def _argsort(
    writer: Writer, x: Value, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> Value:
    """The index of each element in order."""
    return _order(writer, x, _size(writer, x, dim), dim, descending)


def _size(writer: Writer, x: Value, axis: int) -> int:
    return writer.sizes(x)[writer.axis(axis, x.rank)] if x.rank else 1


@row("msort.default")
def _msort(writer: Writer, x: Value) -> Value:
    """The elements in rising order along the first axis."""
    return _at(writer, x, _order(writer, x, _size(writer, x, 0), 0, False), 0)


@row("topk.default")
def _topk(
    writer: Writer, x: Value, k: int, axis: int = -1, largest: bool = True, in_order: bool = True
) -> Sequence[Value | None]:
    """The k largest or smallest elements in order, and the index of each."""
    return _best(writer, x, k, axis, largest)


def _best(writer: Writer, x: Value, k: int, axis: int, largest: bool) -> Sequence[Value | None]:
    indices = _order(writer, x, k, axis, largest)
    return [_at(writer, x, indices, axis) if 0 in writer.used else None, indices]


def _order(writer: Writer, x: Value, k: int, axis: int, largest: bool) -> Value:
    """The indices of the k first elements in order."""
    if not x.rank:
        return writer.full((), 0, "i64")
    x = writer.cast(x, "u8") if is_bool(x.dtype) else x
    return writer.graph.topk_indices(x, writer.axis(axis, x.rank), k, smallest=not largest)


def _at(writer: Writer, x: Value, indices: Value, axis: int) -> Value:
    """The elements at indices along an axis."""
    if not x.rank:
        return x
    return writer.graph.gather_elements(x, indices, writer.axis(axis, x.rank))


# Places


@row("kthvalue.default")
def _kthvalue(
    writer: Writer, x: Value, k: int, axis: int = -1, keepdim: bool = False
) -> Sequence[Value | None]:
    """The k-th smallest element along an axis, and its index."""
    if not x.rank:
        return [x, writer.full((), 0, "i64")]
    axis = writer.axis(axis, x.rank)
    # From that end of the order which is nearer.
    from_end = writer.sizes(x)[axis] - k + 1
    position = min(k, from_end)
    order = _order(writer, x, position, axis, from_end < k)
    return _found(writer, x, writer.part(order, axis, position - 1, position), axis, keepdim)


def _found(writer: Writer, x: Value, index: Value, axis: int, keepdim: bool) -> list[Value | None]:
    """The elements at one index along an axis, and the index."""
    pair = [_at(writer, x, index, axis), index]
    return [*pair] if keepdim else [writer.drop(value, axis) for value in pair]


@row("median.dim")
def _median_along(writer: Writer, x: Value, axis: int, keepdim: bool = False) -> Sequence[Value | None]:
    """The lower of the two elements in the middle along an axis, and its index; NaN if there is one."""
    return _median_of(writer, x, axis, keepdim, _middle)


@row("nanmedian.dim")
def _nanmedian_along(writer: Writer, x: Value, axis: int, keepdim: bool = False) -> Sequence[Value | None]:
    """The lower of the two in the middle of what is a number along an axis, and its index."""
    return _median_of(writer, x, axis, keepdim, _middle_number)


@row("median.default")
def _median(writer: Writer, x: Value) -> Value:
    """The lower of the two elements in the middle; NaN if there is one."""
    return _of_all(writer, x, _middle)


@row("nanmedian.default")
def _nanmedian(writer: Writer, x: Value) -> Value:
    """The lower of the two in the middle of what is a number."""
    return _of_all(writer, x, _middle_number)


def _of_all(writer: Writer, x: Value, middle: Middle) -> Value:
    flat = writer.reshape(x, [math.prod(writer.sizes(x))])
    found, _ = _median_of(writer, flat, 0, False, middle)
    assert found is not None
    return found


def _median_of(writer: Writer, x: Value, axis: int, keepdim: bool, middle: Middle) -> Sequence[Value | None]:
    if not x.rank:
        return [x, writer.full((), 0, "i64")]
    axis = writer.axis(axis, x.rank)
    order = _order(writer, x, (writer.sizes(x)[axis] + 1) // 2, axis, False)
    return _found(writer, x, middle(writer, x, order, axis), axis, keepdim)


def _middle(writer: Writer, x: Value, order: Value, axis: int) -> Value:
    """The index of the element in the middle, or of the last one, which is NaN if any is."""
    graph, size = writer.graph, writer.sizes(x)[axis]
    half = (size + 1) // 2
    index = writer.part(order, axis, half - 1, half)
    if not is_float(x.dtype):
        return index
    first = graph.argmax(graph.cast(graph.is_nan(x), "u8"), axis, keepdims=True)
    any_nan = graph.reduce_any(graph.is_nan(x), [axis], keepdims=True)
    return graph.select(any_nan, first, index)


def _middle_number(writer: Writer, x: Value, order: Value, axis: int) -> Value:
    """The index of the element in the middle of those before the first NaN."""
    if not is_float(x.dtype):
        return _middle(writer, x, order, axis)
    graph = writer.graph
    numbers = graph.cast(graph.not_(graph.is_nan(x)), "i64")
    count = graph.reduce_sum(numbers, [axis], keepdims=True)
    position = graph.max(graph.div(graph.sub(count, 1), 2), 0)
    return graph.gather_elements(order, position, axis)


@row("mode.default")
def _mode(writer: Writer, x: Value, axis: int = -1, keepdim: bool = False) -> Sequence[Value | None]:
    """The smallest of the elements that there are most of along an axis, and the last index of it.

    It compares all pairs, which costs the square of the size.
    """
    graph = writer.graph
    if not x.rank:
        return [x, writer.full((), 0, "i64")]
    axis = writer.axis(axis, x.rank)
    keys = writer.cast(x, "u8") if is_bool(x.dtype) else x
    same = graph.cast(graph.eq(writer.insert(keys, axis), writer.insert(keys, axis + 1)), "i32")
    counts = graph.reduce_sum(same, [axis + 1])
    most = graph.eq(counts, graph.reduce_max(counts, [axis], keepdims=True))
    # In rising order, so that the first of those with most is the smallest.
    order = _order(writer, keys, writer.sizes(x)[axis], axis, False)
    first = graph.argmax(graph.gather_elements(graph.cast(most, "u8"), order, axis), axis, keepdims=True)
    smallest = graph.gather_elements(keys, graph.gather_elements(order, first, axis), axis)
    index = graph.argmax(graph.flip(graph.cast(graph.eq(keys, smallest), "u8"), [axis]), axis, keepdims=True)
    return _found(writer, x, graph.sub(writer.sizes(x)[axis] - 1, index), axis, keepdim)
