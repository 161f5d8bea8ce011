"""ATen scans: each element is combined with all before it along an axis.

But for sums they go by doubling: in step n each element takes in what has been combined of 2^n neighbours before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from aicf.dialects.types import element_named
from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Number, Writer, is_bool, is_float, row
from aicf.frontends.torch.ops.functions import log_of_sum


@row("cumsum.default")
def _cumsum(writer: Writer, x: Value, axis: int, *, dtype: object = None) -> Value:
    """The sum of the elements up to each one."""
    x = writer.result(x)
    return writer.graph.cumsum(x, writer.axis(axis, x.rank)) if x.rank else x


@row("cumprod.default")
def _cumprod(writer: Writer, x: Value, axis: int, *, dtype: object = None) -> Value:
    """The product of the elements up to each one."""
    return writer.result(_doubled(writer, writer.widened(writer.result(x)), axis, 1, writer.graph.mul))


@row("logcumsumexp.default")
def _logcumsumexp(writer: Writer, x: Value, axis: int) -> Value:
    """log(sum(exp(x))) of the elements up to each one."""

    def combine(before: Value, own: Value) -> Value:
        return log_of_sum(writer.graph, before, own)

    return writer.result(_doubled(writer, writer.widened(x), axis, -math.inf, combine))


def _doubled(
    writer: Writer, x: Value, axis: int, neutral: Number, combine: Callable[[Value, Value], Value]
) -> Value:
    for distance in _distances(writer, x, axis):
        x = combine(_moved(writer, x, axis, distance, neutral), x)
    return x


def _distances(writer: Writer, x: Value, axis: int) -> Iterator[int]:
    size = writer.sizes(x)[writer.axis(axis, x.rank)] if x.rank else 1
    return (2**step for step in range((size - 1).bit_length()))


def _moved(writer: Writer, x: Value, axis: int, distance: int, fill: Number) -> Value:
    """The neighbour at a distance before each element, or the fill where there is none."""
    axis = writer.axis(axis, x.rank)
    size = writer.sizes(x)[axis]
    amounts = [distance if at == axis else 0 for at in range(x.rank)]
    return writer.graph.pad(writer.part(x, axis, 0, size - distance), amounts, [0] * x.rank, fill)


@row("cummax.default")
def _cummax(writer: Writer, x: Value, axis: int) -> Sequence[Value]:
    """The largest element up to each one, and the index of the last such; NaN is larger than all."""
    return _extremes(writer, x, axis, "gt")


@row("cummin.default")
def _cummin(writer: Writer, x: Value, axis: int) -> Sequence[Value]:
    """The smallest element up to each one, and the index of the last such; NaN is smaller than all."""
    return _extremes(writer, x, axis, "lt")


def _extremes(writer: Writer, x: Value, axis: int, predicate: str) -> Sequence[Value]:
    graph = writer.graph
    if not x.rank:
        return [x, writer.full((), 0, "i64")]
    dtype = x.dtype
    x = writer.cast(x, "u8") if is_bool(dtype) else x
    indices = graph.iota(list(writer.sizes(x)), writer.axis(axis, x.rank), "i64")
    for distance in _distances(writer, x, axis):
        before = _moved(writer, x, axis, distance, _weakest(x.dtype, predicate))
        wins = graph.gt(before, x) if predicate == "gt" else graph.lt(before, x)
        if is_float(x.dtype):
            wins = graph.and_(graph.or_(wins, graph.is_nan(before)), graph.not_(graph.is_nan(x)))
        indices = graph.select(wins, _moved(writer, indices, axis, distance, 0), indices)
        x = graph.select(wins, before, x)
    return [writer.cast(x, dtype), indices]


def _weakest(dtype: str, predicate: str) -> Number:
    """The neutral element of the extreme."""
    if is_float(dtype):
        return -math.inf if predicate == "gt" else math.inf
    limits = np.iinfo(element_named(dtype).dtype)
    return int(limits.min if predicate == "gt" else limits.max)
