"""One row of the training benchmark on this machine's processor, one thread each."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch_rivals
from contest import Contestant, error_of, in_turns, losses_of
from steps import compiled_step
from torch_rivals import Trainer, contestant, trainer
from works import WORKS, Array, Workload, random_parameters

Parameters = dict[str, Array]


def measured(name: str) -> dict[str, Any]:
    """A row of the result."""
    torch.set_num_threads(1)
    work = WORKS[name]
    parameters = random_parameters(work)
    contestants = {rival: make(work, parameters) for rival, make in RIVALS.items()}
    exact = losses_of(_eager(work, parameters, dtype=torch.float64), work)
    errors = {rival: error_of(losses_of(each, work), exact) for rival, each in contestants.items()}
    load = round(os.getloadavg()[0], 2)
    return {"error": errors, "us": in_turns(contestants), "load": load}


def _ours(work: Workload, parameters: Parameters) -> Contestant:
    step = compiled_step(work, "cpu")
    start = step.state_dict()
    x, y = np.zeros(work.x_shape, np.float32), np.zeros(work.x_shape[0], np.int64)
    loss = np.full((), np.nan, np.float32)
    graph = step.executable.bind(x=x, y=y, loss=loss)

    def feed(new_x: Array, new_y: Array) -> None:
        x[...], y[...] = new_x, new_y

    return Contestant(
        lambda: step.load_state_dict(start), feed, graph.replay, graph.synchronize, lambda: float(loss)
    )


def _eager(work: Workload, parameters: Parameters, **options: Any) -> Contestant:
    return _torch(torch_rivals.eager, work, parameters, **options)


def _fused(work: Workload, parameters: Parameters) -> Contestant:
    return _eager(work, parameters, fused=True)


def _compiled(work: Workload, parameters: Parameters) -> Contestant:
    return _torch(lambda made: torch_rivals.compiled(made, "max-autotune"), work, parameters)


def _torch(
    step_of: Callable[[Trainer], Callable[[], torch.Tensor]],
    work: Workload,
    parameters: Parameters,
    **options: Any,
) -> Contestant:
    made = trainer(work, parameters, "cpu", **options)
    step = step_of(made)
    loss = torch.zeros(())

    def keeping() -> None:
        nonlocal loss
        loss = step()

    keeping()
    return contestant(made, parameters, keeping, lambda: loss)


RIVALS: dict[str, Callable[[Workload, Parameters], Contestant]] = {
    "aicf": _ours,
    "torch_eager": _eager,
    "torch_fused": _fused,
    "torch_compile": _compiled,
}
"""What trains; `torch_fused` is eager with the optimizer's fused kernel."""
