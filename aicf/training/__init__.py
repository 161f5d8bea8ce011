"""Training: a model, a loss and an optimizer become one program, which makes a step.

    step = aicf.train_step(model, "cross_entropy", aicf.optimizers.Adam(lr=1e-3))
    for x, y in batches:
        step(x, y)
    step.losses()               # one number a step
    step.save("digits.ckpt")

Nothing here differentiates or updates: `step_graph` writes a logical program that says so, and the passes of
`aicf-training` do the rest. Losses, optimizers and schedules are descriptions, with the names and defaults of PyTorch.

Every name is imported when it is first used: a process that only loads a step and goes on imports no compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aicf.training import losses, optimizers, schedules
    from aicf.training.build import train_step
    from aicf.training.initial import initial_weights
    from aicf.training.step import TrainStep, load_step

__all__ = [
    "TrainStep",
    "initial_weights",
    "load_step",
    "losses",
    "optimizers",
    "schedules",
    "train_step",
]

_HOMES = {
    "TrainStep": "aicf.training.step",
    "initial_weights": "aicf.training.initial",
    "load_step": "aicf.training.step",
    "train_step": "aicf.training.build",
}
"""Where each lazy name lives; the others are modules."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'aicf.training' has no attribute '{name}'")
    home = _HOMES.get(name)
    found = import_module(f"aicf.training.{name}") if home is None else getattr(import_module(home), name)
    globals()[name] = found
    return found
