"""What train_step passes back where a function has no derivative or two: what eager mode does, by a rule or by PyTorch.

The points have zeros, equal elements and equal rows, and are on the bounds.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aicf.pytorch
from tests.support.pytorch_backend import assert_same

pytestmark = [
    pytest.mark.peers,
    # torch.export copies what it traced, with a class that it deprecates itself.
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
]

POINTS = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 2.0], [1.0, 0.0, 2.0], [-2.0, 1.0, 0.0]]).double()
BY_AICF: dict[str, Callable[[Tensor], Tensor]] = {
    "clamp": lambda y: y.clamp(-1, 1),
    "clamp_min": lambda y: y.clamp_min(0),
    "clamp_max": lambda y: y.clamp_max(1),
    "clamp by tensors": lambda y: torch.clamp(y, -y.detach().abs(), y.detach().abs()),
    "clamp_min by a tensor": lambda y: torch.clamp_min(y, y.flip(0)),
    "relu6": lambda y: F.relu6(y * 6),
    "hardtanh": F.hardtanh,
    "hardswish": lambda y: F.hardswish(y * 3),
    "amax": lambda y: y.amax(1),
    "max_pool": lambda y: F.max_pool1d(y.unsqueeze(1), 2, 1),
    "cdist": lambda y: torch.cdist(y, y),
    "normalize": F.normalize,
    "pow": lambda y: y.abs().pow(1.5),
}
BY_PYTORCH: dict[str, Callable[[Tensor], Tensor]] = {
    "max": lambda y: y.max(1)[0],
    "min": lambda y: y.min(1)[0],
    "adaptive_max_pool": lambda y: F.adaptive_max_pool1d(y.unsqueeze(1), 2),
    "cdist": lambda y: torch.cdist(y, y, p=3.0),
    "norm": lambda y: torch.linalg.vector_norm(y, 3.0, 1),
    "std": lambda y: y.std(1),
    "atan2": lambda y: torch.atan2(y, y.flip(0) * y),
    "sinc": torch.sinc,
    "remainder": lambda y: torch.remainder(y, y.abs() + 1),
    "fmod": lambda y: torch.fmod(y, y.abs() + 1),
    "fmax": lambda y: torch.fmax(y, y.flip(0)),
    "i1": torch.special.i1,
}


class _Points(nn.Module):
    def __init__(self, compute: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.points, self._compute = nn.Parameter(POINTS.clone()), compute

    def forward(self) -> Tensor:
        """A sum in which each element counts differently."""
        y = self._compute(self.points)
        return (y * torch.linspace(0.3, 1.7, y.numel(), dtype=y.dtype).reshape(y.shape)).sum()


def _passed_back(compute: Callable[[Tensor], Tensor]) -> Tensor:
    model = _Points(compute)
    model().backward()
    assert model.points.grad is not None
    return model.points.grad


def _moved(compute: Callable[[Tensor], Tensor], by: str) -> Tensor:
    model = _Points(compute)
    step = aicf.pytorch.train_step(model, None, torch.optim.SGD(model.parameters(), 1.0))
    step()
    assert step.report().programs[0].gradients.by == by
    return POINTS - model.points.detach()


@pytest.mark.parametrize("name", BY_AICF)
def test_by_aicf(name: str) -> None:
    assert_same(_moved(BY_AICF[name], "aicf"), _passed_back(BY_AICF[name]), 1e-9)


@pytest.mark.parametrize("name", BY_PYTORCH)
def test_by_pytorch(name: str) -> None:
    assert_same(_moved(BY_PYTORCH[name], "pytorch"), _passed_back(BY_PYTORCH[name]), 1e-7)
