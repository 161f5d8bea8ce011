"""Learning rates of a training step: computed in the program from the number of the step, or set from outside.

Steps count from 1. With a warm-up of w steps, step s <= w has s / w of the rate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from aicf.dialects import logical
from aicf.frontends.builder import Graph, Value

__all__ = ["Constant", "Cosine", "FromHost", "InProgram", "Linear", "Schedule", "resolve_schedule"]


@dataclass(frozen=True)
class Schedule:
    """A learning rate over the steps.

    Args:
        lr: The rate that it begins with, after a warm-up.
    """

    lr: float


@dataclass(frozen=True)
class InProgram(Schedule, ABC):
    """A schedule that the step itself follows.

    Args:
        warmup: Steps on the way up to `lr`.
    """

    warmup: int = 0

    @abstractmethod
    def rate(self, graph: Graph, step: Value, dtype: str) -> Value:
        """The rate of a step, as an op called `lr`."""


@dataclass(frozen=True)
class Constant(InProgram):
    """The same rate at every step."""

    def rate(self, graph: Graph, step: Value, dtype: str) -> Value:
        """See `InProgram.rate`."""
        return graph.learning_rate(step, "constant", self.lr, self.warmup, dtype=dtype, name="lr")


@dataclass(frozen=True)
class _Falling(InProgram, ABC):
    """From `lr` down to `final` at step `total`, and `final` from there."""

    total: int = 0
    final: float = 0.0

    def _rate(self, graph: Graph, step: Value, dtype: str, schedule: logical.Schedule) -> Value:
        return graph.learning_rate(
            step, schedule, self.lr, self.warmup, self.total, self.final, dtype, name="lr"
        )


@dataclass(frozen=True)
class Linear(_Falling):
    """Down by a line."""

    def rate(self, graph: Graph, step: Value, dtype: str) -> Value:
        """See `InProgram.rate`."""
        return self._rate(graph, step, dtype, "linear")


@dataclass(frozen=True)
class Cosine(_Falling):
    """Down by half a wave. Loshchilov and Hutter, SGDR, 2017."""

    def rate(self, graph: Graph, step: Value, dtype: str) -> Value:
        """See `InProgram.rate`."""
        return self._rate(graph, step, dtype, "cosine")


@dataclass(frozen=True)
class FromHost(Schedule):
    """A rate that stays until `TrainStep.set_learning_rate` changes it; part of the state, so checkpoints hold it."""


def resolve_schedule(lr: float | Schedule) -> Schedule:
    """A number is a constant rate."""
    return lr if isinstance(lr, Schedule) else Constant(float(lr))
