"""Optimizers of a training step: the classes of `torch.optim` of the same names and defaults, as descriptions.

Options that make no sense are refused where the step is built, in the words of the op.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from numbers import Real
from typing import cast

from aicf.errors import InvalidIR, quoted
from aicf.frontends.builder import Graph, Value
from aicf.training.schedules import Schedule

__all__ = ["SGD", "Adam", "AdamW", "Group", "Operands", "Optimizer", "check_optimizer"]


@dataclass(frozen=True)
class Group:
    """Parameters that an optimizer treats otherwise, as in the groups of `torch.optim`.

    Args:
        params: Names or patterns (`encoder.*`), one or a list.
        lr_scale: Their learning rate is that of the optimizer times this, at every step.
        weight_decay: In place of the optimizer's; None keeps that.
        max_rank: Only those of at most this rank: 1 for biases and scales of norms. None sets no bound.
    """

    params: str | Sequence[str] = "*"
    lr_scale: float = 1.0
    weight_decay: float | None = None
    max_rank: int | None = None

    def has(self, name: str, rank: int) -> bool:
        """Whether a parameter is in it."""
        patterns = [self.params] if isinstance(self.params, str) else self.params
        is_low = self.max_rank is None or rank <= self.max_rank
        return is_low and any(fnmatchcase(name, pattern) for pattern in patterns)

    def __str__(self) -> str:
        rank = "" if self.max_rank is None else f", max_rank={self.max_rank}"
        return f"Group({self.params!r}{rank})"


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
        groups: Parameters with options of their own, each in one group at most; others have those given here.
    """

    lr: float | Schedule = 1e-3
    groups: Sequence[Group] = field(default=(), kw_only=True)

    @property
    @abstractmethod
    def states(self) -> tuple[str, ...]:
        """What it keeps for each parameter, by PyTorch's names. All begin with zeros."""

    @abstractmethod
    def update(self, graph: Graph, of: Operands, name: str) -> list[Value]:
        """The parameter and its states after the step, by an op called `name`."""

    def with_weight_decay(self, weight_decay: float) -> Optimizer:
        """The same with another weight decay."""
        changes = {"weight_decay": weight_decay}
        return replace(self, **changes)

    def grouped(self, ranks: Mapping[str, int]) -> dict[str, tuple[Optimizer, float]]:
        """The optimizer of each parameter, and the scale of its learning rate.

        Args:
            ranks: Of the parameters that are trained, by name.

        Raises:
            InvalidIR: a group has none of them, or two have the same one, or a scale is no number of at least 0.
        """
        found: dict[str, tuple[Optimizer, float]] = dict.fromkeys(ranks, (self, 1.0))
        taken: dict[str, Group] = {}
        for group in self.groups:
            names = [name for name, rank in ranks.items() if group.has(name, rank)]
            if not names:
                raise InvalidIR(f"{group} has no parameter that is trained; these are {', '.join(ranks)}")
            if twice := next((name for name in names if name in taken), None):
                raise InvalidIR(f"'{twice}' is in {taken[twice]} and in {group}; a parameter is in one group")
            if not 0.0 <= group.lr_scale < float("inf"):
                raise InvalidIR(f"{group}: lr_scale is {group.lr_scale}; it is 0 or more")
            own = self if group.weight_decay is None else self.with_weight_decay(group.weight_decay)
            taken.update(dict.fromkeys(names, group))
            found.update(dict.fromkeys(names, (own, float(group.lr_scale))))
        return found


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
    groups: object = optimizer.groups
    if not isinstance(groups, list | tuple):
        raise InvalidIR(
            f"{type(optimizer).__name__}: groups is {quoted(groups)}; it is a list of aicf.optimizers.Group"
        )
    for group in cast("Sequence[object]", groups):
        if not isinstance(group, Group):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidIR(
                f"{type(optimizer).__name__}: a group is {quoted(group)}; it is one made as in "
                "aicf.optimizers.Group('*.bias', weight_decay=0.0)"
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
    """Raises InvalidIR for an option of an optimizer or a schedule that is not of the kind of its default."""
    for option in fields(description):
        if option.name == "groups":
            continue
        value: object = getattr(description, option.name)
        default = cast(object, option.default)
        if isinstance(default, tuple):
            count = len(cast("Sequence[object]", default))
            numbers = cast("Sequence[object]", value) if isinstance(value, tuple | list) else (None,)
            holds = count in (0, len(numbers)) and all(map(_is_number, numbers))
            wanted = "two numbers" if count else "a list of numbers"
        elif isinstance(default, str):
            holds, wanted = isinstance(value, str), f"a name, such as {default!r}"
        else:
            is_rate = option.name == "lr" and isinstance(value, Schedule)
            holds = is_rate or (isinstance(value, bool) == isinstance(default, bool) and _is_option(value))
            wanted = f"a {type(default).__name__}"
        if not holds:
            given = quoted(cast(object, value))
            raise InvalidIR(f"{type(description).__name__}: {option.name} is {given}; give {wanted}")


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
