"""Pooling: ATen ops that reduce each window to one element, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import OtherGradient, Writer, is_float, row


@dataclass(frozen=True)
class _Windows:
    """How windows slide, one value for each spatial dimension."""

    sizes: list[int]
    strides: list[int]
    padding: list[int]
    dilations: list[int]
    ceil_mode: bool

    @property
    def rank(self) -> int:
        """The number of spatial dimensions."""
        return len(self.sizes)


def _windows(
    rank: int,
    sizes: Sequence[int],
    strides: Sequence[int] | None,
    padding: Sequence[int] | int = 0,
    dilations: Sequence[int] | int = 1,
    ceil_mode: bool = False,
) -> _Windows:
    """A number, or a list of one, is for all dimensions; by default windows do not overlap."""

    def each(value: Sequence[int] | int) -> list[int]:
        values = [value] if isinstance(value, int) else list(value)
        return values * (rank if len(values) == 1 else 1)

    return _Windows(each(sizes), each(strides or sizes), each(padding), each(dilations), ceil_mode)


def _batch(writer: Writer, x: Value, rank: int) -> Value:
    """[N, C, S1..Sk], of an operand that may lack the batch."""
    return writer.insert(x, 0) if x.rank == rank + 1 else x


# The largest


def _largest(writer: Writer, x: Value, windows: _Windows) -> Value:
    y = writer.graph.max_pool(
        _batch(writer, x, windows.rank),
        windows.sizes,
        windows.strides,
        windows.dilations,
        windows.padding,
        windows.padding,
        ceil_mode=windows.ceil_mode,
    )
    return writer.reshape(y, writer.shape)


def _indices(writer: Writer, x: Value, windows: _Windows) -> Value:
    indices = writer.graph.max_pool_indices(
        _batch(writer, x, windows.rank),
        windows.sizes,
        windows.strides,
        windows.dilations,
        windows.padding,
        windows.padding,
        ceil_mode=windows.ceil_mode,
    )
    return writer.reshape(indices, writer.shape)


def _max_pool_row(rank: int, overloads: Sequence[str], *, indices: bool) -> None:
    @row(*overloads)
    def _max_pool(
        writer: Writer,
        x: Value,
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        padding: Sequence[int] | int = 0,
        dilations: Sequence[int] | int = 1,
        ceil_mode: bool = False,
    ) -> list[Value | None]:
        """The largest of each window, and its index in its plane."""
        windows = _windows(rank, sizes, strides, padding, dilations, ceil_mode)
        wanted = indices and 1 in writer.used
        largest = _largest(writer, x, windows)
        return [largest, _indices(writer, x, windows)] if wanted else [largest, None][: 1 + indices]


for _rank in (1, 2, 3):
    _max_pool_row(_rank, [f"max_pool{_rank}d.default"], indices=False)
    _max_pool_row(_rank, [f"max_pool{_rank}d_with_indices.default"], indices=True)


def scatter_to_indices(writer: Writer, grad: Value, indices: Value, rank: int) -> Value:
    """The sum of the gradients of all windows that have their largest element at an index; of the result's shape."""
    shape = writer.shape
    planes, plane = math.prod(shape[: len(shape) - rank]), math.prod(shape[len(shape) - rank :])
    count = math.prod(writer.sizes(grad)) // planes
    wide = writer.widened(grad)
    added = writer.graph.scatter_elements(
        writer.full([planes, plane], 0, wide.dtype),
        writer.reshape(indices, [planes, count]),
        writer.reshape(wide, [planes, count]),
        1,
        "add",
    )
    return writer.result(writer.reshape(added, shape))


_MOST_TAPS, _MOST_PHASES = 64, 16
"""Elements of a window, and windows that start within its step, of those that are passed back to by number."""


def _max_pool_backward_row(rank: int) -> None:
    @row(f"max_pool{rank}d_with_indices_backward.default")
    def _max_pool_backward(
        writer: Writer,
        grad: Value,
        x: Value,
        sizes: Sequence[int],
        strides: Sequence[int],
        padding: Sequence[int] | int,
        dilations: Sequence[int] | int,
        ceil_mode: bool,
        indices: Value,
    ) -> Value:
        """Each window passes all to its largest element."""
        windows = _windows(rank, sizes, strides, padding, dilations, ceil_mode)
        is_short = math.prod(windows.sizes) <= _MOST_TAPS and math.prod(windows.strides) <= _MOST_PHASES
        if not is_short or not is_float(grad.dtype):
            return scatter_to_indices(writer, grad, indices, rank)
        whole = writer.shape[len(writer.shape) - rank :]
        back = writer.graph.max_pool_grad(
            _taps_of(writer, _batch(writer, indices, rank), windows, whole),
            _batch(writer, grad, rank),
            whole,
            windows.sizes,
            windows.strides,
            windows.dilations,
            windows.padding,
        )
        return writer.reshape(back, writer.shape)


def _taps_of(writer: Writer, indices: Value, windows: _Windows, whole: Sequence[int]) -> Value:
    """Which element of its window lies at each index of a plane, as i8."""
    graph, sizes = writer.graph, writer.sizes(indices)
    rest = writer.cast(indices, "i32") if math.prod(whole) < 1 << 31 else indices
    number: Value | None = None
    lists = zip(windows.sizes, windows.strides, windows.padding, windows.dilations, strict=True)
    for axis, (size, stride, low, dilation) in enumerate(lists):
        after = math.prod(whole[axis + 1 :])
        along = graph.floor_div(rest, after)
        rest = rest - along * after
        start = graph.iota(sizes, 2 + axis, rest.dtype) * stride - low
        tap = graph.floor_div(along - start, dilation)
        number = tap if number is None else number * size + tap
    assert number is not None
    return writer.cast(number, "i8")


for _rank in (2, 3):
    _max_pool_backward_row(_rank)


def _max_unpool_row(rank: int) -> None:
    @row(
        f"max_unpool{rank}d.default",
        other_gradient=OtherGradient("all elements at one index get a gradient"),
    )
    def _max_unpool(writer: Writer, x: Value, indices: Value, *windows: object) -> Value:
        """Each element at its index, zeros elsewhere."""
        shape = writer.shape
        planes = math.prod(shape[: len(shape) - rank])
        plane, count = math.prod(shape) // planes, math.prod(writer.sizes(x)) // planes
        scattered = writer.graph.scatter_elements(
            writer.full([planes, plane], 0, x.dtype),
            writer.reshape(indices, [planes, count]),
            writer.reshape(x, [planes, count]),
            1,
        )
        return writer.reshape(scattered, shape)


for _rank in (2, 3):
    _max_unpool_row(_rank)


# The mean


def _avg_pool_row(rank: int) -> None:
    @row(f"avg_pool{rank}d.default")
    def _avg_pool(
        writer: Writer,
        x: Value,
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        padding: Sequence[int] | int = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor: int | None = None,
    ) -> Value:
        """The mean of each window, or its sum over a divisor."""
        windows = _windows(rank, sizes, strides, padding, 1, ceil_mode)
        if divisor is not None or not is_float(x.dtype):
            return _divided(writer, x, windows, count_include_pad, divisor)
        y = writer.graph.avg_pool(
            _batch(writer, x, rank),
            windows.sizes,
            windows.strides,
            windows.dilations,
            windows.padding,
            windows.padding,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
        )
        return writer.reshape(y, writer.shape)


for _rank in (1, 2, 3):
    _avg_pool_row(_rank)


def _divided(
    writer: Writer, x: Value, windows: _Windows, count_include_pad: bool, divisor: int | None
) -> Value:
    """The sum of each window over a divisor, or over the number of elements; of integers rounded toward zero."""
    graph, rank = writer.graph, windows.rank
    counts = writer.shape[len(writer.shape) - rank :]
    wide = writer.widened(_batch(writer, x, rank))
    inside, low, high = wide, [0, 0], [0, 0]
    for axis, (count, size, stride, before) in enumerate(
        zip(counts, windows.sizes, windows.strides, windows.padding, strict=True), 2
    ):
        after = (count - 1) * stride + size - before - writer.sizes(wide)[axis]
        inside = writer.part(inside, axis, 0, writer.sizes(wide)[axis] + min(after, 0))
        low.append(before)
        high.append(max(after, 0))
    padded = graph.pad(inside, low, high) if any(low) or any(high) else inside
    elements = graph.window(padded, windows.sizes, windows.strides)
    total = graph.reduce_sum(elements, range(2 + rank, 2 + 2 * rank))
    if divisor is not None:
        mean = graph.div(total, writer.full((), divisor, total.dtype))
    else:
        spatial = writer.sizes(wide)[2:]
        mean = _over_found(writer, total, windows, spatial, count_include_pad)
    return writer.reshape(writer.result(mean), writer.shape)


def _over_found(
    writer: Writer, value: Value, windows: _Windows, spatial: Sequence[int], count_include_pad: bool
) -> Value:
    """Values of windows, [N, C, O1..Ok], divided by the number of elements in each window."""
    uniform = 1
    vectors: list[Value] = []
    for axis, size in enumerate(spatial):
        found = _found(writer, windows, axis, size, writer.sizes(value)[2 + axis], count_include_pad)
        if isinstance(found, int):
            uniform *= found
        else:
            shape = [1] * value.rank
            shape[2 + axis] = writer.sizes(found)[0]
            vectors.append(writer.reshape(writer.cast(found, value.dtype), shape))
    divisor = writer.full((), uniform, value.dtype)
    for vector in vectors:
        divisor = divisor * vector
    return writer.graph.div(value, divisor)


def _found(
    writer: Writer, windows: _Windows, axis: int, whole: int, count: int, count_include_pad: bool
) -> int | Value:
    """How many elements each window finds along a dimension: one number, or one for each, as i64."""
    size, stride, padding = windows.sizes[axis], windows.strides[axis], windows.padding[axis]
    end = whole + padding if count_include_pad else whole
    first = -padding if count_include_pad else 0
    if first <= -padding and (count - 1) * stride - padding + size <= end:
        return size
    graph = writer.graph
    starts = graph.iota([count], 0, "i64") * stride - padding
    ends = graph.min(starts + size, end)
    return ends - graph.max(starts, first)


def _avg_pool_backward_row(rank: int) -> None:
    @row(f"avg_pool{rank}d_backward.default")
    def _avg_pool_backward(
        writer: Writer,
        grad: Value,
        x: Value,
        sizes: Sequence[int],
        strides: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor: int | None,
    ) -> Value:
        """Each window passes its share to all of its elements."""
        windows = _windows(rank, sizes, strides, padding, 1, ceil_mode)
        spatial = writer.sizes(x)[x.rank - rank :]
        wide = writer.widened(_batch(writer, grad, rank))
        if divisor is not None:
            share = writer.graph.div(wide, float(divisor))
        else:
            share = _over_found(writer, wide, windows, spatial, count_include_pad)
        return writer.result(writer.reshape(_added_up(writer, share, windows, spatial), writer.shape))


for _rank in (2, 3):
    _avg_pool_backward_row(_rank)


def _added_up(writer: Writer, share: Value, windows: _Windows, spatial: Sequence[int]) -> Value:
    """[N, C, S..]: each element the sum of the shares of all windows that hold it."""
    counts = writer.sizes(share)[2:]
    covered = [count * size for count, size in zip(counts, windows.sizes, strict=True)]
    if windows.strides == windows.sizes and not any(windows.padding) and covered == list(spatial):
        return repeated(writer, share, windows.sizes)
    planes = math.prod(writer.sizes(share)[:2])
    reached = [
        (count - 1) * stride + size - before
        for count, stride, size, before in zip(
            counts, windows.strides, windows.sizes, windows.padding, strict=True
        )
    ]
    added = writer.graph.conv_transpose(
        writer.reshape(share, [planes, 1, *counts]),
        writer.full([1, 1, *windows.sizes], 1, share.dtype),
        strides=windows.strides,
        low=windows.padding,
        high=[max(end - whole, 0) for end, whole in zip(reached, spatial, strict=True)],
        extra=[max(whole - end, 0) for end, whole in zip(reached, spatial, strict=True)],
    )
    return writer.reshape(added, [*writer.sizes(share)[:2], *spatial])


def repeated(writer: Writer, value: Value, times: Sequence[int]) -> Value:
    """Each element so many times along each of the last dimensions."""
    sizes = writer.sizes(value)
    leading, spatial = sizes[: len(sizes) - len(times)], sizes[len(sizes) - len(times) :]
    apart = [part for size in spatial for part in (size, 1)]
    spread = [part for size, count in zip(spatial, times, strict=True) for part in (size, count)]
    whole = [size * count for size, count in zip(spatial, times, strict=True)]
    wide = writer.expand(writer.reshape(value, [*leading, *apart]), [*leading, *spread])
    return writer.reshape(wide, [*leading, *whole])
