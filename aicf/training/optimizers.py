"""Optimizers of a training step: the classes of `torch.optim` of the same names and defaults, as descriptions.

Options that make no sense are refused where the step is built, in the words of the op.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import cast

from aicf.errors import InvalidIR, quoted
from aicf.frontends.builder import Graph, Value
from aicf.training.schedules import Schedule

__all__ = ["SGD", "Adam", "AdamW", "Operands", "Optimizer", "check_optimizer"]


@dataclass(frozen=True)
class Operands:
    """What the update of one parameter reads: itself, its gradient, the rate, the number of the step, its states."""

    parameter: Value
    gradient: Value
    rate: Value
    step: Value
    states: Sequence[Value]


@dataclass(frozen=True)
class Optimizer(ABC):
    """How parameters follow their gradients.

    Args:
        lr: The learning rate, a number or a schedule.
    """

    lr: float | Schedule = 1e-3

    @property
    @abstractmethod
    def states(self) -> tuple[str, ...]:
        """What it keeps for each parameter, by PyTorch's names. All begin with zeros."""

    @abstractmethod
    def update(self, graph: Graph, of: Operands, name: str) -> list[Value]:
        """The parameter and its states after the step, by an op called `name`."""


@dataclass(frozen=True)
class SGD(Optimizer):
    """Gradient descent, with momentum if that is not 0."""

    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        """See `Optimizer.states`."""
        return ("momentum_buffer",) if self.momentum else ()

    def update(self, graph: Graph, of: Operands, name: str) -> list[Value]:
        """See `Optimizer.update`."""
        return graph.sgd(
            of.parameter,
            of.gradient,
            of.rate,
            of.step,
            of.states,
            momentum=self.momentum,
            dampening=self.dampening,
            weight_decay=self.weight_decay,
            nesterov=self.nesterov,
            name=name,
        )


@dataclass(frozen=True)
class Adam(Optimizer):
    """Kingma and Ba, 2015; with `amsgrad` Reddi, Kale and Kumar, 2018."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        """See `Optimizer.states`."""
        return ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if self.amsgrad else ()))

    def update(self, graph: Graph, of: Operands, name: str) -> list[Value]:
        """See `Optimizer.update`."""
        method = graph.adamw if isinstance(self, AdamW) else graph.adam
        return method(
            of.parameter,
            of.gradient,
            of.rate,
            of.step,
            of.states,
            beta1=self.betas[0],
            beta2=self.betas[1],
            epsilon=self.eps,
            weight_decay=self.weight_decay,
            amsgrad=self.amsgrad,
            name=name,
        )


@dataclass(frozen=True)
class AdamW(Adam):
    """Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019."""

    weight_decay: float = 0.01


def check_optimizer(optimizer: object) -> None:
    """Raises InvalidIR for what is no optimizer, such as its name or its class, and for a rate that is none."""
    if not isinstance(optimizer, Optimizer):
        raise InvalidIR(
            f"the optimizer is {quoted(optimizer)}; it is one made as in aicf.optimizers.Adam(lr=1e-3)"
        )
    rate: object = optimizer.lr
    if not isinstance(rate, Schedule) and not _is_number(rate):
        raise InvalidIR(
            f"{type(optimizer).__name__}: lr is {quoted(rate)}; it is a number, or a schedule made as in "
            "aicf.schedules.Cosine(1e-3, total=1000)"
        )
    _check_numbers(optimizer)
    if isinstance(rate, Schedule):
        _check_numbers(rate)


def _check_numbers(description: Optimizer | Schedule) -> None:
    """Raises InvalidIR for an option of an optimizer or a schedule that is no number where its default is one."""
    for field in fields(description):
        value: object = getattr(description, field.name)
        is_pair = isinstance(field.default, tuple)
        if is_pair:
            pair = cast("Sequence[object]", value) if isinstance(value, tuple | list) else ()
            holds = len(pair) == 2 and all(_is_number(each) for each in pair)
        else:
            is_rate = field.name == "lr" and isinstance(value, Schedule)
            holds = is_rate or (
                isinstance(value, bool) == isinstance(field.default, bool) and _is_option(value)
            )
        if not holds:
            wanted = "two numbers" if is_pair else f"a {type(field.default).__name__}"
            given = quoted(cast(object, value))
            raise InvalidIR(f"{type(description).__name__}: {field.name} is {given}; give {wanted}")


def _is_option(value: object) -> bool:
    return isinstance(value, bool) or _is_number(value)


def _is_number(value: object) -> bool:
    """Whether `value` is a number that a float can hold."""
    try:
        if isinstance(value, bool) or not isinstance(value, Real):
            return False
        float(value)
    except OverflowError:
        return False
    return True
