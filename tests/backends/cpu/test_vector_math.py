"""Accuracy of the vector functions in ulp, on every level this machine runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

from aicf.backends.cpu.ir_builder import Emitter, Value
from aicf.backends.cpu.target import CpuLevel
from aicf.backends.cpu.vector_math import FUNCTIONS, VectorMath
from tests.backends.cpu.harness import NUMPY, Function, runnable_levels

Array = NDArray[Any]
COUNT = 1 << 16
LIMIT = 4.0


def compiled(name: str, dtype: str, level: CpuLevel, lanes: int) -> Function:
    def emit(em: Emitter, source: Value, target: Value, *_: Value) -> None:
        math_ = VectorMath(em, dtype, lanes)

        def body(i: Value, _: list[Value]) -> list[Value]:
            value = em.load(em.address(source, i, dtype), dtype, lanes)
            em.store(FUNCTIONS[name](math_, value), em.address(target, i, dtype), dtype, lanes)
            return []

        em.loop(0, COUNT, lanes, [], body)

    return Function(level, 2, emit)


def wide(x: Array) -> Array:
    return x.astype(np.float64 if x.dtype == np.float32 else np.longdouble)


def erf(x: Array) -> Array:
    if x.dtype == np.float64:
        return special.erf(x)
    return np.array([math.erf(float(v)) for v in x], np.longdouble)


def sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


REFERENCES = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": erf,
    "sigmoid": sigmoid,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


def arguments(dtype: str, rng: np.random.Generator) -> Array:
    """Bit patterns over the whole format, and dense samples where the functions are interesting."""
    kind = NUMPY[dtype]
    bits = rng.integers(0, 2**32 if dtype == "f32" else 2**64, COUNT // 4, np.uint64)
    patterns = bits.astype(np.uint32 if dtype == "f32" else np.uint64).view(kind)
    scale = 110.0 if dtype == "f32" else 750.0
    special_ = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        np.inf,
        -np.inf,
        np.nan,
        np.finfo(kind).tiny,
        np.finfo(kind).smallest_subnormal,
    ]
    special_ += [np.finfo(kind).max, -np.finfo(kind).max, 88.72283, -87.3, -103.9, 709.78, -745.1, 0.5, 2.0]
    parts = [
        patterns,
        rng.uniform(-scale, scale, COUNT // 4),
        rng.normal(size=COUNT // 4),
        np.exp(rng.uniform(-3, 3, COUNT // 8)),
        1 + rng.normal(size=COUNT) * 1e-2,
    ]
    with np.errstate(over="ignore"):
        flat = np.concatenate([np.array(special_).astype(kind), *(part.astype(kind) for part in parts)])
    return flat[:COUNT].copy()


def ulps(found: Array, exact: Array) -> Array:
    """Distance in units in the last place of the exact value."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(found.dtype)
        unit = wide(np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, np.finfo(found.dtype).max))))
        distance = np.abs(wide(found) - exact) / unit
    same = (np.isnan(found) & np.isnan(exact)) | (found == rounded)
    return np.where(same, 0, np.where(np.isfinite(found) & np.isfinite(rounded), distance, np.inf))


@pytest.mark.parametrize("level", runnable_levels(), ids=lambda level: level.name)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_within_four_ulp(name: str, dtype: str, level: CpuLevel) -> None:
    x = arguments(dtype, np.random.default_rng(7))
    with np.errstate(all="ignore"):
        exact = REFERENCES[name](wide(x))
    found = np.empty_like(x)
    compiled(name, dtype, level, level.lanes(dtype))(x, found)
    error = ulps(found, exact)
    worst = int(np.argmax(error))
    assert error[worst] <= LIMIT, (
        f"{name}({x[worst]!r}) = {found[worst]!r}, exact {exact[worst]!r}: {error[worst]} ulp"
    )
    zero = found == 0
    assert (np.signbit(found[zero]) == np.signbit(exact[zero])).all()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_scalar_code_gives_the_bits_of_vector_code(name: str, dtype: str) -> None:
    level = runnable_levels()[0]
    x = arguments(dtype, np.random.default_rng(11))
    one, many = np.empty_like(x), np.empty_like(x)
    compiled(name, dtype, level, 1)(x, one)
    compiled(name, dtype, level, level.lanes(dtype))(x, many)
    np.testing.assert_array_equal(one, many)
