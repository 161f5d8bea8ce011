"""Accuracy of the vector functions in ulp, on every level this machine runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.codegen.math.elementary import VectorMath
from aicf.backends.cpu.codegen.math.functions import FUNCTIONS
from aicf.backends.cpu.target import LEVELS, CpuLevel
from tests.backends.cpu.harness import NUMPY, Function, runnable_levels, undefined_symbols

Array = NDArray[Any]
COUNT = 1 << 16
LIMIT = 4.0


def compiled(name: str, dtype: str, level: CpuLevel, lanes: int) -> Function:
    """A loop over `COUNT` elements; its pointers are the arguments, then the results."""
    pointers = 3 if name in BINARY else 2

    def emit(em: Emitter, *arguments: Value) -> None:
        *sources, target = arguments[:pointers]
        math_ = VectorMath(em, dtype, lanes)

        def body(i: Value, _: list[Value]) -> list[Value]:
            values = [em.load(em.address(source, i, dtype), dtype, lanes) for source in sources]
            em.store(FUNCTIONS[name](math_, *values), em.address(target, i, dtype), dtype, lanes)
            return []

        em.loop(0, COUNT, lanes, [], body)

    return Function(level, pointers, emit)


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
    "expm1": np.expm1,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "atan": np.arctan,
    "pow": np.power,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
}
BINARY = ("pow",)


def samples(name: str, dtype: str, rng: np.random.Generator) -> list[Array]:
    """Arguments of a function: one array, or two."""
    if name in BINARY:
        return powers(dtype, rng)
    x = arguments(dtype, rng)
    if name in ("sin", "cos"):
        x[: COUNT // 4] = near_quarter_turns(dtype, rng)
    elif name in ("floor", "ceil", "round"):
        x[: COUNT // 8] = rng.integers(-99, 99, COUNT // 8) / 2
    return [x]


def near_quarter_turns(dtype: str, rng: np.random.Generator) -> Array:
    """Arguments of every size, half of them the floats nearest to multiples of pi/2, where a reduction cancels most."""
    kind = NUMPY[dtype]
    top = 127 if dtype == "f32" else 1023
    anywhere = rng.uniform(1, 2, COUNT // 8) * 2.0 ** rng.integers(-30, top + 1, COUNT // 8)
    turns = rng.integers(1, 2**22, COUNT // 8 - len(WORST)) * (np.longdouble(np.pi) / 2 + PI_TAIL / 2)
    with np.errstate(over="ignore"):
        return np.concatenate([anywhere, turns.astype(np.float64), WORST]).astype(kind)


PI_TAIL = np.longdouble(1.2246467991473532e-16)
"""What float64's pi lacks."""
WORST = np.array([6381956970095103.0 * 2.0**797, 16367173.0 * 2.0**72, -1e22, 2.0**120])
"""The float64 and the float32 nearest to a multiple of pi/2 (Muller, "Elementary Functions"), and large ones."""


def powers(dtype: str, rng: np.random.Generator) -> list[Array]:
    """Bases and exponents: special ones with each other, any bit patterns, and results of every size."""
    kind = NUMPY[dtype]
    largest = 88.0 if dtype == "f32" else 709.0
    edges = np.array([0.0, 0.5, 1.0, 2.0, 3.0, 4.5, 1e30, np.inf, np.finfo(kind).smallest_subnormal])
    edges = np.concatenate([edges, -edges, [np.nan, 1 + np.finfo(kind).eps, 2.0**53]])
    pairs = np.array([(a, b) for a in edges for b in edges])
    free = COUNT - len(pairs)
    base = np.exp(rng.uniform(-largest, largest, free))
    base[: free // 4] = 1 + rng.normal(size=free // 4) * 10.0 ** rng.integers(-7, 0, free // 4)
    with np.errstate(all="ignore"):
        exponent = rng.uniform(-1.1, 1.1, free) * largest / np.log(base.astype(kind))
    whole = free // 8
    base[-whole:] = rng.normal(size=whole) * 3
    exponent[-whole:] = rng.integers(-30, 30, whole)
    with np.errstate(over="ignore"):
        return [
            np.concatenate([pairs[:, 0], base]).astype(kind),
            np.concatenate([pairs[:, 1], exponent]).astype(kind),
        ]


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
    given = samples(name, dtype, np.random.default_rng(7))
    with np.errstate(all="ignore"):
        exact = REFERENCES[name](*(wide(x) for x in given))
    found = np.empty_like(given[0])
    compiled(name, dtype, level, level.lanes(dtype))(*given, found)
    error = ulps(found, exact)
    worst = int(np.argmax(error))
    assert error[worst] <= LIMIT, (
        f"{name}({[x[worst] for x in given]}) = {found[worst]!r}, exact {exact[worst]!r}: {error[worst]} ulp"
    )
    zero = found == 0
    assert (np.signbit(found[zero]) == np.signbit(exact[zero])).all()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_scalar_code_gives_the_bits_of_vector_code(name: str, dtype: str) -> None:
    level = runnable_levels()[0]
    given = samples(name, dtype, np.random.default_rng(11))
    one, many = np.empty_like(given[0]), np.empty_like(given[0])
    compiled(name, dtype, level, 1)(*given, one)
    compiled(name, dtype, level, level.lanes(dtype))(*given, many)
    np.testing.assert_array_equal(one, many)


@pytest.mark.parametrize("level", LEVELS.values(), ids=lambda level: level.name)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_no_function_needs_a_library(dtype: str, level: CpuLevel) -> None:
    """On no level, scalar or vector: where an instruction is missing, LLVM would call libm."""
    for lanes in (1, level.lanes(dtype)):

        def emit(em: Emitter, source: Value, target: Value, *_: Value, lanes: int = lanes) -> None:
            x = em.load(source, dtype, lanes)
            for number, (name, function) in enumerate(FUNCTIONS.items()):
                value = function(VectorMath(em, dtype, lanes), *[x] * (2 if name in BINARY else 1))
                em.store(value, em.address(target, number * lanes, dtype), dtype, lanes)

        assert undefined_symbols(Function.compile_only(level, 2, emit)) == []
