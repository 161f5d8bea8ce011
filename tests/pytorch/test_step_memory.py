"""`memory_budget` of train_step: less memory for the same values, and what is no budget."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aicf.pytorch
from aicf.errors import PolicyError
from tests.support.pytorch_backend import assert_same, random

pytestmark = [
    pytest.mark.peers,
    # torch.export copies what it traced, with a class that it deprecates itself.
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
]

ROWS, SIZE, LAYERS = 96, 32, 5


def _network() -> nn.Module:
    torch.manual_seed(1)
    layers = [nn.Sequential(nn.Linear(SIZE, SIZE), nn.GELU(), nn.LayerNorm(SIZE)) for _ in range(LAYERS)]
    return nn.Sequential(*layers, nn.Linear(SIZE, 4)).double()


def _step(model: nn.Module, **options: Any) -> aicf.pytorch.TrainStep:
    return aicf.pytorch.train_step(
        model, F.mse_loss, torch.optim.AdamW(model.parameters(), 0.01), options=options
    )


@cache
def _trained(budget: float) -> tuple[dict[str, Tensor], aicf.pytorch.TrainStep]:
    model = _network()
    step = _step(model, memory_budget=budget)
    for seed in range(3):
        step(random(ROWS, SIZE, seed=seed), random(ROWS, 4, seed=9 + seed))
    return model.state_dict(), step


def _arena(step: aicf.pytorch.TrainStep) -> int:
    (program,) = step.executables[0].plan.programs
    return program.arena_bytes


def _eager() -> dict[str, Tensor]:
    model = _network()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    for seed in range(3):
        optimizer.zero_grad()
        F.mse_loss(model(random(ROWS, SIZE, seed=seed)), random(ROWS, 4, seed=9 + seed)).backward()
        optimizer.step()
    return model.state_dict()


def test_less_memory_for_the_same_values() -> None:
    expected = _eager()
    arenas: list[int] = []
    for budget in (1.0, 0.6, 0.2):
        weights, step = _trained(budget)
        assert_same(weights, expected, 1e-9)
        arenas.append(_arena(step))
    whole, some, least = arenas
    assert least < some < whole
    # A layer saves the result of its product and the operand of its norm.
    saved = LAYERS * 2 * ROWS * SIZE * 8
    assert whole - some >= 0.25 * saved


def test_the_whole_budget_is_the_default() -> None:
    model = _network()
    step = _step(model)
    step(random(ROWS, SIZE), random(ROWS, 4))
    _, whole = _trained(1.0)
    assert step.executables[0].ir("emit") == whole.executables[0].ir("emit")


def test_recomputed_values_are_in_the_ledger() -> None:
    _, step = _trained(0.5)
    choices = [decision.choice for decision in step.executables[0].decisions]
    assert any("saved values computed again" in choice for choice in choices)
    assert ".again" in step.executables[0].ir("emit")


def test_a_folder_of_programs_tells_budgets_apart(tmp_path: Any) -> None:
    x, target = random(ROWS, SIZE), random(ROWS, 4)
    arenas: list[int] = []
    for budget in (1.0, 0.3, 1.0):
        step = _step(copy.deepcopy(_network()), memory_budget=budget, cache_dir=tmp_path)
        step(x, target)
        arenas.append(_arena(step))
    assert arenas[0] == arenas[2] > arenas[1]
    assert len(list(tmp_path.glob("*.aicf"))) == 2


@pytest.mark.parametrize("budget", [-0.1, 1.5, "half", float("nan")])
def test_what_is_no_budget(budget: Any) -> None:
    with pytest.raises(PolicyError, match="memory_budget is .*; give a number from 0 to 1"):
        _step(_network(), memory_budget=budget)
