"""Scalar ops of generated kernels on whole arrays: one row an op."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_PREDICATES: tuple[Callable[[Array, Array], Any] | None, ...] = (
    None, np.equal, np.greater, np.greater_equal, np.less, np.less_equal, None, None,
    None, None, None, None, None, np.not_equal,
)  # fmt: skip
"""By the number of a float comparison in arith: ordered ones and `une`, which is what NumPy computes."""


def compare(predicate: int, a: Array, b: Array) -> Array:
    """`arith.cmpf`."""
    function = _PREDICATES[predicate]
    if function is None:
        raise NotImplementedError(f"comparison {predicate}")
    return function(a, b)


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[x.dtype])(x)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


SCALARS: dict[str, Callable[..., Array] | None] = {
    "arith.constant": None,
    "arith.cmpf": None,
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.negf": np.negative,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.select": np.where,
    "math.exp": np.exp,
    "math.log": np.log,
    "math.sqrt": np.sqrt,
    "math.rsqrt": lambda x: (1 / np.sqrt(x)).astype(x.dtype),
    "math.tanh": np.tanh,
    "math.erf": _erf,
    "emit.sigmoid": _sigmoid,
}
"""Op name to its function; None for those with parameters, which `loader` knows."""
