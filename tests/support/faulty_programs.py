"""Programs on the plug-in `faulty`: right ones, and ones with faults among other decisions."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import aicf
from aicf.compilation.compiled import CompiledModel

NOISE = {"fusion": {"epilogue": False}, "memory": "separate", "kernels": {"fc1": "faulty.also_right"}}
"""Decisions that change nothing of what is checked."""


def model() -> aicf.Graph:
    """Three layers, of which each is one group unless a policy says otherwise."""
    graph = aicf.Graph("layers")
    x = graph.input("x", ("N", 8))
    for number in (1, 2, 3):
        weight, bias = graph.param(f"fc{number}.weight", (8, 8)), graph.param(f"fc{number}.bias", (8,))
        x = graph.linear(x, weight, bias, name=f"fc{number}")
        x = x if number == 3 else graph.relu(x, name=f"relu{number}")
    graph.output(x, "y")
    return graph


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {"weight": (8, 8), "bias": (8,)}
    return {
        f"fc{number}.{part}": rng.standard_normal(shape, np.float32)
        for number in (1, 2, 3)
        for part, shape in shapes.items()
    }


def program(dims: str = "N=3", **changes: Any) -> CompiledModel:
    """The model on the plug-in, by a policy; one program for each policy."""
    return _program(dims, aicf.Policy().with_(**changes).to_line())


@cache
def _program(dims: str, policy: str) -> CompiledModel:
    return aicf.compile(model(), weights(), "faulty", dims=dims, policy=policy)


def planted(kernels: dict[str, str], dims: str = "N=3") -> CompiledModel:
    """With faults, among decisions that do no harm."""
    return program(dims, **{**NOISE, "kernels": {"fc1": "faulty.also_right", **kernels}})


def save(compiled: CompiledModel, folder: Path, name: str) -> str:
    path = folder / f"{name}.aicf"
    compiled.save(path)
    return str(path)
