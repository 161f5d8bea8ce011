"""train_step beside loops of PyTorch: schedules, states, groups, forms of batches, and what it refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aicf.pytorch
from aicf.errors import AicfError, InvalidIR
from tests.support.pytorch_backend import assert_same, random

pytestmark = [
    pytest.mark.peers,
    # torch.export copies what it traced, with a class that it deprecates itself.
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
]

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda given: torch.optim.SGD(given, 0.1),
    "momentum": lambda given: torch.optim.SGD(given, 0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda given: torch.optim.SGD(given, 0.1, momentum=0.9, nesterov=True),
    "dampening": lambda given: torch.optim.SGD(given, 0.1, momentum=0.9, dampening=0.2),
    "adam": lambda given: torch.optim.Adam(given, 0.01, weight_decay=0.1),
    "adamw": lambda given: torch.optim.AdamW(given, 0.01, betas=(0.8, 0.9)),
    "amsgrad": lambda given: torch.optim.AdamW(given, 0.01, amsgrad=True),
}


def _layers() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 4)).double()


def _batches(count: int, rows: int = 6) -> Iterator[tuple[Tensor, Tensor]]:
    for seed in range(count):
        yield random(rows, 8, seed=seed), random(rows, 4, seed=100 + seed)


def _eager_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, target: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), target)
    loss.backward()
    optimizer.step()
    return loss.detach()


class _Pair:
    """A model and its optimizer for train_step, and the same for PyTorch."""

    def __init__(
        self, make: Callable[[nn.Module], torch.optim.Optimizer], model: nn.Module | None = None
    ) -> None:
        self.ours = model or _layers()
        self.theirs = copy.deepcopy(self.ours)
        self.our_optimizer, self.their_optimizer = make(self.ours), make(self.theirs)
        self.step = aicf.pytorch.train_step(self.ours, F.mse_loss, self.our_optimizer)

    def run(self, count: int, rows: int = 6) -> None:
        """As many steps of both."""
        for x, target in _batches(count, rows):
            found = self.step(x, target)
            assert_same(found, _eager_step(self.theirs, self.their_optimizer, x, target), 1e-9)

    def assert_same(self) -> None:
        """Weights and states of the optimizers agree."""
        assert_same(self.ours.state_dict(), self.theirs.state_dict(), 1e-9)
        ours, theirs = self.our_optimizer.state_dict(), self.their_optimizer.state_dict()
        assert ours["param_groups"] == theirs["param_groups"]
        assert_same(ours["state"], theirs["state"], 1e-9)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_and_states_after_five_steps(name: str) -> None:
    pair = _Pair(lambda model: OPTIMIZERS[name](model.parameters()))
    pair.run(5)
    pair.assert_same()


def test_a_schedule_needs_no_other_program() -> None:
    pair = _Pair(lambda model: torch.optim.AdamW(model.parameters(), 0.01))
    schedules = [
        torch.optim.lr_scheduler.CosineAnnealingLR(each, 6)
        for each in (pair.our_optimizer, pair.their_optimizer)
    ]
    for x, target in _batches(6):
        pair.step(x, target)
        _eager_step(pair.theirs, pair.their_optimizer, x, target)
        for schedule in schedules:
            schedule.step()
    assert_same(pair.ours.state_dict(), pair.theirs.state_dict(), 1e-9)
    assert len(pair.step.executables) == 1


def test_training_goes_on_from_a_saved_state() -> None:
    pair = _Pair(lambda model: torch.optim.AdamW(model.parameters(), 0.01))
    pair.run(3)
    saved, weights = copy.deepcopy(pair.our_optimizer.state_dict()), copy.deepcopy(pair.ours.state_dict())
    other = _layers()
    other.load_state_dict(weights)
    optimizer = torch.optim.AdamW(other.parameters(), 0.01)
    optimizer.load_state_dict(saved)
    step = aicf.pytorch.train_step(other, F.mse_loss, optimizer)
    for x, target in _batches(3):
        assert_same(step(x, target), _eager_step(pair.theirs, pair.their_optimizer, x, target), 1e-9)
    assert_same(other.state_dict(), pair.theirs.state_dict(), 1e-9)


def test_a_state_is_loaded_into_a_step_that_runs() -> None:
    pair = _Pair(lambda model: torch.optim.AdamW(model.parameters(), 0.01))
    pair.run(2)
    saved = [copy.deepcopy(each.state_dict()) for each in (pair.our_optimizer, pair.their_optimizer)]
    pair.run(2)
    pair.our_optimizer.load_state_dict(saved[0])
    pair.their_optimizer.load_state_dict(saved[1])
    pair.run(2)
    pair.assert_same()


def test_steps_of_both_kinds_in_turn() -> None:
    pair = _Pair(lambda model: torch.optim.Adam(model.parameters(), 0.01))
    pair.run(2)
    for x, target in _batches(2):
        _eager_step(pair.ours, pair.our_optimizer, x, target)
        _eager_step(pair.theirs, pair.their_optimizer, x, target)
    pair.run(2)
    pair.assert_same()


def _groups(model: nn.Module) -> list[dict[str, Any]]:
    return [
        {"params": [model[0].weight, model[2].weight], "weight_decay": 0.3},
        {"params": [model[0].bias, model[2].bias], "weight_decay": 0.0, "lr": 0.05},
    ]


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.SGD])
def test_groups(make: Any) -> None:
    pair = _Pair(lambda model: make(_groups(model), lr=0.01))
    pair.run(4)
    pair.assert_same()


def test_frozen_weights_stay() -> None:
    model = _layers()
    model[0].requires_grad_(False)
    first = model[0].weight.clone()
    pair = _Pair(lambda model: torch.optim.AdamW(model.parameters(), 0.01), model)
    pair.run(3)
    assert_same(model[0].weight, first)
    assert_same(pair.ours.state_dict(), pair.theirs.state_dict(), 1e-9)


def test_weights_that_are_frozen_later() -> None:
    pair = _Pair(lambda model: torch.optim.SGD(model.parameters(), 0.1))
    pair.run(2)
    for model in (pair.ours, pair.theirs):
        model[0].requires_grad_(False)
    pair.their_optimizer.zero_grad()
    pair.run(2)
    assert_same(pair.ours.state_dict(), pair.theirs.state_dict(), 1e-9)


def test_another_form_of_batch_goes_on_with_the_states() -> None:
    pair = _Pair(lambda model: torch.optim.AdamW(model.parameters(), 0.01))
    for rows in (6, 3, 6, 3):
        pair.run(1, rows)
    pair.assert_same()
    assert len(pair.step.executables) == 2


class _WithLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = _layers()

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        """As the models of `transformers`."""
        result = self.layers(x)
        return SimpleNamespace(loss=None if labels is None else F.mse_loss(result, labels), logits=result)


def test_a_model_that_gives_its_loss() -> None:
    model = _WithLoss()
    theirs = copy.deepcopy(model)
    step = aicf.pytorch.train_step(model, None, torch.optim.SGD(model.parameters(), 0.1))
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    for x, target in _batches(3):
        assert_same(step(x, labels=target), _eager_step(theirs.layers, optimizer, x, target), 1e-9)
    assert_same(model.state_dict(), theirs.state_dict(), 1e-9)


def test_batch_norm() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4)).double().train()
    pair = _Pair(lambda model: torch.optim.SGD(model.parameters(), 0.1), model)
    pair.run(4)
    assert_same(pair.ours.state_dict(), pair.theirs.state_dict(), 1e-9)
    assert int(model[1].num_batches_tracked) == 4


def test_dropout_follows_the_seed() -> None:
    def trained(seed: int) -> Tensor:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(8, 12), nn.Dropout(0.5), nn.Linear(12, 4)).double().train()
        step = aicf.pytorch.train_step(model, F.mse_loss, torch.optim.SGD(model.parameters(), 0.1))
        torch.manual_seed(seed)
        return torch.stack([step(x, target) for x, target in _batches(3)])

    assert_same(trained(3), trained(3))
    assert not torch.equal(trained(3), trained(4))


def test_tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
            self.second.weight = self.first.weight
            self.last = nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            """Three layers of two weights."""
            return self.last(self.second(torch.tanh(self.first(x))))

    pair = _Pair(lambda model: torch.optim.AdamW(model.parameters(), 0.01), Tied().double())
    pair.run(3)
    pair.assert_same()


def test_modes_have_programs_of_their_own() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.Dropout(0.5)).double()
    step = aicf.pytorch.train_step(model, F.mse_loss, torch.optim.SGD(model.parameters(), 0.0))
    x, target = random(6, 8), random(6, 4)
    model.train()
    step(x, target)
    model.eval()
    assert_same(step(x, target), F.mse_loss(model(x), target).detach(), 1e-9)
    assert len(step.executables) == 2


def test_the_loss_is_kept() -> None:
    pair = _Pair(lambda model: torch.optim.SGD(model.parameters(), 0.1))
    losses = [pair.step(x, target) for x, target in _batches(3)]
    assert len({float(loss) for loss in losses}) == 3


def test_an_optimizer_of_another_class() -> None:
    model = _layers()
    with pytest.raises(InvalidIR, match="train_step knows torch.optim's SGD, Adam, AdamW, not RMSprop"):
        aicf.pytorch.train_step(model, F.mse_loss, torch.optim.RMSprop(model.parameters()))


def test_an_option_of_an_optimizer_without_a_counterpart() -> None:
    model = _layers()
    with pytest.raises(InvalidIR, match="maximize=True has no counterpart; negate the loss"):
        aicf.pytorch.train_step(model, F.mse_loss, torch.optim.SGD(model.parameters(), 0.1, maximize=True))


def test_a_parameter_of_another_module() -> None:
    with pytest.raises(InvalidIR, match="does not belong to the module"):
        aicf.pytorch.train_step(_layers(), F.mse_loss, torch.optim.SGD(_layers().parameters(), 0.1))


def test_a_loss_that_is_no_number() -> None:
    model = _layers()
    step = aicf.pytorch.train_step(
        model, lambda result, target: result - target, torch.optim.SGD(model.parameters(), 0.1)
    )
    with pytest.raises(AicfError, match="loss"):
        step(random(6, 8), random(6, 4))


def test_unknown_options() -> None:
    model = _layers()
    with pytest.raises(AicfError, match="there is no option 'nonsense'"):
        aicf.pytorch.train_step(
            model, F.mse_loss, torch.optim.SGD(model.parameters(), 0.1), options={"nonsense": 1}
        )


def test_weights_that_are_replaced_between_steps() -> None:
    pair = _Pair(lambda model: torch.optim.SGD(model.parameters(), 0.1))
    pair.run(2)
    for model in (pair.ours, pair.theirs):
        model[0].weight.data = model[0].weight.data * 0.5
        with torch.no_grad():
            model[2].weight.mul_(0.5)
    pair.run(2)
    pair.assert_same()


def test_a_compiled_model_sees_what_steps_changed() -> None:
    """A step counts as a change of the parameters, so that what was packed of them is packed again."""
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    step = aicf.pytorch.train_step(model, F.mse_loss, torch.optim.SGD(model.parameters(), 0.5))
    compiled = torch.compile(model, backend=aicf.pytorch.aicf_backend)
    x, target = torch.randn(6, 8), torch.randn(6, 4)
    for _ in range(3):
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))
        before = model[0].weight._version
        step(x, target)
        assert model[0].weight._version > before
