"""Rates of schedules, and parameter groups, beside `torch.optim`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aicf
from aicf.training.optimizers import AdamW, Group
from aicf.training.schedules import InProgram, MultiStep, OneCycle, Step
from tests.training.test_groups import WEIGHTS, batches, network
from tests.training.test_schedules import STEPS, rates

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peers

PAIRS: dict[str, tuple[InProgram, Callable[[Any], Any]]] = {
    "step": (
        Step(0.5, step_size=7, gamma=0.3),
        lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.3),
    ),
    "multi": (
        MultiStep(0.5, milestones=[20, 5, 5, 31]),
        lambda optimizer: torch.optim.lr_scheduler.MultiStepLR(optimizer, [20, 5, 5, 31]),
    ),
    "cycle": (
        OneCycle(0.5, total=STEPS),
        lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, STEPS),
    ),
    "cycle-linear": (
        OneCycle(
            0.5, total=STEPS, pct_start=0.45, anneal_strategy="linear", div_factor=4, final_div_factor=10
        ),
        lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(
            optimizer, 0.5, STEPS, None, None, 0.45, "linear", div_factor=4, final_div_factor=10
        ),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_rates(name: str) -> None:
    schedule, make = PAIRS[name]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5, momentum=0.9)
    scheduler, wanted = make(optimizer), []
    for step in range(STEPS):
        wanted.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step + 1 < STEPS:
            scheduler.step()
    np.testing.assert_allclose(rates(schedule, "reference", "device", "f64"), wanted, rtol=1e-10, atol=1e-14)


def test_groups() -> None:
    """No decay of vectors, a tenth of the rate for the head; the trajectory of AdamW under `StepLR`."""
    w = {name: torch.tensor(value, requires_grad=True) for name, value in WEIGHTS.items()}
    vectors = [value for value in w.values() if value.ndim == 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": [w["body.weight"]]},
            {"params": vectors, "weight_decay": 0.0},
            {"params": [w["head.weight"]], "lr": 0.002},
        ],
        lr=0.02,
        weight_decay=0.5,
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    groups = [Group(max_rank=1, weight_decay=0.0), Group("head.*", lr_scale=0.1)]
    ours = AdamW(Step(0.02, step_size=3, gamma=0.5), weight_decay=0.5, groups=groups)
    step = aicf.train_step(network(), "mse", ours, weights=WEIGHTS)
    for x, y in batches(10):
        optimizer.zero_grad()
        hidden = (torch.tensor(x) @ w["body.weight"].T + w["body.bias"]) * w["norm.weight"]
        torch.nn.functional.mse_loss(hidden @ w["head.weight"].T, torch.tensor(y)).backward()
        optimizer.step()
        scheduler.step()
        step(x, y)
    for name, value in w.items():
        np.testing.assert_allclose(step.weights()[name], value.detach().numpy(), rtol=1e-9, err_msg=name)
