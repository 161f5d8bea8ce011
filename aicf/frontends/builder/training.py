"""Training of the builder: gradients, counters, and what follows from them."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.dialects.logical import Schedule
from aicf.frontends.builder.core import GraphCore, Value


class TrainingOps(GraphCore):
    """One method an op."""

    def gradient(self, loss: Value, by: Value, *, name: str | None = None) -> Value:
        """The derivative of a loss, one float, by a value that it depends on."""
        values = self._own(loss), self._own(by)
        return self._insert("gradient", name, lambda: logical.GradientOp(*values))

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
