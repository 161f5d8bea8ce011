"""What a trace of a module depends on, read once and again only when it has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, count
from operator import attrgetter, is_, itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from aicf.pytorch.module_tensors import parts_of
from aicf.pytorch.tensors import alike


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; tied ones have several."""
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


ROOT = "model"
"""The path of the trained module in the one that is traced, which returns the loss."""
PREFIX = f"{ROOT}."


def step_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers of the trained module, by its own names for them, and those of the loss."""
    return {name.removeprefix(PREFIX): tensor for name, tensor in tensors_of(module).items()}


_dtype, _device = attrgetter("dtype"), attrgetter("device")


def signature_of(tensors: Mapping[str, Tensor]) -> tuple[Any, ...]:
    """Identity, element type, device, sizes and strides of a module's tensors: a program is valid for one signature.

    A program holds references to the tensors, so that no new tensor gets the identity of a freed one.
    """
    values = tuple(tensors.values())
    return (
        tuple(map(id, values)),
        tuple(map(_dtype, values)),
        tuple(map(_device, values)),
        tuple(map(Tensor.size, values)),
        tuple(map(Tensor.stride, values)),
    )


def autocast_types() -> tuple[torch.dtype | None, ...]:
    """The element types of autocast, None where it is off: a trace depends on them."""
    return tuple(
        torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        for kind in ("cpu", "cuda")
    )


_PLAIN = frozenset({bool, int, float, str, type(None)})


def modes_of(model: nn.Module) -> tuple[object, ...]:
    """Whether each module is in training mode, and its other plain attributes: a trace turns them into constants."""
    return tuple(
        (kind, value)  # as 1, 1.0 and True are equal
        for module in model.modules()
        for value in vars(module).values()
        if (kind := value.__class__) in _PLAIN
    )


_OWN = frozenset(vars(nn.Module())) - {"training", "_parameters", "_buffers", "_modules"}
"""Attributes that every module has, and no trace depends on."""


_MOST_STATES = 256
"""A module whose attributes change in each step has a new state each time; older ones are forgotten."""


class ModuleState:
    """The tensors and the modes of a module with its loss.

    Reading them walks over all modules with generators of PyTorch's, which takes longer than some steps. Whether
    anything has changed since is a comparison of identities, a tenth of a millisecond for BERT-base.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._numbers: dict[tuple[object, ...], int] = {}
        self._next = count()
        self._read()

    def refresh(self) -> None:
        """Reads again what has changed."""
        if not (self._is_as_read() and self._are_alike(*self.tensors.values())):
            self._read()

    def _read(self) -> None:
        self.tensors = step_tensors(self._module)
        """See `step_tensors`."""
        self.modes = modes_of(self._module)
        """See `modes_of`."""
        self.names = {id(tensor): name for name, tensor in self.tensors.items()}
        """Names of the tensors, by identity."""
        state = (*self.modes, *signature_of(self.tensors))
        if state not in self._numbers:
            if len(self._numbers) == _MOST_STATES:
                self._numbers.clear()
            self._numbers[state] = next(self._next)
        self.number = self._numbers[state]
        """Of the state, equal where all of it is: what a program is valid for, without hashing it in each step."""
        self._are_alike = alike(list(self.tensors.values()))
        modules = list(self._module.modules())
        self._attributes = [vars(module) for module in modules]
        self._getters = [
            itemgetter(*(name for name in each if name not in _OWN)) for each in self._attributes
        ]
        self._parts = list(chain.from_iterable(map(parts_of, modules)))
        self._sizes = self._sizes_now()
        self._names = list(chain.from_iterable(self._parts))
        self._values = list(self._values_now())

    def _is_as_read(self) -> bool:
        try:
            return (
                self._sizes_now() == self._sizes
                and list(chain.from_iterable(self._parts)) == self._names
                and all(map(is_, self._values_now(), self._values))
            )
        except KeyError:  # an attribute has been deleted
            return False

    def _sizes_now(self) -> list[int]:
        return list(map(len, chain(self._attributes, self._parts)))

    def _values_now(self) -> Iterator[object]:
        attributes = (get(each) for get, each in zip(self._getters, self._attributes, strict=True))
        tensors = map(dict[str, Any].values, self._parts)
        return chain(chain.from_iterable(attributes), chain.from_iterable(tensors))
