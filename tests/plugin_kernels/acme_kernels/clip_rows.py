"""`acme.clip_rows`: rows that are longer than a bound are scaled down to it. With a formula, so that it trains."""

from __future__ import annotations

import math

import numpy as np

import aicf
from aicf.kernels import CpuFunction


def clip_rows(x, *, most: float):
    """Each row times min(1, most / its length)."""
    length = np.sqrt((x * x).sum(-1, keepdims=True))
    return x * np.minimum(1.0, most / np.maximum(length, 1e-30))


def formula(graph, x, *, most):
    """The same in ops of AICF."""
    length = graph.sqrt(graph.reduce_sum(x * x, [x.rank - 1], keepdims=True))
    return x * graph.minimum(most / graph.maximum(length, 1e-30), 1.0)


def clip_rows_cpu(x, y, rows, columns, most):
    """Two passes over each row."""
    for row in range(rows):
        total = 0.0
        for column in range(columns):
            total += x[row * columns + column] ** 2
        factor = min(1.0, most / max(math.sqrt(total), 1e-30))
        for column in range(columns):
            y[row * columns + column] = x[row * columns + column] * factor


def _arguments(problem):
    columns = problem.operands[0].shape[-1]
    return problem.operands[0].size // columns, columns, problem.attributes["most"]


OP = aicf.custom_op("acme.clip_rows", clip_rows, formula=formula)
KERNEL = aicf.kernel(
    "acme.clip_rows_cpu",
    runs="acme.clip_rows",
    code=CpuFunction(clip_rows_cpu),
    arguments=_arguments,
    cost_us=lambda problem: problem.traffic_bytes / 10_000,
)
