"""Times what the host does in a call of a module under `torch.compile(backend="aicf")` on a GPU.

    python benchmarks/pytorch_host_time.py --output benchmarks/results/pytorch_host_time.json

The module is so small that the GPU is never behind. Calls are queued a hundred at a time, and the clock stops before
the wait for the device. `graph` is the bare replay of a CUDA Graph that PyTorch captured of the same calls, which is
what a call cannot be faster than; the rest of a call are TorchDynamo's guards, AOTAutograd's wrappers and AICF.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn

ROOT = Path(__file__).parent
# The folder of this file has a `cuda.py`, which is not NVIDIA's package.
sys.path[0] = str(ROOT / "host")
from timing import machine, write_result  # noqa: E402

import aicf.pytorch  # noqa: E402  # registers the backend where the package is not installed

QUEUED = 100
"""Calls between two waits: fewer than the driver queues before it blocks."""


def _module(layers: int, width: int) -> nn.Module:
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*parts).cuda().half().eval()


def _forms(module: nn.Module, x: torch.Tensor) -> Mapping[str, Callable[[], Any]]:
    ours = torch.compile(module, backend=aicf.pytorch.aicf_backend)
    static = torch.compile(module, backend=aicf.pytorch.aicf_backend, options={"static_outputs": True})
    inductor = torch.compile(module, mode="reduce-overhead")
    for _ in range(3):
        ours(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ours(x)
    return {
        "graph": graph.replay,
        "aicf": lambda: ours(x),
        "aicf-static": lambda: static(x),
        "inductor": lambda: inductor(x),
        "eager": lambda: module(x),
    }


def _host_us(call: Callable[[], Any], rounds: int) -> float:
    """Microseconds of the host for one call, the median of rounds."""
    samples: list[float] = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(QUEUED):
            call()
        samples.append((time.perf_counter() - start) / QUEUED * 1e6)
    return statistics.median(samples)


def main(
    layers: Annotated[int, typer.Option(help="of the module")] = 4,
    width: Annotated[int, typer.Option(help="of each layer")] = 64,
    rounds: Annotated[int, typer.Option(help="of a hundred calls")] = 50,
    output: Annotated[Path | None, typer.Option(help="a JSON file")] = None,
) -> None:
    """See the module."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    module, x = _module(layers, width), torch.randn(1, width, device="cuda", dtype=torch.float16)
    with torch.inference_mode():
        forms = _forms(module, x)
        for call in forms.values():
            for _ in range(5):
                call()
        found = {name: _host_us(call, rounds) for name, call in forms.items()}
    for name, us in found.items():
        print(f"{name:12} {us:8.2f} us, {us - found['graph']:8.2f} over the graph", flush=True)
    if output is not None:
        device = torch.cuda.get_device_name()
        write_result(output, {"machine": machine(), "device": device, "host_us": found})


if __name__ == "__main__":
    typer.run(main)
