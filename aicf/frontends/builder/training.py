"""Ops of the builder that make a program a training step: gradients, counters, learning rates, optimizers."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import Schedule
from aicf.frontends.builder.core import GraphCore, Value


class TrainingOps(GraphCore):
    """One method an op. A step of an optimizer gives the parameter and then its states, as they are after it."""

    def gradient(self, loss: Value, by: Value, *, name: str | None = None) -> Value:
        """The derivative of a loss, one float of rank 0, by a value."""
        values = self._own(loss), self._own(by)
        return self._insert("gradient", name, lambda: logical.GradientOp(*values))

    def step_inc(self, step: Value, *, name: str | None = None) -> Value:
        """The number of the next step, an i64 of rank 0."""
        return self._insert("step_inc", name, lambda: logical.StepIncOp(self._own(step)))

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
        """The learning rate of a step, counted from 1: up to ``base`` in ``warmup`` steps, to ``final`` by ``total``."""
        return self._insert(
            "learning_rate",
            name,
            lambda: logical.LearningRateOp(self._own(step), schedule, base, warmup, total, final, dtype),
        )

    def sgd(
        self,
        parameter: Value,
        gradient: Value,
        rate: Value,
        step: Value,
        states: Sequence[Value] = (),
        *,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        name: str | None = None,
    ) -> list[Value]:
        """Gradient descent; with ``momentum`` the state is its running sum."""
        values, rest = self._of_step(parameter, gradient, rate, step, states)
        return self._insert_all(
            "sgd",
            name,
            lambda: logical.SgdOp(*values, rest, momentum, dampening, weight_decay, nesterov=nesterov),
        )

    def adam(
        self,
        parameter: Value,
        gradient: Value,
        rate: Value,
        step: Value,
        states: Sequence[Value],
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        name: str | None = None,
    ) -> list[Value]:
        """Adam; the states are the running means of the gradient and its square, with ``amsgrad`` the largest too."""
        values, rest = self._of_step(parameter, gradient, rate, step, states)
        return self._insert_all(
            "adam",
            name,
            lambda: logical.AdamOp(*values, rest, beta1, beta2, epsilon, weight_decay, amsgrad=amsgrad),
        )

    def adamw(
        self,
        parameter: Value,
        gradient: Value,
        rate: Value,
        step: Value,
        states: Sequence[Value],
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        name: str | None = None,
    ) -> list[Value]:
        """Adam with the parameter shrunk by itself, not by way of its gradient; states as of ``adam``."""
        values, rest = self._of_step(parameter, gradient, rate, step, states)
        return self._insert_all(
            "adamw",
            name,
            lambda: logical.AdamwOp(*values, rest, beta1, beta2, epsilon, weight_decay, amsgrad=amsgrad),
        )

    def _of_step(
        self, parameter: Value, gradient: Value, rate: Value, step: Value, states: Sequence[Value]
    ) -> tuple[tuple[SSAValue, SSAValue, SSAValue, SSAValue], list[SSAValue]]:
        """The operands of a step: four, and the states."""
        four = self._own(parameter), self._own(gradient), self._own(rate), self._own(step)
        return four, [self._own(state) for state in self._parts(states)]
