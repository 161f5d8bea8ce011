"""Embedding bags: ATen ops that reduce several rows of a table to their sum, mean or maximum, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import CheckedIndices, Empty, Writer, empty_row, row
from aicf.frontends.torch.ops.indices import as_indices
from aicf.frontends.torch.ops.parts import padded

_SUM, _MEAN, _MAX = range(3)


@row(
    *("_embedding_bag.default", "_embedding_bag_forward_only.default"),
    indices=CheckedIndices("weight", "indices", lambda call, rank: 0),
)
def _embedding_bag(
    writer: Writer,
    weight: Value,
    indices: Value,
    offsets: Value,
    by_frequency: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    scales: Value | None = None,
    include_last: bool = False,
    padding: int = -1,
) -> list[Value | None]:
    """The sum, mean or maximum of the rows of each bag; bags of indices, sizes of bags, and indices of maxima.

    Other modes than the maximum repeat the sizes as the last result, as PyTorch does."""
    graph = writer.graph
    bags, width = writer.shape
    (count,) = writer.sizes(indices)
    indices = as_indices(writer, indices)
    starts = writer.part(as_indices(writer, offsets), 0, 0, bags)
    # A bag begins at its offset: the bag of an index is the number of offsets up to it, less one.
    begins = graph.scatter(writer.full([count], 0, "i64"), starts, writer.full([bags], 1, "i64"), "add")
    bag = graph.sub(graph.cumsum(begins, 0), 1)
    targets = bag
    if padding >= 0:
        targets = graph.select(graph.ne(indices, padding), bag, writer.full((), bags, "i64"))
    sizes = graph.scatter(writer.full([bags], 0, "i64"), targets, writer.full([count], 1, "i64"), "add")
    rows = writer.widened(graph.gather(weight, indices, 0))
    if scales is not None:
        rows = graph.mul(rows, writer.insert(writer.cast(scales, rows.dtype), 1))
    total = _bagged(writer, rows, targets, sizes, [bags, width], mode)
    if mode == _SUM:  # for which PyTorch counts nothing
        sizes = writer.full([bags], 0, "i64")
    counts = _filled_up(writer, sizes, 2)
    largest = counts
    if mode == _MAX:
        largest = _largest(writer, rows, total, targets, indices, sizes) if 3 in writer.used else None
    found = [writer.result(total), bag, counts, largest]
    return [
        None if value is None or index not in writer.used else writer.result(value, index)
        for index, value in enumerate(found)
    ]


def _filled_up(writer: Writer, sizes: Value, index: int) -> Value:
    """With a zero for the end of the last bag, where PyTorch counts that as one more."""
    (wanted,) = writer.results[index].shape
    return padded(writer, sizes, 0, 0, wanted - writer.sizes(sizes)[0])


def _bagged(
    writer: Writer, rows: Value, targets: Value, sizes: Value, shape: Sequence[int], mode: int
) -> Value:
    graph, dtype = writer.graph, rows.dtype
    if mode == _MAX:
        largest = graph.scatter(writer.full(shape, -math.inf, dtype), targets, rows, "max")
        is_empty = writer.expand(writer.insert(graph.eq(sizes, 0), 1), shape)
        return graph.select(is_empty, writer.full((), 0, dtype), largest)
    total = graph.scatter(writer.full(shape, 0, dtype), targets, rows, "add")
    if mode == _SUM:
        return total
    return graph.div(total, writer.insert(writer.cast(graph.max(sizes, 1), dtype), 1))


def _largest(
    writer: Writer, rows: Value, total: Value, targets: Value, indices: Value, sizes: Value
) -> Value:
    """The index of the first row that has the maximum of its bag, for each column."""
    graph, shape = writer.graph, writer.sizes(rows)
    is_largest = graph.eq(rows, graph.gather(total, targets, 0))
    order = graph.iota(shape, 0, "i64")
    last = writer.full((), shape[0], "i64")
    first = writer.full(writer.sizes(total), shape[0], "i64")
    first = graph.scatter(first, targets, graph.select(is_largest, order, last), "min")
    found = graph.gather(indices, first, 0)
    is_empty = writer.insert(graph.eq(sizes, 0), 1)
    return graph.select(is_empty, writer.full((), _no_index(writer), found.dtype), found)


def _no_index(writer: Writer) -> int:
    """What PyTorch has for the index of the maximum of a bag without rows: its kernels differ."""
    return -1 if writer.device == "cuda" else 0


@row("_embedding_bag_dense_backward.default")
def _embedding_bag_backward(
    writer: Writer,
    grad: Value,
    indices: Value,
    bag: Value,
    sizes: Value,
    largest: Value,
    rows: int,
    by_frequency: bool,
    mode: int,
    scales: Value | None,
    padding: int = -1,
) -> Value:
    """The gradients of all reads of each row added up; those of the padding row are dropped."""
    graph = writer.graph
    bags, width = writer.sizes(grad)
    grad, indices = writer.widened(grad), as_indices(writer, indices)
    zeros = writer.full([rows, width], 0, grad.dtype)
    if mode == _MAX:
        read = graph.ne(writer.part(sizes, 0, 0, bags), 0)
        kept = graph.select(writer.insert(read, 1), grad, writer.full((), 0, grad.dtype))
        return writer.result(graph.scatter_elements(zeros, largest, kept, 0, "add"))
    if mode == _MEAN:
        count = graph.max(writer.part(sizes, 0, 0, bags), 1)
        grad = graph.div(grad, writer.insert(writer.cast(count, grad.dtype), 1))
    updates = graph.gather(grad, bag, 0)
    if scales is not None:
        updates = graph.mul(updates, writer.insert(writer.cast(scales, grad.dtype), 1))
    if by_frequency:
        ones = writer.full(writer.sizes(indices), 1, "i64")
        often = graph.gather(graph.scatter(writer.full([rows], 0, "i64"), indices, ones, "add"), indices, 0)
        updates = graph.div(updates, writer.insert(writer.cast(often, grad.dtype), 1))
    targets = indices
    if padding >= 0:
        targets = graph.select(graph.eq(indices, padding), writer.full((), rows, indices.dtype), indices)
    return writer.result(graph.scatter(zeros, targets, updates, "add"))


@empty_row("_embedding_bag_dense_backward.default")
def _bag_backward_of_nothing(
    writer: Writer, grad: Value | Empty, indices: Value | Empty, *rest: Any
) -> Value:
    """Zeros if nothing was read. Sums and means come without the indices of maxima."""
    if isinstance(grad, Value) and isinstance(indices, Value):
        return _embedding_bag_backward(writer, grad, indices, *rest)
    return writer.full(writer.shape, 0, writer.dtype)


@empty_row("_embedding_bag.default", "_embedding_bag_forward_only.default")
def _empty_bags(
    writer: Writer,
    weight: Value | Empty,
    indices: Value | Empty,
    offsets: Value | Empty,
    by_frequency: bool = False,
    mode: int = _SUM,
    *rest: Any,
) -> list[Value | None]:
    """Zeros, of bags that have nothing, and no indices of maxima."""
    numbers = [0, 0, 0, _no_index(writer) if mode == _MAX else 0]
    return [
        writer.full(result.shape, number, result.dtype) if result.count and index in writer.used else None
        for index, (number, result) in enumerate(zip(numbers, writer.results, strict=True))
    ]


@row("_embedding_bag_per_sample_weights_backward.default")
def _embedding_bag_scales_backward(
    writer: Writer,
    grad: Value,
    weight: Value,
    indices: Value,
    offsets: Value,
    bag: Value,
    mode: int,
    padding: int = -1,
) -> Value:
    """The gradient of the factor of each index: of its bag, times the row that it scales."""
    graph = writer.graph
    indices = as_indices(writer, indices)
    read = writer.widened(graph.gather(weight, indices, 0))
    found = graph.reduce_sum(graph.mul(read, writer.widened(graph.gather(grad, bag, 0))), [1])
    if padding >= 0:
        found = graph.select(graph.ne(indices, padding), found, writer.full((), 0, found.dtype))
    return writer.result(found)
