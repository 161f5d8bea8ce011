"""Our training steps, compiled: forward, loss, backward, optimizer and counter in one program."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from works import LEARNING_RATE, WORKS, Array, Work, random_parameters

import aicf
from aicf import Graph, Value
from aicf.compiled import CompiledModel
from aicf.dialects import logical

BUDGETED = ("encoder",)
"""Works that are also compiled with a memory budget."""
BUDGET = 0.6
"""Of the peak without one."""
STATES = ("exp_avg", "exp_avg_sq")


def step_graph(work: Work, name: str) -> Graph:
    """x and y to `loss`, an f32 of rank 0; updates every parameter, its states and `step`."""
    graph = Graph(name)
    x = graph.input("x", tuple(work.x_shape), work.x_dtype)
    y = graph.input("y", (work.x_shape[0],), "i64")
    parameters = {key: graph.param(key, tuple(shape)) for key, shape in work.parameters.items()}
    logits = work.network(graph, x, parameters)
    if logits.dtype != "f32":
        logits = graph.cast(logits, "f32", name="logits")
    loss = graph.cross_entropy(logits, y, name="loss")
    graph.output(loss, "loss")
    _add_optimizer(graph, work, loss, parameters)
    return graph


def _add_optimizer(graph: Graph, work: Work, loss: Value, parameters: dict[str, Value]) -> None:
    block = loss.ssa.owner.parent
    step = graph.meta("step", (), "i64")
    now = logical.StepIncOp(step.ssa)
    rate = logical.LearningRateOp(now.result, "constant", LEARNING_RATE)
    block.add_ops([now, rate])
    for key, value in parameters.items():
        gradient = logical.GradientOp(loss.ssa, value.ssa)
        states = [graph.state(f"{key}.{state}", value.shape) for state in STATES]
        op_class = logical.AdamwOp if work.decay else logical.AdamOp
        operands = (value.ssa, gradient.result, rate.result, now.result, [state.ssa for state in states])
        update = op_class(*operands, weight_decay=work.decay)
        block.add_ops([gradient, update])
        for target, new in zip([value, *states], update.results, strict=True):
            graph.update(target, Value(graph, new))
    graph.update(step, Value(graph, now.result))


def compiled_step(work: Work, target: str, **options: Any) -> CompiledModel:
    """The step of a work, with its first parameters. Options as of `aicf.compile`."""
    if work.tf32:
        options["policy"] = {"kernels": {"tf32": True}}
    weights = initial_state(work, random_parameters(work))
    return aicf.compile(step_graph(work, "step"), weights, target, **options)


def artifacts(folder: Path, name: str) -> dict[str, Path]:
    """Where the compiled step of a work is: without and, if it is measured, with a memory budget."""
    labels = ("aicf", "aicf_budget") if name in BUDGETED else ("aicf",)
    return {label: folder / f"{name}{label.removeprefix('aicf')}.aicf" for label in labels}


def commit_file(folder: Path, name: str) -> Path:
    """Where the commit that the artifacts of a work were compiled from is noted."""
    return folder / f"{name}.commit"


def compile_artifacts(folder: Path, name: str, target: str, tuning: Path | None, commit: str) -> None:
    """Writes the artifacts of a work, without weights, and the commit; says what is in them."""
    budget = 0
    for label, path in artifacts(folder, name).items():
        started = time.perf_counter()
        options = {"memory_budget": budget} if label != "aicf" else {}
        model = compiled_step(WORKS[name], target, tuning=tuning, **options)
        model.save(path, weights=False)
        kernels = Counter(launch.kernel for launch in model.plan.programs[0].launches)
        (peak,) = (size for use, size in model.memory().items() if use.startswith("peak@"))
        budget = int(BUDGET * peak)
        said = ", ".join(f"{count} {kernel}" for kernel, count in kernels.most_common())
        print(
            f"{path.stem}: {time.perf_counter() - started:.1f} s, {peak / 1e6:.1f} MB, {kernels.total()}: {said}"
        )
    commit_file(folder, name).write_text(commit, "utf-8")


def initial_state(work: Work, parameters: dict[str, Array]) -> dict[str, Any]:
    """Parameters with zero states and the counter before the first step."""
    zeros = {f"{key}.{state}": np.zeros_like(value) for key, value in parameters.items() for state in STATES}
    return {**parameters, **zeros, "step": np.zeros((), np.int64)}
