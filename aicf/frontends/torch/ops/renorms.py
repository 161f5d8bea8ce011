"""ATen ops that scale slices of a tensor down to a maximum norm."""

from __future__ import annotations

import math

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import CheckedIndices, Writer, row
from aicf.frontends.torch.ops.indices import as_indices
from aicf.frontends.torch.ops.views import moved


@row("renorm.default")
def _renorm(writer: Writer, x: Value, order: float, dim: int, most: float) -> Value:
    """The tensor with its slices along a dimension scaled down."""
    axis = writer.axis(dim, x.rank)
    first = moved(writer, x, axis, 0)
    count, *rest = writer.sizes(first)
    rows = writer.widened(writer.reshape(first, [count, math.prod(rest)]))
    return writer.result(
        moved(writer, writer.reshape(_scaled(writer, rows, most, order), [count, *rest]), 0, axis)
    )


@row(
    "embedding_renorm.default",
    indices=CheckedIndices("self", "indices", lambda call, rank: 0, from_end=True),
)
def _embedding_renorm(writer: Writer, weight: Value, indices: Value, most: float, order: float) -> Value:
    """The table with the rows at indices scaled down."""
    graph = writer.graph
    rows, _ = writer.sizes(weight)
    targets = writer.reshape(as_indices(writer, indices), [math.prod(writer.sizes(indices))])
    taken = writer.full(writer.sizes(targets), True, "i1")
    is_read = graph.scatter(writer.full([rows], False, "i1"), targets, taken)
    scaled = writer.result(_scaled(writer, writer.widened(weight), most, order))
    return graph.select(writer.insert(is_read, 1), scaled, weight)


def _scaled(writer: Writer, rows: Value, most: float, order: float) -> Value:
    """Rows times what brings their norm down to the largest one."""
    graph = writer.graph
    norms = _norms(writer, rows, order)
    factor = graph.div(most, graph.add(norms, 1e-7))
    factor = graph.select(graph.gt(norms, most), factor, writer.full((), 1, rows.dtype))
    return graph.mul(rows, writer.insert(factor, 1))


def _norms(writer: Writer, rows: Value, order: float) -> Value:
    """The norm of each row."""
    graph = writer.graph
    if order == 2:
        return graph.reduce_l2(rows, [1])
    size = graph.abs(rows)
    if math.isinf(order):
        return graph.reduce_max(size, [1]) if order > 0 else graph.reduce_min(size, [1])
    return graph.pow(graph.reduce_sum(graph.pow(size, float(order)), [1]), 1 / order)
