"""ONNX models on the CPU: AICF, ONNX Runtime and OpenVINO on the same files in the same run, and what building, loading
and memory cost.

    python benchmarks/onnx_cpu.py [--models magika,silero] [--sections speed] [--seconds 3] [--output JSON]

One thread each, interleaved, medians. Each row has the figure it should reach; none is asserted.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).parent.parent
MODELS = ROOT / "benchmarks" / "models"
# Python puts this folder first on its path, where cuda.py would hide the package that PyTorch looks for.
sys.path[0] = str(MODELS)
sys.path.insert(1, str(ROOT / "benchmarks" / "host"))

from model_rivals import RIVALS  # noqa: E402
from timed_models import TIMED_MODELS, TimedModel  # noqa: E402
from timing import interleaved, machine, write_result  # noqa: E402

import aicf  # noqa: E402

FRESH_RUNS = 3
SLOWEST_RATIO, SLOWEST_BUILD, SLOWEST_LOAD = 1.15, 10.0, 0.1
ARENA_RATIO, PREDICTED_WITHIN = 1.1, 0.01
RTOL, ATOL = 1e-3, 1e-4
Row = dict[str, object]


def main() -> None:
    """Runs everything, prints the tables and writes the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(TIMED_MODELS), help="of %(default)s")
    parser.add_argument("--sections", default=",".join(SECTIONS), help="of %(default)s")
    parser.add_argument("--seconds", type=float, default=3.0, help="time for each rival of each row")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "onnx_cpu.json")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(), "threads": 1}
    with threadpool_limits(1):
        models = [TIMED_MODELS[name]() for name in arguments.models.split(",")]
        for name in arguments.sections.split(","):
            rows = list(SECTIONS[name](models, arguments.seconds))
            result[name] = rows
            _show(name, rows)
    if "speed" in result:
        result["faster"] = _faster(result["speed"])
        print(result["faster"])
    write_result(arguments.output, result)


def speed(models: Sequence[TimedModel], seconds: float) -> Iterator[Row]:
    """Every model on bound memory, beside its rivals; the outputs of all agree with ONNX Runtime's."""
    for timed in models:
        runs = {name: make(timed) for name, make in RIVALS.items()}
        expected = {name: np.copy(value) for name, value in runs["onnxruntime"]().items()}
        for run in runs.values():
            for found, wanted in zip(run().values(), expected.values(), strict=True):
                np.testing.assert_allclose(found, wanted, RTOL, ATOL)
        times = interleaved(runs, seconds)
        ratio = times["aicf"] / times["onnxruntime"]
        yield {
            "model": timed.name,
            **{f"{name}_us": round(value, 2) for name, value in times.items()},
            "ratio": round(ratio, 3),
            "reach": SLOWEST_RATIO,
            "reached": ratio <= SLOWEST_RATIO,
        }


def _faster(rows: Sequence[Row]) -> Row:
    """On how many models AICF takes less time than ONNX Runtime."""
    count = sum(float(str(row["ratio"])) < 1 for row in rows)
    return {"faster": count, "of": len(rows), "reach": len(rows) / 2, "reached": count >= len(rows) / 2}


FRESH_BUILD = """
import pickle, sys, time
options = pickle.load(open(sys.argv[2], "rb"))
start, used = time.perf_counter(), time.process_time()
import aicf
exe = aicf.compile(sys.argv[1], target="cpu", **options)
print(time.perf_counter() - start, time.process_time() - used)
exe.save(sys.argv[3])
"""
FRESH_LOAD = """
import sys, time
import aicf; aicf.load; import llvmlite.binding
start, used = time.perf_counter(), time.process_time()
aicf.load(sys.argv[3])
print(time.perf_counter() - start, time.process_time() - used)
assert "numba" not in sys.modules and "xdsl" not in sys.modules and "onnx" not in sys.modules
"""


def cold(models: Sequence[TimedModel], seconds: float) -> Iterator[Row]:
    """Building an executable, imports included, and loading its artifact, imports apart; each in new processes, in
    seconds and in those of the processor, which others on the machine do not lengthen."""
    import pickle

    for timed in models:
        with tempfile.TemporaryDirectory() as folder:
            model, options, artifact = (Path(folder) / name for name in ("m.onnx", "options", "m.aicf"))
            model.write_bytes(timed.model)
            options.write_bytes(pickle.dumps(timed.options()))
            files = [str(model), str(options), str(artifact)]
            build, build_cpu = _fresh(FRESH_BUILD, files)
            load, load_cpu = _fresh(FRESH_LOAD, files)
            yield {
                "model": timed.name,
                "build_s": round(build, 3),
                "build_cpu_s": round(build_cpu, 3),
                "load_s": round(load, 4),
                "load_cpu_s": round(load_cpu, 4),
                "artifact_bytes": artifact.stat().st_size,
                "reach_build": SLOWEST_BUILD,
                "reach_load": SLOWEST_LOAD,
                "reached": build <= SLOWEST_BUILD and load <= SLOWEST_LOAD,
            }


def _fresh(program: str, files: Sequence[str]) -> tuple[float, float]:
    """The two numbers that the program prints in a new process; the medians of a few."""
    command = [sys.executable, "-c", program, *files]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(FRESH_RUNS)]
    wall, used = np.median([[float(word) for word in run.stdout.split()] for run in runs], axis=0)
    return float(wall), float(used)


def memory(models: Sequence[TimedModel], seconds: float) -> Iterator[Row]:
    """The arena against the heaviest set of values that are alive together, and the bytes that a session requests for
    its first run against what was predicted before anything was allocated."""
    for timed in models:
        with aicf.InferenceSession(timed.model, device="cpu", **timed.options()) as session:
            session.run(dict(timed.feeds))
            (program,) = session.memory.programs
        assert program.requested is not None
        bound = program.lower_bound or program.arena
        ratio = program.arena / bound if bound else 1.0
        off = abs(program.predicted - program.requested) / program.requested
        yield {
            "model": timed.name,
            "arena_bytes": program.arena,
            "lower_bound_bytes": bound,
            "arena_ratio": round(ratio, 3),
            "predicted_bytes": program.predicted,
            "requested_bytes": program.requested,
            "off": round(off, 4),
            "reached": ratio <= ARENA_RATIO and off <= PREDICTED_WITHIN,
        }


SECTIONS: dict[str, Callable[[Sequence[TimedModel], float], Iterator[Row]]] = {
    "speed": speed,
    "cold": cold,
    "memory": memory,
}


def _show(title: str, rows: Sequence[Row]) -> None:
    """One section as a table."""
    table = Table(*rows[0], title=title, title_justify="left")
    for row in rows:
        table.add_row(*(f"{value}" for value in row.values()))
    Console(width=None if sys.stdout.isatty() else 140).print(table)


if __name__ == "__main__":
    main()
