"""Training steps of a residual network beside PyTorch: same first weights, same batches, in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aicf
from aicf.training import initial_weights
from tests.support.training_resnet import CHANNELS, ResidualNet

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peers

BATCH, STEPS = 6, 12


class Block(torch.nn.Module):
    """Two convolutions beside the input."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = torch.nn.BatchNorm2d(outputs)
        self.conv2 = torch.nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = torch.nn.BatchNorm2d(outputs)
        if stride != 1:
            self.conv3 = torch.nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.norm3 = torch.nn.BatchNorm2d(outputs)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        if hasattr(self, "conv3"):
            x = self.norm3(self.conv3(x))
        return torch.relu(y + x)


class Net(torch.nn.Module):
    """The network of `ResidualNet`, under the same names."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Sequential()
        self.stem.add_module("conv", torch.nn.Conv2d(1, CHANNELS[0], 3, 1, 1, bias=False))
        self.stem.add_module("norm", torch.nn.BatchNorm2d(CHANNELS[0]))
        self.first = Block(CHANNELS[0], CHANNELS[0], 1)
        self.second = Block(CHANNELS[0], CHANNELS[1], 2)
        self.fc = torch.nn.Linear(CHANNELS[1], 10)

    def forward(self, x: Any) -> Any:
        x = self.second(self.first(torch.relu(self.stem(x))))
        return self.fc(x.mean((2, 3)))


def test_losses_weights_and_running_means_are_those_of_pytorch() -> None:
    graph = ResidualNet(BATCH, training=True, dtype="f64").graph
    weights = initial_weights(graph, seed=1)
    assert 0.9 < np.abs(weights["first.conv1.weight"]).max() * (9 * CHANNELS[0]) ** 0.5 <= 1
    step = aicf.train_step(graph, "cross_entropy", aicf.optimizers.SGD(0.05, momentum=0.9), weights=weights)
    model = Net().double()
    known = model.state_dict() | {name: torch.from_numpy(array.copy()) for name, array in weights.items()}
    model.load_state_dict(known)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    random, losses = np.random.default_rng(2), list[float]()
    for _ in range(STEPS):
        x, y = random.normal(size=(BATCH, 1, 8, 8)), random.integers(0, 10, BATCH)
        step(x, y)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    np.testing.assert_allclose(step.losses(), losses, rtol=1e-9)
    theirs = {name: value.numpy() for name, value in model.state_dict().items()}
    for name, value in step.weights().items():
        np.testing.assert_allclose(value, theirs[name], rtol=1e-8, atol=1e-10, err_msg=name)
