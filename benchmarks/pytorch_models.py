"""Times PyTorch modules under `torch.compile(backend="aicf")` beside eager mode and Inductor, in one process, in turns.

    python benchmarks/pytorch_models.py --device cpu --threads 1 --output benchmarks/results/pytorch_cpu.json

Every form gets the same weights and inputs. The error is against eager mode in float64 on the same device, relative to
the largest element; that of a training step is of the loss. Times are medians of calls, in microseconds; on a GPU a
call is followed by a wait for the device, so that the host's part counts. Of training steps it is every tenth call, as
a training loop that looks at its loss now and then. Inductor is given its best options: freezing on the CPU,
`max-autotune` with CUDA Graphs on a GPU; `inductor-step` is the whole step, optimizer included, captured by hand in one
CUDA Graph. Its caches on disk are empty at first.
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn
from torch._inductor.utils import fresh_cache

# The folder of this file has a `cuda.py`, which is not NVIDIA's package.
sys.path[0] = str(Path(__file__).parent / "models")
from torch_networks import NETWORKS, Network, make  # noqa: E402

import aicf.pytorch  # noqa: E402  # registers the backend where the package is not installed

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Row:
    """One network in one form.

    Attributes:
        work: `inference` or `training`, which is forward, backward and a step of AdamW.
        us: Of a call, the median.
        cold_s: From making the form to the end of its second call, with empty caches; `pytorch_starts.py` has whole
            processes.
        error: See the module.
        peak_bytes: Of the device's memory that a training step took, from making the module on, as the driver tells; 0
            for all else, and where several forms run in one process: PyTorch keeps what it has once taken.
    """

    network: str
    work: str
    form: str
    us: float
    cold_s: float
    error: float
    peak_bytes: int = 0


def _forms(device: str) -> Mapping[str, Callable[[nn.Module], Callable[..., Any]]]:
    options = {"freezing": True} if device == "cpu" else None
    mode = None if device == "cpu" else "max-autotune"
    return {
        "eager": lambda module: module,
        "inductor": lambda module: torch.compile(module, mode=mode, options=options),
        "inductor-default": torch.compile,
        "inductor-graph": lambda module: torch.compile(module, mode="reduce-overhead"),
        "aicf": lambda module: torch.compile(module, backend=aicf.pytorch.aicf_backend),
    }


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


_STEPS = 10
"""Training steps from one wait for the device to the next."""


def _timed(call: Callable[[], Any], device: str, seconds: float, together: int = 1) -> float:
    """The median of calls for about that long, in microseconds; of `together` calls one after the other the mean."""
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(samples) < 5:
        start = time.perf_counter()
        for _ in range(together):
            call()
        _wait(device)
        samples.append((time.perf_counter() - start) * 1e6 / together)
    return statistics.median(samples)


def _error(found: Tensor, exact: Tensor) -> float:
    found, exact = found.detach().double().cpu(), exact.detach().double().cpu()
    return float((found - exact).abs().max() / exact.abs().max())


def _moved(network: Network, device: str, dtype: torch.dtype) -> Network:
    def moved(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: value.to(device, dtype if value.is_floating_point() else value.dtype)
            for name, value in tensors.items()
        }

    module = copy.deepcopy(network.module).to(device, dtype)
    return replace(network, module=module, inputs=moved(network.inputs), targets=moved(network.targets))


def _inference(name: str, network: Network, form: str, device: str, exact: Tensor, seconds: float) -> Row:
    torch._dynamo.reset()
    start = time.perf_counter()
    called = _forms(device)[form](network.module)
    with torch.inference_mode(), fresh_cache():
        network.result(called)
        found = network.result(called).clone()
        _wait(device)
        cold = time.perf_counter() - start
        us = _timed(lambda: network.result(called), device, seconds)
    return Row(name, "inference", form, us, cold, _error(found, exact))


def _training(
    name: str,
    network: Network,
    form: str,
    device: str,
    exact: Tensor,
    seconds: float,
    autocast: bool,
    is_alone: bool,
) -> Row:
    torch._dynamo.reset()
    cast = torch.autocast(device, torch.bfloat16, enabled=autocast)
    if device == "cuda":
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info()[0]
    module = copy.deepcopy(network.module)
    network = replace(network, module=module)
    optimizer = torch.optim.AdamW(
        module.parameters(), lr=1e-4, fused=device == "cuda", capturable=form == "inductor-step"
    )
    start = time.perf_counter()
    if form == "aicf-step":
        step = aicf.pytorch.train_step(_Loss(network), None, optimizer)

        def call() -> Tensor:
            with cast:
                return step(**network.batch)
    elif form == "inductor-step":
        call = _captured_step(network, module, optimizer, cast)
    else:
        called = _forms(device)[form](module)

        def call() -> Tensor:
            with cast:
                loss = network.loss(called)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach().clone()  # a graph of Inductor's writes its next loss in the same place

    with fresh_cache():
        first = call()
        call()
    _wait(device)
    cold = time.perf_counter() - start
    us = _timed(call, device, seconds, _STEPS if device == "cuda" else 1)
    taken = free - torch.cuda.mem_get_info()[0] if device == "cuda" and is_alone else 0
    return Row(name, "training", form, us, cold, _error(first, exact), taken)


def _captured_step(
    network: Network, module: nn.Module, optimizer: torch.optim.Optimizer, cast: torch.autocast
) -> Callable[[], Tensor]:
    """A step of a module that Inductor compiled, captured by hand with its optimizer; what it gives is the loss.

    The steps before the capture are undone, so that the first call is the first step."""
    compiled = torch.compile(module)
    kept = copy.deepcopy(module.state_dict())

    def step() -> Tensor:
        with cast:
            loss = network.loss(compiled)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with fresh_cache(), torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    module.load_state_dict(kept)
    for state in optimizer.state.values():
        for value in state.values():
            value.zero_()

    def call() -> Tensor:
        graph.replay()
        return loss.clone()

    return call


class _Loss(nn.Module):
    """A network that gives its loss."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.inner = network.module
        self._network = network

    def forward(self, **batch: Tensor) -> Tensor:
        """The loss."""
        return self._network.loss(self.inner, batch)


def main(
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    dtype: Annotated[str, typer.Option(help="f32, f16 or bf16")] = "f32",
    threads: Annotated[int, typer.Option(help="of the CPU")] = 1,
    networks: Annotated[str, typer.Option(help="names, by commas")] = ",".join(NETWORKS),
    forms: Annotated[
        str,
        typer.Option(
            help="eager, inductor, inductor-default, inductor-graph, inductor-step, aicf, aicf-step"
        ),
    ] = "eager,inductor,aicf",
    work: Annotated[str, typer.Option(help="inference, training or both")] = "inference",
    batch: Annotated[int, typer.Option(help="of every network")] = 1,
    length: Annotated[int, typer.Option(help="tokens of models of language; 0 for their usual")] = 0,
    autocast: Annotated[bool, typer.Option(help="train with autocast to bf16")] = False,
    small: Annotated[bool, typer.Option(help="small sizes")] = False,
    seconds: Annotated[float, typer.Option(help="of each measurement")] = 2.0,
    output: Annotated[Path | None, typer.Option(help="a JSON file")] = None,
) -> None:
    """See the module."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    rows: list[Row] = []
    for name in networks.split(","):
        made = make(name, small, batch=batch, **({"length": length} if length else {}))
        for kind in ("inference", "training") if work == "both" else (work,):
            rows += _rows(name, made, kind, forms.split(","), device, DTYPES[dtype], seconds, autocast)
    if output is not None:
        output.write_text(json.dumps(_record(rows, device, dtype, threads), indent=1) + "\n")


def _rows(
    name: str,
    made: Network,
    kind: str,
    forms: Sequence[str],
    device: str,
    dtype: torch.dtype,
    seconds: float,
    autocast: bool,
) -> list[Row]:
    wide = _moved(made, device, torch.float64)
    with torch.no_grad():
        exact = wide.result(wide.module) if kind == "inference" else wide.loss(wide.module)
    run = (
        _inference if kind == "inference" else partial(_training, autocast=autocast, is_alone=len(forms) == 1)
    )
    rows: list[Row] = []
    for form in forms:
        if form in ("aicf-step", "inductor-step") and kind == "inference":
            continue
        network = _moved(made, device, dtype)
        try:
            row = run(name, network, form, device, exact, seconds)
        except Exception as error:
            print(
                f"{name} {kind} {form}: {type(error).__name__}: {' '.join(str(error).split())[:300]}",
                flush=True,
            )
            continue
        rows.append(row)
        print(
            f"{name:10} {kind} {form:16} {row.us:10.1f} us  cold {row.cold_s:6.1f} s  error {row.error:.1e}",
            flush=True,
        )
    return rows


def _record(rows: Sequence[Row], device: str, dtype: str, threads: int) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return {
        "device": name,
        "dtype": dtype,
        "threads": threads,
        "torch": torch.__version__,
        "rows": [asdict(row) for row in rows],
    }


if __name__ == "__main__":
    typer.run(main)
