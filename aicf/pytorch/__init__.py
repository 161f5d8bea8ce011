"""AICF for PyTorch: the backend of `torch.compile`, `train_step`, `save` and `load`. Importing it imports PyTorch.

model = torch.compile(model, backend="aicf")

Every name is imported when it is first used: a process that only loads and runs never imports the compiler.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import torch as torch  # so that a process without it fails here

if TYPE_CHECKING:
    from aicf.pytorch.allocator import TorchAllocator, use_torch_memory
    from aicf.pytorch.backend import aicf_backend
    from aicf.pytorch.deploy import Deployed, load, save
    from aicf.pytorch.options import StepOptions, TorchOptions, policy
    from aicf.pytorch.report import TorchReport, report
    from aicf.pytorch.training.report import StepReport
    from aicf.pytorch.training.train_step import TrainStep, train_step

__all__ = [
    "Deployed",
    "StepOptions",
    "StepReport",
    "TorchAllocator",
    "TorchOptions",
    "TorchReport",
    "TrainStep",
    "aicf_backend",
    "load",
    "policy",
    "report",
    "save",
    "train_step",
    "use_torch_memory",
]

_HOMES = {
    **dict.fromkeys(("TorchAllocator", "use_torch_memory"), "allocator"),
    "aicf_backend": "backend",
    **dict.fromkeys(("Deployed", "load", "save"), "deploy"),
    **dict.fromkeys(("StepOptions", "TorchOptions", "policy"), "options"),
    **dict.fromkeys(("TorchReport", "report"), "report"),
    "StepReport": "training.report",
    **dict.fromkeys(("TrainStep", "train_step"), "training.train_step"),
}
"""The module of each lazy name."""


class _Package(ModuleType):
    """Keeps the function `report` where Python would put the module of that name."""

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType) and _HOMES.get(name) == name:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'aicf.pytorch' has no attribute '{name}'")
    found = getattr(import_module(f"aicf.pytorch.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
