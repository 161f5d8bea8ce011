"""ATen ops that concatenate tensors, or repeat one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Empty, Writer, empty_row, row
from aicf.frontends.torch.ops.parts import padded
from aicf.frontends.torch.ops.searching import insertion_points

Part = Value | Empty


def _filled(writer: Writer, parts: Sequence[Part]) -> list[Value]:
    """The parts that have elements, in the element type of the result."""
    return [writer.cast(part, writer.dtype) for part in parts if isinstance(part, Value)]


def _joined(writer: Writer, parts: Sequence[Value], axis: int) -> Value:
    return parts[0] if len(parts) == 1 else writer.graph.concat(parts, axis)


def _cat(writer: Writer, parts: Sequence[Part], dim: int = 0) -> Value:
    """Tensors one after the other along a dimension; those without elements add nothing."""
    return _joined(writer, _filled(writer, parts), writer.axis(dim, len(writer.shape)))


for _enter in (row, empty_row):
    _enter("cat.default", "concat.default", "concatenate.default")(_cat)


@row("stack.default")
def _stack(writer: Writer, parts: Sequence[Value], dim: int = 0) -> Value:
    """Tensors of one shape side by side along a new dimension."""
    axis = writer.axis(dim, len(writer.shape))
    return _joined(writer, [writer.insert(part, axis) for part in _filled(writer, parts)], axis)


@empty_row("hstack.default")
@row("hstack.default")
def _hstack(writer: Writer, parts: Sequence[Part]) -> Value:
    """Tensors side by side along the second dimension, vectors one after the other."""
    whole = [writer.reshape(part, [1]) if not part.rank else part for part in _filled(writer, parts)]
    return _joined(writer, whole, min(1, whole[0].rank - 1))


@empty_row("vstack.default", "row_stack.default")
@row("vstack.default", "row_stack.default")
def _vstack(writer: Writer, parts: Sequence[Part]) -> Value:
    """Tensors one after the other along the first dimension, each vector a row."""
    whole = [
        writer.reshape(part, [1] * (2 - part.rank) + list(writer.sizes(part)))
        for part in _filled(writer, parts)
    ]
    return _joined(writer, whole, 0)


@empty_row("dstack.default")
@row("dstack.default")
def _dstack(writer: Writer, parts: Sequence[Part]) -> Value:
    """Tensors side by side along the third dimension."""
    whole = [writer.reshape(part, _depth_shape(writer.sizes(part))) for part in _filled(writer, parts)]
    return _joined(writer, whole, 2)


def _depth_shape(shape: Sequence[int]) -> Sequence[int]:
    return shape if len(shape) > 2 else [*shape, 1] if len(shape) == 2 else [1, math.prod(shape), 1]


@empty_row("column_stack.default")
@row("column_stack.default")
def _column_stack(writer: Writer, parts: Sequence[Part]) -> Value:
    """Tensors side by side along the second dimension, each vector a column."""
    whole = [
        part if part.rank > 1 else writer.reshape(part, [math.prod(writer.sizes(part)), 1])
        for part in _filled(writer, parts)
    ]
    return _joined(writer, whole, 1)


def _block_diag(writer: Writer, parts: Sequence[Part]) -> Value:
    """Matrices along the diagonal, zeros elsewhere."""
    start, (_, width) = 0, writer.shape
    strips: list[Value] = []
    for part in parts:
        rows, columns = _matrix(part.info.shape)
        if isinstance(part, Value):
            strip = writer.reshape(writer.cast(part, writer.dtype), [rows, columns])
            strips.append(padded(writer, strip, 1, start, width - start - columns))
        elif rows:
            strips.append(writer.full([rows, width], 0, writer.dtype))
        start += columns
    return _joined(writer, strips, 0)


def _matrix(shape: Sequence[int]) -> tuple[int, int]:
    """The shape as a matrix; a vector is a row."""
    rows, columns = [*[1] * (2 - len(shape)), *shape]
    return rows, columns


for _enter in (row, empty_row):
    _enter("block_diag.default")(_block_diag)


@row("repeat.default", "tile.default")
def _repeat(writer: Writer, x: Value, repeats: Sequence[int]) -> Value:
    """The tensor several times along each dimension."""
    rank = len(writer.shape)
    lead = writer.reshape(x, [1] * (rank - x.rank) + list(writer.sizes(x)))
    times = [size // own for size, own in zip(writer.shape, writer.sizes(lead), strict=True)]
    if all(own == 1 or time == 1 for own, time in zip(writer.sizes(lead), times, strict=True)):
        return writer.expand(lead, writer.shape)
    return writer.graph.tile(lead, times)


@row("repeat_interleave.self_int")
def _repeat_interleave(
    writer: Writer, x: Value, repeats: int, dim: int | None = None, *, output_size: int | None = None
) -> Value:
    """Each element along a dimension several times, one after the other."""
    x = x if dim is not None and x.rank else writer.reshape(x, [math.prod(writer.sizes(x))])
    axis, shape = writer.axis(dim or 0, x.rank), writer.sizes(x)
    apart = writer.reshape(x, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
    spread = writer.expand(apart, [*shape[: axis + 1], repeats, *shape[axis + 1 :]])
    return writer.reshape(spread, writer.shape)


@row("repeat_interleave.Tensor")
def _repeat_indices(writer: Writer, repeats: Value, *, output_size: int | None = None) -> Value:
    """Each index as often as its element says; `output_size` says how many there are."""
    graph = writer.graph
    ends = graph.cumsum(writer.cast(repeats, "i64"), 0)
    positions = graph.iota(writer.shape, 0, "i64")
    return writer.result(insertion_points(writer, ends, positions, right=True))


@row("repeat_interleave.self_Tensor")
def _repeat_interleave_each(
    writer: Writer, x: Value, repeats: Value, dim: int | None = None, *, output_size: int | None = None
) -> Value:
    """Each element along a dimension as often as its count says, one after the other."""
    graph = writer.graph
    x = x if dim is not None and x.rank else writer.reshape(x, [math.prod(writer.sizes(x))])
    axis = writer.axis(dim or 0, x.rank)
    counts = writer.expand(writer.cast(repeats, "i64"), [writer.sizes(x)[axis]])
    positions = graph.iota([writer.shape[axis]], 0, "i64")
    return graph.gather(x, insertion_points(writer, graph.cumsum(counts, 0), positions, right=True), axis)


@row("meshgrid.default", "meshgrid.indexing")
def _meshgrid(writer: Writer, parts: Sequence[Value], *, indexing: str = "ij") -> list[Value]:
    """Each vector along a dimension of its own, repeated along the others; with `xy` the first two are swapped."""
    found: list[Value] = []
    for index, part in enumerate(parts):
        at = 1 - index if indexing == "xy" and index < 2 and len(parts) > 1 else index
        shape = writer.results[index].shape
        own = [size if axis == at else 1 for axis, size in enumerate(shape)]
        found.append(writer.expand(writer.reshape(part, own), shape))
    return found


@row("broadcast_tensors.default")
def _broadcast(writer: Writer, parts: Sequence[Value]) -> list[Value]:
    """Tensors repeated to one shape."""
    return [writer.expand(part, writer.shape) for part in parts]


@row("pad_sequence.default")
def _pad_sequence(
    writer: Writer,
    parts: Sequence[Value],
    batch_first: bool = False,
    value: float = 0.0,
    side: str = "right",
) -> Value:
    """Sequences side by side, each filled up to the longest with a number."""
    axis = 0 if batch_first else 1
    longest = writer.shape[1 - axis]
    fill = writer.full((), value, writer.dtype)
    rows: list[Value] = []
    for part in parts:
        missing = longest - writer.sizes(part)[0]
        amounts = [missing, *[0] * (part.rank - 1)]
        low, high = ([0] * part.rank, amounts) if side == "right" else (amounts, [0] * part.rank)
        whole = writer.graph.pad(part, low, high, fill) if missing else part
        rows.append(writer.insert(whole, axis))
    return _joined(writer, rows, axis)
