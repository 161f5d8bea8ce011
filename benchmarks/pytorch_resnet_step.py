"""Times a training step of a ResNet-18 on the CPU with eager PyTorch, `torch.compile` and `aicf.pytorch.train_step`.

    python benchmarks/pytorch_resnet_step.py --batch 8 --size 64 --threads 1

All forms run in one process, in turns, from the same weights, on the same batch: SGD with momentum. Times are medians
in milliseconds. The losses of the first steps are printed beside those of eager mode in float64.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor, nn
from torch.nn import functional as F

# The folder of this file has a `cuda.py`, which is not NVIDIA's package.
sys.path[0] = str(Path(__file__).parent / "models")
from torch_resnet import resnet  # noqa: E402

import aicf.pytorch  # noqa: E402  # registers the backend where the package is not installed

Step = Callable[[], float]


def _loop(called: Callable[..., Tensor], module: nn.Module, images: Tensor, labels: Tensor) -> Step:
    optimizer = torch.optim.SGD(module.parameters(), 0.01, momentum=0.9)

    def step() -> float:
        loss = F.cross_entropy(called(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def _aicf(module: nn.Module, images: Tensor, labels: Tensor) -> Step:
    optimizer = torch.optim.SGD(module.parameters(), 0.01, momentum=0.9)
    step = aicf.pytorch.train_step(module, F.cross_entropy, optimizer)
    return lambda: step(images, labels).item()


def _forms(network: nn.Module, images: Tensor, labels: Tensor) -> dict[str, Step]:
    exact, eager, inductor, own = (copy.deepcopy(network) for _ in range(4))
    return {
        "eager f64": _loop(exact.double(), exact, images.double(), labels),
        "eager": _loop(eager, eager, images, labels),
        "inductor": _loop(torch.compile(inductor), inductor, images, labels),
        "aicf": _aicf(own, images, labels),
    }


def main(
    batch: Annotated[int, typer.Option(help="images")] = 8,
    size: Annotated[int, typer.Option(help="rows and columns of an image")] = 64,
    threads: Annotated[int, typer.Option(help="of PyTorch; AICF runs on one")] = 1,
    rounds: Annotated[int, typer.Option(help="steps of each form that are timed")] = 9,
) -> None:
    """See the module."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    forms = _forms(resnet(), torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,)))
    for name, step in forms.items():
        print(f"{name:10} losses {' '.join(f'{step():.6f}' for _ in range(3))}", flush=True)
    samples: dict[str, list[float]] = {name: [] for name in forms if name != "eager f64"}
    for _ in range(rounds):
        for name, times in samples.items():
            start = time.perf_counter()
            forms[name]()
            times.append((time.perf_counter() - start) * 1e3)
    medians = {name: statistics.median(times) for name, times in samples.items()}
    for name, milliseconds in medians.items():
        ratio = milliseconds / medians["inductor"]
        print(
            f"{name:10} median {milliseconds:7.1f} ms, best {min(samples[name]):7.1f} ms, {ratio:.2f} of inductor"
        )


if __name__ == "__main__":
    typer.run(main)
