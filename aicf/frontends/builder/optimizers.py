"""Steps of optimizers in the builder."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.frontends.builder.core import GraphCore, Value


class OptimizerOps(GraphCore):
    """One method an op; each gives the parameter and then its states, as they are after the step."""

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
