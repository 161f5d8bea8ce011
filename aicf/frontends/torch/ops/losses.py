"""ATen losses of a prediction against a target, and their gradients."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Number, Operand, Writer, is_float, result_type, row
from aicf.frontends.torch.ops.distances import norm

Reduction = Literal["none", "mean", "sum"]
REDUCTIONS: tuple[Reduction, ...] = ("none", "mean", "sum")
"""ATen's numbers of reductions, as names."""


def reduced(writer: Writer, losses: Value, reduction: int) -> Value:
    """The losses, their mean or their sum, as the result."""
    axes = range(losses.rank)
    if reduction == 0 or not losses.rank:
        return writer.result(losses)
    total = writer.graph.reduce_mean if REDUCTIONS[reduction] == "mean" else writer.graph.reduce_sum
    return writer.result(total(losses, axes))


def _alike(writer: Writer, *values: Value) -> list[Value]:
    """Tensors of one shape and one type."""
    sizes = np.broadcast_shapes(*(writer.sizes(value) for value in values))
    dtype = result_type(*values)
    return [writer.expand(writer.cast(value, dtype), sizes) for value in values]


def _wide(writer: Writer, *values: Value) -> list[Value]:
    """The same in the type that PyTorch computes in; integers in that of the result."""
    alike = _alike(writer, *values)
    if not is_float(alike[0].dtype):
        alike = [writer.cast(value, writer.dtype) for value in alike]
    return [writer.widened(value) for value in alike]


# Distances


@row("mse_loss.default")
def _mse(writer: Writer, x: Value, target: Value, reduction: int = 1) -> Value:
    """(x - target) ** 2."""
    x, target = _alike(writer, x, target)
    return writer.result(writer.graph.mse_loss(x, target, REDUCTIONS[reduction]))


@row("l1_loss.default")
def _l1(writer: Writer, x: Value, target: Value, reduction: int = 1) -> Value:
    """|x - target|."""
    x, target = _wide(writer, x, target)
    return reduced(writer, writer.graph.abs(x - target), reduction)


@row("huber_loss.default")
def _huber(writer: Writer, x: Value, target: Value, reduction: int = 1, delta: float = 1.0) -> Value:
    """Half the square of the distance up to delta, then a line."""
    x, target = _alike(writer, x, target)
    return writer.result(writer.graph.huber_loss(x, target, REDUCTIONS[reduction], delta))


@row("smooth_l1_loss.default")
def _smooth_l1(writer: Writer, x: Value, target: Value, reduction: int = 1, beta: float = 1.0) -> Value:
    """Huber's loss over beta; of a beta of 0 the distance."""
    x, target = _alike(writer, x, target)
    if beta == 1:
        return writer.result(writer.graph.huber_loss(x, target, REDUCTIONS[reduction]))
    x, target = writer.widened(x), writer.widened(target)
    if beta == 0:
        return reduced(writer, writer.graph.abs(x - target), reduction)
    losses = writer.graph.huber_loss(x, target, "none", beta)
    return reduced(writer, writer.graph.div(losses, beta), reduction)


@row("mse_loss_backward.default")
def _mse_backward(writer: Writer, grad: Value, x: Value, target: Value, reduction: int) -> Value:
    """2 * (x - target) for each element."""
    grad, x, target = _wide(writer, grad, x, target)
    return _shared(writer, grad, (x - target) * 2.0, reduction)


@row("smooth_l1_loss_backward.default")
def _smooth_l1_backward(
    writer: Writer, grad: Value, x: Value, target: Value, reduction: int, beta: float
) -> Value:
    """(x - target) / beta, but no further than 1 from 0."""
    grad, x, target = _wide(writer, grad, x, target)
    difference = x - target
    if beta:
        slope = writer.graph.clamp(difference / beta, -1.0, 1.0)
    else:  # 0 counts as below the target
        at_target = writer.graph.eq(difference, 0.0)
        slope = writer.graph.select(at_target, -1.0, writer.graph.sign(difference))
    return _shared(writer, grad, slope, reduction)


@row("huber_loss_backward.default")
def _huber_backward(
    writer: Writer, grad: Value, x: Value, target: Value, reduction: int, delta: float
) -> Value:
    """x - target, but no further than delta from 0."""
    grad, x, target = _wide(writer, grad, x, target)
    return _shared(writer, grad, writer.graph.clamp(x - target, -delta, delta), reduction)


def _shared(writer: Writer, grad: Value, slope: Value, reduction: int) -> Value:
    """The gradient of each element: its slope times the incoming gradient, divided by the count for a mean."""
    if REDUCTIONS[reduction] == "mean":
        slope = slope * (1.0 / math.prod(writer.sizes(slope)))
    return writer.result(writer.expand(slope * grad, writer.shape))


# Probabilities


@row("binary_cross_entropy.default")
def _bce(writer: Writer, x: Value, target: Value, weight: Value | None = None, reduction: int = 1) -> Value:
    """-(t * log(x) + (1 - t) * log(1 - x)), no logarithm below -100."""
    graph = writer.graph
    x, target = _wide(writer, x, target)
    hit = target * graph.max(graph.log(x), -100.0)
    miss = (target - 1.0) * graph.max(graph.log1p(graph.neg(x)), -100.0)
    return reduced(writer, _times(writer, miss - hit, weight), reduction)


def _times(writer: Writer, losses: Value, weight: Value | None) -> Value:
    return losses if weight is None else losses * writer.cast(weight, losses.dtype)


@row("binary_cross_entropy_backward.default")
def _bce_backward(
    writer: Writer,
    grad: Value,
    x: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
) -> Value:
    """(x - t) / (x * (1 - x))."""
    grad, x, target = _wide(writer, grad, x, target)
    slope = (x - target) / writer.graph.max((1.0 - x) * x, 1e-12)
    return _shared(writer, grad, _times(writer, slope, weight), reduction)


@row("binary_cross_entropy_with_logits.default")
def _bce_with_logits(
    writer: Writer,
    x: Value,
    target: Value,
    weight: Value | None = None,
    positive: Value | None = None,
    reduction: int = 1,
) -> Value:
    """The same of sigmoid(x); `positive` weighs the part of the target."""
    graph = writer.graph
    if weight is None and positive is None:
        x, target = _alike(writer, x, target)
        return writer.result(graph.bce_with_logits(x, target, REDUCTIONS[reduction]))
    x, target = _wide(writer, x, target)
    # log(1 + exp(-x)), of which no exponential overflows.
    softplus = graph.log1p(graph.exp(graph.neg(graph.abs(x)))) + graph.max(graph.neg(x), 0.0)
    if positive is not None:
        softplus = softplus * ((writer.cast(positive, x.dtype) - 1.0) * target + 1.0)
    return reduced(writer, _times(writer, (1.0 - target) * x + softplus, weight), reduction)


@row("kl_div.default")
def _kl_div(
    writer: Writer, x: Value, target: Value, reduction: int = 1, *, log_target: bool = False
) -> Value:
    """target * (log(target) - x), 0 where the target is 0; or of a target that is given as its logarithm."""
    graph = writer.graph
    x, target = _wide(writer, x, target)
    if log_target:
        return reduced(writer, graph.exp(target) * (target - x), reduction)
    own = graph.select(graph.eq(target, 0.0), 0.0, target * graph.log(target))
    return reduced(writer, own - target * x, reduction)


@row("poisson_nll_loss.default")
def _poisson(
    writer: Writer, x: Value, target: Value, log_input: bool, full: bool, eps: float, reduction: int
) -> Value:
    """exp(x) - target * x, of a rate that is given as its logarithm; `full` adds Stirling's part."""
    graph = writer.graph
    x, target = _wide(writer, x, target)
    losses = graph.exp(x) - target * x if log_input else x - target * graph.log(x + eps)
    if full:
        stirling = target * graph.log(target) - target + graph.log(target * (2 * math.pi)) * 0.5
        losses = losses + graph.select(graph.gt(target, 1.0), stirling, 0.0)
    return reduced(writer, losses, reduction)


# Margins


@row("soft_margin_loss.default")
def _soft_margin(writer: Writer, x: Value, target: Value, reduction: int = 1) -> Value:
    """log(1 + exp(-target * x))."""
    graph = writer.graph
    x, target = _wide(writer, x, target)
    return reduced(writer, graph.log1p(graph.exp(graph.neg(target * x))), reduction)


@row("soft_margin_loss_backward.default")
def _soft_margin_backward(writer: Writer, grad: Value, x: Value, target: Value, reduction: int) -> Value:
    """-target * sigmoid(-target * x)."""
    graph = writer.graph
    grad, x, target = _wide(writer, grad, x, target)
    turned = graph.neg(target)
    return _shared(writer, grad, turned * graph.sigmoid(turned * x), reduction)


@row("margin_ranking_loss.default")
def _margin_ranking(
    writer: Writer, first: Value, second: Value, target: Value, margin: float = 0.0, reduction: int = 1
) -> Value:
    """max(-target * (first - second) + margin, 0)."""
    first, second, target = _wide(writer, first, second, target)
    kind = writer.operand(margin, target.dtype)
    return reduced(writer, _positive(writer, target * (second - first) + kind), reduction)


@row("hinge_embedding_loss.default")
def _hinge_embedding(
    writer: Writer, x: Value, target: Value, margin: float = 1.0, reduction: int = 1
) -> Value:
    """x where the target is 1, max(margin - x, 0) where it is -1, both elsewhere."""
    graph = writer.graph
    x, target = _wide(writer, x, target)
    zero, limit = _like(x, 0), _like(x, margin)
    far = graph.select(graph.ne(target, _like(x, 1)), _positive(writer, limit - x), zero)
    near = graph.select(graph.ne(target, _like(x, -1)), x, zero)
    return reduced(writer, far + near, reduction)


def _like(value: Value, number: Number) -> Number:
    """A number in a form that the type of a value has."""
    return float(number) if is_float(value.dtype) else int(number)


def _positive(writer: Writer, value: Value) -> Value:
    return writer.graph.max(value, _like(value, 0))


@row("cosine_embedding_loss.default")
def _cosine_embedding(
    writer: Writer, first: Value, second: Value, target: Value, margin: float = 0.0, reduction: int = 1
) -> Value:
    """1 - cos where the target is 1, max(cos - margin, 0) where it is -1."""
    graph = writer.graph
    dtype = writer.widened(writer.cast(first, _float_of(writer, first, second))).dtype
    first, second = writer.cast(first, dtype), writer.cast(second, dtype)
    axes = [max(first.rank, second.rank) - 1]
    product = _sum(writer, first * second, axes)
    squares = [_sum(writer, value * value, [value.rank - 1]) + 1e-8 for value in (first, second)]
    cosine = product / graph.sqrt(squares[0] * squares[1])
    near = graph.select(graph.eq(target, _like(target, 1)), 1.0 - cosine, 0.0)
    far = graph.select(graph.eq(target, _like(target, -1)), _positive(writer, cosine - margin), 0.0)
    return reduced(writer, near + far, reduction)


def _float_of(writer: Writer, *values: Operand) -> str:
    """The type of the operands, or of the result if they are integers."""
    dtype = result_type(*values)
    return dtype if is_float(dtype) else writer.dtype


def _sum(writer: Writer, value: Value, axes: list[int]) -> Value:
    return writer.graph.reduce_sum(value, axes)


@row("triplet_margin_loss.default")
def _triplet_margin(
    writer: Writer,
    anchor: Value,
    positive: Value,
    negative: Value,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 1,
) -> Value:
    """max(distance to the positive - distance to the negative + margin, 0)."""
    anchor, positive, negative = _wide(writer, anchor, positive, negative)

    def distance(one: Value, other: Value) -> Value:
        return norm(writer, one - other + eps, p)

    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = writer.graph.min(far, distance(positive, negative))
    return reduced(writer, _positive(writer, near - far + margin), reduction)
