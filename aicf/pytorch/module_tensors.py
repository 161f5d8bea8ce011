"""The tensors that a module has now, of those that programs run on. Nothing here imports the compiler."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from operator import attrgetter, is_
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from aicf.errors import InputMismatch
from aicf.pytorch.tensors import PLAIN, IsAlike, alike, never_alike

Slots: TypeAlias = tuple[list[dict[str, Any]], list[str]]
"""Dictionaries of modules, such as their parameters, and a key of each."""
Parts: TypeAlias = tuple[dict[str, Tensor | None], dict[str, Tensor | None], dict[str, nn.Module | None]]
"""The parameters, buffers and submodules that a module itself holds."""
parts_of = cast(Callable[[nn.Module], Parts], attrgetter("_parameters", "_buffers", "_modules"))
_LOAD_AGAIN = "load the programs again"
_forms = (attrgetter("dtype"), attrgetter("shape"), Tensor.stride, attrgetter("device"))


def named_modules(module: nn.Module, *, remove_duplicate: bool = True) -> Iterator[tuple[str, nn.Module]]:
    """What `named_modules` of the module gives; PyTorch does not declare its type."""
    return cast(Any, module).named_modules(remove_duplicate=remove_duplicate)


class ModuleTensors:
    """Looks up parameters and buffers by name at each call, so that tensors that replace others are seen.

    Args:
        module: Whose tensors they are.
        names: Of the tensors that programs read or write.
    """

    def __init__(self, module: nn.Module, names: Collection[str]) -> None:
        self._module, self.names = module, tuple(names)
        self._submodules: list[nn.Module | None] = []
        self._submodule_slots: Slots = [], []
        self._slots: Slots = [], []
        self._find()
        self._is_checked: IsAlike = never_alike
        values = _held(self._slots)
        self._check_all_there(values)
        self._loaded = self._form(values)

    def now(self) -> list[Tensor]:
        """The tensors that the module has now, in the order of the names.

        Raises:
            InputMismatch: one is missing, or its type, shape, strides or device are no longer as at the load.
        """
        if not all(map(is_, _held(self._submodule_slots), self._submodules)):
            self._find()
        values = _held(self._slots)
        if not self._is_checked(*values):
            self._check(values)
        return values

    def _check(self, values: Sequence[Tensor]) -> None:
        """Raises for tensors that are not as at the load; the next ones need no check if they are like these."""
        self._check_all_there(values)
        if (form := self._form(values)) != self._loaded:
            for name, was, found in zip(
                self.names, zip(*self._loaded, strict=True), zip(*form, strict=True), strict=True
            ):
                if was != found:
                    raise InputMismatch(f"'{name}' {_difference(was, found)}; {_LOAD_AGAIN}")
        self._is_checked = alike(values)

    def _find(self) -> None:
        """Finds the dictionaries that hold the tensors, and those that hold the modules on the way to them."""
        slots: dict[str, tuple[dict[str, Any], str]] = {}
        submodules: list[nn.Module | None] = []
        submodule_slots: Slots = [], []
        for path, module in named_modules(self._module, remove_duplicate=False):
            prefix = f"{path}." if path else ""
            parameters, buffers, children = parts_of(module)
            for held in (parameters, buffers):
                slots.update({f"{prefix}{name}": (held, name) for name in held})
            submodule_slots[0].extend([children] * len(children))
            submodule_slots[1].extend(children)
            submodules.extend(children.values())
        if missing := [name for name in self.names if name not in slots]:
            raise InputMismatch(
                f"the module has no parameter or buffer '{missing[0]}' any more; {_LOAD_AGAIN}"
            )
        self._submodule_slots, self._submodules = submodule_slots, submodules
        self._slots = [slots[name][0] for name in self.names], [slots[name][1] for name in self.names]

    def _check_all_there(self, values: Sequence[Tensor | None]) -> None:
        for name, value in zip(self.names, values, strict=True):
            if value is None:
                raise InputMismatch(f"the module has no parameter or buffer '{name}' any more; {_LOAD_AGAIN}")

    def _form(self, values: Sequence[Tensor]) -> list[tuple[Any, ...]]:
        try:
            return [tuple(map(form, values)) for form in _forms]
        except RuntimeError:  # no strides
            raise InputMismatch(f"a parameter or buffer of the module is not dense; {_LOAD_AGAIN}") from None


def _held(slots: Slots) -> list[Any]:
    """What the dictionaries have for their keys; None for nothing."""
    return list(map(dict[str, Any].get, *slots))


def _difference(was: tuple[Any, ...], found: tuple[Any, ...]) -> str:
    """How the form of a tensor differs from the form that it had."""
    (dtype, shape, stride, device), (dtype_now, shape_now, stride_now, device_now) = was, found
    if device != device_now:
        return f"is on {device_now}, and was on {device} when the programs were loaded"
    if dtype != dtype_now:
        return f"is {dtype_now}, and was {dtype} when the programs were loaded"
    if shape != shape_now:
        return f"has the shape {tuple(shape_now)}, and had {tuple(shape)} when the programs were loaded"
    return f"has the strides {stride_now}, and had {stride} when the programs were loaded"


def check_memory(subject: str, tensor: object, device_type: str, device: torch.device | None = None) -> None:
    """Checks that programs can read a tensor at its address.

    Args:
        subject: What the tensor is, as `input 'x'`.
        tensor: What was given for it.
        device_type: `cpu` or `cuda`, that the programs are for.
        device: That the other tensors are on; None if there is none.

    Raises:
        InputMismatch: it is no tensor, is not dense, or is on another device.
    """
    if not isinstance(tensor, Tensor):
        raise InputMismatch(f"{subject} is a {type(tensor).__name__}; give a tensor, as torch.as_tensor does")
    if tensor.is_nested:
        raise InputMismatch(f"{subject} is nested; pad it with .to_padded_tensor(0.0)")
    if tensor.layout is not torch.strided:
        raise InputMismatch(f"{subject} is sparse; make it dense with .to_dense()")
    if tensor.device.type != device_type:
        wanted = device or device_type
        way_out = "give one with values" if tensor.is_meta else f"move it with .to('{wanted}')"
        raise InputMismatch(f"{subject} is on {tensor.device}, and the programs are for {wanted}; {way_out}")
    if device is not None and tensor.device != device:
        raise InputMismatch(
            f"{subject} is on {tensor.device}, and the module's tensors are on {device}; move it with .to('{device}')"
        )
    if type(tensor) not in PLAIN and not _has_memory(tensor):
        raise InputMismatch(
            f"{subject} is a {type(tensor).__name__}, which has no memory of its own; give a plain tensor"
        )


def _has_memory(tensor: Tensor) -> bool:
    """Whether a tensor of a subclass is one in memory, and no wrapper of others."""
    from torch._subclasses.fake_tensor import FakeTensor

    return not isinstance(tensor, FakeTensor) and not is_traceable_wrapper_subclass(tensor)
