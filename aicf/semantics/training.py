"""Meanings of counters, schedules, clipping and steps of optimizers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.semantics.base import Array, Meaning, coefficient, unary


def _missing(step: Array, beta: float) -> Array:
    """1 - beta ** step."""
    return -np.expm1(step * math.log(beta)) if beta else np.asarray(1.0)


def _bias_corr(op: logical.BiasCorrOp, operands: Sequence[Array]) -> Array:
    return _missing(operands[0], op.beta.value.data)


def _learning_rate(op: logical.LearningRateOp, operands: Sequence[Array]) -> Array:
    step, base, final = int(operands[0]), op.base.value.data, op.final.value.data
    warmup, total = op.warmup.value.data, op.total.value.data
    if warmup and step <= warmup:
        return np.asarray(base * step / warmup)
    if op.schedule.data == "constant":
        return np.asarray(base)
    progress = min((step - 1 - warmup) / (total - warmup), 1.0)
    left = (1 + math.cos(math.pi * progress)) / 2 if op.schedule.data == "cosine" else 1 - progress
    return np.asarray(final + (base - final) * left)


def _step_rate(op: logical.StepRateOp, operands: Sequence[Array]) -> Array:
    step, base, warmup = int(operands[0]), op.base.value.data, op.warmup.value.data
    if warmup and step <= warmup:
        return np.asarray(base * step / warmup)
    done = step - 1 - warmup
    period, milestones = op.period.value.data, int_values(op.milestones)
    times = done // period if period else sum(milestone <= done for milestone in milestones)
    return np.asarray(base * op.factor.value.data**times)


def _one_cycle_rate(op: logical.OneCycleRateOp, operands: Sequence[Array]) -> Array:
    done, rise, total = int(operands[0]) - 1, op.rise.value.data, op.total.value.data
    base, peak, final = (each.value.data for each in (op.base, op.peak, op.final))
    if done <= rise:
        start, end, part = base, peak, done / rise
    else:
        start, end, part = peak, final, min((done - rise) / (total - 1 - rise), 1.0)
    left = (1 + math.cos(math.pi * part)) / 2 if op.anneal.data == "cosine" else 1 - part
    return np.asarray(end + (start - end) * left)


def _numbers(op: logical.OptimizerOp, *numbers: float) -> list[float]:
    """Options of an optimizer as its formula has them."""
    return [coefficient(number, op.info.element) for number in numbers]


def _sgd(op: logical.SgdOp, operands: Sequence[Array]) -> tuple[Array, ...]:
    parameter, gradient, rate, step, *states = operands
    decay, momentum, kept = _numbers(
        op, op.weight_decay.value.data, op.momentum.value.data, 1 - op.dampening.value.data
    )
    gradient = gradient + decay * parameter
    if not states:
        return (parameter - rate * gradient,)
    buffer = gradient if step == 1 else momentum * states[0] + kept * gradient
    way = gradient + momentum * buffer if op.nesterov is not None else buffer
    return parameter - rate * way, buffer


def _mean(op: logical.OptimizerOp, old: Array, new: Array, beta: float) -> Array:
    kept, added = _numbers(op, beta, 1 - beta)
    return kept * old + added * new


def _adam(op: logical.AdamOp | logical.AdamwOp, operands: Sequence[Array]) -> tuple[Array, ...]:
    parameter, gradient, rate, step, first, second, *largest = operands
    beta1, beta2 = op.beta1.value.data, op.beta2.value.data
    decay, epsilon = _numbers(op, op.weight_decay.value.data, op.epsilon.value.data)
    if isinstance(op, logical.AdamwOp):
        parameter = parameter * (1 - rate * decay)
    else:
        gradient = gradient + decay * parameter
    first = _mean(op, first, gradient, beta1)
    second = _mean(op, second, gradient * gradient, beta2)
    largest = [np.maximum(each, second) for each in largest]
    spread = np.sqrt((largest or [second])[0] / _missing(step, beta2)) + epsilon
    moved = parameter - rate * first / _missing(step, beta1) / spread
    return moved, first, second, *largest


def _global_norm(op: logical.GlobalNormOp, operands: Sequence[Array]) -> Array:
    return np.sqrt(np.asarray(sum(np.sum(part * part) for part in operands)))


def _clip_factor(op: logical.ClipFactorOp, operands: Sequence[Array]) -> Array:
    bound, epsilon = (coefficient(each, op.info.element) for each in (op.max_norm.value.data, op.EPSILON))
    return np.minimum(1.0, bound / (operands[0] + epsilon))


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.SaveOp: unary(lambda x: x),
    logical.DetachOp: unary(lambda x: x),
    logical.StepIncOp: unary(lambda step: step + 1),
    logical.BiasCorrOp: _bias_corr,
    logical.LearningRateOp: _learning_rate,
    logical.StepRateOp: _step_rate,
    logical.OneCycleRateOp: _one_cycle_rate,
    logical.GlobalNormOp: _global_norm,
    logical.ClipFactorOp: _clip_factor,
    logical.SgdOp: _sgd,
    logical.AdamOp: _adam,
    logical.AdamwOp: _adam,
}
