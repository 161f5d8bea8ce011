"""Speed on an NVIDIA GPU beside PyTorch (eager, eager in a CUDA Graph, torch.compile) and JAX, in one run.

    python benchmarks/cuda.py compile DIR              no GPU needed: writes one artifact a program, without weights
    python benchmarks/cuda.py run DIR --output JSON    on the GPU: checks against float64, then times in turns

Times are medians of microseconds for one replay, back to back, weights in device memory; the inputs and outputs are
bound. Every output is compared with the same module in float64.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
# Python puts this folder first on its path, where this file would hide the package `cuda`.
sys.path[0] = str(ROOT / "benchmarks" / "gpu")

import programs  # noqa: E402

REACH: dict[str, float] = {"mlp_chain": 60, "bert_1x128": 300, "bert_8x128": 800, "gemm_bias_relu_4096": 176}
"""Microseconds to reach."""
SAMPLE_SECONDS = 4e-3
ROUNDS = 25


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    compiling = commands.add_parser("compile", help="write the artifacts")
    compiling.add_argument("--target", default="cuda:sm_90a")
    compiling.add_argument("--tuning", type=Path, default=None)
    compiling.set_defaults(run=compile_all)
    running = commands.add_parser("run", help="measure")
    running.add_argument("--peers", default="eager,graph,compile,jax", help="of eager, graph, compile, jax")
    running.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "cuda.json")
    running.set_defaults(run=run_all)
    for command in (compiling, running):
        command.add_argument("directory", type=Path)
        command.add_argument("--rows", default=",".join(programs.PROGRAMS))
    options = parser.parse_args()
    options.run(options)


def compile_all(options: argparse.Namespace) -> None:
    """Compiles every row, with weights that are never written: shapes decide everything."""
    import aicf

    options.directory.mkdir(parents=True, exist_ok=True)
    for name in options.rows.split(","):
        graph = programs.PROGRAMS[name]()
        started = time.perf_counter()
        exe = aicf.compile(
            graph, programs.blank_weights(graph), options.target, tuning=options.tuning, name=name
        )
        seconds = time.perf_counter() - started
        exe.save(options.directory / f"{name}.aicf", weights=False)
        kernels = [launch.kernel for launch in exe.plan.programs[0].launches]
        print(f"{name}: {len(kernels)} instructions, {seconds:.1f} s: {', '.join(sorted(set(kernels)))}")


def run_all(options: argparse.Namespace) -> None:
    """Measures every row; the result is written after each."""
    rows: list[dict[str, Any]] = []
    options.output.parent.mkdir(parents=True, exist_ok=True)
    for name in options.rows.split(","):
        row = run_row(name, options.directory / f"{name}.aicf", options.peers.split(","))
        rows.append(row)
        print(json.dumps(row), flush=True)
        options.output.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")


def run_row(name: str, path: Path, peers: list[str]) -> dict[str, Any]:
    """One program beside its rivals."""
    import torch
    from peers import PEERS, captured

    import aicf

    torch.manual_seed(0)
    peer = PEERS[name]
    module = peer.module().to("cuda", peer.dtype).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
        x = torch.randn(peer.shape, device="cuda", dtype=peer.dtype)
        expected = peer.module().to("cuda", torch.float64)
        expected.load_state_dict({key: value.double() for key, value in module.state_dict().items()})
        wanted = expected.eval()(x.double())
        del expected
        exe = aicf.load(path, weights={key: to_numpy(value) for key, value in module.weights().items()})
        y = torch.full_like(x, torch.nan).new_full(wanted.shape, torch.nan)
        ours = exe.bind(x=x, y=y)
        ours.replay()
        ours.synchronize()
        eager = module(x)
        row: dict[str, Any] = {
            "name": name,
            "instructions": len(exe.plan.programs[0].launches),
            "error": error(y, wanted),
            "error_torch": error(eager, wanted),
        }
        del eager
        rivals: dict[str, Callable[[], object]] = {"aicf": ours.replay}
        if "eager" in peers:
            rivals["torch_eager"] = lambda: module(x)
        if "graph" in peers:
            rivals["torch_graph"] = captured(module, x)
        if "compile" in peers:
            torch.compiler.reset()
            started = time.perf_counter()
            compiled = torch.compile(module, mode="max-autotune")
            for _ in range(3):
                compiled(x)
            torch.cuda.synchronize()
            row["torch_compile_seconds"] = round(time.perf_counter() - started, 1)
            rivals["torch_compile"] = lambda: compiled(x)
        waits = [torch.cuda.synchronize]
        if "jax" in peers:
            import jax_peers

            arrays = {key: to_numpy(value) for key, value in module.weights().items()}
            rivals["jax"], wait = jax_peers.compiled(name, arrays, to_numpy(x))
            row["error_jax"] = error(torch.from_dlpack(rivals["jax"]()), wanted)
            waits.append(wait)
        del wanted

        def wait_for_all() -> None:
            for wait in waits:
                wait()

        times = in_turns(rivals, wait_for_all)
        times["copy"] = copy_time(x) if name.endswith("MB") else 0.0
    best = min((value for key, value in times.items() if key not in ("aicf", "copy")), default=0.0)
    row["us"] = {key: round(value, 2) for key, value in times.items() if value}
    replays = {key: rivals[key] for key in ("aicf", "torch_graph") if key in rivals}
    row["host_us"] = {key: round(host_time(run, torch.cuda.synchronize), 2) for key, run in replays.items()}
    if best:
        row["ratio_to_best_peer"] = round(times["aicf"] / best, 3)
    if name in REACH:
        row["reach_us"], row["reached"] = REACH[name], times["aicf"] <= REACH[name]
    return row


def to_numpy(value: Any) -> Any:
    """A tensor on the host; bfloat16 as `ml_dtypes` has it."""
    import ml_dtypes
    import torch

    host = value.detach().cpu()
    if host.dtype == torch.bfloat16:
        return host.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return host.numpy()


def error(value: Any, wanted: Any) -> float:
    """Norm of the difference over the norm; NaN if any element is."""
    return float(f"{((value.double() - wanted).norm() / wanted.norm()).item():.3e}")


def in_turns(rivals: Mapping[str, Callable[[], object]], synchronize: Callable[[], None]) -> dict[str, float]:
    """Median microseconds of one call of each, many calls a sample, one sample of each in every round."""
    counts = {name: calls_per_sample(run, synchronize) for name, run in rivals.items()}
    samples: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(ROUNDS):
        for name, run in rivals.items():
            samples[name].append(sample(run, counts[name], synchronize))
    return {name: median(values) for name, values in samples.items()}


def calls_per_sample(run: Callable[[], object], synchronize: Callable[[], None]) -> int:
    """So many that a sample takes a few milliseconds."""
    sample(run, 3, synchronize)
    return max(5, round(SAMPLE_SECONDS * 1e6 / sample(run, 10, synchronize)))


def sample(run: Callable[[], object], count: int, synchronize: Callable[[], None]) -> float:
    """Microseconds of one of `count` calls, the device idle before and after."""
    synchronize()
    started = time.perf_counter_ns()
    for _ in range(count):
        run()
    synchronize()
    return (time.perf_counter_ns() - started) / count / 1e3


def host_time(run: Callable[[], object], synchronize: Callable[[], None]) -> float:
    """Median microseconds that one call keeps the caller, the device idle before."""
    spent: list[float] = []
    for _ in range(200):
        synchronize()
        started = time.perf_counter_ns()
        run()
        spent.append((time.perf_counter_ns() - started) / 1e3)
    return median(spent)


def copy_time(x: Any) -> float:
    """Microseconds of a device copy of x, the ceiling of what reads and writes it once."""
    import torch

    target = torch.empty_like(x)
    return in_turns({"copy": lambda: target.copy_(x)}, torch.cuda.synchronize)["copy"]


def machine() -> dict[str, Any]:
    """Where and with what a result was taken."""
    import subprocess
    from importlib.metadata import version

    import torch

    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "gpu": torch.cuda.get_device_name(),
        "cuda": torch.version.cuda,
        "packages": {name: version(name) for name in ("torch", "triton", "numpy", "cuda-bindings")},
        "commit": commit.stdout.strip(),
    }


if __name__ == "__main__":
    main()
