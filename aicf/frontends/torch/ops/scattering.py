"""ATen ops that write elements at indices, or combine them with those there. Sums of halves are in f32."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from aicf.dialects.logical import ScatterMode
from aicf.dialects.types import element_named
from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import (
    OF_ALL_ELEMENTS,
    OF_EACH_DIM,
    Call,
    Number,
    OtherGradient,
    Writer,
    along_dim,
    empty_row,
    is_bool,
    is_float,
    row,
)
from aicf.frontends.torch.ops.gathering import with_axis
from aicf.frontends.torch.ops.indices import as_indices, indexed, is_mask
from aicf.frontends.torch.ops.views import moved

Put = Callable[[Value, Value, ScatterMode], Value]
"""Combines updates into a tensor at indices that are settled."""

_OF_TRUTH: Mapping[ScatterMode, ScatterMode] = {"add": "max", "mul": "min", "max": "max", "min": "min"}
"""Truth values are combined as the numbers 0 and 1."""


def combined(writer: Writer, x: Value, updates: Value, put: Put, mode: ScatterMode) -> Value:
    """A tensor with updates combined into it, in its own type."""
    updates = writer.cast(updates, x.dtype)
    if mode == "set":
        return put(x, updates, mode)
    if is_bool(x.dtype):
        found = put(writer.cast(x, "u8"), writer.cast(updates, "u8"), _OF_TRUTH[mode])
        return writer.cast(found, x.dtype)
    if mode in ("max", "min"):
        return put(x, updates, mode)
    return writer.cast(put(writer.widened(x), writer.widened(updates), mode), x.dtype)


def _elements(writer: Writer, x: Value, dim: int, index: Value) -> tuple[Value, Value, Put]:
    """A tensor and indices of single elements along a dimension as they are combined."""
    x, index = with_axis(writer, x), with_axis(writer, as_indices(writer, index))
    axis = writer.axis(dim, x.rank)

    def put(base: Value, updates: Value, mode: ScatterMode) -> Value:
        return writer.graph.scatter_elements(base, index, updates, axis, mode)

    return x, index, put


def _like(writer: Writer, src: Value, index: Value) -> Value:
    """The first elements of the updates, one for each index."""
    src = with_axis(writer, src)
    for axis, size in enumerate(writer.sizes(index)):
        src = writer.part(src, axis, 0, size)
    return src


# Single elements

_MODES: Mapping[str, ScatterMode] = {"add": "add", "multiply": "mul"}


@row("scatter.src", "scatter.reduce", indices=along_dim())
def _scatter(
    writer: Writer, x: Value, dim: int, index: Value, src: Value, *, reduce: str | None = None
) -> Value:
    """The tensor with each update in the element that its index names along a dimension."""
    base, index, put = _elements(writer, x, dim, index)
    mode = "set" if reduce is None else _MODES[reduce]
    return writer.reshape(combined(writer, base, _like(writer, src, index), put, mode), writer.shape)


@row("scatter.value", "scatter.value_reduce", indices=along_dim())
def _scatter_value(
    writer: Writer, x: Value, dim: int, index: Value, value: Number, *, reduce: str | None = None
) -> Value:
    """The tensor with one number in all elements that indices name along a dimension."""
    updates = writer.full(writer.sizes(index), value, x.dtype)
    if reduce is None:
        return _scatter(writer, x, dim, index, updates)
    return _scatter(writer, x, dim, index, updates, reduce=reduce)


@row("scatter_add.default", indices=along_dim())
def _scatter_add(writer: Writer, x: Value, dim: int, index: Value, src: Value) -> Value:
    """The tensor with each update added to the element that its index names along a dimension."""
    return _scatter(writer, x, dim, index, src, reduce="add")


def _takes_extremes(call: Call) -> bool:
    return call["reduce"] in ("amax", "amin")


@row(
    "scatter_reduce.two",
    indices=along_dim(),
    other_gradient=OtherGradient("the initial value shares the gradient", _takes_extremes),
)
def _scatter_reduce(
    writer: Writer,
    x: Value,
    dim: int,
    index: Value,
    src: Value,
    reduce: str,
    *,
    include_self: bool = True,
) -> Value:
    """The tensor with each update combined into the element that its index names along a dimension."""
    base, index, put = _elements(writer, x, dim, index)
    found = _reduced(writer, base, _like(writer, src, index), put, reduce, include_self)
    return writer.reshape(found, writer.shape)


_REDUCTIONS: Mapping[str, ScatterMode] = {
    **{"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"},
}


def _identity(mode: ScatterMode, dtype: str) -> Number:
    """The neutral element of a combination."""
    if mode in ("add", "mul"):
        return 0 if mode == "add" else 1
    if is_bool(dtype):
        return mode == "min"
    if is_float(dtype):
        return -math.inf if mode == "max" else math.inf
    bits = 8 * element_named(dtype).bytes
    if dtype.startswith("u"):
        return 0 if mode == "max" else 2**bits - 1
    return -(2 ** (bits - 1)) if mode == "max" else 2 ** (bits - 1) - 1


def _reduced(writer: Writer, x: Value, updates: Value, put: Put, reduce: str, include_self: bool) -> Value:
    """Updates combined into a tensor: with its own elements, or with each other alone."""
    graph, mode, shape = writer.graph, _REDUCTIONS[reduce], writer.sizes(updates)
    base = writer.widened(x)
    if not include_self:
        base = put(base, writer.full(shape, _identity(mode, x.dtype), base.dtype), "set")
    total = combined(writer, base, updates, put, mode)
    if reduce == "mean":
        own = writer.full(writer.sizes(x), 1 if include_self else 0, "i64")
        count = graph.max(put(own, writer.full(shape, 1, "i64"), "add"), 1)
        divisor = writer.cast(count, total.dtype)
        total = graph.div(total, divisor) if is_float(total.dtype) else graph.floor_div(total, divisor)
    return writer.cast(total, x.dtype)


# Slices along a dimension


def _rows(writer: Writer, x: Value, dim: int, index: Value) -> tuple[Value, Put, int]:
    """A tensor, how slices of it at indices along a dimension are combined, and that dimension.

    Tensor and updates come and go as PyTorch has them; between, the dimension is the first.
    """
    x, index = with_axis(writer, x), with_axis(writer, as_indices(writer, index))
    axis = writer.axis(dim, x.rank)

    def put(base: Value, updates: Value, mode: ScatterMode) -> Value:
        rows = writer.graph.scatter(
            moved(writer, base, axis, 0), index, moved(writer, updates, axis, 0), mode
        )
        return moved(writer, rows, 0, axis)

    return x, put, axis


@row("index_add.default", indices=along_dim())
def _index_add(writer: Writer, x: Value, dim: int, index: Value, src: Value, *, alpha: Number = 1) -> Value:
    """The tensor with slices added to it at indices along a dimension."""
    base, put, _ = _rows(writer, x, dim, index)
    updates = with_axis(writer, src)
    if alpha != 1:
        updates = _scaled(writer, writer.widened(updates), alpha)
    total = combined(writer, writer.widened(base), updates, put, "add")
    return writer.reshape(writer.result(total), writer.shape)


def _scaled(writer: Writer, x: Value, alpha: Number) -> Value:
    """The tensor times a number, which wraps as integers do."""
    if is_bool(x.dtype):
        return writer.graph.and_(x, bool(alpha))
    factor = writer.full((), alpha, x.dtype if is_float(x.dtype) else "i64")
    return writer.graph.mul(x, writer.cast(factor, x.dtype))


@row("index_copy.default", indices=along_dim())
def _index_copy(writer: Writer, x: Value, dim: int, index: Value, src: Value) -> Value:
    """The tensor with slices in place of its own at indices along a dimension."""
    base, put, _ = _rows(writer, x, dim, index)
    return writer.reshape(combined(writer, base, with_axis(writer, src), put, "set"), writer.shape)


@row("index_fill.int_Scalar", "index_fill.int_Tensor", indices=along_dim(from_end=True))
def _index_fill(writer: Writer, x: Value, dim: int, index: Value, value: Value | Number) -> Value:
    """The tensor with the same number in its slices at indices along a dimension."""
    base, put, axis = _rows(writer, x, dim, index)
    sizes = list(writer.sizes(base))
    sizes[axis] = math.prod(writer.sizes(index))
    updates = writer.expand(writer.tensor(value, x.dtype), sizes)
    return writer.reshape(put(base, updates, "set"), writer.shape)


@row("index_reduce.default", indices=along_dim())
def _index_reduce(
    writer: Writer, x: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """The tensor with slices combined into it at indices along a dimension."""
    base, put, _ = _rows(writer, x, dim, index)
    found = _reduced(writer, base, with_axis(writer, src), put, reduce, include_self)
    return writer.reshape(found, writer.shape)


# Places in several dimensions


@row("index_put.default", indices=OF_EACH_DIM)
@row("_unsafe_index_put.default", "_index_put_impl.default")
def _index_put(
    writer: Writer,
    x: Value,
    indices: Sequence[Value | None],
    values: Value,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Value:
    """The tensor with values at indices of some dimensions, in place of its elements or added to them."""
    masks = [index for index in indices if index is not None and is_mask(index)]
    if not masks:
        return _put_at(writer, x, indices, values, accumulate)
    if len(masks) != sum(index is not None for index in indices) or len(masks) > 1:
        writer.unsupported(
            "an index of truth values beside other indices",
            "use torch.where with one mask of the whole tensor, or indices that are numbers",
        )
    return _put_where(writer, x, masks[0], indices.index(masks[0]), values, accumulate)


def _put_at(
    writer: Writer, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool
) -> Value:
    found = indexed(writer, x, indices)
    values = writer.cast(values, x.dtype)
    if found is None:
        writer.unsupported("no dimension has an index", "write all elements with torch.where or copy_")
    shape, drawn = writer.sizes(x), writer.sizes(found.numbers)
    rest = [shape[axis] for axis in found.others]
    # As they are read, values have the dimensions of the indices somewhere among the others; rows have them first.
    front = found.front
    spread = writer.expand(values, [*rest[:front], *drawn, *rest[front:]])
    inner = range(front, front + len(drawn))
    order = [*inner, *(axis for axis in range(spread.rank) if axis not in inner)]
    count = math.prod(drawn)
    updates = writer.reshape(writer.permute(spread, order), [count, *rest])
    targets = writer.reshape(found.numbers, [count])
    together = [*found.axes, *found.others]
    base = writer.reshape(writer.permute(x, together), [found.count, *rest])

    def put(base: Value, updates: Value, mode: ScatterMode) -> Value:
        return writer.graph.scatter(base, targets, updates, mode)

    rows = combined(writer, base, updates, put, "add" if accumulate else "set")
    apart = writer.reshape(rows, [*found.sizes, *rest])
    return writer.permute(apart, [together.index(axis) for axis in range(x.rank)])


def _put_where(writer: Writer, x: Value, mask: Value, axis: int, values: Value, accumulate: bool) -> Value:
    """Values where a mask of some dimensions holds: one for all, or one for each index where it holds, in order."""
    graph, shape, masked = writer.graph, writer.sizes(x), writer.sizes(mask)
    mask, values = writer.cast(mask, "i1"), writer.cast(values, x.dtype)
    lead, rest = shape[:axis], shape[axis + len(masked) :]
    sizes = writer.sizes(values)
    if len(sizes) > len(rest):
        at = len(sizes) - len(rest) - 1
        if sizes[at] == 1:
            values = writer.reshape(values, [*sizes[:at], *[1] * len(masked), *sizes[at + 1 :]])
        else:
            order = graph.sub(graph.cumsum(writer.cast(_flat(writer, mask), "i64"), 0), 1)
            targets = writer.reshape(graph.max(order, 0), masked)
            values = graph.gather(values, targets, at)
    values = writer.expand(values, shape)
    holds = writer.expand(writer.reshape(mask, [*[1] * len(lead), *masked, *[1] * len(rest)]), shape)
    if not accumulate:
        return graph.select(holds, values, x)
    if is_bool(x.dtype):
        return graph.or_(x, graph.and_(holds, values))
    return graph.select(holds, graph.add(x, values), x)


def _flat(writer: Writer, x: Value) -> Value:
    return writer.reshape(x, [math.prod(writer.sizes(x))])


@row("_unsafe_masked_index_put_accumulate.default")
def _masked_put(
    writer: Writer, x: Value, mask: Value, indices: Sequence[Value | None], values: Value
) -> Value:
    """The tensor with values added to it at indices where a mask holds."""
    graph = writer.graph
    kept = graph.select(mask, values, writer.full((), 0, values.dtype))
    return _put_at(writer, x, indices, kept, True)


@row("put.default", indices=OF_ALL_ELEMENTS)
def _put(writer: Writer, x: Value, index: Value, src: Value, accumulate: bool = False) -> Value:
    """The tensor with values at indices of its flat elements."""
    targets = _flat(writer, as_indices(writer, index))

    def put(base: Value, updates: Value, mode: ScatterMode) -> Value:
        return writer.graph.scatter(base, targets, updates, mode)

    mode: ScatterMode = "add" if accumulate else "set"
    return writer.reshape(combined(writer, _flat(writer, x), _flat(writer, src), put, mode), writer.shape)


# Masks


@row("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(writer: Writer, x: Value, mask: Value, value: Value | Number) -> Value:
    """A number where a mask holds, the tensor elsewhere."""
    return writer.graph.select(writer.cast(mask, "i1"), writer.tensor(value, x.dtype), x)


@row("masked_scatter.default")
def _masked_scatter(writer: Writer, x: Value, mask: Value, source: Value) -> Value:
    """The elements of a source in order where a mask holds, the tensor elsewhere."""
    graph, shape = writer.graph, writer.shape
    mask = writer.expand(writer.cast(mask, "i1"), shape)
    order = graph.sub(graph.cumsum(writer.cast(_flat(writer, mask), "i64"), 0), 1)
    taken = graph.gather(_flat(writer, source), graph.max(order, 0), 0)
    return graph.select(mask, writer.reshape(taken, shape), writer.expand(x, shape))


@row("masked_scatter_backward.default")
def _masked_scatter_backward(writer: Writer, grad: Value, mask: Value, sizes: Sequence[int]) -> Value:
    """The gradients where a mask holds, in order, and zeros after them."""
    graph, count = writer.graph, math.prod(sizes)
    mask = _flat(writer, writer.expand(writer.cast(mask, "i1"), writer.sizes(grad)))
    order = graph.sub(graph.cumsum(writer.cast(mask, "i64"), 0), 1)
    targets = graph.select(mask, order, writer.full((), count, "i64"))
    zeros = writer.full([count], 0, grad.dtype)
    return writer.reshape(graph.scatter(zeros, targets, _flat(writer, grad)), sizes)


# Gradients of tables


@row("embedding_dense_backward.default")
def _embedding_backward(
    writer: Writer, grad: Value, indices: Value, rows: int, padding: int, by_frequency: bool
) -> Value:
    """The gradients of all reads of each row added up; those of the padding row are dropped."""
    graph, count = writer.graph, math.prod(writer.sizes(indices))
    width = writer.sizes(grad)[-1]
    targets = writer.reshape(as_indices(writer, indices), [count])
    updates = writer.widened(writer.reshape(grad, [count, width]))
    if by_frequency:
        ones = writer.full([count], 1, "i64")
        often = graph.gather(graph.scatter(writer.full([rows], 0, "i64"), targets, ones, "add"), targets, 0)
        updates = graph.div(updates, writer.insert(writer.cast(often, updates.dtype), 1))
    if padding >= 0:
        targets = graph.select(graph.eq(targets, padding), writer.full((), rows, targets.dtype), targets)
    zeros = writer.full([rows, width], 0, updates.dtype)
    return writer.result(graph.scatter(zeros, targets, updates, "add"))


# Without elements


@empty_row(
    *("scatter.src", "scatter.reduce", "scatter.value", "scatter.value_reduce", "scatter_add.default"),
    *("scatter_reduce.two", "index_reduce.default", "index_add.default", "index_copy.default"),
    *("index_fill.int_Scalar", "index_fill.int_Tensor", "put.default", "masked_scatter.default"),
    *("index_put.default", "_unsafe_index_put.default", "_index_put_impl.default"),
    *("_unsafe_masked_index_put_accumulate.default",),
)
def _nothing_written(writer: Writer, x: Value, *rest: object, **how: object) -> Value:
    """The tensor as it is, where nothing is written."""
    return x


@empty_row("embedding_dense_backward.default", "masked_scatter_backward.default")
def _no_gradients(writer: Writer, *rest: object) -> Value:
    """Zeros, where nothing was read."""
    return writer.full(writer.shape, 0, writer.dtype)
