"""Learning rates of a training step: computed in the program from the number of the step, or set from outside.

Steps count from 1. With a warm-up of w steps, step s <= w has s / w of the rate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from aicf.dialects import logical
from aicf.errors import InvalidIR
from aicf.frontends.builder import Graph, Value
from aicf.runtime.plateau import PlateauRule

__all__ = [
    "Constant",
    "Cosine",
    "FromHost",
    "InProgram",
    "Linear",
    "MultiStep",
    "OneCycle",
    "Plateau",
    "Schedule",
    "Step",
    "resolve_schedule",
]


@dataclass(frozen=True)
class Schedule:
    """A learning rate over the steps.

    Args:
        lr: The rate that it begins with, after a warm-up.
    """

    lr: float

    def scaled(self, factor: float) -> Self:
        """The schedule with all rates times `factor`."""
        return replace(self, lr=self.lr * factor)


@dataclass(frozen=True)
class InProgram(Schedule, ABC):
    """A schedule that the step itself follows."""

    @abstractmethod
    def rate(self, graph: Graph, step: Value, dtype: str) -> Value:
        """The rate of a step, as an op called `lr`."""


@dataclass(frozen=True)
class _Warmed(InProgram, ABC):
    """A schedule with a way up.

    Args:
        warmup: Steps on the way up to `lr`.
    """

    warmup: int = 0


@dataclass(frozen=True)
class Constant(_Warmed):
    """The same rate at every step."""

    def rate(self, graph: Graph, step: Value, dtype: str) -> Value:
        """See `InProgram.rate`."""
        return graph.learning_rate(step, "constant", self.lr, self.warmup, dtype=dtype, name="lr")


@dataclass(frozen=True)
class _Falling(_Warmed, ABC):
    """From `lr` down to `final` at step `total`, and `final` from there."""

    SHAPE: ClassVar[logical.Schedule]

    total: int = 0
    final: float = 0.0

    def scaled(self, factor: float) -> Self:
        """See `Schedule.scaled`."""
        return replace(self, lr=self.lr * factor, final=self.final * factor)

    def rate(self, graph: Graph, step: Value, dtype: str) -> Value:
        """See `InProgram.rate`."""
        return graph.learning_rate(
            step, self.SHAPE, self.lr, self.warmup, self.total, self.final, dtype, name="lr"
        )


@dataclass(frozen=True)
class Linear(_Falling):
    """Down by a line."""

    SHAPE = "linear"


@dataclass(frozen=True)
class Cosine(_Falling):
    """Down by half a wave. Loshchilov and Hutter, SGDR, 2017."""

    SHAPE = "cosine"


@dataclass(frozen=True)
class Step(_Warmed):
    """Times `gamma` after every `step_size` steps, as PyTorch's `StepLR`; the warm-up is not counted."""

    step_size: int = 0
    gamma: float = 0.1

    def rate(self, graph: Graph, step: Value, dtype: str) -> Value:
        """See `InProgram.rate`."""
        return graph.step_rate(
            step, self.lr, self.gamma, self.warmup, period=self.step_size, dtype=dtype, name="lr"
        )


@dataclass(frozen=True)
class MultiStep(_Warmed):
    """Times `gamma` after each of these numbers of steps, as PyTorch's `MultiStepLR`; the warm-up is not counted."""

    milestones: Sequence[int] = ()
    gamma: float = 0.1

    def rate(self, graph: Graph, step: Value, dtype: str) -> Value:
        """See `InProgram.rate`."""
        return graph.step_rate(
            step, self.lr, self.gamma, self.warmup, milestones=sorted(self.milestones), dtype=dtype, name="lr"
        )


@dataclass(frozen=True)
class OneCycle(InProgram):
    """From `lr / div_factor` up to `lr`, and down to a `final_div_factor`-th of where it began; PyTorch's `OneCycleLR`.

    The momentum stays as it is. After `total` steps the rate stays too.

    Args:
        lr: The highest rate (`max_lr`).
        total: Steps of the cycle (`total_steps`).
        pct_start: Part of them on the way up.
        anneal_strategy: `cos` or `linear`.
    """

    total: int = 0
    pct_start: float = 0.3
    anneal_strategy: Literal["cos", "linear"] = "cos"
    div_factor: float = 25.0
    final_div_factor: float = 1e4

    def rate(self, graph: Graph, step: Value, dtype: str) -> Value:
        """See `InProgram.rate`."""
        if self.anneal_strategy not in _ANNEALS:
            raise InvalidIR(f"OneCycle: anneal_strategy is {self.anneal_strategy!r}; it is cos or linear")
        if not (self.div_factor > 0 and self.final_div_factor > 0):
            raise InvalidIR("OneCycle: div_factor and final_div_factor are more than 0")
        base = self.lr / self.div_factor
        return graph.one_cycle_rate(
            step,
            _ANNEALS[self.anneal_strategy],
            base,
            self.lr,
            base / self.final_div_factor,
            float(self.pct_start * self.total) - 1,
            self.total,
            dtype,
            name="lr",
        )


_ANNEALS: Mapping[str, logical.Anneal] = {"cos": "cosine", "linear": "linear"}
"""Ways between two rates, by PyTorch's names."""


@dataclass(frozen=True)
class FromHost(Schedule):
    """A rate that stays until `TrainStep.set_learning_rate` changes it; part of the state, so checkpoints hold it."""


@dataclass(frozen=True)
class Plateau(Schedule):
    """Times `factor` when a metric has stopped improving; PyTorch's `ReduceLROnPlateau`, with its names and defaults.

    The metric is what `TrainStep.report_metric` is told, such as the loss of an epoch on held-out samples. The rate is
    part of the state, with the best metric and the counts, so checkpoints hold all of it. A metric that is NaN is no
    improvement.

    Args:
        lr: The first rate.
        mode: Whether a metric improves as it falls, `min`, or as it rises, `max`.
        factor: 0 or more, and less than 1.
        patience: Metrics in a row without an improvement that change nothing; the next one lowers the rate.
        threshold: How much better than the best one a metric must be to count.
        threshold_mode: `rel`, as a part of the best metric, or `abs`, as a difference to it.
        cooldown: Metrics after the rate was lowered that do not count as without an improvement.
        min_lr: The lowest rate.
        eps: The rate stays where the next one would be lower by no more than this.
    """

    mode: Literal["min", "max"] = "min"
    factor: float = 0.1
    patience: int = 10
    threshold: float = 1e-4
    threshold_mode: Literal["rel", "abs"] = "rel"
    cooldown: int = 0
    min_lr: float = 0.0
    eps: float = 1e-8

    def rule(self) -> PlateauRule:
        """Its options, without the first rate.

        Raises:
            InvalidIR: they are not legal.
        """
        rule = PlateauRule(
            self.mode,
            float(self.factor),
            self.patience,
            float(self.threshold),
            self.threshold_mode,
            self.cooldown,
            float(self.min_lr),
            float(self.eps),
        )
        if problem := rule.problem():
            raise InvalidIR(f"Plateau: {problem}")
        return replace(rule, patience=int(self.patience), cooldown=int(self.cooldown))


def resolve_schedule(lr: float | Schedule) -> Schedule:
    """A number is a constant rate."""
    return lr if isinstance(lr, Schedule) else Constant(float(lr))
