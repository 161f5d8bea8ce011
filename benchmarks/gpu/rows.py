"""One row of the GPU benchmark: our program and its rivals on the same data, checked against float64, timed in turns.

The rivals, each at its best: PyTorch eager, eager in a CUDA Graph, torch.compile's autotuned kernels in a CUDA Graph
(captured as ours is: in its own graphs it would copy its inputs and check guards at each call), and XLA by JAX. A rival
that fails is a line of the result, with the reason.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import peers
import programs
import torch
from turns import PAUSES, Run, host_time, in_turns

import aicf
from aicf.backends.cuda.runtime.storage import read

COOL_SECONDS = 3.0
"""Idle time before the first sample: what prepared a rival, as autotuning does, has heated the board for all."""
PAUSED = ("gemm_bias_relu_4096", "gemm_4096", "gemm_8192", "swiglu_2048")
"""Rows at the power limit, which are timed with pauses as well."""
COPIES = ("pointwise_256MB", "softmax_256MB", "layer_norm_256MB")
"""Rows beside which a device copy is timed."""
HOST_TIMED = ("aicf", "torch_graph")


@dataclass
class Workload:
    """A row on the GPU.

    Args:
        name: Of the program.
        module: It in PyTorch, whose weights all rivals have.
        x, wanted: Its input, and its output in float64.
        row: The result so far.
        rivals: What is timed.
        waits: What waits for all of them.
    """

    name: str
    module: Any
    x: torch.Tensor
    wanted: torch.Tensor
    row: dict[str, Any]
    rivals: dict[str, Run] = field(default_factory=dict[str, Run])
    waits: list[Run] = field(default_factory=lambda: [torch.cuda.synchronize])

    def add(self, rival: str, run: Run, y: torch.Tensor) -> None:
        """A rival, and what it has computed."""
        self.rivals[rival] = run
        self.row["error"][rival] = _error(y, self.wanted)

    def wait(self) -> None:
        """Until the device is idle."""
        for wait in self.waits:
            wait()


def measured(name: str, folder: Path, rivals: Sequence[str], why: str) -> dict[str, Any]:
    """A row of the result. `rivals` are names of `RIVALS`; `why` tells of the others why they were left out."""
    _release()
    torch.manual_seed(0)
    with torch.no_grad():
        work = _prepared(name)
        for label, path in programs.artifacts(folder, name).items():
            _add_ours(work, label, path)
        for rival, add in RIVALS.items():
            reason = why if rival not in rivals else _failure(add, work)
            if reason:
                work.row["not_run"][rival] = reason
        if name in COPIES:
            target = torch.empty_like(work.x)
            work.rivals["copy"] = lambda: target.copy_(work.x)
        time.sleep(COOL_SECONDS)
        work.row["us"] = in_turns(work.rivals, work.wait)
        if name in PAUSED:
            work.row["us_with_pauses"] = in_turns(work.rivals, work.wait, PAUSES)
        timed = {rival: run for rival, run in work.rivals.items() if rival in HOST_TIMED}
        work.row["host_us"] = {rival: host_time(run, work.wait) for rival, run in timed.items()}
    return work.row


def _release() -> None:
    """What the row before left in allocators and caches."""
    torch.compiler.reset()
    aicf.runtime.shutdown()
    gc.collect()
    torch.cuda.empty_cache()


def _prepared(name: str) -> Workload:
    peer = peers.PEERS[name]
    module = peer.module().to("cuda", peer.dtype).eval()
    for parameter in module.parameters():
        if parameter.ndim == 1:
            parameter.add_(0.1 * torch.randn_like(parameter))
    x = torch.randn(peer.shape, device="cuda", dtype=peer.dtype)
    exact = peer.module().to("cuda", torch.float64).eval()
    exact.load_state_dict({key: value.double() for key, value in module.state_dict().items()})
    row = {"error": {}, "compile_seconds": {}, "not_run": {}}
    return Workload(name, module, x, exact(x.double()), row)


def _add_ours(work: Workload, label: str, path: Path) -> None:
    """Our program; what it does not write stays NaN."""
    model = aicf.load(path, weights={key: to_numpy(value) for key, value in work.module.weights().items()})
    y = work.x.new_full(work.wanted.shape, torch.nan)
    graph = model.bind(x=work.x, y=y, **_buffers(work))
    graph.replay()
    graph.synchronize()
    work.add(label, graph.replay, y)
    if label == "aicf":
        (program, *_) = read(model.native.code)[0].programs
        work.row["instructions"] = len(model.plan.programs[0].launches)
        work.row["nodes"] = len(program.order)


def _buffers(work: Workload) -> dict[str, torch.Tensor]:
    """What the program takes beside x, by name."""
    return {name: work.module.get_buffer(name) for name in peers.PEERS[work.name].buffers}


def _add_eager(work: Workload) -> None:
    work.add("torch_eager", lambda: work.module(work.x), work.module(work.x))


def _add_graph(work: Workload) -> None:
    work.add("torch_graph", *peers.captured(work.module, work.x))


def _add_compiled(work: Workload) -> None:
    started = time.perf_counter()
    compiled = torch.compile(work.module, mode="max-autotune-no-cudagraphs")
    work.add("torch_compile", *peers.captured(compiled, work.x))
    work.row["compile_seconds"]["torch_compile"] = round(time.perf_counter() - started, 1)


def _add_jax(work: Workload) -> None:
    import jax_peers

    given = {**work.module.weights(), **_buffers(work)}
    arrays = {key: to_numpy(value) for key, value in given.items()}
    started = time.perf_counter()
    run, wait = jax_peers.compiled(work.name, arrays, to_numpy(work.x))
    work.row["compile_seconds"]["jax"] = round(time.perf_counter() - started, 1)
    work.waits.append(wait)
    work.add("jax", run, torch.from_dlpack(run()))


RIVALS: dict[str, Callable[[Workload], None]] = {
    "torch_eager": _add_eager,
    "torch_graph": _add_graph,
    "torch_compile": _add_compiled,
    "jax": _add_jax,
}
"""What adds each to a row."""


def _failure(add: Callable[[Workload], None], work: Workload) -> str:
    """Why a rival cannot be added; "" if it was."""
    try:
        add(work)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:200]
    return ""


def to_numpy(value: torch.Tensor) -> Any:
    """A tensor on the host; bfloat16 as `ml_dtypes` has it."""
    host = value.detach().cpu()
    if host.dtype == torch.bfloat16:
        return host.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return host.numpy()


def _error(value: torch.Tensor, wanted: torch.Tensor) -> float:
    """Norm of the difference over the norm; NaN if any element is."""
    return float(f"{((value.double() - wanted).norm() / wanted.norm()).item():.3e}")
