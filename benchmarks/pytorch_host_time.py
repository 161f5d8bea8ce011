"""Times what the host does in a call of a module under `torch.compile(backend="aicf")` on a GPU.

    python benchmarks/pytorch_host_time.py --output benchmarks/results/pytorch_host_time.json

The module is so small that the GPU is never behind. Calls are queued a hundred at a time, and the clock stops before
the wait for the device. `graph` is the bare replay of a CUDA Graph that PyTorch captured of the same calls, which is
what a call cannot be faster than. `dynamo` is a backend whose graphs do nothing: guards and wrappers of TorchDynamo,
which every backend has; `aot` adds AOTAutograd's. The forms `lean` are those of "Host time" in docs/pytorch.md.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn
from torch._dynamo.backends.common import aot_autograd

ROOT = Path(__file__).parent
# The folder of this file has a `cuda.py`, which is not NVIDIA's package.
sys.path[0] = str(ROOT / "host")
from timing import machine, write_result  # noqa: E402

import aicf.pytorch  # noqa: E402  # registers the backend where the package is not installed

QUEUED = 100
"""Calls between two waits: fewer than the driver queues before it blocks."""


class _Network(nn.Module):
    """A class of its own, because TorchDynamo does not compile methods of PyTorch's in place."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The result of the layers."""
        return self.layers(x)


def _module(layers: int, width: int) -> nn.Module:
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*parts).cuda().half().eval()


def _idle(result: torch.Tensor, wrap: bool) -> Callable[..., Any]:
    """A backend whose graphs return a tensor that is there already.

    Args:
        result: The tensor.
        wrap: Whether AOTAutograd traces the graph.
    """

    def run(args: list[Any]) -> list[torch.Tensor]:
        args.clear()
        return [result]

    if not wrap:
        return lambda module, inputs: lambda *args: (result,)
    run._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
    return aot_autograd(fw_compiler=lambda module, inputs: run)


def _forms(module: nn.Module, x: torch.Tensor) -> Mapping[str, Callable[[], Any]]:
    result = module(x)
    dynamo, aot = (torch.compile(module, backend=_idle(result, wrap)) for wrap in (False, True))
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
        "dynamo": lambda: dynamo(x),
        "aot": lambda: aot(x),
        "aicf": lambda: ours(x),
        "aicf-static": lambda: static(x),
        "aicf-lean": _lean(module, x),
        "aicf-lean-static": _lean(module, x, static_outputs=True),
        "aicf-load": _loaded(module, x),
        "inductor": lambda: inductor(x),
        "eager": lambda: module(x),
    }


def _lean(module: nn.Module, x: torch.Tensor, **options: Any) -> Callable[[], Any]:
    """Compiled in place, without PyTorch's ranges for profilers."""
    network = _Network(module).eval()
    network.compile(backend=aicf.pytorch.aicf_backend, options=options or None)
    with torch._dynamo.config.patch(record_runtime_overhead=False):
        network(x)
    return lambda: network(x)


def _loaded(module: nn.Module, x: torch.Tensor) -> Callable[[], Any]:
    """Saved and loaded: no TorchDynamo."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.aicf"
        aicf.pytorch.save(module, path, (x,))
        loaded = aicf.pytorch.load(path, module)
    return lambda: loaded(x)


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
        print(f"{name:16} {us:8.2f} us, {us - found['graph']:8.2f} over the graph", flush=True)
    if output is not None:
        device = torch.cuda.get_device_name()
        write_result(output, {"machine": machine(), "device": device, "host_us": found})


if __name__ == "__main__":
    typer.run(main)
