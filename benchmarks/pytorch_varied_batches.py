"""Runs a compiled module over thousands of batches of varied size, and samples memory, programs and recompiles.

    python benchmarks/pytorch_varied_batches.py --write                      10,000 batches, both modes, with the result
    python benchmarks/pytorch_varied_batches.py --batches 1000 --mode dynamic

The batches come from a `DataLoader`, with 1 to 64 rows of 1 to 128 tokens. Sizes are drawn anew for a share of them;
the others repeat one of the last few sizes, as the batches of real loaders do. Results are compared with eager mode
every 100 batches. It measures memory and counts, not speed.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

ROOT = Path(__file__).parent.parent
# Python puts this folder first on its path, where cuda.py would hide the package that others look for.
sys.path[0] = str(ROOT / "benchmarks" / "host")

from timing import machine, write_result  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402

import aicf.pytorch  # noqa: E402  # registers the backend where the package is not installed
from aicf.runtime import memory  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "pytorch_varied_batches.json"
MODES = {"default": None, "dynamic": True}
"""Of `torch.compile`, by what they say of `dynamic`."""
ROWS, LENGTH, WORDS = 64, 128, 100
SAMPLE_EACH, CHECK_EACH = 500, 100


class Attentive(nn.Module):
    """An embedding, linear layers, a LayerNorm and a softmax over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 32)
        self.widen, self.norm, self.narrow = nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 32)
        self.head = nn.Linear(32, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of words, `f32[rows, length, WORDS]`, of tokens, `i64[rows, length]`."""
        hidden = self.narrow(torch.relu(self.norm(self.widen(self.embedding(tokens)))))
        weights = torch.softmax(hidden @ hidden.transpose(1, 2) / 32**0.5, -1)
        return self.head(weights @ hidden)


class VariedBatches(IterableDataset[Tensor]):
    """Batches of tokens.

    Args:
        count: How many.
        fresh: The share of them whose sizes are drawn anew; the first one's are.
        seed: Of sizes and tokens.
    """

    def __init__(self, count: int, fresh: float, seed: int = 0) -> None:
        self._count, self._fresh, self._seed = count, fresh, seed

    def __iter__(self) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(self._seed)
        recent: deque[tuple[int, int]] = deque(maxlen=32)

        def drawn(stop: int) -> int:
            return int(torch.randint(0, stop, (), generator=generator))

        for _ in range(self._count):
            if not recent or float(torch.rand((), generator=generator)) < self._fresh:
                recent.append((1 + drawn(ROWS), 1 + drawn(LENGTH)))
            yield torch.randint(0, WORDS, recent[drawn(len(recent))], generator=generator)


@dataclass(frozen=True)
class Sample:
    """What there was after some batches.

    Attributes:
        resident_mib: Memory of the process.
        own_mib: Of it, buffers of AICF's runtime.
        programs: That the graphs of the model have.
        graphs: That PyTorch traced so far.
    """

    batches: int
    resident_mib: float
    own_mib: float
    programs: int
    graphs: int


def _sample(batches: int, model: nn.Module) -> Sample:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    graphs = aicf.pytorch.report(model).graphs
    return Sample(
        batches,
        round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1),
        round(memory.statistics().live_bytes / 2**20, 2),
        sum(len(graph.programs) for graph in graphs),
        len(graphs),
    )


def _run(mode: str, batches: int, fresh: float, max_programs: int) -> dict[str, Any]:
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    model = Attentive().eval()
    compiled = torch.compile(
        model,
        backend=aicf.pytorch.aicf_backend,
        dynamic=MODES[mode],
        options={"max_programs": max_programs},
    )
    samples, error, checks, started = list[Sample](), 0.0, 0, time.monotonic()
    with torch.no_grad():
        for number, tokens in enumerate(DataLoader(VariedBatches(batches, fresh), batch_size=None), 1):
            found = compiled(tokens)
            if number % CHECK_EACH == 0:
                error = max(error, float((found - model(tokens)).abs().max()))
                checks += 1
            if number % SAMPLE_EACH == 0:
                samples.append(_sample(number, model))
                print(mode, samples[-1], f"{time.monotonic() - started:.0f} s", flush=True)
    graphs = aicf.pytorch.report(model).graphs
    return {
        "dynamic": MODES[mode],
        "checks": checks,
        "largest_error": error,
        "graphs": [
            {
                "name": graph.name,
                "calls": graph.calls,
                "programs": len(graph.programs),
                "dropped": graph.dropped,
            }
            for graph in graphs
        ],
        "made": sum(len(graph.programs) + graph.dropped for graph in graphs),
        "recompiles": counters["stats"]["unique_graphs"] - 1,
        "graph_breaks": sum(counters["graph_break"].values()),
        "samples": [asdict(sample) for sample in samples],
    }


def main(
    batches: Annotated[int, typer.Option(help="Of each mode.")] = 10_000,
    mode: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(MODES)}; both if none.")] = None,
    fresh: Annotated[float, typer.Option(help="Share of batches whose sizes are drawn anew.")] = 0.1,
    max_programs: Annotated[int, typer.Option(help="That a graph keeps.")] = 64,
    threads: Annotated[int, typer.Option(help="Of PyTorch and of the programs.")] = 1,
    write: Annotated[bool, typer.Option("--write", help="Write the result.")] = False,
) -> None:
    """See the module."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    wanted = mode or list(MODES)
    if unknown := [each for each in wanted if each not in MODES]:
        raise typer.BadParameter(f"there is no mode {unknown[0]}; it is one of {', '.join(MODES)}")
    result = {
        "machine": machine(),
        "batches": batches,
        "fresh": fresh,
        "max_programs": max_programs,
        "threads": threads,
        "modes": {each: _run(each, batches, fresh, max_programs) for each in wanted},
    }
    for each, found in result["modes"].items():
        print(each, {key: value for key, value in found.items() if key != "samples"})
    if write:
        write_result(RESULT, result)


if __name__ == "__main__":
    typer.run(main)
