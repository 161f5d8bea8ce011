"""Dot products of short terms against NumPy, with the instructions that this machine has and without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aicf.backends.cpu.codegen.dot_products import add_bf16_pairs, add_pairs, add_quads
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.target import CpuLevel, check_host, level_named
from aicf.errors import BackendUnavailable
from tests.backends.cpu.harness import NUMPY, Function, runnable_levels

RANDOM = np.random.default_rng(8)


def featured(*features: str) -> CpuLevel:
    """The level with these features; skips the test where this machine lacks them."""
    level = level_named("+".join(("x86-64-v4", *features)))
    try:
        check_host(level)
    except BackendUnavailable as error:
        pytest.skip(str(error))
    return level


def integers(dtype: str, count: int) -> NDArray[Any]:
    """Random numbers of the whole range, with both of its ends."""
    limits = np.iinfo(dtype)
    numbers = RANDOM.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
    numbers[:2] = limits.min, limits.max
    return numbers


def run(level: CpuLevel, lanes: int, add: Any, sums: NDArray[Any], x: NDArray[Any], y: NDArray[Any]) -> None:
    """Adds to `sums` in place."""
    dtype = str(sums.dtype).replace("float", "f").replace("int", "i")

    def emit(em: Emitter, sums: Value, x: Value, y: Value, *_: Value) -> None:
        first, second = (em.load(each, "i32", lanes) for each in (x, y))
        em.store(add(em, em.load(sums, dtype, lanes), first, second), sums, dtype, lanes)

    Function(level, 3, emit)(sums, x, y)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_pairs(lanes: int) -> None:
    levels = [level for level in runnable_levels() if level.vector_bytes >= 4 * lanes]
    for level in [*levels, featured("avx512vnni")]:
        x, y, sums = integers("int16", 2 * lanes), integers("int16", 2 * lanes), integers("int32", lanes)
        exact = sums + (x.astype(np.int64) * y).reshape(lanes, 2).sum(1)
        run(level, lanes, add_pairs, sums, x, y)
        np.testing.assert_array_equal(sums, exact.astype(np.int32), err_msg=level.name)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_quads(lanes: int) -> None:
    x, y, sums = integers("uint8", 4 * lanes), integers("int8", 4 * lanes), integers("int32", lanes)
    exact = sums + (x.astype(np.int64) * y).reshape(lanes, 4).sum(1)
    run(featured("avx512vnni"), lanes, add_quads, sums, x, y)
    np.testing.assert_array_equal(sums, exact.astype(np.int32))


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_pairs_of_bf16(lanes: int) -> None:
    x, y = (RANDOM.normal(size=2 * lanes).astype(NUMPY["bf16"]) for _ in range(2))
    sums = RANDOM.normal(size=lanes).astype(np.float32)
    exact = sums + (x.astype(np.float64) * y.astype(np.float64)).reshape(lanes, 2).sum(1)
    run(featured("avx512bf16"), lanes, add_bf16_pairs, sums, x, y)
    np.testing.assert_allclose(sums, exact, rtol=1e-6, atol=1e-6)
