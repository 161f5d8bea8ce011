"""A kernel for an op that AICF has, which only a policy takes: it is slow, and says so."""

from __future__ import annotations

import math

import aicf
from aicf.kernels import CpuFunction


def rms_norm_cpu(x, scale, y, rows, columns, epsilon):
    """Row by row."""
    for row in range(rows):
        total = 0.0
        for column in range(columns):
            total += x[row * columns + column] ** 2
        factor = 1.0 / math.sqrt(total / columns + epsilon)
        for column in range(columns):
            y[row * columns + column] = x[row * columns + column] * factor * scale[column]


KERNEL = aicf.kernel(
    "acme.rms_norm_cpu",
    runs="logical.rms_norm",
    code=CpuFunction(rms_norm_cpu),
    arguments=lambda problem: (*problem.operands[0].shape, problem.attributes["epsilon"]),
    cost_us=lambda problem: 1e6,
    legal=lambda problem: None if len(problem.operands[0].shape) == 2 else "it takes matrices",
)
