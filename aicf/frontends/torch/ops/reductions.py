"""ATen reductions along axes: sums, extremes, moments, norms; also of no elements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import (
    ONE_OF_EQUALS,
    ZERO_AT_ZERO,
    Call,
    Empty,
    Number,
    OtherGradient,
    Writer,
    empty_row,
    is_bool,
    is_float,
    row,
    wide,
)

Axes: TypeAlias = "Sequence[int] | int | None"


def _reduced(writer: Writer, method: str, x: Value, axes: Axes, keepdim: bool = False) -> Value:
    """A reduction of the builder along axes, none of which stands for all; of a tensor of rank 0 itself."""
    found = writer.axes(axes, x.rank)
    if not found:
        return getattr(writer.graph, method)(writer.reshape(x, [1]), [0])
    return getattr(writer.graph, method)(x, found, keepdims=keepdim)


# Sums, products, truth


@row("sum.default", "sum.dim_IntList")
def _sum(
    writer: Writer, x: Value, axes: Axes = None, keepdim: bool = False, *, dtype: object = None
) -> Value:
    """The sum, of integers and truth values in i64."""
    return _reduced(writer, "reduce_sum", writer.result(x), axes, keepdim)


@row("nansum.default")
def _nansum(
    writer: Writer, x: Value, axes: Axes = None, keepdim: bool = False, *, dtype: object = None
) -> Value:
    """The sum of what is a number."""
    if is_float(x.dtype):
        x = writer.graph.select(writer.graph.is_nan(x), 0.0, x)
    return _sum(writer, x, axes, keepdim)


@row("mean.default", "mean.dim")
def _mean(
    writer: Writer, x: Value, axes: Axes = None, keepdim: bool = False, *, dtype: object = None
) -> Value:
    """The arithmetic mean."""
    return _reduced(writer, "reduce_mean", writer.result(x), axes, keepdim)


@row("prod.default", "prod.dim_int")
def _prod(
    writer: Writer, x: Value, axes: Axes = None, keepdim: bool = False, *, dtype: object = None
) -> Value:
    """The product, of integers and truth values in i64."""
    if is_bool(writer.dtype):
        return _reduced(writer, "reduce_all", x, axes, keepdim)
    return _reduced(writer, "reduce_prod", writer.result(x), axes, keepdim)


@row("any.default", "any.dim", "any.dims")
def _any(writer: Writer, x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
    """Whether any element is other than 0."""
    return writer.result(_reduced(writer, "reduce_any", x, axes, keepdim))


@row("all.default", "all.dim", "all.dims")
def _all(writer: Writer, x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
    """Whether all elements are other than 0."""
    return writer.result(_reduced(writer, "reduce_all", x, axes, keepdim))


@row("count_nonzero.default", "count_nonzero.dim_IntList")
def _count_nonzero(writer: Writer, x: Value, axes: Axes = None) -> Value:
    """How many elements are other than 0."""
    return _reduced(writer, "reduce_sum", writer.result(writer.cast(x, "i1")), axes)


# Extremes


@row("amax.default", "max.default")
def _amax(writer: Writer, x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
    """The largest element."""
    return _reduced(writer, "reduce_max", x, axes, keepdim)


@row("amin.default", "min.default")
def _amin(writer: Writer, x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
    """The smallest element."""
    return _reduced(writer, "reduce_min", x, axes, keepdim)


@row("aminmax.default")
def _aminmax(writer: Writer, x: Value, *, dim: int | None = None, keepdim: bool = False) -> Sequence[Value]:
    """The smallest and the largest element."""
    return [_amin(writer, x, dim, keepdim), _amax(writer, x, dim, keepdim)]


@row("max.dim", other_gradient=ONE_OF_EQUALS)
def _max(writer: Writer, x: Value, axis: int, keepdim: bool = False) -> Sequence[Value | None]:
    """The largest element along an axis, and its index."""
    return _extreme(writer, x, axis, keepdim, ("reduce_max", "argmax"))


@row("min.dim", other_gradient=ONE_OF_EQUALS)
def _min(writer: Writer, x: Value, axis: int, keepdim: bool = False) -> Sequence[Value | None]:
    """The smallest element along an axis, and its index."""
    return _extreme(writer, x, axis, keepdim, ("reduce_min", "argmin"))


def _extreme(
    writer: Writer, x: Value, axis: int, keepdim: bool, methods: tuple[str, str]
) -> Sequence[Value | None]:
    value = _reduced(writer, methods[0], x, [axis], keepdim) if 0 in writer.used else None
    return [value, _index(writer, methods[1], x, axis, keepdim) if 1 in writer.used else None]


@row("argmax.default")
def _argmax(writer: Writer, x: Value, axis: int | None = None, keepdim: bool = False) -> Value:
    """The index of the largest element, of the flat tensor if no axis is given."""
    return _index(writer, "argmax", x, axis, keepdim)


@row("argmin.default")
def _argmin(writer: Writer, x: Value, axis: int | None = None, keepdim: bool = False) -> Value:
    """The index of the smallest element, of the flat tensor if no axis is given."""
    return _index(writer, "argmin", x, axis, keepdim)


def _index(writer: Writer, method: str, x: Value, axis: int | None, keepdim: bool) -> Value:
    if not x.rank:
        return writer.full((), 0, "i64")
    x = writer.cast(x, "u8") if is_bool(x.dtype) else x
    if axis is not None:
        return getattr(writer.graph, method)(x, writer.axis(axis, x.rank), keepdims=keepdim)
    found = getattr(writer.graph, method)(writer.reshape(x, [math.prod(writer.sizes(x))]), 0)
    return writer.reshape(found, [1] * x.rank) if keepdim else found


# Moments


@row("var.default", "var.dim")
def _var_unbiased(writer: Writer, x: Value, *arguments: Axes) -> Value:
    """The variance, over the count less 1 if it is unbiased."""
    axes, unbiased, keepdim = _of_unbiased(arguments)
    return writer.result(_variance(writer, x, axes, int(unbiased), keepdim)[0])


@row("std.default", "std.dim", other_gradient=ZERO_AT_ZERO)
def _std_unbiased(writer: Writer, x: Value, *arguments: Axes) -> Value:
    """The root of the variance."""
    axes, unbiased, keepdim = _of_unbiased(arguments)
    return writer.result(writer.graph.sqrt(_variance(writer, x, axes, int(unbiased), keepdim)[0]))


def _of_unbiased(arguments: Sequence[Axes]) -> tuple[Axes, bool, bool]:
    """Axes, `unbiased` and `keepdim`, of the overloads with and without axes."""
    if len(arguments) == 1:
        return None, bool(arguments[0]), False
    axes, unbiased, keepdim = arguments
    return axes, bool(unbiased), bool(keepdim)


@row("var_mean.default", "var_mean.dim")
def _var_mean_unbiased(writer: Writer, x: Value, *arguments: Axes) -> Sequence[Value]:
    """Variance and mean."""
    axes, unbiased, keepdim = _of_unbiased(arguments)
    return _rounded(writer, *_variance(writer, x, axes, int(unbiased), keepdim))


@row("std_mean.default", "std_mean.dim")
def _std_mean_unbiased(writer: Writer, x: Value, *arguments: Axes) -> Sequence[Value]:
    """The root of the variance, and the mean."""
    axes, unbiased, keepdim = _of_unbiased(arguments)
    variance, mean = _variance(writer, x, axes, int(unbiased), keepdim)
    return _rounded(writer, writer.graph.sqrt(variance), mean)


@row("var.correction")
def _var(
    writer: Writer, x: Value, axes: Axes = None, *, correction: Number | None = None, keepdim: bool = False
) -> Value:
    """The variance, over the count less a correction, which is 1 by default."""
    return writer.result(_variance(writer, x, axes, correction, keepdim)[0])


@row("std.correction", other_gradient=ZERO_AT_ZERO)
def _std(
    writer: Writer, x: Value, axes: Axes = None, *, correction: Number | None = None, keepdim: bool = False
) -> Value:
    """The root of the variance."""
    return writer.result(writer.graph.sqrt(_variance(writer, x, axes, correction, keepdim)[0]))


@row("var_mean.correction")
def _var_mean(
    writer: Writer, x: Value, axes: Axes = None, *, correction: Number | None = None, keepdim: bool = False
) -> Sequence[Value]:
    """Variance and mean."""
    return _rounded(writer, *_variance(writer, x, axes, correction, keepdim))


@row("std_mean.correction", other_gradient=ZERO_AT_ZERO)
def _std_mean(
    writer: Writer, x: Value, axes: Axes = None, *, correction: Number | None = None, keepdim: bool = False
) -> Sequence[Value]:
    """The root of the variance, and the mean."""
    variance, mean = _variance(writer, x, axes, correction, keepdim)
    return _rounded(writer, writer.graph.sqrt(variance), mean)


def _variance(
    writer: Writer, x: Value, axes: Axes, correction: Number | None, keepdim: bool
) -> tuple[Value, Value]:
    """Variance and mean, in f32 or f64."""
    graph, x = writer.graph, writer.widened(x)
    rank, shape = x.rank, writer.sizes(x)
    if not rank:
        x, shape = writer.reshape(x, [1]), (1,)
    found = writer.axes(axes, rank) or [0]
    mean = graph.reduce_mean(x, found, keepdims=True)
    distance = graph.sub(x, mean)
    total = graph.reduce_sum(graph.mul(distance, distance), found, keepdims=keepdim and bool(rank))
    count = math.prod(shape[axis] for axis in found)
    freedom = max(0.0, count - (1.0 if correction is None else float(correction)))
    variance = graph.div(total, freedom)
    return variance, writer.reshape(mean, writer.sizes(variance))


def _rounded(writer: Writer, first: Value, second: Value) -> Sequence[Value]:
    return [writer.result(first), writer.result(second, 1)]


# Norms and exponentials


@row("logsumexp.default")
def _logsumexp(writer: Writer, x: Value, axes: Axes, keepdim: bool = False) -> Value:
    """log(sum(exp(x))), without overflow."""
    return _reduced(writer, "reduce_logsumexp", writer.result(x), axes, keepdim)


def _is_other_norm(call: Call) -> bool:
    """Whether the gradient of a norm is not among those that are 0 at 0."""
    order = call["ord"] if "ord" in call else call["p"]
    return order is not None and float(order) not in (1.0, 2.0, math.inf, -math.inf, 0.0)


_NORM = OtherGradient("the gradient at a norm of 0 is 0", _is_other_norm)


@row("linalg_vector_norm.default", other_gradient=_NORM)
def _vector_norm(
    writer: Writer,
    x: Value,
    order: Number = 2,
    axes: Axes = None,
    keepdim: bool = False,
    *,
    dtype: object = None,
) -> Value:
    """The sum of |x| ** order, to the power 1 / order; of an infinite order the largest or the smallest size."""
    return writer.result(_norm(writer, writer.cast(x, wide(writer.dtype)), order, axes, keepdim))


@row("norm.Scalar", other_gradient=_NORM)
@row("norm.ScalarOpt_dtype")
def _norm_of_all(writer: Writer, x: Value, order: Number | None = 2, *, dtype: object = None) -> Value:
    """The norm of all elements."""
    return _vector_norm(writer, x, 2 if order is None else order)


@row("norm.ScalarOpt_dim", other_gradient=_NORM)
@row("norm.ScalarOpt_dim_dtype")
def _norm_along(
    writer: Writer, x: Value, order: Number | None, axes: Axes, keepdim: bool = False, *, dtype: object = None
) -> Value:
    """The norm along axes."""
    return _vector_norm(writer, x, 2 if order is None else order, axes, keepdim)


@row("dist.default")
def _dist(writer: Writer, x: Value, y: Value, order: Number = 2) -> Value:
    """The norm of the difference."""
    dtype = wide(writer.dtype)
    difference = writer.graph.sub(writer.cast(x, dtype), writer.cast(y, dtype))
    return writer.result(_norm(writer, difference, order, None, False))


_RENORM_EPSILON = 1e-7
"""PyTorch's."""


def _norm(writer: Writer, x: Value, order: Number, axes: Axes, keepdim: bool) -> Value:
    graph = writer.graph
    if order == 2:
        return _reduced(writer, "reduce_l2", x, axes, keepdim)
    if order == 0:
        counted = graph.cast(graph.ne(x, 0.0), x.dtype)
        return _reduced(writer, "reduce_sum", counted, axes, keepdim)
    size = graph.abs(x)
    if math.isinf(order):
        return _reduced(writer, "reduce_max" if order > 0 else "reduce_min", size, axes, keepdim)
    if order == 1:
        return _reduced(writer, "reduce_sum", size, axes, keepdim)
    total = _reduced(writer, "reduce_sum", graph.pow(size, float(order)), axes, keepdim)
    return graph.pow(total, 1 / float(order))


# Of no elements

_OF_NOTHING: Mapping[float, Sequence[str]] = {
    -math.inf: ("logsumexp.default",),
    0.0: (
        *("sum.default", "sum.dim_IntList", "nansum.default", "any.default", "any.dim", "any.dims"),
        *("count_nonzero.default", "count_nonzero.dim_IntList", "linalg_vector_norm.default", "norm.Scalar"),
        *("norm.ScalarOpt_dim", "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim_dtype", "dist.default"),
    ),
    1.0: ("prod.default", "prod.dim_int", "all.default", "all.dim", "all.dims"),
    math.nan: (
        *("mean.default", "mean.dim", "var.default", "var.dim", "var.correction"),
        *("std.default", "std.dim", "std.correction"),
    ),
}
"""The result of each reduction over axes without elements."""
_MOMENTS_OF_NOTHING = (
    *("var_mean.default", "var_mean.dim", "var_mean.correction"),
    *("std_mean.default", "std_mean.dim", "std_mean.correction"),
)


def _enter_of_nothing(value: float, overloads: Sequence[str]) -> None:
    @empty_row(*overloads)
    def _of_nothing(writer: Writer, x: Empty, *_: object, **named: object) -> Value:
        return writer.full(writer.shape, value, writer.dtype)


for _value, _overloads in _OF_NOTHING.items():
    _enter_of_nothing(_value, _overloads)


@empty_row(*_MOMENTS_OF_NOTHING)
def _moments_of_nothing(writer: Writer, x: Empty, *_: object, **named: object) -> Sequence[Value]:
    """NaN and NaN."""
    return [writer.full(result.shape, math.nan, result.dtype) for result in writer.results]
