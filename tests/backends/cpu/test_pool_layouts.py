"""Poolings whose operand and result have the channels of a place side by side, against loops in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicf.backends.common.pool import PoolAxis
from aicf.backends.common.record import read_integer, read_text
from aicf.backends.cpu.families.pool.schedule import (
    PoolProblem,
    choose,
    pool_record,
    read_pool_spec,
    refusal,
)
from aicf.backends.cpu.families.records import integer
from aicf.backends.cpu.target import host_level, level_named
from aicf.dialects.types import element_named
from aicf.errors import PlanError
from aicf.frontends.builder import Graph
from tests.backends.cpu.strided_kernel import StridedKernel
from tests.backends.cpu.test_pool import CASES as PLANES
from tests.backends.cpu.test_pool import wanted

Windows = dict[str, Any]

CASES: dict[str, tuple[tuple[int, ...], Windows]] = {
    name: ((shape[0], channels, *shape[2:]), windows)
    for (name, (shape, windows)), channels in zip(PLANES.items(), (5, 8, 19, 33, 70, 1, 40, 12), strict=True)
} | {
    "all of an image": ((2, 37, 7, 7), {"sizes": [7, 7]}),
    "as long as a loop": ((1, 20, 15, 16), {"sizes": [15, 16]}),
    "a long window that reaches out": ((1, 9, 11, 13), {"sizes": [7, 7], "low": [3, 3], "high": [3, 3]}),
    "one column": ((1, 24, 9, 1), {"sizes": [3, 1], "strides": [2, 1], "low": [1, 0], "high": [1, 0]}),
}


def pooling(
    op: str, name: str, dtype: str, target: str = "cpu", threads: int = 1, **more: Any
) -> StridedKernel:
    shape, windows = CASES[name]
    g = Graph("pooling")
    g.output(getattr(g, op)(g.input("x", shape, dtype), **windows, **more), "y")
    return StridedKernel(g, "cpu.pool", ["channels"], "channels", target, threads)


@pytest.mark.parametrize(
    "target", sorted({f"cpu:{name}" for name in ("generic", "x86-64-v3", host_level().name)})
)
@pytest.mark.parametrize("op", ["max_pool", "avg_pool"])
@pytest.mark.parametrize("name", CASES)
def test_same_answer(name: str, op: str, target: str) -> None:
    shape, windows = CASES[name]
    kernel = pooling(op, name, "f32", target)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    x[(0, 0, *(size // 2 for size in shape[2:]))] = np.nan
    np.testing.assert_allclose(kernel([x]), wanted(op, x.astype(np.float64), windows), 1e-5, 1e-6)


@pytest.mark.parametrize("name", ["blocks and a rest", "more rows than at once", "as long as a loop"])
def test_channels_are_lanes(name: str) -> None:
    assert read_text(pooling("max_pool", name, "f32").record, "lanes_along") == "channels"


@pytest.mark.parametrize(
    "name", ["blocks and a rest", "windows of nothing", "a long window that reaches out"]
)
def test_padding_counts_where_it_is_asked_for(name: str) -> None:
    shape, windows = CASES[name]
    x = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    found = pooling("avg_pool", name, "f32", count_include_pad=True)([x])
    exact = wanted("avg_pool", x.astype(np.float64), {**windows, "count_include_pad": True})
    np.testing.assert_allclose(found, exact, 1e-5, 1e-6)


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16", "i32", "u8"])
def test_element_types(dtype: str) -> None:
    shape, windows = CASES["blocks and a rest"]
    numbers = np.random.default_rng(1).integers(0, 250, shape)
    found = pooling("max_pool", "blocks and a rest", dtype)([numbers.astype(element_named(dtype).dtype)])
    np.testing.assert_array_equal(found.astype(np.float64), wanted("max_pool", numbers, windows))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_means_of_half_floats_add_up_in_f32(dtype: str) -> None:
    shape, windows = CASES["blocks and a rest"]
    element = element_named(dtype).dtype
    x = np.random.default_rng(6).normal(size=shape).astype(element)
    exact = wanted("avg_pool", x.astype(np.float64), windows)
    found = pooling("avg_pool", "blocks and a rest", dtype)([x])
    np.testing.assert_array_equal(found, exact.astype(np.float32).astype(element))


@pytest.mark.parametrize("op", ["max_pool", "avg_pool"])
@pytest.mark.parametrize("channels", [64, 75])
def test_threads_share_channels(op: str, channels: int) -> None:
    shape, windows = (
        (1, channels, 60, 64),
        {"sizes": [3, 3], "strides": [2, 2], "low": [1, 1], "high": [0, 1]},
    )
    g = Graph("pooling")
    g.output(getattr(g, op)(g.input("x", shape), **windows), "y")
    kernel = StridedKernel(g, "cpu.pool", ["channels"], "channels", "cpu", 2)
    assert read_integer(kernel.record, "threads") == 2
    x = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    outside = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 0), (1, 1)), constant_values=np.nan)
    spread = np.lib.stride_tricks.sliding_window_view(outside, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    exact = (np.nanmax if op == "max_pool" else np.nanmean)(spread, axis=(4, 5))
    np.testing.assert_allclose(kernel([x]), exact, 1e-5, 1e-6)


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v4"])
@pytest.mark.parametrize("name", CASES)
def test_every_level_compiles(name: str, level: str) -> None:
    assert pooling("avg_pool", name, "f32", f"cpu:{level}").compile()


def problem(x: tuple[int, ...], y: tuple[int, ...], count: int = 19) -> PoolProblem:
    axes = (PoolAxis(23, 3, 2, 1, 1, 1, 11), PoolAxis(2 * count - 1, 3, 2, 1, 1, 1, count))
    return PoolProblem("max", "f32", 1, 16, axes, False, x, y)


LAST = problem((16 * 23 * 37, 1, 16 * 37, 16), (16 * 11 * 19, 1, 16 * 19, 16))


def test_layouts_that_differ_have_no_code() -> None:
    mixed = problem(LAST.x_strides, (16 * 11 * 19, 11 * 19, 19, 1))
    assert refusal(LAST) is None
    assert refusal(mixed) == "neither the elements of its rows nor those of its channels are side by side"
    long = problem((16 * 23 * 9999, 1, 16 * 9999, 16), (16 * 11 * 5000, 1, 16 * 5000, 16), 5000)
    assert refusal(long) == "it has more than 4096 windows along a dimension"


@pytest.mark.parametrize("change", [{"lanes": 3}, {"vectors": 0}, {"threads": 0}], ids=str)
def test_records_that_contradict_themselves_are_refused(change: dict[str, int]) -> None:
    record = pool_record(choose(LAST, level_named("x86-64-v4"), 1))
    assert read_pool_spec(record, LAST).lanes_along == "channels"
    with pytest.raises(PlanError, match="legal: "):
        read_pool_spec(record | {name: integer(value) for name, value in change.items()}, LAST)
    planes = problem((16 * 23 * 37, 23 * 37, 37, 1), (16 * 11 * 19, 11 * 19, 19, 1))
    with pytest.raises(PlanError, match="legal: "):
        read_pool_spec(record, planes)
