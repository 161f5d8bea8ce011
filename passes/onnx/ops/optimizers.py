"""The optimizer steps of ``ai.onnx.preview.training``: Adagrad, Adam and Momentum, on any number of tensors at once.

Operands: the rate R (rank 0), the count T of steps so far (i64, rank 0), then all tensors, all gradients, and all of
each state. Outputs: all new tensors, then all of each new state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.passes.onnx.ops.base import Node, Result, row

_DOMAIN = "ai.onnx.preview.training"

_Update = Callable[[SSAValue, SSAValue, Sequence[SSAValue]], Sequence[SSAValue]]
"""From a tensor, its gradient and its states to the new tensor and the new states."""


@row("Adagrad", domain=_DOMAIN)
def _adagrad(node: Node) -> Result:
    """x - rate / (1 + T * decay_factor) * g / (sqrt(h') + epsilon), h' the sum of all squared gradients."""
    decay, epsilon = node.attributes.float("decay_factor", 0.0), node.attributes.float("epsilon", 1e-6)
    slowed = node.apply(logical.AddOp, node.apply(logical.MulOp, _count(node), decay), 1.0)
    rate = node.apply(logical.DivOp, node.operand(0), slowed, name="rate")

    def update(x: SSAValue, grad: SSAValue, states: Sequence[SSAValue]) -> Sequence[SSAValue]:
        squares = node.apply(logical.AddOp, states[0], node.apply(logical.MulOp, grad, grad))
        root = node.apply(logical.AddOp, node.apply(logical.SqrtOp, squares), epsilon)
        step = node.apply(logical.DivOp, node.elementwise(logical.MulOp, rate, grad), root)
        return node.apply(logical.SubOp, x, step), squares

    return _all(node, 1, update)


@row("Adam", domain=_DOMAIN)
def _adam(node: Node) -> Result:
    """x - rate' * v' / (sqrt(h') + epsilon), v' and h' running means of the gradient and its square.

    The rate is corrected for the means' start from 0 once T is above 0.
    """
    attributes = node.attributes
    alpha, beta = attributes.float("alpha", 0.9), attributes.float("beta", 0.999)
    epsilon, after = attributes.float("epsilon", 1e-6), attributes.float("norm_coefficient_post", 0.0)
    rate = _corrected_rate(node, alpha, beta)

    def update(x: SSAValue, grad: SSAValue, states: Sequence[SSAValue]) -> Sequence[SSAValue]:
        mean = _running(node, states[0], grad, alpha)
        square = _running(node, states[1], node.apply(logical.MulOp, grad, grad), beta)
        root = node.apply(logical.AddOp, node.apply(logical.SqrtOp, square), epsilon)
        step = node.elementwise(logical.MulOp, rate, node.apply(logical.DivOp, mean, root))
        new = node.apply(logical.SubOp, x, step)
        return node.apply(logical.MulOp, new, 1.0 - after) if after else new, mean, square

    return _all(node, 2, update)


def _running(node: Node, before: SSAValue, now: SSAValue, kept: float) -> SSAValue:
    """kept * before + (1 - kept) * now."""
    old = node.apply(logical.MulOp, before, kept)
    return node.apply(logical.AddOp, old, node.apply(logical.MulOp, now, 1.0 - kept))


def _corrected_rate(node: Node, alpha: float, beta: float) -> SSAValue:
    """rate * sqrt(1 - beta ** T) / (1 - alpha ** T) if T is above 0, else the rate."""
    rate, count = node.operand(0), _count(node)
    first, second = (
        node.apply(
            logical.SubOp, node.splat(1.0, count), node.apply(logical.PowOp, node.splat(base, count), count)
        )
        for base in (alpha, beta)
    )
    corrected = node.apply(
        logical.DivOp, node.apply(logical.MulOp, rate, node.apply(logical.SqrtOp, second)), first
    )
    return node.apply(logical.SelectOp, _has_begun(node), corrected, rate, name="rate")


@row("Momentum", domain=_DOMAIN)
def _momentum(node: Node) -> Result:
    """x - rate * v', v' = alpha * v + beta * g with a beta of 1 in the first step; Nesterov's looks one step ahead."""
    attributes = node.attributes
    alpha, beta = attributes.float("alpha", 0.9), attributes.float("beta", 1.0)
    mode = attributes.string("mode", "standard")
    if mode not in ("standard", "nesterov"):
        raise node.invalid(f'mode is "{mode}"; use standard or nesterov')
    rate = node.operand(0)
    share = node.apply(
        logical.SelectOp, _has_begun(node), node.splat(beta, rate), node.splat(1.0, rate), name="share"
    )

    def update(x: SSAValue, grad: SSAValue, states: Sequence[SSAValue]) -> Sequence[SSAValue]:
        kept = node.apply(logical.MulOp, states[0], alpha)
        velocity = node.apply(logical.AddOp, kept, node.elementwise(logical.MulOp, share, grad))
        step = velocity
        if mode == "nesterov":
            step = node.apply(logical.AddOp, grad, node.apply(logical.MulOp, velocity, alpha))
        return node.apply(logical.SubOp, x, node.elementwise(logical.MulOp, rate, step)), velocity

    return _all(node, 1, update)


def _count(node: Node) -> SSAValue:
    """T in the type of the rate."""
    return node.cast(node.operand(1), node.element(0), "count")


def _has_begun(node: Node) -> SSAValue:
    """T > 0."""
    count = node.operand(1)
    return node.add(logical.CompareOp("gt", count, node.splat(0, count)), "has_begun")


def _all(node: Node, states: int, update: _Update) -> Result:
    """One update for each tensor, whose gradient has ``norm_coefficient`` times the tensor added."""
    rest = node.operands(2)
    tensors = len(rest) // (2 + states)
    if tensors < 1 or len(rest) != tensors * (2 + states):
        raise node.invalid(
            f"{len(rest)} operands after R and T; each tensor takes {2 + states}: itself, its gradient and its states"
        )
    norm = node.attributes.float("norm_coefficient", 0.0)
    updates: list[Sequence[SSAValue]] = []
    for index in range(tensors):
        x, grad, *own = rest[index::tensors]
        if norm:
            grad = node.apply(logical.AddOp, node.apply(logical.MulOp, x, norm), grad, name="regularized")
        updates.append(update(x, grad, own))
    return [values for group in zip(*updates, strict=True) for values in group]
