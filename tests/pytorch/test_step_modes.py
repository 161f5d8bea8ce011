"""What a training step was traced with: modes of modules, plain attributes, arguments and the policy in force."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aicf
import aicf.pytorch
from aicf.errors import InvalidIR, PolicyError
from tests.support.pytorch_backend import assert_same, random

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
]

X, TARGET = random(6, 8), random(6, 4, seed=1)


def _frozen(model: nn.Module, **options: Any) -> Any:
    """A step that reports losses and changes nothing."""
    return aicf.pytorch.train_step(model, F.mse_loss, torch.optim.SGD(model.parameters(), 0.0), **options)


def test_the_mode_of_a_part() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)).double()
    peer = copy.deepcopy(model)
    step = _frozen(model)
    for is_training in (True, False, True):
        for each in (model, peer):
            each[1].train(is_training)
        assert_same(step(X, TARGET), F.mse_loss(peer(X), TARGET).detach(), 1e-12)
        assert_same(model[1].running_mean, peer[1].running_mean, 1e-12)
    assert int(model[1].num_batches_tracked) == 2
    assert len(step.executables) == 2


class _Attributes(nn.Module):
    """A layer with a factor, an argument, and a count of its calls."""

    def __init__(self, counts: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Linear(8, 4).double()
        self.factor, self.calls, self._counts = 1.0, 0, counts

    def forward(self, x: Tensor, power: Any = 1) -> Tensor:
        """f64[6, 4]."""
        if self._counts:
            self.calls += 1
        return self.layer(x) * self.factor + (0.5 if power is True else power)


def test_a_plain_attribute() -> None:
    model = _Attributes()
    step = _frozen(model)
    for factor in (1.0, 3.0, 1.0):
        model.factor = factor
        assert_same(step(X, TARGET), F.mse_loss(model(X), TARGET).detach(), 1e-12)
    assert len(step.executables) == 2


@pytest.mark.parametrize("powers", [(True, 1, 1.0, 2.5)])
def test_plain_arguments_that_are_equal(powers: tuple[Any, ...]) -> None:
    model = _Attributes()
    step = _frozen(model)
    for power in powers:
        assert_same(step(X, power, TARGET), F.mse_loss(model(X, power), TARGET).detach(), 1e-12)


def test_attributes_that_the_model_changes(caplog: pytest.LogCaptureFixture) -> None:
    """The log says so once: a step does not run the model's Python again."""
    model = _Attributes(counts=True)
    step = _frozen(model)
    with caplog.at_level(logging.WARNING, "aicf.pytorch"):
        for _ in range(3):
            step(X, TARGET)
    assert [record.getMessage() for record in caplog.records] == [
        "_Attributes changes attributes of modules when it runs; a step does so only when it is traced"
    ]
    assert len(step.executables) == 1


def test_a_forward_hook_is_refused() -> None:
    model = _Attributes()
    handle = model.layer.register_forward_hook(lambda *_: None)
    step = _frozen(model)
    with pytest.raises(InvalidIR, match="module 'layer' has a forward hook, which would run only while"):
        step(X, TARGET)
    handle.remove()
    assert_same(step(X, TARGET), F.mse_loss(model(X), TARGET).detach(), 1e-12)


@pytest.mark.filterwarnings("ignore:.torch.nn.utils.weight_norm. is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:The tensor attribute:UserWarning")
def test_hooks_of_pytorch_itself_are_traced() -> None:
    model = _Attributes()
    nn.utils.weight_norm(model.layer)
    assert_same(_frozen(model)(X, TARGET), F.mse_loss(model(X), TARGET).detach(), 1e-12)


class _Assigns(nn.Module):
    """Keeps an average, by an assignment to its buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4).double()
        self.register_buffer("average", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """f64[6, 4]."""
        found = self.layer(x)
        self.average = 0.5 * self.average + found.mean().detach()
        return found + self.average


@pytest.mark.parametrize("gradients", ["aicf", "pytorch"])
def test_an_assignment_to_a_buffer_is_refused(gradients: str) -> None:
    step = _frozen(_Assigns(), options={"gradients": gradients})
    with pytest.raises(
        InvalidIR, match=r"assigns to its buffer 'average' when it runs; write into it, as in"
    ):
        step(X, TARGET)


def test_the_policy_in_force_at_the_first_call() -> None:
    step = _frozen(_Attributes())
    with (
        aicf.pytorch.policy(aicf.KernelPolicy(matmul="nonsense")),
        pytest.raises(PolicyError, match="has no library 'nonsense'"),
    ):
        step(X, TARGET)
    step(X, TARGET)


def test_values_that_are_no_tensors() -> None:
    step = _frozen(_Attributes())
    with pytest.raises(
        InvalidIR, match=r"value 0 of the batch is a ndarray; give a tensor, as torch\.as_tensor"
    ):
        step(X.numpy(), TARGET)
    with pytest.raises(InvalidIR, match="the batch has no target; give it last"):
        step()


class _Pair(nn.Module):
    """Returns more than the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4).double()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """A loss and what it is of."""
        found = self.layer(x)
        return found.square().mean(), found


def test_a_module_that_returns_a_tuple() -> None:
    model = _Pair()
    step = aicf.pytorch.train_step(model, None, torch.optim.SGD(model.parameters(), 0.1))
    with pytest.raises(InvalidIR, match="the module returns a tuple without an attribute loss"):
        step(X)


def test_modules_are_named_as_the_model_has_them() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4)).double()
    step = _frozen(model)
    step(X, TARGET)
    assert "instruction 1.gelu" in str(step.executables[0].explain("1.gelu"))
