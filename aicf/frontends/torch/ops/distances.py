"""ATen ops that compute distances of vectors, and their gradients."""

from __future__ import annotations

import math

import numpy as np

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Call, OtherGradient, Writer, empty_row, row


def norm(writer: Writer, difference: Value, p: float) -> Value:
    """The p-norm along the last dimension."""
    graph, axes = writer.graph, [difference.rank - 1]
    size = graph.abs(difference)
    if p == 0:
        return graph.reduce_sum(writer.cast(graph.ne(size, 0.0), size.dtype), axes)
    if p == 1:
        return graph.reduce_sum(size, axes)
    if p == 2:
        return graph.reduce_l2(difference, axes)
    if math.isinf(p):
        return graph.reduce_max(size, axes)
    return graph.pow(graph.reduce_sum(graph.pow(size, p), axes), 1 / p)


def _slope(writer: Writer, difference: Value, norm: Value, p: float) -> Value:
    """The derivative of the p-norm by each element of the difference; 0 where the norm is 0."""
    graph = writer.graph
    size, sign = graph.abs(difference), graph.sign(difference)
    if p == 0:
        return graph.mul(difference, 0.0)
    if p == 1:
        return sign
    if math.isinf(p):
        return graph.mul(sign, writer.cast(graph.eq(size, norm), sign.dtype))
    raised = difference if p == 2 else sign * graph.pow(size, p - 1)
    divisor = norm if p == 2 else graph.pow(norm, p - 1)
    slope = graph.div(raised, divisor)
    nowhere = graph.eq(norm, 0.0) if p >= 1 else graph.or_(graph.eq(norm, 0.0), graph.eq(difference, 0.0))
    return graph.select(nowhere, 0.0, slope)


# Each vector of one with each of the other


def _apart(writer: Writer, lhs: Value, rhs: Value) -> Value:
    """lhs[.., i, None, :] - rhs[.., None, j, :]."""
    lhs, rhs = writer.widened(lhs), writer.widened(rhs)
    return writer.insert(lhs, lhs.rank - 1) - writer.insert(rhs, rhs.rank - 2)


def _is_other_distance(call: Call) -> bool:
    return float(call["p"]) not in (1.0, 2.0, math.inf, 0.0)


@row(
    "cdist.default", other_gradient=OtherGradient("the gradient at a distance of 0 is 0", _is_other_distance)
)
@row("_cdist_forward.default")
def _cdist(writer: Writer, lhs: Value, rhs: Value, p: float = 2.0, mode: int | None = None) -> Value:
    """The p-norm of each difference of a row of lhs and a row of rhs."""
    del mode
    return writer.result(norm(writer, _apart(writer, lhs, rhs), p))


@empty_row("cdist.default", "_cdist_forward.default", "pdist.default", "_pdist_forward.default")
def _no_distance(writer: Writer, *operands: object) -> Value:
    """The norm of nothing is 0."""
    return writer.full(writer.shape, 0, writer.dtype)


@row("_euclidean_dist.default")
def _euclidean(writer: Writer, lhs: Value, rhs: Value) -> Value:
    """The Euclidean distance of each row of lhs and each of rhs."""
    return writer.result(norm(writer, _apart(writer, lhs, rhs), 2.0))


@row("_cdist_backward.default")
def _cdist_backward(writer: Writer, grad: Value, lhs: Value, rhs: Value, p: float, norm: Value) -> Value:
    """The gradient of distances at lhs."""
    difference = _apart(writer, lhs, rhs)
    spread = writer.insert(writer.widened(norm), norm.rank)
    slope = _slope(writer, difference, spread, p)
    passed = slope * writer.insert(writer.widened(grad), grad.rank)
    total = writer.graph.reduce_sum(passed, [passed.rank - 2])
    return writer.result(writer.expand(total, writer.shape))


@empty_row("_cdist_backward.default", "_pdist_backward.default")
def _nothing_passed(writer: Writer, *operands: object) -> Value:
    """The gradient of nothing is 0."""
    return writer.full(writer.shape, 0, writer.dtype)


# Each pair of rows of one matrix


def _pairs(writer: Writer, count: int) -> tuple[Value, Value]:
    """The numbers i < j of all pairs, in the order (0, 1), (0, 2) .. (1, 2) .., as i64.

    Pair number k of n rows counts from the last: i is n - 2 less the triangular root of what comes after k.
    """
    graph = writer.graph
    total = count * (count - 1) // 2
    number = graph.iota([total], 0, "i64")
    after = writer.cast(graph.sub(total - 1, number), "f64")
    root = graph.floor((graph.sqrt(after * 8.0 + 1.0) - 1.0) * 0.5)
    steps = writer.cast(root, "i64")
    first = graph.sub(count - 2, steps)
    offset = graph.sub(total - 1, number) - graph.div(steps * (steps + 1), 2)
    return first, graph.sub(count - 1, offset)


@row("pdist.default", "_pdist_forward.default")
def _pdist(writer: Writer, x: Value, p: float = 2.0) -> Value:
    """The p-norm of the difference of each pair of rows."""
    wide = writer.widened(x)
    first, second = _pairs(writer, writer.sizes(x)[0])
    difference = writer.graph.gather(wide, first, 0) - writer.graph.gather(wide, second, 0)
    return writer.result(norm(writer, difference, p))


@row("_pdist_backward.default")
def _pdist_backward(writer: Writer, grad: Value, x: Value, p: float, norm: Value) -> Value:
    """The gradient of distances of pairs."""
    graph, wide = writer.graph, writer.widened(x)
    first, second = _pairs(writer, writer.sizes(x)[0])
    difference = graph.gather(wide, first, 0) - graph.gather(wide, second, 0)
    slope = _slope(writer, difference, writer.insert(writer.widened(norm), 1), p)
    passed = slope * writer.insert(writer.widened(grad), 1)
    zeros = writer.full(writer.shape, 0, wide.dtype)
    added = graph.scatter(graph.scatter(zeros, first, passed, "add"), second, graph.neg(passed), "add")
    return writer.result(added)


# One vector with one


@row("pairwise_distance.default")
def _pairwise(
    writer: Writer, lhs: Value, rhs: Value, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Value:
    """The p-norm of lhs - rhs + eps along the last dimension."""
    del keepdim
    difference = writer.widened(writer.cast(lhs, writer.dtype)) - writer.widened(
        writer.cast(rhs, writer.dtype)
    )
    return writer.reshape(writer.result(norm(writer, difference + eps, p)), writer.shape)


@row("cosine_similarity.default")
def _cosine(writer: Writer, lhs: Value, rhs: Value, dim: int = 1, eps: float = 1e-8) -> Value:
    """The cosine of the angle between vectors, none of which counts as shorter than eps."""
    graph = writer.graph
    sizes = np.broadcast_shapes(writer.sizes(lhs), writer.sizes(rhs))
    rank = max(len(sizes), 1)
    lhs, rhs = (
        writer.reshape(writer.expand(writer.widened(writer.cast(value, writer.dtype)), sizes), sizes or [1])
        for value in (lhs, rhs)
    )
    axes = [writer.axis(dim, rank)]
    units = [
        graph.div(value, graph.clamp(graph.reduce_l2(value, axes, keepdims=True), eps))
        for value in (lhs, rhs)
    ]
    return writer.result(graph.reduce_sum(units[0] * units[1], axes))
