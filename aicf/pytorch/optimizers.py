"""Translates optimizers of `torch.optim`: the update rule of each group of parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from aicf.errors import InvalidIR
from aicf.training.optimizers import SGD, Adam, AdamW, Optimizer


@dataclass(frozen=True)
class Group:
    """Parameters with the same update rule.

    Args:
        names: Of the parameters, in order.
        parameters: In the same order.
        update: The rule; its learning rate is unused.
        rate: The current learning rate.
    """

    names: tuple[str, ...]
    parameters: tuple[Tensor, ...]
    update: Optimizer
    rate: float

    @property
    def key(self) -> tuple[Any, ...]:
        """The facts that a program is valid for; the rate is not among them."""
        return (self.names, self.update)

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


def groups_of(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> list[Group]:
    """The groups of an optimizer as they are now, without parameters that need no gradient.

    Args:
        names: Of the module's parameters, by identity.

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
    return [_group(index, group, read, names) for index, group in enumerate(optimizer.param_groups)]


def _group(index: int, group: Mapping[str, Any], read: Read, names: Mapping[int, str]) -> Group:
    if group.get("maximize"):
        raise InvalidIR(f"group {index}: maximize=True has no counterpart; negate the loss")
    parameters: Sequence[Tensor] = [each for each in group["params"] if each.requires_grad]
    if strange := [each for each in parameters if id(each) not in names]:
        raise InvalidIR(
            f"group {index} has a parameter {tuple(strange[0].shape)} that does not belong to the module; make the "
            "optimizer from model.parameters()"
        )
    return Group(
        tuple(names[id(each)] for each in parameters), tuple(parameters), read(group), float(group["lr"])
    )


def state_of(optimizer: torch.optim.Optimizer, parameter: Tensor, update: Optimizer) -> dict[str, Tensor]:
    """The states of a parameter, by name; missing ones are created as PyTorch does, with zeros."""
    if not update.states and not isinstance(update, Adam):
        return {}  # PyTorch has no entry then either
    state: dict[str, Any] = optimizer.state[parameter]
    if isinstance(update, Adam) and "step" not in state:
        state["step"] = torch.zeros((), dtype=torch.float32)
    for name in update.states:
        if not isinstance(state.get(name), Tensor):
            state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        elif (
            state[name].stride() != parameter.stride()
        ):  # loaded from a file, or the strides of the parameter have changed
            state[name] = torch.empty_like(parameter, requires_grad=False).copy_(state[name])
    return {name: state[name] for name in update.states}


def steps_so_far(optimizer: torch.optim.Optimizer) -> int:
    """The step count in an optimizer's states; SGD with momentum has none: 1 if it has made any step."""
    steps = 0
    for state in optimizer.state.values():
        if isinstance(count := state.get("step"), Tensor):
            steps = max(steps, int(count))
        elif isinstance(state.get("momentum_buffer"), Tensor):
            steps = max(steps, 1)
    return steps
