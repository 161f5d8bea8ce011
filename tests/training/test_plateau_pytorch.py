"""`aicf.schedules.Plateau` beside `torch.optim.lr_scheduler.ReduceLROnPlateau`: the same rates to the last bit."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

import aicf
from tests.training.test_plateau import CASES, PLATEAU, SEEN, followed, made, metrics, options, train

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peers


def of_torch(plateau: aicf.schedules.Plateau, seen: list[float]) -> list[float]:
    """The rates after each metric."""
    given = asdict(plateau)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=given.pop("lr"))
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **given)
    found: list[float] = []
    for metric in seen:
        optimizer.step()
        scheduler.step(metric)
        found.append(optimizer.param_groups[0]["lr"])
    return found


@pytest.mark.parametrize(("seed", "mode", "threshold_mode"), CASES)
def test_rates(seed: int, mode: str, threshold_mode: str) -> None:
    plateau, seen = options(seed, mode, threshold_mode), metrics(seed)
    np.testing.assert_array_equal(followed(plateau, seen), of_torch(plateau, seen))


def test_defaults_are_those_of_pytorch() -> None:
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD([torch.zeros(1)], lr=0.1))
    ours = asdict(aicf.schedules.Plateau(0.1))
    assert ours.pop("lr") == 0.1 and scheduler.min_lrs == [ours.pop("min_lr")]
    assert {name: getattr(scheduler, name) for name in ours} == ours


def test_a_step_has_the_rates() -> None:
    assert train(made(), 0, len(SEEN)) == of_torch(PLATEAU, SEEN)
