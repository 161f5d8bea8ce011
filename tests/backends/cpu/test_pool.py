"""The kernel of poolings: rows of blocks and their rest, borders, gaps, threads and levels, against loops in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aicf
from aicf.backends.common.pool import PoolAxis
from aicf.backends.cpu.families.pool.schedule import (
    PoolProblem,
    choose,
    pool_record,
    read_pool_spec,
)
from aicf.backends.cpu.families.records import integer
from aicf.backends.cpu.target import level_named
from aicf.dialects.types import element_named
from aicf.errors import PlanError
from aicf.frontends.builder import Graph
from tests.support.op_rows.pooling import ROWS

ORACLES = {row.name: row.oracle for row in ROWS}

CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "blocks and a rest": (
        (1, 2, 23, 37),
        {"sizes": [3, 3], "strides": [2, 2], "low": [1, 1], "high": [1, 1]},
    ),
    "more rows than at once": (
        (2, 1, 5, 4, 19),
        {"sizes": [3, 3, 2], "strides": [1, 1, 3], "low": [1, 1, 0]},
    ),
    "columns in a loop": ((1, 1, 3, 40), {"sizes": [1, 19], "dilations": [1, 2]}),
    "one row in place": ((2, 3, 70), {"sizes": [4], "strides": [3]}),
    "one row with a border": ((2, 3, 70), {"sizes": [4], "strides": [4], "low": [2], "high": [3]}),
    "far apart": ((1, 2, 11, 43), {"sizes": [2, 2], "strides": [1, 5], "dilations": [4, 3]}),
    "beyond the operand": (
        (1, 2, 10, 12),
        {"sizes": [3, 4], "strides": [3, 3], "high": [0, 1], "ceil_mode": True},
    ),
    "windows of nothing": ((1, 1, 2, 3), {"sizes": [2, 1], "low": [3, 1], "high": [2, 2]}),
}


def program(
    op: str, shape: tuple[int, ...], windows: dict[str, Any], dtype: str, **target: Any
) -> aicf.CompiledModel:
    g = Graph("pooling")
    g.output(getattr(g, op)(g.input("x", shape, dtype), **windows), "y")
    return aicf.compile(g, **target)


def wanted(op: str, x: np.ndarray, windows: dict[str, Any]) -> np.ndarray:
    ones, zeros = [1] * (x.ndim - 2), [0] * (x.ndim - 2)
    absent = {"strides": ones, "dilations": ones, "low": zeros, "high": zeros, "ceil_mode": False}
    more = {"count_include_pad": False} if op == "avg_pool" else {}
    return ORACLES[op](x, **{**absent, **more, **windows})


@pytest.mark.parametrize("target", ["cpu:generic", "cpu:x86-64-v3", "cpu"])
@pytest.mark.parametrize("op", ["max_pool", "avg_pool"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_same_answer(case: tuple[tuple[int, ...], dict[str, Any]], op: str, target: str) -> None:
    shape, windows = case
    exe = program(op, shape, windows, "f32", target=target)
    assert 'kernel("cpu.pool"' in exe.ir("emit")
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    x[(0, 0, *(size // 2 for size in shape[2:]))] = np.nan
    np.testing.assert_allclose(exe(x), wanted(op, x.astype(np.float64), windows), 1e-5, 1e-6)


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16", "i32", "u8"])
def test_element_types(dtype: str) -> None:
    shape, windows = CASES["blocks and a rest"]
    numbers = np.random.default_rng(1).integers(0, 250, shape)
    exe = program("max_pool", shape, windows, dtype, target="cpu")
    x = numbers.astype(element_named(dtype).dtype)
    np.testing.assert_array_equal(exe(x).astype(np.float64), wanted("max_pool", numbers, windows))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("case", ["blocks and a rest", "one row in place"])
def test_means_of_half_floats_add_up_in_f32(dtype: str, case: str) -> None:
    shape, windows = CASES[case]
    element = element_named(dtype).dtype
    x = np.random.default_rng(6).normal(size=shape).astype(element)
    found = program("avg_pool", shape, windows, dtype, target="cpu")(x)
    exact = wanted("avg_pool", x.astype(np.float64), windows)
    np.testing.assert_array_equal(found, exact.astype(np.float32).astype(element))


@pytest.mark.parametrize("op", ["max_pool", "avg_pool"])
def test_threads_share_planes(op: str) -> None:
    shape = (3, 21, 40, 44)
    windows = {"sizes": [3, 3], "strides": [2, 2], "low": [1, 1], "high": [0, 1]}
    x = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    found = [program(op, shape, windows, "f32", target="cpu", threads=threads) for threads in (1, 2)]
    assert "block_rows = 8 : i64, threads = 2 : i64" in found[1].ir("emit")
    np.testing.assert_array_equal(found[0](x), found[1](x))


def test_padding_counts_where_it_is_asked_for() -> None:
    shape = (1, 2, 9, 20)
    windows = {"sizes": [3, 4], "low": [2, 1], "high": [1, 0], "count_include_pad": True}
    x = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    exe = program("avg_pool", shape, windows, "f32", target="cpu")
    np.testing.assert_allclose(exe(x), wanted("avg_pool", x.astype(np.float64), windows), 1e-5, 1e-6)


def test_rows_that_do_not_fit_on_the_stack_are_windows() -> None:
    exe = program("max_pool", (1, 1, 5000), {"sizes": [2], "strides": [2]}, "f32", target="cpu")
    assert 'kernel("cpu.pool"' not in exe.ir("emit")
    assert "its rows are longer than 4096 elements" in exe.ir("emit")
    x = np.random.default_rng(4).normal(size=(1, 1, 5000)).astype(np.float32)
    np.testing.assert_array_equal(exe(x), x.reshape(1, 1, -1, 2).max(-1))
    windows = {"sizes": [3], "strides": [2], "low": [1], "high": [1]}
    means = program("avg_pool", x.shape, windows, "f32", target="cpu")
    np.testing.assert_allclose(means(x), wanted("avg_pool", x.astype(np.float64), windows), 1e-5, 1e-6)


def test_transposed_planes_are_read_by_their_strides() -> None:
    g = Graph("pooling")
    x = g.input("x", (2, 9, 3, 17))
    g.output(g.max_pool(g.transpose(x, [0, 2, 1, 3]), [3, 3], [2, 2]), "y")
    exe = aicf.compile(g, target="cpu")
    given = np.random.default_rng(5).normal(size=(2, 9, 3, 17)).astype(np.float32)
    windows = {"sizes": [3, 3], "strides": [2, 2]}
    np.testing.assert_array_equal(exe(given), wanted("max_pool", given.transpose(0, 2, 1, 3), windows))


@pytest.mark.parametrize(
    "change", [{"lanes": 3}, {"block_rows": 0}, {"block_rows": 12}, {"threads": 0}], ids=str
)
def test_records_that_contradict_themselves_are_refused(change: dict[str, int]) -> None:
    axes = (PoolAxis(23, 3, 2, 1, 1, 1, 11), PoolAxis(37, 3, 2, 1, 1, 1, 19))
    problem = PoolProblem("max", "f32", 1, 2, axes, False, (1702, 851, 37, 1), (418, 209, 19, 1))
    record = pool_record(choose(problem, level_named("x86-64-v4"), 1))
    assert read_pool_spec(record, problem).block_rows == 8
    with pytest.raises(PlanError, match="legal: "):
        read_pool_spec(record | {name: integer(value) for name, value in change.items()}, problem)
