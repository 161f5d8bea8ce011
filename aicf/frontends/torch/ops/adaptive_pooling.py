"""Adaptive pooling: ATen ops that reduce regions of nearly equal sizes to one element each, and their gradients.

Region i of O over S elements goes from i * S / O rounded down to before (i + 1) * S / O rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import ONE_OF_EQUALS, Writer, row
from aicf.frontends.torch.ops.pooling import repeated, scatter_to_indices


def _divides(inner: Sequence[int], outer: Sequence[int]) -> bool:
    """Whether regions of equal sizes cover all."""
    return all(large % small == 0 for small, large in zip(inner, outer, strict=True))


def _longest(count: int, whole: int) -> int:
    """The size of the largest of `count` regions of `whole` elements."""
    period = count // math.gcd(count, whole)
    return max(-(-(number + 1) * whole // count) - number * whole // count for number in range(period))


def _first(writer: Writer, number: Value, count: int, whole: int) -> Value:
    """The first index of each region."""
    return writer.graph.floor_div(number * whole, count)


def _end(writer: Writer, number: Value, count: int, whole: int) -> Value:
    """The first index after each region."""
    return writer.graph.floor_div((number + 1) * whole + (count - 1), count)


def _regions(writer: Writer, value: Value, axis: int, count: int) -> tuple[Value, Value]:
    """The elements of all regions along an axis, which becomes two: regions, and elements.

    Short regions hold their last element more than once; the second value says which elements are no such ones, with
    the sizes of these two dimensions.
    """
    graph = writer.graph
    whole = writer.sizes(value)[axis]
    sizes = [count, _longest(count, whole)]
    number, step = graph.iota(sizes, 0, "i64"), graph.iota(sizes, 1, "i64")
    index = _first(writer, number, count, whole) + step
    end = _end(writer, number, count, whole)
    found = graph.gather(value, graph.min(index, end - 1), axis)
    return found, graph.lt(index, end)


def _along(writer: Writer, value: Value, rank: int, axis: int) -> Value:
    """A tensor of dimensions that belong from `axis` on, with ones after them up to a rank."""
    return writer.reshape(value, [*writer.sizes(value), *[1] * (rank - axis - value.rank)])


# The mean


def _sums(writer: Writer, value: Value, axis: int, count: int) -> Value:
    """The sum of each region along an axis."""
    elements, counted = _regions(writer, value, axis, count)
    mask = _along(writer, counted, elements.rank, axis)
    return writer.graph.reduce_sum(writer.graph.select(mask, elements, 0.0), [axis + 1])


def _sizes_of_regions(writer: Writer, count: int, whole: int, dtype: str) -> Value:
    number = writer.graph.iota([count], 0, "i64")
    return writer.cast(_end(writer, number, count, whole) - _first(writer, number, count, whole), dtype)


def _adaptive_avg_row(rank: int, overloads: Sequence[str]) -> None:
    @row(*overloads)
    def _adaptive_avg(writer: Writer, x: Value, counts: Sequence[int]) -> Value:
        """The mean of each region."""
        counts = writer.shape[len(writer.shape) - rank :]
        spatial = writer.sizes(x)[x.rank - rank :]
        axes = range(x.rank - rank, x.rank)
        if all(count == 1 for count in counts):
            return writer.graph.reduce_mean(x, axes, keepdims=True)
        if _divides(counts, spatial):
            batch = writer.insert(x, 0) if x.rank == rank + 1 else x
            windows = [whole // count for whole, count in zip(spatial, counts, strict=True)]
            return writer.reshape(writer.graph.avg_pool(batch, windows, windows), writer.shape)
        value = writer.widened(x)
        for axis, count, whole in zip(axes, counts, spatial, strict=True):
            if count != whole:
                lengths = _sizes_of_regions(writer, count, whole, value.dtype)
                sums = _sums(writer, value, axis, count)
                value = writer.graph.div(sums, _along(writer, lengths, x.rank, axis))
        return writer.result(value)


_adaptive_avg_row(1, ["adaptive_avg_pool1d.default"])
for _rank in (2, 3):
    _adaptive_avg_row(_rank, [f"adaptive_avg_pool{_rank}d.default", f"_adaptive_avg_pool{_rank}d.default"])


def _adaptive_avg_backward_row(rank: int) -> None:
    @row(f"_adaptive_avg_pool{rank}d_backward.default")
    def _adaptive_avg_backward(writer: Writer, grad: Value, x: Value) -> Value:
        """Each region passes its share to all of its elements.

        The regions that an element is in are again regions: those of S over O elements.
        """
        axes = range(x.rank - rank, x.rank)
        counts, spatial = writer.sizes(grad)[x.rank - rank :], writer.sizes(x)[x.rank - rank :]
        value = writer.widened(grad)
        if _divides(counts, spatial):
            times = [whole // count for whole, count in zip(spatial, counts, strict=True)]
            share = writer.graph.div(value, float(math.prod(times)))
            return writer.result(repeated(writer, share, times))
        for axis, count, whole in zip(axes, counts, spatial, strict=True):
            if count != whole:
                lengths = _sizes_of_regions(writer, count, whole, value.dtype)
                share = writer.graph.div(value, _along(writer, lengths, x.rank, axis))
                value = _sums(writer, share, axis, whole)
        return writer.result(value)


for _rank in (2, 3):
    _adaptive_avg_backward_row(_rank)


# The largest


def _adaptive_max_row(rank: int) -> None:
    @row(f"adaptive_max_pool{rank}d.default", other_gradient=ONE_OF_EQUALS)
    def _adaptive_max(writer: Writer, x: Value, counts: Sequence[int]) -> list[Value | None]:
        """The largest of each region, and its index in its plane."""
        counts = writer.shape[len(writer.shape) - rank :]
        spatial = writer.sizes(x)[x.rank - rank :]
        wants_indices = 1 in writer.used
        if _divides(counts, spatial):
            batch = writer.insert(x, 0) if x.rank == rank + 1 else x
            windows = [whole // count for whole, count in zip(spatial, counts, strict=True)]
            largest = writer.graph.max_pool(batch, windows, windows)
            indices = writer.graph.max_pool_indices(batch, windows, windows) if wants_indices else None
            return [
                writer.reshape(largest, writer.shape),
                None if indices is None else writer.reshape(indices, writer.shape),
            ]
        if not wants_indices:
            return [_region_maxima(writer, x, counts), None]
        return [*_largest_and_indices(writer, x, counts)]


for _rank in (1, 2, 3):
    _adaptive_max_row(_rank)


def _region_maxima(writer: Writer, x: Value, counts: Sequence[int]) -> Value:
    """The largest of each region, one axis after the other."""
    for axis, count in enumerate(counts, x.rank - len(counts)):
        if count != writer.sizes(x)[axis]:
            x = writer.graph.reduce_max(_regions(writer, x, axis, count)[0], [axis + 1])
    return x


def _largest_and_indices(writer: Writer, x: Value, counts: Sequence[int]) -> tuple[Value, Value]:
    """The largest of each region, and the first index that has it in row-major order."""
    graph = writer.graph
    rank, leading = len(counts), x.rank - len(counts)
    spatial = writer.sizes(x)[leading:]
    elements = x
    for number, count in reversed(list(enumerate(counts))):
        elements, _ = _regions(writer, elements, leading + number, count)
    inner = [leading + 2 * number + 1 for number in range(rank)]
    outer = [leading + 2 * number for number in range(rank)]
    longest = [writer.sizes(elements)[axis] for axis in inner]
    flat = writer.reshape(
        writer.permute(elements, [*range(leading), *outer, *inner]),
        [*writer.sizes(x)[:leading], *counts, math.prod(longest)],
    )
    step = graph.argmax(flat, flat.rank - 1)
    largest = graph.reduce_max(flat, [flat.rank - 1])
    index: Value | None = None
    for number, (count, whole) in enumerate(zip(counts, spatial, strict=True)):
        within = graph.mod(graph.floor_div(step, math.prod(longest[number + 1 :])), longest[number])
        region = graph.iota(writer.shape, leading + number, "i64")
        along = graph.min(
            _first(writer, region, count, whole) + within, _end(writer, region, count, whole) - 1
        )
        index = along if index is None else index * whole + along
    assert index is not None
    return largest, index


def _adaptive_max_backward_row(rank: int) -> None:
    @row(f"adaptive_max_pool{rank}d_backward.default")
    def _adaptive_max_backward(writer: Writer, grad: Value, x: Value, indices: Value) -> Value:
        """Each region passes all to its largest element."""
        del x
        return scatter_to_indices(writer, grad, indices, rank)


for _rank in (2, 3):
    _adaptive_max_backward_row(_rank)
