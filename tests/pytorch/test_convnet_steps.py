"""Training steps of convolutional networks beside loops of PyTorch."""

from __future__ import annotations

import copy
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import aicf.pytorch

pytestmark = [
    pytest.mark.peers,
    # torch.export copies what it traced, with a class that it deprecates itself.
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
]

FILE = Path(__file__).parents[2] / "benchmarks" / "models" / "torch_resnet.py"


def _definitions() -> Any:
    spec = spec_from_file_location("torch_resnet", FILE)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _losses_beside_theirs(network: nn.Module, images: torch.Tensor) -> Any:
    """Three steps of both; gives the step. Losses, parameters and buffers are the same."""
    labels = torch.arange(len(images)) % 5
    own, theirs = copy.deepcopy(network), network
    optimizers = [torch.optim.SGD(each.parameters(), 0.05, momentum=0.9) for each in (own, theirs)]
    step = aicf.pytorch.train_step(own, F.cross_entropy, optimizers[0])
    for _ in range(3):
        loss = F.cross_entropy(theirs(images), labels)
        loss.backward()
        optimizers[1].step()
        optimizers[1].zero_grad()
        torch.testing.assert_close(step(images, labels), loss.detach(), rtol=1e-8, atol=0)
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(own.state_dict()[name], value, rtol=1e-6, atol=1e-8, msg=name)
    return step


def test_a_residual_network() -> None:
    """One program, whose forward convolutions are instructions of their own, and so are the gradients of weights."""
    torch.manual_seed(0)
    network = _definitions().resnet(classes=5, widths=(8, 16), depth=1).double()
    step = _losses_beside_theirs(network, torch.randn(4, 3, 40, 36, dtype=torch.float64))
    (executable,) = step.executables
    kinds = [node.kind for program in executable.plan.programs for node in program.graph.nodes]
    assert kinds.count("conv") >= 6  # the stem, two blocks, and the way to the second one
    assert kinds.count("conv_weight_grad") == 5  # all but that way, of single pixels


class _Mixed(nn.Module):
    """Groups, dilations, a channel each, transposed convolutions and poolings of overlapping windows."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(4, 8, 3, stride=(2, 1), padding=(2, 1), dilation=(1, 2), groups=2),
            nn.Tanh(),
            nn.AvgPool2d(3, 2, 1, ceil_mode=True),
            nn.Conv2d(8, 8, 3, padding=1, groups=8),
            nn.MaxPool2d(3, 1, 1, dilation=1),
            nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1),
            nn.Tanh(),
            nn.MaxPool2d((2, 3), (3, 2), ceil_mode=True),
            nn.AvgPool2d(2, count_include_pad=False, padding=1),
        )
        self.head = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, 4, H, W] to [N, 5]."""
        return self.head(self.layers(x).mean((2, 3)))


def test_a_network_of_all_kinds_of_windows() -> None:
    torch.manual_seed(1)
    _losses_beside_theirs(_Mixed().double(), torch.randn(3, 4, 17, 14, dtype=torch.float64))


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(3, 2, 1),
        nn.MaxPool2d((3, 2), (1, 3), (1, 0), dilation=(2, 1)),
        nn.MaxPool2d(9, 1, 4),  # more elements than are written out one by one
        nn.AvgPool2d((3, 2), (2, 1), (1, 0), ceil_mode=True),
        nn.AvgPool2d((70, 2), (5, 20), (30, 0), count_include_pad=False),
    ],
    ids=str,
)
def test_poolings_of_equal_elements(pool: nn.Module) -> None:
    """The gradient of a maximum goes to the first of equal elements, as theirs does."""
    torch.manual_seed(2)
    network = nn.Sequential(nn.Conv2d(1, 2, 1), pool, nn.Flatten(1)).double()
    images = torch.randint(0, 2, (2, 1, 41, 23)).double()
    network.append(nn.Linear(network(images).shape[1], 5).double())
    _losses_beside_theirs(network, images)


@pytest.mark.parametrize(
    "pool",
    [
        nn.AvgPool2d((3, 4)),
        nn.AvgPool2d(3, 1, 1),
        nn.AvgPool2d((4, 3), 1, (2, 0), count_include_pad=False),
        nn.AvgPool2d(3, (1, 3), (1, 0)),
    ],
    ids=str,
)
def test_means_of_windows_side_by_side_and_one_apart(pool: nn.Module) -> None:
    """Those repeat what they pass back, and these take means of it; windows of both kinds are added up."""
    torch.manual_seed(3)
    network = nn.Sequential(nn.Conv2d(1, 2, 1), pool, nn.Tanh(), nn.Flatten(1)).double()
    images = torch.randn(2, 1, 9, 12, dtype=torch.float64)
    network.append(nn.Linear(network(images).shape[1], 5).double())
    _losses_beside_theirs(network, images)
