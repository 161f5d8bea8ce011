"""Training of the builder: gradients and what stops them, counters, what follows from them, and clipping."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.dialects import logical
from aicf.dialects.logical import Anneal, Schedule
from aicf.frontends.builder.core import GraphCore, Value


class TrainingOps(GraphCore):
    """One method an op."""

    def gradient(self, loss: Value, by: Value, *, name: str | None = None) -> Value:
        """The derivative of a loss, one float, by a value that it depends on."""
        values = self._own(loss), self._own(by)
        return self._insert("gradient", name, lambda: logical.GradientOp(*values))

    def detach(self, value: Value, *, name: str | None = None) -> Value:
        """The value, a constant to every gradient, as PyTorch's `detach()`."""
        own = self._own(value)
        return self._insert("detach", name, lambda: logical.DetachOp(own))

    def step_inc(self, step: Value, *, name: str | None = None) -> Value:
        """The number of the next step."""
        value = self._own(step)
        return self._insert("step_inc", name, lambda: logical.StepIncOp(value))

    def bias_corr(self, step: Value, beta: float, dtype: str = "f32", *, name: str | None = None) -> Value:
        """``1 - beta ** step``: what is missing of a running mean that began with 0."""
        value = self._own(step)
        return self._insert("bias_corr", name, lambda: logical.BiasCorrOp(value, beta, dtype))

    def learning_rate(
        self,
        step: Value,
        schedule: Schedule,
        base: float,
        warmup: int = 0,
        total: int = 0,
        final: float = 0.0,
        dtype: str = "f32",
        *,
        name: str | None = None,
    ) -> Value:
        """The learning rate of a step, counted from 1: up to ``base`` in ``warmup`` steps, then down to ``final``."""
        value = self._own(step)
        return self._insert(
            "learning_rate",
            name,
            lambda: logical.LearningRateOp(value, schedule, base, warmup, total, final, dtype),
        )

    def step_rate(
        self,
        step: Value,
        base: float,
        factor: float,
        warmup: int = 0,
        period: int = 0,
        milestones: Sequence[int] = (),
        dtype: str = "f32",
        *,
        name: str | None = None,
    ) -> Value:
        """The learning rate of a step: ``base``, times ``factor`` after every ``period`` steps or each milestone."""
        value = self._own(step)
        return self._insert(
            "step_rate",
            name,
            lambda: logical.StepRateOp(value, base, factor, warmup, period, milestones, dtype),
        )

    def one_cycle_rate(
        self,
        step: Value,
        anneal: Anneal,
        base: float,
        peak: float,
        final: float,
        rise: float,
        total: int,
        dtype: str = "f32",
        *,
        name: str | None = None,
    ) -> Value:
        """The learning rate of a step: from ``base`` up to ``peak`` in ``rise`` steps, then down to ``final``."""
        value = self._own(step)
        return self._insert(
            "one_cycle_rate",
            name,
            lambda: logical.OneCycleRateOp(value, anneal, base, peak, final, rise, total, dtype),
        )

    def global_norm(self, parts: Sequence[Value], *, name: str | None = None) -> Value:
        """The root of the sum of the squares of all elements of all parts, which have any shapes."""
        values = [self._own(part) for part in self._parts(parts)]
        return self._insert("global_norm", name, lambda: logical.GlobalNormOp(values))

    def clip_factor(self, norm: Value, max_norm: float, *, name: str | None = None) -> Value:
        """``min(1, max_norm / (norm + 1e-6))``, by which gradients of that norm are multiplied."""
        value = self._own(norm)
        return self._insert("clip_factor", name, lambda: logical.ClipFactorOp(value, max_norm))
