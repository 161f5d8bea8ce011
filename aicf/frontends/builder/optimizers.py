"""Steps of optimizers in the builder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, Unpack

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.frontends.builder.core import GraphCore, Value


class Moments(TypedDict, total=False):
    """Options of Adam and AdamW; the defaults are those of `torch.optim`."""

    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    amsgrad: bool


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
        name: str | None = None,
        **options: Unpack[Moments],
    ) -> list[Value]:
        """Adam; the states are the running means of the gradient and its square, with ``amsgrad`` the largest too."""
        values, rest = self._of_step(parameter, gradient, rate, step, states)
        return self._insert_all("adam", name, lambda: logical.AdamOp(*values, rest, **options))

    def adamw(
        self,
        parameter: Value,
        gradient: Value,
        rate: Value,
        step: Value,
        states: Sequence[Value],
        *,
        name: str | None = None,
        **options: Unpack[Moments],
    ) -> list[Value]:
        """Adam with the parameter shrunk by itself, not by way of its gradient; by default by 0.01."""
        values, rest = self._of_step(parameter, gradient, rate, step, states)
        decayed: Moments = {"weight_decay": 0.01, **options}
        return self._insert_all("adamw", name, lambda: logical.AdamwOp(*values, rest, **decayed))

    def _of_step(
        self, parameter: Value, gradient: Value, rate: Value, step: Value, states: Sequence[Value]
    ) -> tuple[tuple[SSAValue, SSAValue, SSAValue, SSAValue], list[SSAValue]]:
        """The operands of a step: four, and the states."""
        four = self._own(parameter), self._own(gradient), self._own(rate), self._own(step)
        return four, [self._own(state) for state in self._parts(states)]
