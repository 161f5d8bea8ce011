"""ATen's softmax and its logarithm, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer, row


def _along(writer: Writer, x: Value, axis: int, make: Callable[[Value, int], Value]) -> Value:
    """Applies an op along an axis, in the type of the result; a tensor of rank 0 is a vector of one element."""
    vector = x if x.rank else writer.reshape(x, [1])
    result = make(writer.result(vector), writer.axis(axis, vector.rank))
    return writer.reshape(result, writer.shape)


@row("_softmax.default", "softmax.int")
def _softmax(writer: Writer, x: Value, axis: int, dtype: object = None) -> Value:
    """exp(x) / sum(exp(x)) along an axis."""
    del dtype
    return _along(writer, x, axis, writer.graph.softmax)


@row("_log_softmax.default", "log_softmax.int")
def _log_softmax(writer: Writer, x: Value, axis: int, dtype: object = None) -> Value:
    """x - log(sum(exp(x))) along an axis."""
    del dtype
    return _along(writer, x, axis, writer.graph.log_softmax)


@row("_safe_softmax.default")
def _safe_softmax(writer: Writer, x: Value, axis: int, dtype: object = None) -> Value:
    """Softmax, and 0 where all along the axis are -inf."""
    del dtype
    return _along(writer, x, axis, partial(writer.graph.softmax, empty_as_zero=True))


@row("_softmax_backward_data.default")
def _softmax_backward(writer: Writer, grad: Value, y: Value, axis: int, dtype: object) -> Value:
    """y * (g - sum(g * y))."""
    del dtype
    grad, y = writer.widened(grad), writer.widened(y)
    product = grad * y
    return writer.result(product - y * _sum(writer, product, axis))


@row("_log_softmax_backward_data.default")
def _log_softmax_backward(writer: Writer, grad: Value, y: Value, axis: int, dtype: object) -> Value:
    """g - exp(y) * sum(g)."""
    del dtype
    grad, y = writer.widened(grad), writer.widened(y)
    return writer.result(grad - writer.graph.exp(y) * _sum(writer, grad, axis))


def _sum(writer: Writer, value: Value, axis: int) -> Value:
    """The sum along an axis, which keeps the size 1."""
    if not value.rank:
        return value
    return writer.graph.reduce_sum(value, [writer.axis(axis, value.rank)], keepdims=True)


@row("_masked_softmax.default")
def _masked_softmax(
    writer: Writer, x: Value, mask: Value, axis: int | None = None, kind: int | None = None
) -> Value:
    """Softmax of what a mask leaves, which holds where an element is left out."""
    graph = writer.graph
    if kind == 0:
        spread = [1] * (x.rank - 2) + list(writer.sizes(mask))
    elif kind == 1:
        spread = [writer.sizes(mask)[0], *[1] * (x.rank - 2), writer.sizes(mask)[1]]
    else:
        spread = list(writer.sizes(mask))
    hidden = writer.reshape(mask, spread)

    def make(value: Value, at: int) -> Value:
        return graph.softmax(graph.select(hidden, float("-inf"), value), at)

    return _along(writer, x, -1 if axis is None else axis, make)
