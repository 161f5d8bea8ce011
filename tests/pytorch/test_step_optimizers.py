"""Optimizers of a training step: schedules of any option, counts of steps, hooks, and the optimizers of AICF."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR

import aicf
import aicf.pytorch
from aicf.errors import InvalidIR
from tests.support.pytorch_backend import assert_same, random

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
]

X, TARGET = random(6, 8), random(6, 4, seed=1)
optimizers = aicf.optimizers


def _pair() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    return model, copy.deepcopy(model)


def _eager(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    F.mse_loss(model(X), TARGET).backward()
    optimizer.step()


def _assert_same_weights(model: nn.Module, peer: nn.Module) -> None:
    assert_same(model.state_dict(), peer.state_dict(), 1e-12)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.AdamW, {"weight_decay": 0.1}),
        (torch.optim.Adam, {"weight_decay": 0.1, "amsgrad": True}),
        (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.01}),
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.3}),
    ],
)
def test_a_schedule_of_rate_and_momentum(kind: Any, options: dict[str, Any]) -> None:
    """The options become inputs when they change for the first time: one more program, and then none."""
    model, peer = _pair()
    ours, theirs = kind(model.parameters(), lr=0.01, **options), kind(peer.parameters(), lr=0.01, **options)
    schedules = [OneCycleLR(each, max_lr=0.1, total_steps=20) for each in (ours, theirs)]
    step = aicf.pytorch.train_step(model, F.mse_loss, ours)
    for _ in range(8):
        step(X, TARGET)
        _eager(peer, theirs)
        for each in schedules:
            each.step()
    _assert_same_weights(model, peer)
    assert len(step.executables) == 2


def test_a_schedule_of_the_weight_decay() -> None:
    model, peer = _pair()
    ours, theirs = torch.optim.AdamW(model.parameters()), torch.optim.AdamW(peer.parameters())
    step = aicf.pytorch.train_step(model, F.mse_loss, ours)
    for number in range(5):
        for each in (ours, theirs):
            each.param_groups[0]["weight_decay"] = 0.1 * number
        step(X, TARGET)
        _eager(peer, theirs)
    _assert_same_weights(model, peer)
    assert len(step.executables) == 2


def _through(save: Callable[[Any], Any], optimizer: torch.optim.Optimizer) -> float:
    states = save(optimizer).state_dict()["state"]
    return float(states[0]["step"])


def _saved(optimizer: torch.optim.Optimizer) -> Any:
    stream = io.BytesIO()
    torch.save(optimizer, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)


def test_counts_are_right_whoever_reads_them() -> None:
    model, peer = _pair()
    optimizer, theirs = torch.optim.AdamW(model.parameters()), torch.optim.AdamW(peer.parameters())
    step = aicf.pytorch.train_step(model, F.mse_loss, optimizer)
    for _ in range(5):
        step(X, TARGET)
        _eager(peer, theirs)
    for save in (copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each)), _saved, lambda each: each):
        assert _through(save, optimizer) == 5
    for _ in range(2):
        step(X, TARGET)
        _eager(peer, theirs)
    assert [float(state["step"]) for state in optimizer.state.values()] == [7] * 4
    first = next(model.parameters())
    step(X, TARGET)
    assert float(optimizer.state[first]["step"]) == 8
    copied = copy.deepcopy(optimizer)  # a plain optimizer, on parameters of its own
    assert type(copied.state) is not type(optimizer.state)
    _eager(peer, theirs)
    _assert_same_weights(model, peer)


def test_several_steps_of_one_optimizer_count_together() -> None:
    model, peer = _pair()
    optimizer, theirs = torch.optim.AdamW(model.parameters()), torch.optim.AdamW(peer.parameters())
    steps = [aicf.pytorch.train_step(model, F.mse_loss, optimizer) for _ in range(2)]
    for number in range(6):
        steps[number % 2](X, TARGET)
        _eager(peer, theirs)
    _eager(model, optimizer)
    _eager(peer, theirs)
    _assert_same_weights(model, peer)
    again = aicf.pytorch.train_step(model, F.mse_loss, optimizer)
    assert again.steps == 7
    again(X, TARGET)
    _eager(peer, theirs)
    _assert_same_weights(model, peer)


def test_a_checkpoint_of_the_optimizer() -> None:
    model, peer = _pair()
    optimizer, theirs = torch.optim.AdamW(model.parameters()), torch.optim.AdamW(peer.parameters())
    step = aicf.pytorch.train_step(model, F.mse_loss, optimizer)
    for _ in range(3):
        _eager(peer, theirs)
    step(X, TARGET)
    model.load_state_dict(peer.state_dict())
    optimizer.load_state_dict(copy.deepcopy(theirs.state_dict()))
    for _ in range(2):
        step(X, TARGET)
        _eager(peer, theirs)
    assert step.steps == 5
    _assert_same_weights(model, peer)


def test_hooks_around_steps_are_called() -> None:
    model, _ = _pair()
    optimizer = torch.optim.AdamW(model.parameters())
    seen: list[tuple[str, float]] = []
    first = next(model.parameters())

    def note(when: str) -> Callable[..., None]:
        return lambda *_: seen.append((when, float(optimizer.state[first].get("step", 0))))

    optimizer.register_step_pre_hook(note("before"))
    optimizer.register_step_post_hook(note("after"))
    step = aicf.pytorch.train_step(model, F.mse_loss, optimizer)
    for _ in range(2):
        step(X, TARGET)
    assert seen == [("before", 0), ("after", 1), ("before", 1), ("after", 2)]


def test_averaged_weights_by_a_hook() -> None:
    """As libraries register them: on the optimizer, after each step."""
    model, peer = _pair()
    averages = [torch.optim.swa_utils.AveragedModel(each) for each in (model, peer)]
    theirs = [torch.optim.SGD(each.parameters(), 0.1) for each in (model, peer)]
    for average, optimizer, each in zip(averages, theirs, (model, peer), strict=True):
        optimizer.register_step_post_hook(lambda *_, a=average, m=each: a.update_parameters(m))
    step = aicf.pytorch.train_step(model, F.mse_loss, theirs[0])
    for _ in range(3):
        step(X, TARGET)
        _eager(peer, theirs[1])
    _assert_same_weights(*averages)


def test_an_optimizer_of_aicf() -> None:
    model, peer = _pair()
    groups = [optimizers.Group("*bias", weight_decay=0.0, lr_scale=2.0)]
    step = aicf.pytorch.train_step(model, F.mse_loss, optimizers.AdamW(1e-2, weight_decay=0.1, groups=groups))
    weights = [each for name, each in peer.named_parameters() if name.endswith("weight")]
    biases = [each for name, each in peer.named_parameters() if name.endswith("bias")]
    rows = [{"params": weights}, {"params": biases, "weight_decay": 0.0, "lr": 2e-2}]
    theirs = torch.optim.AdamW(rows, lr=1e-2, weight_decay=0.1)
    for _ in range(5):
        step(X, TARGET)
        _eager(peer, theirs)
    _assert_same_weights(model, peer)
    assert isinstance(step.optimizer, torch.optim.AdamW)
    assert float(step.optimizer.state_dict()["state"][0]["step"]) == 5


def test_a_schedule_of_aicf_is_part_of_the_program() -> None:
    model, peer = _pair()
    step = aicf.pytorch.train_step(
        model, F.mse_loss, optimizers.SGD(aicf.schedules.Cosine(0.1, total=10), momentum=0.9)
    )
    theirs = torch.optim.SGD(peer.parameters(), lr=0.1, momentum=0.9)
    schedule = CosineAnnealingLR(theirs, 10)
    for _ in range(8):
        step(X, TARGET)
        _eager(peer, theirs)
        schedule.step()
    _assert_same_weights(model, peer)
    assert len(step.executables) == 1


def test_a_schedule_from_outside_is_refused() -> None:
    model, _ = _pair()
    with pytest.raises(InvalidIR, match="lr is a schedule FromHost, which is set from outside of the step"):
        aicf.pytorch.train_step(model, F.mse_loss, optimizers.SGD(aicf.schedules.FromHost(0.1)))


def test_a_loss_module_with_a_tensor() -> None:
    torch.manual_seed(1)
    model = nn.Linear(8, 4).double()
    peer = copy.deepcopy(model)
    labels = torch.tensor([0, 1, 2, 3, 1, 2])
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0, 4.0]).double())
    ours, theirs = torch.optim.SGD(model.parameters(), 0.1), torch.optim.SGD(peer.parameters(), 0.1)
    step = aicf.pytorch.train_step(model, loss, ours)
    for _ in range(3):
        found = step(X, labels)
        theirs.zero_grad()
        expected = loss(peer(X), labels)
        expected.backward()
        theirs.step()
        assert_same(found, expected.detach(), 1e-12)
    _assert_same_weights(model, peer)


class _Scaled(nn.Module):
    """A loss with a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def forward(self, found: Tensor, target: Tensor) -> Tensor:
        """A number."""
        return F.mse_loss(found, target) * torch.exp(-self.scale) + self.scale


@pytest.mark.parametrize("gradients", ["aicf", "pytorch"])
def test_a_loss_that_is_trained_too(gradients: str) -> None:
    (model, peer), losses = _pair(), [_Scaled(), _Scaled()]
    ours = torch.optim.Adam([*model.parameters(), *losses[0].parameters()], 0.01)
    theirs = torch.optim.Adam([*peer.parameters(), *losses[1].parameters()], 0.01)
    step = aicf.pytorch.train_step(model, losses[0], ours, options={"gradients": gradients})
    for _ in range(3):
        step(X, TARGET)
        theirs.zero_grad()
        losses[1](peer(X), TARGET).backward()
        theirs.step()
    _assert_same_weights(model, peer)
    assert_same(losses[0].scale.detach(), losses[1].scale.detach(), 1e-12)
