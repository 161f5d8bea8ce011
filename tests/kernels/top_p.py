"""An op with a kernel for processors, as a package would define it: nucleus filtering (Holtzman et al., 2020)."""

from __future__ import annotations

import math

import numpy as np

import aicf
from aicf.kernels import CpuFunction, Problem, UserKernel


def top_p(x, *, p: float):
    """The elements of each row that are among its most probable ones of mass `p` together; -inf for the others."""
    order = np.argsort(-x, axis=-1, kind="stable")
    ranked = np.take_along_axis(x, order, -1)
    probabilities = np.exp(ranked - ranked[..., :1])
    probabilities /= probabilities.sum(-1, keepdims=True)
    is_kept = np.cumsum(probabilities, -1) - probabilities < p
    kept = np.zeros(x.shape, bool)
    np.put_along_axis(kept, order, is_kept, -1)
    return np.where(kept, x, -np.inf)


def top_p_rows(x, y, rows, columns, p):
    """Takes the largest element that is left, again and again; -inf marks what is not taken."""
    for row in range(rows):
        start = row * columns
        top = x[start]
        for column in range(columns):
            y[start + column] = -math.inf
            top = max(top, x[start + column])
        total = 0.0
        for column in range(columns):
            total += math.exp(x[start + column] - top)
        mass = 0.0
        for _ in range(columns):
            best = -1
            for column in range(columns):
                is_left = y[start + column] == -math.inf
                if is_left and (best < 0 or x[start + column] > x[start + best]):
                    best = column
            if mass >= p * total:
                break
            y[start + best] = x[start + best]
            mass += math.exp(x[start + best] - top)


def rows_and_columns(problem: Problem) -> tuple[int, int]:
    """Of the first operand, as a matrix."""
    columns = problem.operands[0].shape[-1]
    return problem.operands[0].size // columns, columns


def define() -> UserKernel:
    """The op and its kernel."""
    aicf.custom_op("acme.top_p", top_p)
    return aicf.kernel(
        "acme.top_p_cpu",
        runs="acme.top_p",
        code=CpuFunction(top_p_rows),
        arguments=lambda problem: (*rows_and_columns(problem), problem.attributes["p"]),
        dtypes=("f32", "f64"),
        order="falling elements, then rising indices",
    )
