"""Speed and memory of whole training steps beside PyTorch (eager, in a CUDA Graph, torch.compile) and JAX.

    python benchmarks/train.py cpu             on this machine's processor, one thread each
    python benchmarks/train.py compile DIR     no GPU needed: writes the artifacts of each row, without weights
    python benchmarks/train.py cuda DIR        on the GPU: compares losses with float64, then times in turns
    python benchmarks/train.py merge JSON...   results of several runs as one
    python benchmarks/train.py table           writes the tables of docs/training.md from the result

Times are medians of microseconds for one step, back to back; the batch is bound, the state stays on the device. The
targets are in training/promises.py, and each result says whether it meets them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Python puts this folder first on its path, where cuda.py would hide the package of that name.
sys.path[:1] = [str(ROOT / "benchmarks" / "training"), str(ROOT / "benchmarks" / "gpu")]

import machine  # noqa: E402
import outcome  # noqa: E402
import pages  # noqa: E402
import promises  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "train.json"
TUNING = ROOT / "benchmarks" / "tuning" / "h100.json"
PAGE = ROOT / "docs" / "training.md"
HOST_ROWS = ("digits",)
DEVICE_ROWS = ("mlp_64", "mlp_1024", "encoder")
DEVICE_PEERS = [name for name in promises.PEERS if name != "torch_fused"]


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    host = commands.add_parser("cpu", help="measure on the processor")
    host.set_defaults(run=run_on_host)
    compiling = commands.add_parser("compile", help="write the artifacts for the GPU")
    compiling.add_argument("directory", type=Path)
    compiling.add_argument("--target", default="cuda:sm_90a")
    compiling.add_argument("--tuning", type=Path, default=None, help=f"such as {TUNING.relative_to(ROOT)}")
    compiling.set_defaults(run=compile_all)
    device = commands.add_parser("cuda", help="measure on the GPU")
    device.add_argument("directory", type=Path)
    device.add_argument("--peers", default=",".join(DEVICE_PEERS), help="those to run, of %(default)s")
    device.add_argument("--why", default="left out", help="why the other peers are left out, for the result")
    device.set_defaults(run=run_on_device)
    merging = commands.add_parser("merge", help="make one result of several")
    merging.add_argument("results", type=Path, nargs="+")
    merging.set_defaults(run=merge_all)
    table = commands.add_parser("table", help="write the tables of the page")
    table.set_defaults(run=write_tables)
    for command, rows in ((host, HOST_ROWS), (compiling, DEVICE_ROWS), (device, DEVICE_ROWS)):
        command.add_argument("--rows", default=",".join(rows))
    for command in (host, device, merging, table):
        command.add_argument("--output", "-o", type=Path, default=RESULT, help="the result")
    options = parser.parse_args()
    options.run(options)


def run_on_host(options: argparse.Namespace) -> None:
    """Measures rows; the result is written after each."""
    from host_rows import measured

    for name in options.rows.split(","):
        _keep(options, name, measured(name), machine.commit_here())


def compile_all(options: argparse.Namespace) -> None:
    """Compiles rows; weights are never written, shapes decide everything."""
    from steps import compile_artifacts

    options.directory.mkdir(parents=True, exist_ok=True)
    for name in options.rows.split(","):
        compile_artifacts(options.directory, name, options.target, options.tuning, machine.commit_here())


def run_on_device(options: argparse.Namespace) -> None:
    """Measures rows, each in a process of its own: what PyTorch keeps of one would not be requested for the next.

    The result is written after each row.
    """
    for name in options.rows.split(","):
        if name == options.rows:
            _run_row(options, name)
        else:
            subprocess.run([sys.executable, *sys.argv, "--rows", name], check=True)


def _run_row(options: argparse.Namespace, name: str) -> None:
    from device_rows import measured
    from steps import commit_file

    started = time.perf_counter()
    row = measured(name, options.directory, options.peers.split(","), options.why)
    row["seconds"] = round(time.perf_counter() - started, 1)
    _keep(options, name, row, commit_file(options.directory, name).read_text("utf-8"))


def _keep(options: argparse.Namespace, name: str, row: dict[str, object], commit: str) -> None:
    print(name, json.dumps(row), flush=True)
    outcome.extend(options.output, outcome.taken_here({name: row}, commit))


def merge_all(options: argparse.Namespace) -> None:
    """Adds results to the one that is there, the later ones on top."""
    for path in options.results:
        outcome.extend(options.output, outcome.read(path))


def write_tables(options: argparse.Namespace) -> None:
    """Puts the figures of the result into the page."""
    PAGE.write_text(pages.with_tables(PAGE.read_text("utf-8"), outcome.read(options.output)), "utf-8")


if __name__ == "__main__":
    main()
