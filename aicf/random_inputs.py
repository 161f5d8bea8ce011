"""Random inputs for programs that are timed, compared or repeated: the same for the same seed, in every process."""

from __future__ import annotations

import numpy as np

from aicf.runtime.capture_plan import CapturePlan
from aicf.runtime.graph import Bind
from aicf.runtime.tensors import Array, numpy_dtype

GENERATOR = "numpy.random.PCG64"
"""What draws them; NumPy keeps its bits the same between versions."""

MOST_INTEGER = 100
"""Integers are below it: most of them are indices, and tables are longer."""


def random_inputs(plan: CapturePlan, seed: int) -> dict[str, Array]:
    """An array for each input of a program, by name: normal floats, small integers, either truth value."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return {bind.name: random_input(bind, rng) for bind in plan.graph.inputs}


def random_input(bind: Bind, rng: np.random.Generator) -> Array:
    """Data for one input."""
    dtype = numpy_dtype(bind.dtype)
    if dtype.kind == "b":
        return rng.random(bind.shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0, MOST_INTEGER, bind.shape).astype(dtype)
    return rng.standard_normal(bind.shape).astype(dtype)
