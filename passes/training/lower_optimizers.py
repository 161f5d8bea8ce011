"""`lower-optimizers`: the steps of optimizers become arithmetic on parameters and states.

Formulas as `torch.optim` documents them. What is one number for all parameters, such as a correction of the bias, each
of them writes; `logical-cse` leaves one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.logical.lowerings.base import Lowering
from aicf.passes.support.identity import IdTable
from aicf.passes.support.works_on import FUNCTIONS


@dataclass(frozen=True)
class LowerOptimizersPass(ModulePass):
    """Writes `logical.sgd`, `logical.adam` and `logical.adamw` as elementwise ops, called `<id>.<part>`."""

    name = "lower-optimizers"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        ids = IdTable(op)
        for step in [each for each in op.walk() if isinstance(each, logical.OptimizerOp)]:
            lower = Lowering(PatternRewriter(step), step, ids)
            lower.finish_all(_FORMULAS[type(step)](lower, step))


_Formula: TypeAlias = Callable[[Lowering, Any], Sequence[SSAValue]]


def _spread(lower: Lowering, value: SSAValue, like: SSAValue, name: str) -> SSAValue:
    """One number for every element of `like`."""
    return lower.broadcast(value, [], tensor_info(like.type).sizes, name)


def _decayed(lower: Lowering, op: logical.SgdOp | logical.AdamOp) -> SSAValue:
    """The gradient of the loss with a penalty on the squared parameter."""
    if not (decay := op.weight_decay.value.data):
        return op.gradient
    penalty = lower.apply(logical.MulOp, op.parameter, decay, name="decay")
    return lower.apply(logical.AddOp, op.gradient, penalty, name="decayed")


def _sgd(lower: Lowering, op: logical.SgdOp) -> Sequence[SSAValue]:
    """Down the gradient, or its running sum."""
    gradient = _decayed(lower, op)
    buffers = [_buffer(lower, op, gradient)] if op.states else []
    way = buffers[0] if buffers else gradient
    if op.nesterov is not None:
        ahead = lower.apply(logical.MulOp, way, op.momentum.value.data, name="ahead")
        way = lower.apply(logical.AddOp, gradient, ahead, name="way")
    rate = _spread(lower, op.learning_rate, op.parameter, "rate")
    moved = lower.apply(logical.SubOp, op.parameter, lower.apply(logical.MulOp, rate, way, name="change"))
    return [moved, *buffers]


def _buffer(lower: Lowering, op: logical.SgdOp, gradient: SSAValue) -> SSAValue:
    """The momentum's running sum; without dampening it needs no case for the first step, which finds zeros."""
    kept = lower.apply(logical.MulOp, op.states[0], op.momentum.value.data, name="kept")
    if not (dampening := op.dampening.value.data):
        return lower.apply(logical.AddOp, kept, gradient, name="momentum")
    damped = lower.apply(logical.MulOp, gradient, 1 - dampening, name="damped")
    later = lower.apply(logical.AddOp, kept, damped, name="momentum")
    first = lower.add(logical.CompareOp("eq", op.step, lower.splat(1, op.step, "one")), "first")
    return lower.apply(
        logical.SelectOp, _spread(lower, first, gradient, "first.spread"), gradient, later, name="buffer"
    )


def _mean(lower: Lowering, old: SSAValue, new: SSAValue, beta: float, name: str) -> SSAValue:
    """beta * old + (1 - beta) * new."""
    kept = lower.apply(logical.MulOp, old, beta, name=f"{name}.kept")
    return lower.apply(
        logical.AddOp, kept, lower.apply(logical.MulOp, new, 1 - beta, name=f"{name}.new"), name=name
    )


def _corrected(
    lower: Lowering, op: logical.AdamOp | logical.AdamwOp, mean: SSAValue, beta: float, name: str
) -> SSAValue:
    """The mean over the share of it that is not the 0 it began with."""
    correction = lower.add(logical.BiasCorrOp(op.step, beta, op.info.element), f"{name}.correction")
    spread = _spread(lower, correction, mean, f"{name}.correction.spread")
    return lower.apply(logical.DivOp, mean, spread, name=f"{name}.corrected")


def _adam(lower: Lowering, op: logical.AdamOp | logical.AdamwOp) -> Sequence[SSAValue]:
    """Down the mean gradient, measured by the root of its mean square."""
    rate = _spread(lower, op.learning_rate, op.parameter, "rate")
    parameter, gradient = op.parameter, op.gradient
    if isinstance(op, logical.AdamOp):
        gradient = _decayed(lower, op)
    elif decay := op.weight_decay.value.data:
        share = lower.apply(logical.MulOp, op.learning_rate, decay, name="decay")
        shrunk = _spread(lower, share, op.parameter, "decay.spread")
        parameter = lower.apply(
            logical.SubOp, parameter, lower.apply(logical.MulOp, shrunk, parameter), name="decayed"
        )
    beta1, beta2 = op.beta1.value.data, op.beta2.value.data
    first = _mean(lower, op.states[0], gradient, beta1, "mean")
    square = lower.apply(logical.MulOp, gradient, gradient, name="square")
    second = _mean(lower, op.states[1], square, beta2, "variance")
    largest = [lower.apply(logical.MaxOp, each, second, name="largest") for each in op.states[2:]]
    root = lower.apply(
        logical.SqrtOp, _corrected(lower, op, (largest or [second])[0], beta2, "variance"), name="root"
    )
    spread = lower.apply(logical.AddOp, root, op.epsilon.value.data, name="spread")
    way = lower.apply(logical.DivOp, _corrected(lower, op, first, beta1, "mean"), spread, name="way")
    moved = lower.apply(logical.SubOp, parameter, lower.apply(logical.MulOp, rate, way, name="change"))
    return [moved, first, second, *largest]


_FORMULAS: Mapping[type[Operation], _Formula] = {
    logical.SgdOp: _sgd,
    logical.AdamOp: _adam,
    logical.AdamwOp: _adam,
}
