"""Timing rivals in turns, and what a result must say about where it was taken."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "numpy",
    "numba",
    "llvmlite",
    "xdsl",
    "onnxruntime",
    "openvino",
    "torch",
    "onnx",
    "scipy-openblas64",
)
BATCH_SECONDS = 2e-3
"""A sample is as many calls as take this long, so that the clock does not count."""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def interleaved(rivals: Mapping[str, Callable[[], object]], seconds: float = 3.0) -> dict[str, float]:
    """Median microseconds of one call of each, sampled one after the other in every round."""
    calls = {name: _calls_per_sample(run) for name, run in rivals.items()}
    samples: dict[str, list[float]] = {name: [] for name in rivals}
    end = time.perf_counter() + seconds * len(rivals)
    while time.perf_counter() < end:
        for name, run in rivals.items():
            samples[name].append(_sample(run, calls[name]))
    return {name: median(values) for name, values in samples.items()}


def _calls_per_sample(run: Callable[[], object]) -> int:
    run()
    count = 1
    while (spent := _sample(run, count) * count / 1e6) < BATCH_SECONDS / 2:
        count *= 2
    return max(1, round(count * BATCH_SECONDS / spent))


def _sample(run: Callable[[], object], count: int) -> float:
    """Microseconds of one of `count` calls."""
    started = time.perf_counter_ns()
    for _ in range(count):
        run()
    return (time.perf_counter_ns() - started) / count / 1e3


def machine() -> dict[str, object]:
    """Where and with what a result was taken."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": commit.stdout.strip(),
        "load": round(os.getloadavg()[0], 2),
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


def write_result(path: Path, result: object) -> None:
    """Writes JSON that diffs well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
