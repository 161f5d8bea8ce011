"""ATen ops that read at indices. A negative index counts from the end where PyTorch says so."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import (
    OF_ALL_ELEMENTS,
    OF_EACH_DIM,
    CheckedIndices,
    Number,
    Writer,
    along_dim,
    row,
)
from aicf.frontends.torch.ops.indices import as_indices, indexed, refuse_masks


def with_axis(writer: Writer, x: Value) -> Value:
    """A tensor of rank 0 as a vector of one element, as PyTorch sees it where an op has a dimension."""
    return x if x.rank else writer.reshape(x, [1])


@row("index.Tensor", indices=OF_EACH_DIM)
@row("_unsafe_index.Tensor")
def _index(writer: Writer, x: Value, indices: Sequence[Value | None]) -> Value:
    """The elements at indices of some dimensions, which broadcast together."""
    refuse_masks(writer, indices)
    return _read(writer, x, indices)


def _read(writer: Writer, x: Value, indices: Sequence[Value | None]) -> Value:
    found = indexed(writer, x, indices)
    if found is None:
        return x
    before, after = found.others[: found.front], found.others[found.front :]
    shape = writer.sizes(x)
    together = writer.permute(x, [*before, *found.axes, *after])
    merged = [*(shape[axis] for axis in before), found.count, *(shape[axis] for axis in after)]
    return writer.graph.gather(writer.reshape(together, merged), found.numbers, found.front)


@row("_unsafe_masked_index.default")
def _masked_index(
    writer: Writer, x: Value, mask: Value, indices: Sequence[Value | None], fill: Number
) -> Value:
    """The elements at indices where a mask holds, a number elsewhere."""
    read = _read(writer, x, indices)
    return writer.graph.select(mask, read, writer.full((), fill, read.dtype))


@row("gather.default", indices=along_dim())
def _gather(writer: Writer, x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    """Single elements, the indices saying at which index along a dimension."""
    x, index = with_axis(writer, x), with_axis(writer, as_indices(writer, index))
    return writer.reshape(writer.graph.gather_elements(x, index, writer.axis(dim, x.rank)), writer.shape)


@row("take_along_dim.default")
def _take_along(writer: Writer, x: Value, index: Value, dim: int | None = None) -> Value:
    """Single elements along a dimension, or of the flat tensor; other dimensions broadcast."""
    index = as_indices(writer, index)
    if dim is None:
        flat = writer.reshape(x, [math.prod(writer.sizes(x))])
        return writer.graph.gather(flat, writer.reshape(index, writer.shape), 0)
    axis = writer.axis(dim, x.rank)
    joint = list(writer.shape)
    own = [size if at != axis else writer.sizes(x)[axis] for at, size in enumerate(joint)]
    return writer.graph.gather_elements(writer.expand(x, own), writer.expand(index, joint), axis)


@row("index_select.default", indices=along_dim())
def _index_select(writer: Writer, x: Value, dim: int, index: Value) -> Value:
    """Slices along a dimension, one for each index."""
    x, index = with_axis(writer, x), with_axis(writer, as_indices(writer, index))
    return writer.reshape(writer.graph.gather(x, index, writer.axis(dim, x.rank)), writer.shape)


@row("take.default", indices=OF_ALL_ELEMENTS)
def _take(writer: Writer, x: Value, index: Value) -> Value:
    """The elements at indices of the flat tensor."""
    flat = writer.reshape(x, [math.prod(writer.sizes(x))])
    return writer.graph.gather(flat, as_indices(writer, index), 0)


@row("embedding.default", indices=CheckedIndices("weight", "indices", lambda call, rank: 0))
def _embedding(
    writer: Writer,
    weight: Value,
    indices: Value,
    padding: int = -1,
    by_frequency: bool = False,
    sparse: bool = False,
) -> Value:
    """The rows of a table at indices. Padding and frequency only affect the gradient."""
    return writer.graph.gather(weight, as_indices(writer, indices), 0)


@row("one_hot.default")
def _one_hot(writer: Writer, indices: Value, classes: int = -1) -> Value:
    """1 at each index along a new last dimension, 0 elsewhere."""
    return writer.graph.one_hot(as_indices(writer, indices), writer.shape[-1], -1, dtype=writer.dtype)


@row("cross.default")
def _cross(writer: Writer, lhs: Value, rhs: Value, dim: int | None = None) -> Value:
    """The cross product of vectors of three elements along a dimension, by default the first that has three."""
    return _linalg_cross(writer, lhs, rhs, dim=list(writer.shape).index(3) if dim is None else dim)


@row("linalg_cross.default")
def _linalg_cross(writer: Writer, lhs: Value, rhs: Value, *, dim: int = -1) -> Value:
    """The cross product of vectors of three elements along a dimension."""
    shape, dtype = writer.shape, writer.dtype
    axis = writer.axis(dim, len(shape))
    graph = writer.graph
    one, other = (writer.expand(writer.cast(each, dtype), shape) for each in (lhs, rhs))

    def turned(x: Value, steps: int) -> Value:
        return graph.concat([writer.part(x, axis, steps, 3), writer.part(x, axis, 0, steps)], axis)

    one, other = (writer.widened(each) for each in (one, other))
    ahead = graph.mul(turned(one, 1), turned(other, 2))
    return writer.result(graph.sub(ahead, graph.mul(turned(one, 2), turned(other, 1))))
