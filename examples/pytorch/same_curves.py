"""Trains a small convolutional network on the digits three times, and draws the three loss curves.

    python examples/pytorch/same_curves.py curves.svg

Once in eager mode, once by `torch.compile(backend="aicf")` with PyTorch's optimizer, once by `train_step`, each from
the same weights on the same batches. Prints the time of a step, and how far the losses lie from those of eager mode.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import matplotlib
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import aicf.pytorch

STEPS, BATCH = 200, 64


def network() -> nn.Module:
    """Two convolutions with batch norms, and a classifier."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def batches() -> list[tuple[Tensor, Tensor]]:
    """Images f32[64, 1, 8, 8] and labels i64[64]."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(data.target)
    chosen = torch.randint(0, len(labels), (STEPS, BATCH), generator=torch.Generator().manual_seed(1))
    return [(images[index], labels[index]) for index in chosen]


def by_optimizer(model: nn.Module, called: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """A step of PyTorch: forward, backward, optimizer."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(called(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def as_one_program(model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """A step of AICF."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return aicf.pytorch.train_step(model, nn.functional.cross_entropy, optimizer)


def train(step: Callable[[Tensor, Tensor], Tensor]) -> tuple[list[float], float]:
    """The losses, and the microseconds of a step."""
    losses: list[float] = []
    times: list[float] = []
    for images, labels in batches():
        start = time.perf_counter()
        losses.append(float(step(images, labels)))
        times.append((time.perf_counter() - start) * 1e6)
    return losses, statistics.median(times)


def main() -> None:
    """See the module."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = network().train()
    models = [copy.deepcopy(model) for _ in range(3)]
    compiled = torch.compile(models[1], backend="aicf")
    forms = {
        "eager": by_optimizer(models[0], models[0]),
        'torch.compile(backend="aicf")': by_optimizer(models[1], compiled),
        "aicf.pytorch.train_step": as_one_program(models[2]),
    }
    curves: dict[str, list[float]] = {}
    for name, step in forms.items():
        curves[name], us = train(step)
        apart = max(abs(a - b) for a, b in zip(curves[name], curves["eager"], strict=True))
        print(
            f"{name:32} {us:7.0f} us a step, last loss {curves[name][-1]:.4f}, at most {apart:.1e} from eager"
        )
    if len(sys.argv) > 1:
        draw(curves, Path(sys.argv[1]))


def draw(curves: dict[str, list[float]], path: Path) -> None:
    """One line for each form, the later ones thinner, so that those below can be seen."""
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "aicf"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for (name, losses), width in zip(curves.items(), (5.0, 2.5, 1.0), strict=True):
        axes.semilogy(losses, label=name, linewidth=width)
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
