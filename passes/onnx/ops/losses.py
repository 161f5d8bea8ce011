"""ONNX's losses of classes: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.onnx.ops.base import Node, Result, row

_REDUCTIONS = ("mean", "sum", "none")


@row("NegativeLogLikelihoodLoss", since=12)
def _nll_loss(node: Node) -> Result:
    """-weight * x at the target's class, along dimension 1."""
    return _loss(node, node.operand(0))


@row("SoftmaxCrossEntropyLoss", since=12)
def _cross_entropy(node: Node) -> Result:
    """The same of log_softmax(x), which is the second output."""
    log_prob = node.apply(logical.LogSoftmaxOp, node.operand(0), axis=1)
    return [_loss(node, log_prob), log_prob][: node.outputs]


def _loss(node: Node, log_prob: SSAValue) -> SSAValue:
    """The loss of each sample, or the mean weighted by class, or the sum."""
    reduction = node.attributes.string("reduction", "mean")
    if reduction not in _REDUCTIONS:
        raise node.invalid(f'reduction is "{reduction}"; use one of {", ".join(_REDUCTIONS)}')
    target, weight, ignored = _labels(node)
    picked = node.apply(logical.GatherElementsOp, log_prob, _unsqueezed(node, target), axis=1)
    loss = node.apply(logical.NegOp, node.reshape(picked, node.shape(1)))
    if weight is not None:
        loss = node.apply(logical.MulOp, loss, weight, name="weighted")
    if ignored is not None:
        loss = node.apply(logical.SelectOp, ignored, node.splat(0.0, loss), loss, name="counted")
    if reduction == "none":
        return loss
    axes = range(len(node.shape(1)))
    if reduction == "sum":
        return node.apply(logical.ReduceSumOp, loss, axes=axes)
    if weight is None:
        return node.apply(logical.ReduceMeanOp, loss, axes=axes)
    total = node.apply(logical.ReduceSumOp, loss, axes=axes)
    return node.apply(logical.DivOp, total, node.apply(logical.ReduceSumOp, weight, axes=axes, name="weight"))


def _labels(node: Node) -> tuple[SSAValue, SSAValue | None, SSAValue | None]:
    """A class that exists for each sample, the weight of each (None: all 1), and which ones count nothing.

    Where a sample is ignored its class and its weight are 0.
    """
    target, ignored = node.operand(1), _ignored(node)
    if ignored is not None:
        target = node.apply(logical.SelectOp, ignored, node.splat(0, target), target, name="target")
    if node.has(2):
        weight = node.apply(logical.GatherOp, node.operand(2), target, axis=0)
    elif ignored is not None:
        weight = node.full(1.0, node.shape(1), node.element(0))
    else:
        weight = None
    if ignored is not None and weight is not None:
        weight = node.apply(logical.SelectOp, ignored, node.splat(0.0, weight), weight, name="class_weight")
    return target, weight, ignored


def _ignored(node: Node) -> SSAValue | None:
    """Which samples have the label that is to be ignored; None if there is no such label."""
    if not node.attributes.has("ignore_index"):
        return None
    target = node.operand(1)
    index = node.splat(node.attributes.int("ignore_index", 0), target)
    return node.add(logical.CompareOp("eq", target, index), "ignored")


def _unsqueezed(node: Node, target: SSAValue) -> SSAValue:
    """The labels with a dimension of size 1 where the classes are."""
    batch, *rest = tensor_info(target.type).shape
    return node.reshape(target, (batch, 1, *rest), "classes")
