"""Translates optimizers of `torch.optim`: the update rule of each group of parameters."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import attrgetter
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from aicf.errors import InvalidIR
from aicf.pytorch.training.scheduled import form_of, numbers_of
from aicf.training.optimizers import SGD, Adam, AdamW, Optimizer, check_optimizer
from aicf.training.schedules import InProgram, Schedule


@dataclass(frozen=True)
class Group:
    """Parameters with the same update rule.

    Args:
        names: Of the parameters, in order.
        parameters: In the same order.
        update: The rule; its learning rate is unused.
        rate: The current learning rate.
        is_on_device: Whether PyTorch has the step counts of the parameters where these are, not on the host.
        is_scheduled: Whether options other than the rate change from step to step too.
        schedule: What the program itself computes the rate by; None takes it from the host.
    """

    names: tuple[str, ...]
    parameters: tuple[Tensor, ...]
    update: Optimizer
    rate: float
    is_on_device: bool = False
    is_scheduled: bool = False
    schedule: InProgram | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """The facts that a program is valid for; the rate is not among them, nor are options that change."""
        return (self.names, form_of(self.update) if self.is_scheduled else self.update, self.schedule)

    def numbers(self, step: int) -> tuple[float, ...]:
        """What a step reads from the host, the rate or what follows from all options; `step` is 1 for the first."""
        if self.schedule is not None:
            return ()
        return numbers_of(self.update, self.rate, step) if self.is_scheduled else (self.rate,)

    @property
    def is_wide(self) -> bool:
        """Whether a parameter is f64; the rate is f64 then too, as 0.1 in f32 has a relative error of 1e-8."""
        return any(each.dtype == torch.float64 for each in self.parameters)


def _sgd(group: Mapping[str, Any]) -> Optimizer:
    return SGD(
        0.0,
        momentum=float(group["momentum"]),
        dampening=float(group["dampening"]),
        weight_decay=float(group["weight_decay"]),
        nesterov=bool(group["nesterov"]),
    )


def _adam(group: Mapping[str, Any]) -> Optimizer:
    is_decoupled = group.get("decoupled_weight_decay", False)
    return (AdamW if is_decoupled else Adam)(0.0, **_adam_options(group))


def _adamw(group: Mapping[str, Any]) -> Optimizer:
    return AdamW(0.0, **_adam_options(group))


def _adam_options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "betas": (float(group["betas"][0]), float(group["betas"][1])),
        "eps": float(group["eps"]),
        "weight_decay": float(group["weight_decay"]),
        "amsgrad": bool(group["amsgrad"]),
    }


Read: TypeAlias = Callable[[Mapping[str, Any]], Optimizer]
_CLASSES: Mapping[type[torch.optim.Optimizer], Read] = {
    torch.optim.SGD: _sgd,
    torch.optim.Adam: _adam,
    torch.optim.AdamW: _adamw,
}


_needs_gradient = attrgetter("requires_grad")


def groups_of(
    optimizer: torch.optim.Optimizer, names: Mapping[int, str], scheduled: Container[int] = ()
) -> list[Group]:
    """The groups of an optimizer as they are now, without parameters that need no gradient.

    Args:
        names: Of the module's parameters, by identity.
        scheduled: Indices of groups whose options change from step to step.

    Raises:
        InvalidIR: the optimizer is of another class, has an option without a counterpart, or a parameter that is not
            the module's.
    """
    read = _CLASSES.get(type(optimizer))
    if read is None:
        known = ", ".join(each.__name__ for each in _CLASSES)
        raise InvalidIR(
            f"train_step knows torch.optim's {known}, not {type(optimizer).__name__}; use one of them, or compile only "
            "the model with torch.compile"
        )
    return [
        _group(index, group, read, names, index in scheduled)
        for index, group in enumerate(optimizer.param_groups)
    ]


def _group(
    index: int, group: Mapping[str, Any], read: Read, names: Mapping[int, str], is_scheduled: bool
) -> Group:
    if group.get("maximize"):
        raise InvalidIR(f"group {index}: maximize=True has no counterpart; negate the loss")
    given: Sequence[Tensor] = group["params"]
    parameters = tuple(compress(given, map(_needs_gradient, given)))
    own = tuple(map(names.get, map(id, parameters)))
    if None in own:
        strange = parameters[own.index(None)]
        raise InvalidIR(
            f"group {index} has a parameter {tuple(strange.shape)} that does not belong to the module; make the "
            "optimizer from model.parameters()"
        )
    is_on_device = bool(group.get("capturable") or group.get("fused"))
    known = cast("tuple[str, ...]", own)
    return Group(known, parameters, read(group), float(group["lr"]), is_on_device, is_scheduled)


def as_pytorch(
    optimizer: Optimizer, parameters: Mapping[str, Tensor]
) -> tuple[torch.optim.Optimizer, Sequence[InProgram | None]]:
    """The optimizer of `torch.optim` that does the same, and the schedule of each of its groups.

    Args:
        optimizer: Of `aicf.optimizers`.
        parameters: Those to train, by name.

    Raises:
        InvalidIR: it is not well-formed, or its rate is set from outside of the step.
    """
    check_optimizer(optimizer)
    rate = optimizer.lr
    if isinstance(rate, Schedule) and not isinstance(rate, InProgram):
        raise InvalidIR(
            f"lr is a schedule {type(rate).__name__}, which is set from outside of the step; use a scheduler of "
            "torch.optim.lr_scheduler on step.optimizer"
        )
    grouped = optimizer.grouped({name: each.dim() for name, each in parameters.items()})
    groups: dict[tuple[Optimizer, float], list[Tensor]] = {}
    for name, (own, scale) in grouped.items():
        groups.setdefault((replace(own, groups=()), scale), []).append(parameters[name])
    first = rate.lr if isinstance(rate, Schedule) else rate
    rows = [
        {"params": each, "lr": first * scale, **_OPTIONS[type(own)](own)}
        for (own, scale), each in groups.items()
    ]
    schedules = [rate.scaled(scale) if isinstance(rate, InProgram) else None for _, scale in groups]
    return _MADE[type(optimizer)](rows), schedules


def _sgd_options(update: Any) -> dict[str, Any]:
    names = ("momentum", "dampening", "weight_decay", "nesterov")
    return {name: getattr(update, name) for name in names}


def _own_adam_options(update: Any) -> dict[str, Any]:
    return {name: getattr(update, name) for name in ("betas", "eps", "weight_decay", "amsgrad")}


_OPTIONS: Mapping[type[Optimizer], Callable[[Any], dict[str, Any]]] = {
    SGD: _sgd_options,
    Adam: _own_adam_options,
    AdamW: _own_adam_options,
}
_MADE: Mapping[type[Optimizer], Callable[..., torch.optim.Optimizer]] = {
    SGD: torch.optim.SGD,
    Adam: torch.optim.Adam,
    AdamW: torch.optim.AdamW,
}


def state_of(optimizer: torch.optim.Optimizer, parameter: Tensor, group: Group) -> dict[str, Tensor]:
    """The states of a parameter of a group, by name; missing ones are created as PyTorch does, with zeros."""
    update = group.update
    if not update.states and not isinstance(update, Adam):
        return {}  # PyTorch has no entry then either
    state: dict[str, Any] = optimizer.state[parameter]
    if isinstance(update, Adam) and "step" not in state:
        device = parameter.device if group.is_on_device else "cpu"
        state["step"] = torch.zeros((), dtype=torch.float32, device=device)
    for name in update.states:
        if not isinstance(state.get(name), Tensor):
            state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        elif (
            state[name].stride() != parameter.stride()
        ):  # loaded from a file, or the strides of the parameter have changed
            state[name] = torch.empty_like(parameter, requires_grad=False).copy_(state[name])
    return {name: state[name] for name in update.states}
