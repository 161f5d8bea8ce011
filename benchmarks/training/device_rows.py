"""One row of the training benchmark on a GPU: our step and its rivals, checked against float64, timed in turns.

The rivals, each at its best: PyTorch eager, eager in a CUDA Graph, torch.compile's autotuned kernels in one CUDA Graph,
and XLA by JAX. torch.compile has the optimizer compiled too, or its fused kernel; the others have that. A rival that
fails is a line of the result, with the reason.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch_rivals
from contest import Contestant, error_of, in_turns, losses_of
from steps import artifacts, first_values, predicted_bytes, reason_file
from torch_rivals import Trainer, contestant, trainer
from works import WORKS, Array, Workload, random_parameters

import aicf
from aicf.runtime import reset_peak, shutdown, statistics

COOL_SECONDS = 3.0
"""Idle time before the first sample: what prepared a rival, as autotuning does, has heated the board for all."""
MEMORY_STEPS = 3


@dataclass
class Race:
    """A row on the way.

    Args:
        work: What is trained.
        row: The result so far.
        contestants: What is timed.
    """

    work: Workload
    row: dict[str, Any]
    parameters: dict[str, Array]
    exact: list[float] = field(default_factory=list[float])
    contestants: dict[str, Contestant] = field(default_factory=dict[str, Contestant])

    def add(self, rival: str, each: Contestant) -> None:
        """A rival, once its losses are known."""
        self.row["error"][rival] = error_of(losses_of(each, self.work), self.exact)
        self.contestants[rival] = each


def measured(name: str, folder: Path, rivals: Sequence[str], why: str) -> dict[str, Any]:
    """A row of the result. `rivals` are names of `RIVALS`; `why` tells of the others why they were left out."""
    work = WORKS[name]
    torch.set_float32_matmul_precision("high" if work.tf32 else "highest")
    fields = ("error", "bytes", "predicted_bytes", "compile_seconds", "not_run")
    row: dict[str, Any] = {part: {} for part in fields}
    race = Race(work, row, random_parameters(work))
    row["bytes"]["torch_eager"] = _bytes_of_eager(race)
    exact = trainer(work, race.parameters, "cuda", torch.float64)
    race.exact = losses_of(_contestant(race, exact, torch_rivals.eager(exact)), work)
    for label, path in artifacts(folder, name).items():
        if reason_file(path).exists():
            row["not_run"][label] = reason_file(path).read_text("utf-8")
        else:
            _add_ours(race, label, path)
    for rival, add in RIVALS.items():
        reason = why if rival not in rivals else _failure(add, race)
        if reason:
            row["not_run"][rival] = reason
    time.sleep(COOL_SECONDS)
    row["us"] = in_turns(race.contestants)
    race.contestants.clear()
    _release()
    return row


def _release() -> None:
    """What a row leaves in allocators and caches."""
    torch.compiler.reset()
    shutdown()
    gc.collect()
    torch.cuda.empty_cache()


def _bytes_of_eager(race: Race) -> int:
    """The most that PyTorch requests from the driver for eager steps, alone in the process."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_reserved()
    made = trainer(race.work, race.parameters, "cuda", fused=True)
    step = torch_rivals.eager(made)
    for _ in range(MEMORY_STEPS):
        step()
    torch.cuda.synchronize()
    most = torch.cuda.max_memory_reserved() - before
    del made, step
    gc.collect()
    torch.cuda.empty_cache()
    return most


def _add_ours(race: Race, label: str, path: Path) -> None:
    """Our program on memory of PyTorch's; what it does not write stays NaN."""
    start = first_values(path, race.parameters)
    reset_peak("device")
    before = statistics("device").live_bytes
    model = aicf.load(path, weights=start)
    changing = {name: start[name] for name in model.state()}
    data = trainer(race.work, race.parameters, "cuda")
    loss = torch.full((), torch.nan, device="cuda")
    graph = model.bind(x=data.x, y=data.y, loss=loss)
    each = Contestant(
        lambda: model.set_state(changing),
        _fed_by(data),
        graph.replay,
        graph.synchronize,
        lambda: float(loss),
    )
    race.add(label, each)
    race.row["predicted_bytes"][label] = predicted_bytes(model.memory())
    race.row["bytes"][label] = statistics("device").peak_bytes - before
    if label == "aicf":
        race.row["instructions"] = len(model.plan.programs[0].launches)


def _fed_by(data: Trainer) -> Callable[[Array, Array], None]:
    """Copies a batch to where `data` has it, and waits: other streams read it."""

    def feed(x: Array, y: Array) -> None:
        data.feed(x, y)
        torch.cuda.synchronize()

    return feed


def _contestant(race: Race, made: Trainer, step: Callable[[], torch.Tensor]) -> Contestant:
    loss = torch.zeros(())

    def keeping() -> None:
        nonlocal loss
        loss = step()

    return contestant(made, race.parameters, keeping, lambda: loss)


def _trainer(race: Race) -> Trainer:
    return trainer(race.work, race.parameters, "cuda", fused=True, capturable=True)


def _add_eager(race: Race) -> None:
    made = _trainer(race)
    race.add("torch_eager", _contestant(race, made, torch_rivals.eager(made)))


def _add_graph(race: Race) -> None:
    made = _trainer(race)
    replay, loss = torch_rivals.captured(torch_rivals.eager(made))
    race.add("torch_graph", contestant(made, race.parameters, replay, lambda: loss))


def _add_compiled(race: Race) -> None:
    """Captured as ours is: in graphs of its own it would copy inputs and check guards at each call."""
    started = time.perf_counter()
    made = trainer(race.work, race.parameters, "cuda", capturable=True)
    step = torch_rivals.compiled(made, "max-autotune-no-cudagraphs")
    replay, loss = torch_rivals.captured(step)
    race.row["compile_seconds"]["torch_compile"] = round(time.perf_counter() - started, 1)
    race.add("torch_compile", contestant(made, race.parameters, replay, lambda: loss))


def _add_compiled_fused(race: Race) -> None:
    """The same with the optimizer's fused kernel, which the compiler leaves as it is."""
    started = time.perf_counter()
    made = _trainer(race)
    step = torch_rivals.half_compiled(made, "max-autotune-no-cudagraphs")
    replay, loss = torch_rivals.captured(step)
    race.row["compile_seconds"]["torch_compile_fused"] = round(time.perf_counter() - started, 1)
    race.add("torch_compile_fused", contestant(made, race.parameters, replay, lambda: loss))


def _add_jax(race: Race) -> None:
    from jax_rivals import JaxTrainer

    started = time.perf_counter()
    made = JaxTrainer(race.work, race.parameters)
    race.add(
        "jax",
        Contestant(
            lambda: made.restart(race.parameters), made.feed, made.step, made.wait, lambda: float(made.loss)
        ),
    )
    race.row["compile_seconds"]["jax"] = round(time.perf_counter() - started, 1)


RIVALS: dict[str, Callable[[Race], None]] = {
    "torch_eager": _add_eager,
    "torch_graph": _add_graph,
    "torch_compile": _add_compiled,
    "torch_compile_fused": _add_compiled_fused,
    "jax": _add_jax,
}
"""What adds each to a row."""


def _failure(add: Callable[[Race], None], race: Race) -> str:
    """Why a rival cannot be added; "" if it was."""
    try:
        add(race)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:200]
    return ""
