"""Where and with what a result of the GPU benchmark was taken."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGES = (
    *("torch", "triton", "transformers", "jax", "jaxlib", "numpy", "xdsl"),
    *("numba-cuda", "cuda-core", "cuda-bindings", "nvmath-python", "nvidia-nvvm", "nvidia-nvjitlink"),
    *("numba", "llvmlite", "scipy-openblas64"),
)
GPU_FIELDS = {
    "gpu": "name",
    "driver": "driver_version",
    "power_limit": "power.limit",
    "power_limit_most": "power.max_limit",
    "sm_clock_most": "clocks.max.sm",
    "memory_clock": "clocks.mem",
}
"""What of the GPU is noted, by nvidia-smi's names."""


def machine(commit: str) -> dict[str, object]:
    """Hardware, driver and versions, "unknown" for what cannot be asked, and the commit of what was measured."""
    return {
        **_gpu(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": commit,
    }


def commit_here() -> str:
    """Of this tree, with `-dirty` after it if files differ; "unknown" outside of a repository.

    Asked where artifacts are compiled: where they run may be a copy without history.
    """
    return _said(["git", "describe", "--always", "--dirty"])


def _gpu() -> dict[str, str]:
    names = ",".join(GPU_FIELDS.values())
    said = _said(["nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader", "--id=0"])
    values = said.split(", ") if said.count(", ") == len(GPU_FIELDS) - 1 else ["unknown"] * len(GPU_FIELDS)
    return dict(zip(GPU_FIELDS, values, strict=True))


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _said(command: list[str]) -> str:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
