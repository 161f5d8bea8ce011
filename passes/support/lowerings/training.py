"""Counters, schedules and the clipping of gradients as arithmetic, most of it on one number."""

from __future__ import annotations

import math

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_named, tensor_info
from aicf.passes.support.lowerings.base import Formulas, Lowering


def _detach(lower: Lowering, op: logical.DetachOp) -> SSAValue:
    """The operand: gradients, which it was for, are written."""
    return op.operand


def _step_inc(lower: Lowering, op: logical.StepIncOp) -> SSAValue:
    """step + 1."""
    return lower.apply(logical.AddOp, op.step, 1)


def _bias_corr(lower: Lowering, op: logical.BiasCorrOp) -> SSAValue:
    """-expm1(step * log(beta)), which cancels nothing; 1 for a beta of 0. In f64: so f32 gets the bits of any
    other good way to compute it, such as the executable's."""
    step = lower.cast(op.step, element_named("f64"), "step")
    if not (beta := op.beta.value.data):
        return lower.splat(1.0, step, "one")
    power = lower.apply(logical.MulOp, step, math.log(beta))
    return lower.apply(logical.NegOp, lower.apply(logical.Expm1Op, power))


def _learning_rate(lower: Lowering, op: logical.LearningRateOp) -> SSAValue:
    """The warm-up's line up to its last step, behind it the schedule; in f64, as steps may be many."""
    step = lower.cast(op.step, element_named("f64"), "step")
    base, warmup = op.base.value.data, op.warmup.value.data
    rate = _scheduled(lower, op, step)
    if warmup:
        line = lower.apply(logical.MulOp, step, base / warmup, name="line")
        early = lower.add(logical.CompareOp("le", step, lower.splat(warmup, step, "warmup")), "early")
        rate = lower.apply(logical.SelectOp, early, line, rate)
    return rate


def _scheduled(lower: Lowering, op: logical.LearningRateOp, step: SSAValue) -> SSAValue:
    base, final, warmup = op.base.value.data, op.final.value.data, op.warmup.value.data
    if op.schedule.data == "constant":
        return lower.splat(base, step, "base")
    done = lower.apply(logical.SubOp, step, warmup + 1.0, name="done")
    progress = lower.apply(logical.DivOp, done, float(op.total.value.data - warmup), name="progress")
    progress = lower.apply(logical.MinOp, progress, 1.0)
    if op.schedule.data == "linear":
        return lower.apply(logical.AddOp, lower.apply(logical.MulOp, progress, final - base), base)
    wave = lower.apply(logical.CosOp, lower.apply(logical.MulOp, progress, math.pi))
    half = lower.apply(logical.MulOp, wave, (base - final) / 2)
    return lower.apply(logical.AddOp, half, (base + final) / 2)


def _global_norm(lower: Lowering, op: logical.GlobalNormOp) -> SSAValue:
    """The root of the sum of the operands' sums of squares, from the first to the last."""
    total = _sum_of_squares(lower, op.parts[0])
    for part in op.parts[1:]:
        total = lower.apply(logical.AddOp, total, _sum_of_squares(lower, part), name="total")
    return lower.apply(logical.SqrtOp, total)


def _sum_of_squares(lower: Lowering, part: SSAValue) -> SSAValue:
    square, axes = lower.apply(logical.MulOp, part, part, name="square"), range(tensor_info(part.type).rank)
    return lower.add(logical.ReduceSumOp(square, axes), "sum") if axes else square


def _clip_factor(lower: Lowering, op: logical.ClipFactorOp) -> SSAValue:
    """min(1, max_norm / (norm + epsilon))."""
    spread = lower.apply(logical.AddOp, op.norm, op.EPSILON, name="spread")
    bound = lower.splat(op.max_norm.value.data, spread, "bound")
    return lower.apply(logical.MinOp, lower.apply(logical.DivOp, bound, spread), 1.0)


FORMULAS: Formulas = {
    logical.DetachOp: _detach,
    logical.StepIncOp: _step_inc,
    logical.BiasCorrOp: _bias_corr,
    logical.LearningRateOp: _learning_rate,
    logical.GlobalNormOp: _global_norm,
    logical.ClipFactorOp: _clip_factor,
}
