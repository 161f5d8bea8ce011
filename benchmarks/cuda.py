"""Speed on an NVIDIA GPU beside PyTorch (eager, in a CUDA Graph, torch.compile) and JAX.

    python benchmarks/cuda.py compile DIR      no GPU needed: writes the artifacts of each row, without weights
    python benchmarks/cuda.py run DIR          on the GPU: checks against float64, then times in turns
    python benchmarks/cuda.py cold             anywhere: compiles BERT in a new process without a cache of kernels
    python benchmarks/cuda.py merge JSON...    results of several runs as one
    python benchmarks/cuda.py table            writes the tables of docs/cuda.md from the result

Times are medians of microseconds for one replay, back to back, weights in device memory; inputs and outputs are bound.
`run` and `cold` add to the existing result, so a long run may be several short ones. The targets are in
gpu/criteria.py, and each result says whether it meets them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
# Python puts this folder first on its path, where this file would hide the package `cuda`.
sys.path[0] = str(ROOT / "benchmarks" / "gpu")

import criteria  # noqa: E402
import machine  # noqa: E402
import programs  # noqa: E402
import report  # noqa: E402
import results  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "cuda.json"
TUNING = ROOT / "benchmarks" / "tuning" / "h100.json"
PAGE = ROOT / "docs" / "cuda.md"
COLD_ROW = "bert_1x128"
COLD_RUNS = 3


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    compiling = commands.add_parser("compile", help="write the artifacts")
    compiling.add_argument("directory", type=Path)
    compiling.set_defaults(run=compile_all)
    running = commands.add_parser("run", help="measure")
    running.add_argument("directory", type=Path)
    running.add_argument("--peers", default=",".join(criteria.PEERS), help="those to run, of %(default)s")
    running.add_argument("--why", default="left out", help="why the other peers are left out, for the result")
    running.set_defaults(run=run_all)
    cold = commands.add_parser("cold", help="time a compile without a cache")
    cold.set_defaults(run=time_cold)
    merging = commands.add_parser("merge", help="make one result of several")
    merging.add_argument("results", type=Path, nargs="+")
    merging.set_defaults(run=merge_all)
    table = commands.add_parser("table", help="write the tables of the page")
    table.set_defaults(run=write_tables)
    for command in (compiling, running):
        command.add_argument("--rows", default=",".join(programs.PROGRAMS))
    for command in (compiling, cold):
        command.add_argument("--target", default="cuda:sm_90a")
        command.add_argument("--tuning", type=Path, default=TUNING)
    for command in (running, cold, merging, table):
        command.add_argument("--output", "-o", type=Path, default=RESULT, help="the result")
    options = parser.parse_args()
    options.run(options)


def compile_all(options: argparse.Namespace) -> None:
    """Compiles every row, with weights that are never written: shapes decide everything."""
    options.directory.mkdir(parents=True, exist_ok=True)
    for row in options.rows.split(","):
        for label, path in programs.artifacts(options.directory, row).items():
            started = time.perf_counter()
            kernels = compile_one(row, label, path, options)
            seconds = time.perf_counter() - started
            print(
                f"{path.stem}: {len(kernels)} instructions, {seconds:.1f} s: {', '.join(sorted(set(kernels)))}"
            )
        programs.commit_file(options.directory, row).write_text(machine.commit_here(), "utf-8")


def compile_one(row: str, label: str, path: Path, options: argparse.Namespace) -> list[str]:
    """Writes one artifact and gives the kernel of each instruction."""
    import aicf

    graph = programs.PROGRAMS[row]()
    pinned = programs.PINNED.get(row, {}).get(label)
    policy = None if pinned is None else {"kernels": {"gemm": pinned}}
    weights = programs.blank_weights(graph)
    exe = aicf.compile(graph, weights, options.target, policy=policy, tuning=options.tuning, name=row)
    exe.save(path, weights=False)
    return [launch.kernel for launch in exe.plan.programs[0].launches]


def run_all(options: argparse.Namespace) -> None:
    """Measures the rows; the result is written after each."""
    from rows import measured

    for name in options.rows.split(","):
        started = time.perf_counter()
        row = measured(name, options.directory, options.peers.split(","), options.why)
        row["seconds"] = round(time.perf_counter() - started, 1)
        print(name, json.dumps(row), flush=True)
        commit = programs.commit_file(options.directory, name).read_text("utf-8")
        results.extend(options.output, results.taken_here({name: row}, {}, commit))


def time_cold(options: argparse.Namespace) -> None:
    """Compiles one row in new processes, each with an empty cache of kernels."""
    runs = [_cold_run(options) for _ in range(COLD_RUNS)]
    entry = {"seconds": [run[0] for run in runs], "process_seconds": [run[1] for run in runs]}
    print(COLD_ROW, json.dumps(entry))
    results.extend(options.output, results.taken_here({}, {COLD_ROW: entry}, machine.commit_here()))


def _cold_run(options: argparse.Namespace) -> tuple[float, float]:
    """Seconds of `aicf.compile`, and of the process with the start of Python and all imports."""
    with TemporaryDirectory() as folder:
        started = time.perf_counter()
        done = subprocess.run(
            [
                *(sys.executable, __file__, "compile", folder, "--rows", COLD_ROW),
                *("--target", options.target, "--tuning", str(options.tuning)),
            ],
            env={**os.environ, "AICF_CACHE_DIR": folder},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        seconds = time.perf_counter() - started
    said = re.search(r"([\d.]+) s:", done.stdout)
    assert said is not None, done.stdout
    return float(said[1]), round(seconds, 1)


def merge_all(options: argparse.Namespace) -> None:
    """Adds results to the one that is there, the later ones on top."""
    for path in options.results:
        results.extend(options.output, results.read(path))


def write_tables(options: argparse.Namespace) -> None:
    """Puts the figures of the result into the page."""
    report.update(PAGE, results.read(options.output))


if __name__ == "__main__":
    main()
