"""Times the start of PyTorch modules under `torch.compile`: AICF beside Inductor, each start in a process of its own.

    python benchmarks/pytorch_starts.py --output benchmarks/results/pytorch_starts.json

A start is from `torch.compile` to the end of the second call, with everything that is imported on the way. A cold one
has empty caches on disk; a warm one has what the cold one left there. `tracing` is what PyTorch itself takes to trace
the module and make it functional, without a compiler: its backend `aot_eager`. `deployed` is `aicf.pytorch.load` on a
file that `aicf.pytorch.save` wrote, where nothing is traced.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

ROOT = Path(__file__).parent
# The folder of this file has a `cuda.py`, which is not NVIDIA's package.
sys.path[0] = str(ROOT / "models")
sys.path.insert(1, str(ROOT / "host"))
from timing import machine, write_result  # noqa: E402
from torch_networks import NETWORKS, Network, make  # noqa: E402

FORMS = ("tracing", "inductor", "aicf", "deployed")
ARTIFACT = "network.aicf"


@dataclass(frozen=True)
class Row:
    """One network in one form.

    Attributes:
        cold_s, warm_s: Of a start. A deployed form is cold while it is saved, and the time includes that.
    """

    network: str
    form: str
    cold_s: float
    warm_s: float


def _called(network: Network, form: str, folder: Path) -> Callable[..., Any]:
    """The form of a network, whose caches are in a folder."""
    match form:
        case "tracing":
            return torch.compile(network.module, backend="aot_eager")
        case "inductor":
            return torch.compile(network.module, options={"freezing": True})
        case "aicf":
            return torch.compile(network.module, backend="aicf", options={"cache_dir": folder})
        case _:
            return _deployed(network, folder / ARTIFACT)


def _deployed(network: Network, path: Path) -> Callable[..., Any]:
    import aicf.pytorch  # PyTorch's own forms are not to pay for it

    module = _Result(network)
    if not path.exists():
        aicf.pytorch.save(module, path, (), dict(network.inputs))
    return aicf.pytorch.load(path, module)


class _Result(torch.nn.Module):
    """A network that gives the result that is compared, a tensor."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.inner, self._network = network.module, network

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """See `Network.result`."""
        return self._network.result(self.inner, inputs)


def _start(name: str, form: str, folder: Path, threads: int, small: bool) -> float:
    """Seconds of one start, in this process."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    network = make(name, small)
    options = {} if form == "deployed" else network.options
    with torch.inference_mode():
        network.result(network.module)  # PyTorch's own kernels are loaded for every form
        start = time.perf_counter()
        call = _called(network, form, folder)
        for _ in range(2):
            call(**network.inputs, **options)
    return time.perf_counter() - start


def _in_process(name: str, form: str, folder: Path, threads: int, small: bool) -> float:
    command = [sys.executable, __file__, "--start", form, "--networks", name, "--folder", str(folder)]
    command += ["--threads", str(threads), *(["--small"] if small else [])]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{name} {form}: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout.strip().splitlines()[-1])


def main(
    networks: Annotated[str, typer.Option(help="names, by commas")] = ",".join(NETWORKS),
    forms: Annotated[str, typer.Option(help="names, by commas")] = ",".join(FORMS),
    threads: Annotated[int, typer.Option(help="of the CPU")] = 2,
    small: Annotated[bool, typer.Option(help="small sizes")] = False,
    output: Annotated[Path | None, typer.Option(help="a JSON file")] = None,
    start: Annotated[str, typer.Option(help="only one start of this form, in this process")] = "",
    folder: Annotated[Path | None, typer.Option(help="of the caches of that start")] = None,
) -> None:
    """See the module."""
    if start:
        assert folder is not None
        print(_start(networks, start, folder, threads, small))
        return
    rows: list[Row] = []
    for name in networks.split(","):
        for form in forms.split(","):
            with tempfile.TemporaryDirectory() as caches:
                cold, warm = (_in_process(name, form, Path(caches), threads, small) for _ in range(2))
            rows.append(Row(name, form, cold, warm))
            print(f"{name:10} {form:10} cold {cold:6.1f} s  warm {warm:6.2f} s", flush=True)
    if output is not None:
        write_result(
            output, {"machine": machine(), "threads": threads, "rows": [asdict(row) for row in rows]}
        )


if __name__ == "__main__":
    typer.run(main)
