"""Meanings of counters, schedules, clipping and steps of optimizers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.semantics.base import Array, Meaning, coefficient, unary


def _bias_corr(op: logical.BiasCorrOp, operands: Sequence[Array]) -> Array:
    beta = op.beta.value.data
    return -np.expm1(operands[0] * math.log(beta)) if beta else np.asarray(1.0)


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


def _sgd(op: logical.SgdOp, operands: Sequence[Array]) -> tuple[Array, ...]:
    parameter, gradient, rate, step, *states = operands
    gradient = gradient + op.weight_decay.value.data * parameter
    if not states:
        return (parameter - rate * gradient,)
    momentum, kept = op.momentum.value.data, 1 - op.dampening.value.data
    buffer = gradient if step == 1 else momentum * states[0] + kept * gradient
    way = gradient + momentum * buffer if op.nesterov is not None else buffer
    return parameter - rate * way, buffer


def _adam(op: logical.AdamOp | logical.AdamwOp, operands: Sequence[Array]) -> tuple[Array, ...]:
    parameter, gradient, rate, step, first, second, *largest = operands
    decay, beta1, beta2 = op.weight_decay.value.data, op.beta1.value.data, op.beta2.value.data
    if isinstance(op, logical.AdamwOp):
        parameter = parameter * (1 - rate * decay)
    else:
        gradient = gradient + decay * parameter
    first = beta1 * first + (1 - beta1) * gradient
    second = beta2 * second + (1 - beta2) * gradient * gradient
    largest = [np.maximum(each, second) for each in largest]
    spread = np.sqrt((largest or [second])[0] / (1 - beta2 ** float(step))) + op.epsilon.value.data
    moved = parameter - rate * first / (1 - beta1 ** float(step)) / spread
    return moved, first, second, *largest


def _global_norm(op: logical.GlobalNormOp, operands: Sequence[Array]) -> Array:
    return np.sqrt(np.asarray(sum(np.sum(part * part) for part in operands)))


def _clip_factor(op: logical.ClipFactorOp, operands: Sequence[Array]) -> Array:
    bound, epsilon = (coefficient(each, op.info.element) for each in (op.max_norm.value.data, op.EPSILON))
    return np.minimum(1.0, bound / (operands[0] + epsilon))


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.SaveOp: unary(lambda x: x),
    logical.StepIncOp: unary(lambda step: step + 1),
    logical.BiasCorrOp: _bias_corr,
    logical.LearningRateOp: _learning_rate,
    logical.GlobalNormOp: _global_norm,
    logical.ClipFactorOp: _clip_factor,
    logical.SgdOp: _sgd,
    logical.AdamOp: _adam,
    logical.AdamwOp: _adam,
}
