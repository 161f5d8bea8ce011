"""Our training steps, compiled: forward, loss, backward, optimizer and counter in one program.

The artifacts have no weights; beside each lies what a step begins with besides its parameters.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from works import LEARNING_RATE, WORKS, Array, Workload, random_parameters

import aicf
from aicf import Graph, PlanError

BUDGETED = ("encoder",)
"""Works that are also compiled with a memory budget."""
BUDGET = 0.6
"""Of the peak without one; what is no arena, such as the state, takes its part of that."""


def forward(work: Workload) -> Graph:
    """x to f32 logits."""
    graph = Graph("network")
    x = graph.input("x", tuple(work.x_shape), work.x_dtype)
    parameters = {name: graph.param(name, tuple(shape)) for name, shape in work.parameters.items()}
    logits = work.network(graph, x, parameters)
    graph.output(logits if logits.dtype == "f32" else graph.cast(logits, "f32"), "logits")
    return graph


def compiled_step(work: Workload, target: str, **options: Any) -> aicf.TrainStep:
    """The step of a work, with its first parameters. Options as of `aicf.train_step`."""
    if work.tf32:
        options["policy"] = {"kernel": {"tf32": True}}
    optimizer = (
        aicf.optimizers.AdamW(LEARNING_RATE, weight_decay=work.decay)
        if work.decay
        else aicf.optimizers.Adam(LEARNING_RATE)
    )
    parameters = random_parameters(work)
    return aicf.train_step(
        forward(work), "cross_entropy", optimizer, weights=parameters, target=target, **options
    )


def artifacts(folder: Path, name: str) -> dict[str, Path]:
    """Where the compiled step of a work is: without and, if it is measured, with a memory budget."""
    labels = ("aicf", "aicf_budget") if name in BUDGETED else ("aicf",)
    return {label: folder / f"{name}{label.removeprefix('aicf')}.aicf" for label in labels}


def reason_file(artifact: Path) -> Path:
    """Where it is said why an artifact could not be made."""
    return artifact.with_suffix(".txt")


def commit_file(folder: Path, name: str) -> Path:
    """Where the commit that the artifacts of a work were compiled from is noted."""
    return folder / f"{name}.commit"


def compile_artifacts(folder: Path, name: str, target: str, tuning: Path | None, commit: str) -> None:
    """Writes the artifacts of a work and the commit; says what is in them. In place of one whose budget is too small
    stands the reason."""
    budget: dict[str, int] = {}
    for label, path in artifacts(folder, name).items():
        started = time.perf_counter()
        try:
            step = compiled_step(WORKS[name], target, tuning=tuning, **(budget if label != "aicf" else {}))
        except PlanError as error:
            reason_file(path).write_text(str(error), "utf-8")
            print(f"{path.stem}: {error}")
            continue
        _write(path, step, WORKS[name].parameters)
        memory = step.memory()
        peak = predicted_bytes(memory)
        budget = {"memory_budget": int(BUDGET * peak) - (peak - arena_bytes(memory))}
        kernels = Counter(launch.kernel for launch in step.executable.plan.programs[0].launches)
        said = ", ".join(f"{count} {kernel}" for kernel, count in kernels.most_common())
        seconds = time.perf_counter() - started
        print(f"{path.stem}: {seconds:.1f} s, {peak / 1e6:.1f} MB, {kernels.total()} instructions: {said}")
    commit_file(folder, name).write_text(commit, "utf-8")


def _write(path: Path, step: aicf.TrainStep, parameters: Mapping[str, Sequence[int]]) -> None:
    """The artifact, and what it begins with besides the parameters."""
    reason_file(path).unlink(missing_ok=True)
    step.executable.save(path, weights=False)
    others = {key: value for key, value in step.executable.weights.items() if key not in parameters}
    # Nearly all are zeros, which take no room once they are compressed.
    np.savez_compressed(path.with_suffix(".npz"), **others)


def predicted_bytes(memory: Mapping[str, int]) -> int:
    """The peak of a program on a device, of what `memory` of an executable says."""
    return _only(memory, "peak@")


def arena_bytes(memory: Mapping[str, int]) -> int:
    """What of that is the arena, which a budget is for."""
    return _only(memory, "arena@")


def _only(memory: Mapping[str, int], prefix: str) -> int:
    (size,) = (size for use, size in memory.items() if use.startswith(prefix))
    return size


def first_values(artifact: Path, parameters: Mapping[str, Array]) -> dict[str, Array]:
    """What an artifact's step begins with: parameters, states and the numbers that never change."""
    with np.load(artifact.with_suffix(".npz")) as others:
        return {**parameters, **others}
