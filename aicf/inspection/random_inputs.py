"""Random inputs for programs that are timed, compared or repeated: the same for the same seed, in every process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aicf.runtime.capture_plan import CapturePlan
from aicf.runtime.tensors import Array, numpy_dtype

GENERATOR = "numpy.random.PCG64"
"""What draws them; NumPy keeps its bits the same between versions."""

MOST_INTEGER = 100
"""Integers are below it: most of them are indices, and tables are longer."""


def random_inputs(plan: CapturePlan, seed: int) -> dict[str, Array]:
    """An array for each input of a program, by name: normal floats, small integers, either truth value."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return {bind.name: random_array(bind.shape, bind.dtype, rng) for bind in plan.graph.inputs}


def random_array(shape: Sequence[int], dtype: str, rng: np.random.Generator) -> Array:
    """Data of one shape and element type, by the name of AICF."""
    own = numpy_dtype(dtype)
    if own.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if own.kind in "iu":
        return np.asarray(rng.integers(0, MOST_INTEGER, shape)).astype(own)
    return np.asarray(rng.standard_normal(shape)).astype(own)
