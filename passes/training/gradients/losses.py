"""What losses pass back to the prediction, and to a target that is computed."""

from __future__ import annotations

import math

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.logical.lowerings.losses import count_of, is_counted, is_known, is_labelled
from aicf.passes.support.writing import static_size
from aicf.passes.training.gradients.base import Adjoint, Gradients


def _each(adjoint: Adjoint, op: logical.LossOp, like: SSAValue) -> SSAValue:
    """The derivative by the loss of each sample, of the shape of `like`."""
    if op.reduction.data == "none":
        return adjoint.grad
    count = math.prod(static_size(op, size) for size in tensor_info(like.type).sizes)
    grad = adjoint.grad
    if op.reduction.data == "mean":
        grad = adjoint.apply(logical.DivOp, grad, float(count))
    return adjoint.spread(grad, range(tensor_info(like.type).rank), like)


def _difference(adjoint: Adjoint, op: logical.MseLossOp | logical.HuberLossOp) -> SSAValue:
    return adjoint.shared(
        "difference",
        lambda: adjoint.apply(logical.SubOp, adjoint.saved(op.operand), adjoint.saved(op.target)),
    )


def _mse(adjoint: Adjoint, op: logical.MseLossOp) -> SSAValue:
    """2 * (x - target)."""
    difference = _difference(adjoint, op)
    return adjoint.shared("slope", lambda: adjoint.product(difference, 2.0, _each(adjoint, op, difference)))


def _huber(adjoint: Adjoint, op: logical.HuberLossOp) -> SSAValue:
    """The difference, no further than delta."""

    def slope() -> SSAValue:
        difference, delta = _difference(adjoint, op), op.delta.value.data
        near = adjoint.add(logical.ClampOp(difference, -delta, delta), "clamp")
        return adjoint.product(near, _each(adjoint, op, difference))

    return adjoint.shared("slope", slope)


def _mse_target(adjoint: Adjoint, op: logical.MseLossOp) -> SSAValue:
    return adjoint.apply(logical.NegOp, _mse(adjoint, op))


def _huber_target(adjoint: Adjoint, op: logical.HuberLossOp) -> SSAValue:
    return adjoint.apply(logical.NegOp, _huber(adjoint, op))


def _bce(adjoint: Adjoint, op: logical.BceWithLogitsOp) -> SSAValue:
    """sigmoid(x) - target."""
    x = adjoint.saved(op.operand)
    difference = adjoint.apply(logical.SubOp, adjoint.apply(logical.SigmoidOp, x), adjoint.saved(op.target))
    return adjoint.product(difference, _each(adjoint, op, x))


def _bce_target(adjoint: Adjoint, op: logical.BceWithLogitsOp) -> SSAValue:
    """-x."""
    x = adjoint.saved(op.operand)
    return adjoint.apply(logical.NegOp, adjoint.product(x, _each(adjoint, op, x)))


def _cross_entropy(adjoint: Adjoint, op: logical.CrossEntropyOp) -> SSAValue:
    """softmax(x) less the weight that the loss gives each class; 0 for a sample that does not count."""
    x, labels, axis = adjoint.saved(op.operand), adjoint.saved(op.labels), op.axis.value.data
    smoothing = op.label_smoothing.value.data
    spread = smoothing / static_size(op, tensor_info(x.type).sizes[axis])
    weight = adjoint.where(
        is_labelled(adjoint, op, labels),
        adjoint.splat(1 - smoothing + spread, x, "label"),
        adjoint.splat(spread, x, "other"),
    )
    difference = adjoint.apply(logical.SubOp, adjoint.add(logical.SoftmaxOp(x, axis), "softmax"), weight)
    return adjoint.product(difference, adjoint.spread(_samples(adjoint, op, labels), [axis], x))


def _samples(adjoint: Adjoint, op: logical.CrossEntropyOp, labels: SSAValue) -> SSAValue:
    """The derivative by the loss of each sample; NaN where its label is no class."""
    counted, grad = is_counted(adjoint, op, labels), adjoint.grad
    if op.reduction.data == "mean":
        grad = adjoint.apply(logical.DivOp, grad, count_of(adjoint, counted, grad))
    if op.reduction.data != "none":
        grad = adjoint.broadcast(grad, [], tensor_info(labels.type).sizes, "samples")
    checked = adjoint.where(is_known(adjoint, op, labels), grad, math.nan)
    return adjoint.where(counted, checked, 0.0)


GRADIENTS: Gradients = {
    logical.MseLossOp: (_mse, _mse_target),
    logical.HuberLossOp: (_huber, _huber_target),
    logical.BceWithLogitsOp: (_bce, _bce_target),
    logical.CrossEntropyOp: (_cross_entropy, None),
}
