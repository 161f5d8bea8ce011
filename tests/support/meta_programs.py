"""Programs with counters: numbers that follow from the step, and random numbers that differ from step to step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aicf.frontends.builder import Graph


def scalars_program() -> Graph:
    """Rates, corrections and an offset of the step; `total` adds up x times the cosine rate."""
    graph = Graph("scalars")
    x, total = graph.input("x", ()), graph.state("total", ())
    step = graph.meta("step", (), "i64")
    now = graph.step_inc(step, name="now")
    cosine = graph.learning_rate(now, "cosine", 0.1, 3, 20, 0.001, name="cosine")
    outputs = {
        "cosine": cosine,
        "linear": graph.learning_rate(now, "linear", 0.3, 0, 17, 0.02, name="linear"),
        "constant": graph.learning_rate(now, "constant", 0.7, 5, name="constant"),
        "fast": graph.bias_corr(now, 0.9, name="fast"),
        "slow": graph.bias_corr(now, 0.999, name="slow"),
        "offset": graph.add(graph.mul(step, 1048583), 1 << 48, name="offset"),
        "place": graph.mod(graph.sub(step, 30), 7, name="place"),
        "bits": graph.and_(graph.sub(step, 5), 1022, name="bits"),
    }
    for name, value in outputs.items():
        graph.output(value, name)
    graph.update(total, total + x * cosine)
    graph.update(step, now)
    return graph


START: dict[str, Any] = {"total": np.zeros((), np.float32), "step": np.array(0)}


def scalars(step: int) -> dict[str, float]:
    """The outputs of `scalars_program` at a step, counted from 1, in f64."""

    def left(steps: int, warmup: int) -> float:
        return min((step - 1 - warmup) / (steps - warmup), 1.0)

    wave = (1 + math.cos(math.pi * left(20, 3))) / 2
    return {
        "cosine": 0.1 * step / 3 if step <= 3 else 0.001 + 0.099 * wave,
        "linear": 0.3 - 0.28 * left(17, 0),
        "constant": 0.7 * min(step / 5, 1),
        "fast": -math.expm1(step * math.log(0.9)),
        "slow": -math.expm1(step * math.log(0.999)),
        "offset": ((step - 1) * 1048583 + 2**48 + 2**63) % 2**64 - 2**63,
        "place": (step - 31) % 7,
        "bits": (step - 6) & 1022,
    }


def dropout_program() -> Graph:
    """Dropout of 32000 elements, which takes 8000 counters a step."""
    graph = Graph("drop")
    x, seed, step = graph.input("x", (128, 250)), graph.meta("seed", (), "i64"), graph.meta("step", (), "i64")
    graph.output(graph.dropout(x, seed, step * 8000, 0.25), "y")
    graph.update(step, graph.step_inc(step))
    return graph


def regression_program() -> Graph:
    """A step of regression after dropout: Adam for the weight, gradient descent for the bias."""
    graph = Graph("step")
    x, y = graph.input("x", (8, 6)), graph.input("y", (8, 4))
    w, b = graph.param("w", (4, 6)), graph.param("b", (4,))
    mean, square = graph.state("w.exp_avg", (4, 6)), graph.state("w.exp_avg_sq", (4, 6))
    seed, step = graph.meta("seed", (), "i64"), graph.meta("step", (), "i64")
    found = graph.linear(graph.dropout(x, seed, step * 12, 0.25), w, b)
    loss = graph.mse_loss(found, y)
    now = graph.step_inc(step)
    rate = graph.learning_rate(now, "cosine", 0.1, 3, 40)
    by_w, by_b = graph.gradient(loss, w), graph.gradient(loss, b)
    graph.output(loss, "loss")
    for old, new in zip((w, mean, square), graph.adam(w, by_w, rate, now, [mean, square]), strict=True):
        graph.update(old, new)
    graph.update(b, graph.sgd(b, by_b, rate, now)[0])
    graph.update(step, now)
    return graph


def regression_start(rng: np.random.Generator) -> dict[str, Any]:
    """First values of `regression_program`."""
    return {
        "w": rng.standard_normal((4, 6)).astype(np.float32),
        "b": rng.standard_normal(4).astype(np.float32),
        "w.exp_avg": np.zeros((4, 6), np.float32),
        "w.exp_avg_sq": np.zeros((4, 6), np.float32),
        "seed": np.array(7),
        "step": np.array(0),
    }


def regression_batch(rng: np.random.Generator) -> dict[str, Any]:
    """Inputs of `regression_program`."""
    return {name: rng.standard_normal((8, size)).astype(np.float32) for name, size in (("x", 6), ("y", 4))}
