"""Losses as arithmetic and reductions."""

from __future__ import annotations

import math

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.logical.lowerings.base import Formulas, Lowering, counting_element
from aicf.passes.support.writing import Writer, static_size


def _reduced(lower: Lowering, op: logical.LossOp, losses: SSAValue) -> SSAValue:
    """The losses, their sum, or their mean."""
    axes = range(tensor_info(losses.type).rank)
    if op.reduction.data == "none":
        return losses
    if op.reduction.data == "mean":
        count = math.prod(static_size(op, size) for size in tensor_info(losses.type).sizes)
        wide = lower.cast(losses, counting_element(element_of(losses.type), count), "counting")
        return lower.mean(wide, axes, False, "mean") if axes else losses
    return lower.add(logical.ReduceSumOp(losses, axes), "sum") if axes else losses


def _mse_loss(lower: Lowering, op: logical.MseLossOp) -> SSAValue:
    """The square of the difference."""
    distance = lower.apply(logical.SubOp, lower.widen(op.operand), lower.widen(op.target), name="distance")
    return _reduced(lower, op, lower.apply(logical.MulOp, distance, distance, name="square"))


def _huber_loss(lower: Lowering, op: logical.HuberLossOp) -> SSAValue:
    """A parabola near 0, a line beyond delta."""
    difference = lower.apply(logical.SubOp, lower.widen(op.operand), lower.widen(op.target))
    distance, delta = lower.apply(logical.AbsOp, difference, name="distance"), op.delta.value.data
    square = lower.apply(logical.MulOp, lower.apply(logical.MulOp, distance, distance), 0.5, name="square")
    line = lower.apply(logical.MulOp, lower.apply(logical.SubOp, distance, delta / 2), delta, name="line")
    far = lower.add(logical.CompareOp("gt", distance, lower.splat(delta, distance, "delta")), "far")
    return _reduced(lower, op, lower.apply(logical.SelectOp, far, line, square))


def _bce_with_logits(lower: Lowering, op: logical.BceWithLogitsOp) -> SSAValue:
    """max(x, 0) - x * target + log1p(exp(-|x|))."""
    x, target = lower.widen(op.operand), lower.widen(op.target)
    small = lower.apply(logical.ExpOp, lower.apply(logical.NegOp, lower.apply(logical.AbsOp, x)))
    line = lower.apply(logical.SubOp, lower.apply(logical.ReluOp, x), lower.apply(logical.MulOp, x, target))
    return _reduced(lower, op, lower.apply(logical.AddOp, line, lower.apply(logical.Log1pOp, small)))


def is_counted(writer: Writer, op: logical.CrossEntropyOp, labels: SSAValue) -> SSAValue:
    """Whether a sample's label is not the ignored one: i1."""
    ignored = writer.splat(op.ignore_index.value.data, labels, "ignored")
    return writer.add(logical.CompareOp("ne", labels, ignored), "counted")


def is_labelled(writer: Writer, op: logical.CrossEntropyOp, labels: SSAValue) -> SSAValue:
    """Whether a class is the sample's label: i1 of the shape of the prediction."""
    axis, sizes = op.axis.value.data, tensor_info(op.operand.type).sizes
    others = [dim for dim in range(len(sizes)) if dim != axis]
    spread = writer.broadcast(labels, others, sizes, "labels")
    coordinate = writer.add(logical.IotaOp(axis, sizes, element_of(labels.type)), "place")
    return writer.add(logical.CompareOp("eq", spread, coordinate), "labelled")


def is_known(writer: Writer, op: logical.CrossEntropyOp, labels: SSAValue) -> SSAValue:
    """Whether the label is one of the classes: i1."""
    classes = static_size(op, tensor_info(op.operand.type).sizes[op.axis.value.data])
    above = writer.add(logical.CompareOp("ge", labels, writer.splat(0, labels, "first")), "above")
    below = writer.add(logical.CompareOp("lt", labels, writer.splat(classes, labels, "classes")), "below")
    return writer.add(logical.AndOp(above, below), "known")


def count_of(writer: Writer, counted: SSAValue, like: SSAValue) -> SSAValue:
    """How many samples count, of the element type of `like`."""
    info = tensor_info(counted.type)
    ones = writer.cast(counted, element_of(like.type), "ones")
    return writer.add(logical.ReduceSumOp(ones, range(info.rank)), "count") if info.rank else ones


def _cross_entropy(lower: Lowering, op: logical.CrossEntropyOp) -> SSAValue:
    """The logarithms of softmax, summed where the label is: nothing is read at computed indices."""
    x, labels, axis = lower.widen(op.operand), op.labels, op.axis.value.data
    logarithms = lower.add(logical.LogSoftmaxOp(x, axis), "log")
    zero = lower.splat(0.0, x, "zero")
    chosen = lower.add(
        logical.SelectOp(is_labelled(lower, op, labels), _weighted(lower, op, logarithms), zero), "chosen"
    )
    if smoothing := op.label_smoothing.value.data:
        classes = static_size(op, tensor_info(x.type).sizes[axis])
        chosen = lower.apply(
            logical.AddOp, chosen, lower.apply(logical.MulOp, logarithms, smoothing / classes)
        )
    picked = lower.apply(logical.NegOp, lower.add(logical.ReduceSumOp(chosen, [axis]), "picked"))
    nothing = lower.splat(math.nan, picked, "nothing")
    checked = lower.add(logical.SelectOp(is_known(lower, op, labels), picked, nothing), "checked")
    counted = is_counted(lower, op, labels)
    losses = lower.add(logical.SelectOp(counted, checked, lower.splat(0.0, picked, "none")), "losses")
    return _total(lower, op, losses, counted)


def _weighted(lower: Lowering, op: logical.CrossEntropyOp, logarithms: SSAValue) -> SSAValue:
    smoothing = op.label_smoothing.value.data
    return lower.apply(logical.MulOp, logarithms, 1 - smoothing) if smoothing else logarithms


def _total(lower: Lowering, op: logical.CrossEntropyOp, losses: SSAValue, counted: SSAValue) -> SSAValue:
    """The losses, their sum, or that over the number of samples that count."""
    axes = range(tensor_info(losses.type).rank)
    if op.reduction.data == "none":
        return losses
    total = lower.add(logical.ReduceSumOp(losses, axes), "sum") if axes else losses
    if op.reduction.data == "sum":
        return total
    return lower.apply(logical.DivOp, total, count_of(lower, counted, total))


FORMULAS: Formulas = {
    logical.MseLossOp: _mse_loss,
    logical.HuberLossOp: _huber_loss,
    logical.BceWithLogitsOp: _bce_with_logits,
    logical.CrossEntropyOp: _cross_entropy,
}
