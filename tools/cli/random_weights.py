"""Random weights for a program in text, for `aicf bench --random-weights`: what they are changes no time."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from aicf.dialects.logical import NAME_ATTR, ROLE_ATTR, START_ATTR
from aicf.dialects.types import TensorInfo, tensor_info
from aicf.passes.bodies.workload import argument_attrs
from aicf.passes.support.interface import functions
from aicf.runtime.tensors import Array, numpy_dtype


def random_arrays(module: ModuleOp, rng: np.random.Generator) -> dict[str, Array]:
    """An array for each parameter, state and meta of a logical module that has no value to start with."""
    return {name: _random(info, rng) for name, info in needed_weights(module)}


def needed_weights(module: ModuleOp) -> Iterator[tuple[str, TensorInfo]]:
    """Names and types of what a logical module reads beside its inputs, each name once."""
    seen: set[str] = set()
    for function in functions(module):
        for argument in function.body.block.args:
            attributes = argument_attrs(function, argument.index)
            name = attributes[NAME_ATTR].data
            if attributes[ROLE_ATTR].data != "input" and START_ATTR not in attributes and name not in seen:
                seen.add(name)
                yield name, tensor_info(argument.type)


def _random(info: TensorInfo, rng: np.random.Generator) -> Array:
    """Matrices whose products stay near 1; scales, biases and variances from 0.5 to 1.5; small integers."""
    dtype = numpy_dtype(info.element.name)
    if dtype.kind in "iub":
        return rng.integers(0, 2, info.shape).astype(dtype)
    if info.rank < 2:
        return rng.uniform(0.5, 1.5, info.shape).astype(dtype)
    return (rng.standard_normal(info.shape) / sqrt(info.shape[-1] or 1)).astype(dtype)
