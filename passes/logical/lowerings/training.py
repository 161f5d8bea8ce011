"""Counters, schedules and the clipping of gradients as arithmetic, most of it on one number."""

from __future__ import annotations

import math

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.dialects.types import element_named, tensor_info
from aicf.passes.logical.lowerings.base import Formulas, Lowering


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
    """The warm-up's line up to its last step, the schedule after it; in f64, as steps may be many."""
    step = lower.cast(op.step, element_named("f64"), "step")
    return _warmed(lower, op, step, _scheduled(lower, op, step))


def _warmed(
    lower: Lowering, op: logical.LearningRateOp | logical.StepRateOp, step: SSAValue, rate: SSAValue
) -> SSAValue:
    """A line up to the last step of the warm-up, the rate after it."""
    base, warmup = op.base.value.data, op.warmup.value.data
    if not warmup:
        return rate
    line = lower.apply(logical.MulOp, step, base / warmup, name="line")
    early = lower.add(logical.CompareOp("le", step, lower.splat(warmup, step, "warmup")), "early")
    return lower.apply(logical.SelectOp, early, line, rate)


def _step_rate(lower: Lowering, op: logical.StepRateOp) -> SSAValue:
    """The rates between milestones are numbers of the program; with a period, exp(times * log(factor)) * base."""
    step = lower.cast(op.step, element_named("f64"), "step")
    base, factor, warmup = op.base.value.data, op.factor.value.data, op.warmup.value.data
    done = lower.apply(logical.SubOp, step, warmup + 1.0, name="done")
    if period := op.period.value.data:
        times = lower.apply(logical.FloorOp, lower.apply(logical.DivOp, done, float(period)), name="times")
        power = lower.apply(logical.ExpOp, lower.apply(logical.MulOp, times, math.log(factor)), name="power")
        return _warmed(lower, op, step, lower.apply(logical.MulOp, power, base))
    rate = lower.splat(base, step, "base")
    for times, milestone in enumerate(int_values(op.milestones), 1):
        passed = lower.add(logical.CompareOp("ge", done, lower.splat(milestone, step, "milestone")), "passed")
        rate = lower.apply(logical.SelectOp, passed, lower.splat(base * factor**times, step, "less"), rate)
    return _warmed(lower, op, step, rate)


def _one_cycle_rate(lower: Lowering, op: logical.OneCycleRateOp) -> SSAValue:
    """The way up to step `rise`, the way down after it."""
    step = lower.cast(op.step, element_named("f64"), "step")
    base, peak, final = (each.value.data for each in (op.base, op.peak, op.final))
    rise, total, anneal = op.rise.value.data, op.total.value.data, op.anneal.data
    done = lower.apply(logical.SubOp, step, 1.0, name="done")
    up = lower.apply(logical.DivOp, done, rise, name="up")
    down = lower.apply(logical.DivOp, lower.apply(logical.SubOp, done, rise), total - 1 - rise, name="down")
    down = lower.apply(logical.MinOp, down, 1.0)
    rising = lower.add(logical.CompareOp("le", done, lower.splat(rise, step, "rise")), "rising")
    ways = (_between(lower, anneal, up, base, peak), _between(lower, anneal, down, peak, final))
    return lower.apply(logical.SelectOp, rising, *ways)


def _between(lower: Lowering, shape: str, progress: SSAValue, start: float, end: float) -> SSAValue:
    """From start to end as progress goes from 0 to 1, by a line or by half a wave."""
    if shape == "linear":
        return lower.apply(logical.AddOp, lower.apply(logical.MulOp, progress, end - start), start)
    wave = lower.apply(logical.CosOp, lower.apply(logical.MulOp, progress, math.pi))
    half = lower.apply(logical.MulOp, wave, (start - end) / 2)
    return lower.apply(logical.AddOp, half, (start + end) / 2)


def _scheduled(lower: Lowering, op: logical.LearningRateOp, step: SSAValue) -> SSAValue:
    base, final, warmup = op.base.value.data, op.final.value.data, op.warmup.value.data
    if op.schedule.data == "constant":
        return lower.splat(base, step, "base")
    done = lower.apply(logical.SubOp, step, warmup + 1.0, name="done")
    progress = lower.apply(logical.DivOp, done, float(op.total.value.data - warmup), name="progress")
    progress = lower.apply(logical.MinOp, progress, 1.0)
    return _between(lower, op.schedule.data, progress, base, final)


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
    logical.StepRateOp: _step_rate,
    logical.OneCycleRateOp: _one_cycle_rate,
    logical.GlobalNormOp: _global_norm,
    logical.ClipFactorOp: _clip_factor,
}
