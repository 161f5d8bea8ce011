"""ATen losses of class probabilities against labels, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Call, CheckedIndices, OtherGradient, Writer, is_float, row
from aicf.frontends.torch.ops.losses import REDUCTIONS, reduced


def _classes(x: Value) -> int:
    """The dimension that has the classes."""
    return min(1, x.rank - 1)


def _labels(writer: Writer, target: Value, x: Value) -> Value:
    """The labels as i64, in the sizes of x without the classes."""
    axis, sizes = _classes(x), writer.sizes(x)
    return writer.reshape(writer.cast(target, "i64"), [*sizes[:axis], *sizes[axis + 1 :]])


def _by_class(writer: Writer, weight: Value, x: Value) -> Value:
    """The weight of each class, in a shape that meets x."""
    after = [1] * (x.rank - 1 - _classes(x))
    return writer.reshape(writer.cast(weight, x.dtype), [*writer.sizes(weight), *after])


def _weight_of(writer: Writer, weight: Value | None, labels: Value, counted: Value, dtype: str) -> Value:
    """The weight of each sample; 0 of one that does not count."""
    graph = writer.graph
    if weight is None:
        return writer.cast(counted, dtype)
    own = graph.gather(writer.cast(weight, dtype), graph.select(counted, labels, 0), 0)
    return graph.select(counted, own, 0.0)


def _total(writer: Writer, value: Value) -> Value:
    """The sum of all elements."""
    return writer.graph.reduce_sum(value, range(value.rank)) if value.rank else value


# Logarithms of probabilities


def _nll(
    writer: Writer, x: Value, target: Value, weight: Value | None, reduction: int, ignored: int
) -> tuple[Value, Value | None]:
    """-weight * x at the label, and the sum of the weights, which is computed if something reads it."""
    graph, axis = writer.graph, _classes(x)
    labels = _labels(writer, target, x)
    counted = graph.ne(labels, ignored)
    known = writer.insert(graph.select(counted, labels, 0), axis)
    picked = writer.drop(graph.gather_elements(writer.widened(x), known, axis), axis)
    loss = graph.neg(picked)
    if weight is not None:
        loss = loss * _weight_of(writer, weight, labels, counted, loss.dtype)
    loss = graph.select(counted, loss, 0.0)
    if REDUCTIONS[reduction] == "none" and loss.rank:
        return writer.result(loss), writer.full((), 0, writer.dtype) if 1 in writer.used else None
    total = _total(writer, loss)
    if REDUCTIONS[reduction] != "mean" and 1 not in writer.used:
        return writer.result(total), None
    weights = _total(writer, _weight_of(writer, weight, labels, counted, loss.dtype))
    mean = graph.div(total, weights) if REDUCTIONS[reduction] == "mean" else total
    return writer.result(mean), writer.cast(weights, writer.dtype)


def _of_classes(call: Call, rank: int) -> int:
    """Classes are along dimension 1, or the only one."""
    return min(1, rank - 1)


_LABELS = CheckedIndices("self", "target", _of_classes, "ignore_index")


@row("nll_loss_forward.default", "nll_loss2d_forward.default", indices=_LABELS)
def _nll_forward(
    writer: Writer, x: Value, target: Value, weight: Value | None, reduction: int, ignored: int
) -> list[Value | None]:
    """-weight * x at the label, along dimension 1, and the sum of the weights."""
    return [*_nll(writer, x, target, weight, reduction, ignored)]


@row("nll_loss.default", "nll_loss2d.default", "nll_loss_nd.default")
def _nll_loss(
    writer: Writer,
    x: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignored: int = -100,
) -> Value:
    """-weight * x at the label, along dimension 1."""
    return _nll(writer, x, target, weight, reduction, ignored)[0]


@row("nll_loss_backward.default", "nll_loss2d_backward.default")
def _nll_backward(
    writer: Writer,
    grad: Value,
    x: Value,
    target: Value,
    weight: Value | None,
    reduction: int,
    ignored: int,
    total: Value,
) -> Value:
    """-weight at the label, 0 elsewhere: a comparison with the number of each class."""
    graph, axis = writer.graph, _classes(x)
    labels = writer.insert(_labels(writer, target, x), axis)
    share = graph.neg(writer.widened(grad))
    if REDUCTIONS[reduction] == "mean":
        share = graph.div(share, writer.widened(total))
    elif REDUCTIONS[reduction] == "none":
        share = writer.insert(share, axis) if share.rank < x.rank else share
    if weight is not None:
        share = share * _by_class(writer, writer.widened(weight), writer.widened(x))
    classes = graph.iota(writer.shape, axis, "i64")
    here = graph.eq(classes, labels)
    if 0 <= ignored < writer.shape[axis]:
        here = graph.and_(here, graph.ne(labels, ignored))
    return writer.result(graph.select(here, share, 0.0))


# Scores


@row("cross_entropy_loss.default", indices=_LABELS)
def _cross_entropy(
    writer: Writer,
    x: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignored: int = -100,
    smoothing: float = 0.0,
) -> Value:
    """The negative logarithm of softmax(x) at the label, or its mean over the probabilities of all classes."""
    axis = _classes(x)
    if is_float(target.dtype) and writer.sizes(target) == writer.sizes(x):
        return _soft_labels(writer, x, target, weight, reduction, smoothing)
    if weight is None:
        labels = _labels(writer, target, x)
        loss = writer.graph.cross_entropy(x, labels, axis, REDUCTIONS[reduction], ignored, smoothing)
        return writer.result(loss)
    logarithms = writer.graph.log_softmax(writer.widened(x), axis)
    own, weights = _nll(writer, logarithms, target, weight, reduction, ignored)
    if not smoothing:
        return own
    spread = _spread_loss(writer, logarithms, target, weight, reduction, ignored)
    del weights
    share = smoothing / writer.sizes(x)[axis]
    return writer.result(writer.widened(own) * (1 - smoothing) + spread * share)


def _spread_loss(
    writer: Writer, logarithms: Value, target: Value, weight: Value, reduction: int, ignored: int
) -> Value:
    """The loss of labels that are all classes alike, over the weights of those that are meant."""
    graph, axis = writer.graph, _classes(logarithms)
    labels = _labels(writer, target, logarithms)
    counted = graph.ne(labels, ignored)
    losses = graph.neg(graph.reduce_sum(logarithms * _by_class(writer, weight, logarithms), [axis]))
    losses = graph.select(counted, losses, 0.0)
    if REDUCTIONS[reduction] == "none":
        return losses
    total = _total(writer, losses)
    if REDUCTIONS[reduction] == "sum":
        return total
    return total / _total(writer, _weight_of(writer, weight, labels, counted, losses.dtype))


def _soft_labels(
    writer: Writer, x: Value, target: Value, weight: Value | None, reduction: int, smoothing: float
) -> Value:
    """-sum(target * log_softmax(x)) along the classes; the mean is over samples."""
    graph, axis = writer.graph, _classes(x)
    logarithms = graph.log_softmax(writer.widened(x), axis)
    target = writer.cast(target, logarithms.dtype)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / writer.sizes(x)[axis]
    product = logarithms * target
    if weight is not None:
        product = product * _by_class(writer, weight, logarithms)
    return reduced(writer, graph.neg(graph.reduce_sum(product, [axis])), reduction)


# Margins between classes


@row(
    "multi_margin_loss.default",
    other_gradient=OtherGradient("elements on the margin get no gradient"),
    indices=CheckedIndices("self", "target", _of_classes),
)
def _multi_margin(
    writer: Writer,
    x: Value,
    target: Value,
    p: float = 1,
    margin: float = 1,
    weight: Value | None = None,
    reduction: int = 1,
) -> Value:
    """The mean over other classes of max(margin - x[label] + x, 0) ** p."""
    graph = writer.graph
    x = x if x.rank else writer.reshape(x, [1])
    axis, wide = x.rank - 1, writer.widened(x)
    labels = _rows(writer, target, x)
    picked = graph.gather_elements(wide, labels, axis)
    away = graph.max(float(margin) - picked + wide, 0.0)
    away = away if p == 1 else away * away
    if weight is not None:
        away = away * graph.gather(writer.cast(weight, wide.dtype), labels, 0)
    other = graph.ne(graph.iota(writer.sizes(x), axis, "i64"), labels)
    losses = graph.reduce_mean(graph.select(other, away, 0.0), [axis])
    return writer.reshape(reduced(writer, losses, reduction), writer.shape)


@row("multi_margin_loss_backward.default")
def _multi_margin_backward(
    writer: Writer,
    grad: Value,
    x: Value,
    target: Value,
    p: float,
    margin: float,
    weight: Value | None = None,
    reduction: int = 1,
) -> Value:
    """The slope of each class that is too near, and at the label less than nothing: the sum of all others."""
    graph = writer.graph
    x = x if x.rank else writer.reshape(x, [1])
    axis, wide = x.rank - 1, writer.widened(x)
    labels = _rows(writer, target, x)
    away = graph.max(float(margin) - graph.gather_elements(wide, labels, axis) + wide, 0.0)
    slope = away * 2.0 if p != 1 else writer.cast(graph.gt(away, 0.0), wide.dtype)
    if weight is not None:
        slope = slope * graph.gather(writer.cast(weight, wide.dtype), labels, 0)
    here = graph.eq(graph.iota(writer.sizes(x), axis, "i64"), labels)
    others = graph.select(here, 0.0, slope)
    passed = graph.select(here, graph.neg(graph.reduce_sum(others, [axis], keepdims=True)), others)
    grad = writer.widened(grad)
    each = writer.insert(grad, axis) if grad.rank and grad.rank < x.rank else grad
    samples = math.prod(writer.sizes(x)[:-1]) if REDUCTIONS[reduction] == "mean" else 1
    share = 1 / (writer.sizes(x)[axis] * samples)
    return writer.result(writer.reshape(passed * each * share, writer.shape))


def _rows(writer: Writer, target: Value, x: Value) -> Value:
    """The label of each row, with size 1 in place of the classes."""
    sizes: Sequence[int] = writer.sizes(x)
    return writer.reshape(writer.cast(target, "i64"), [*sizes[:-1], 1])
