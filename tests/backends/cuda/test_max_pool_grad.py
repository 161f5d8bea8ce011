"""The kernels of gradients of poolings by the largest element: on a simulated GPU in both layouts, their legality, and
their machine code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from aicf.backends.base import Launch
from aicf.backends.common.record import read_integer
from aicf.backends.cuda.compiler.build import emitter
from aicf.backends.cuda.compiler.code import Cubin
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.frontends.builder import Graph
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.backends.cuda.test_generated_programs import compiled, simulated
from tests.support.op_rows.pooling import max_pool_grad, max_pool_taps, starts_of

Array = NDArray[Any]

TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f64": np.float64}
ROUNDED = {"f32": 2.0**-24, "bf16": 2.0**-8, "f16": 2.0**-11, "f64": 2.0**-53}
"""What rounding a result changes at most, of 1. Sums of halves are rounded as f32 before."""
LAST = '{"layouts": {"*": "channels_last"}}'
STEM: dict[str, Any] = {
    "sizes": [3, 3],
    "strides": [2, 2],
    "dilations": [1, 1],
    "low": [1, 1],
    "high": [1, 1],
}


@dataclass(frozen=True)
class Drawn:
    """A pooling of one to three dimensions, and what is passed back to it."""

    shape: tuple[int, ...]
    counts: tuple[int, ...]
    dtype: str
    windows: dict[str, Any]

    @property
    def of_grad(self) -> dict[str, Any]:
        """The attributes of the gradient."""
        return {name: value for name, value in self.windows.items() if name not in ("high", "ceil_mode")}

    def graph(self, last: bool) -> Graph:
        """Both kernels; with `last` in channels-last memory."""
        g = Graph("gradient")
        x, grad = (self._input(g, name, shape, last) for name, shape in self.shapes.items())
        taps = g.max_pool_taps(x, **self.windows)
        back = g.max_pool_grad(taps, grad, list(self.shape[2:]), **self.of_grad)
        for name, value in (("taps", taps), ("back", back)):
            g.output(g.transpose(value, inner(value.rank)) if last else value, name)
        return g

    def _input(self, g: Graph, name: str, shape: tuple[int, ...], last: bool) -> Any:
        if not last:
            return g.input(name, shape, self.dtype)
        order = inner(len(shape))
        return g.transpose(g.input(name, [shape[dim] for dim in order], self.dtype), outer(len(shape)))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"x": self.shape, "grad": (*self.shape[:2], *self.counts)}

    def values(self, seed: int) -> dict[str, Array]:
        """Few values, so that many are equal; some are NaN, and some windows hold nothing but negative infinity."""
        random = np.random.default_rng(seed)
        x = random.integers(-2, 3, self.shape).astype(np.float64)
        odd = random.random(self.shape)
        x[odd < 0.04], x[odd > 0.7] = np.nan, -np.inf
        grad = random.standard_normal(self.shapes["grad"])
        return {"x": x.astype(TYPES[self.dtype]), "grad": grad.astype(TYPES[self.dtype])}


def inner(rank: int) -> list[int]:
    """The order of dimensions that puts channels last."""
    return [0, *range(2, rank), 1]


def outer(rank: int) -> list[int]:
    """Its inverse."""
    return [0, rank - 1, *range(1, rank - 1)]


def drawn(seed: int) -> Drawn:
    random = Random(seed)
    rank, ceil_mode = 1 + seed % 3, random.random() < 0.3
    while True:
        axes = [_axis(random, rank, ceil_mode) for _ in range(rank)]
        if prod(axis[1] for axis in axes) <= 32 and prod(axis[0] for axis in axes) <= 150:
            break
    names = ("sizes", "strides", "dilations", "low", "high")
    lists = zip(*(axis[1:] for axis in axes), strict=True)
    windows = {**{name: list(one) for name, one in zip(names, lists, strict=True)}, "ceil_mode": ceil_mode}
    counts = tuple(len(starts_of(*axis, ceil_mode)) for axis in axes)
    shape = (random.choice((1, 2)), random.choice((1, 3, 8, 16)), *(axis[0] for axis in axes))
    return Drawn(shape, counts, list(TYPES)[seed % len(TYPES)], windows)


def _axis(random: Random, rank: int, ceil_mode: bool) -> tuple[int, ...]:
    while True:
        whole = random.choice((1, 3, 6, 9) if rank > 1 else (1, 7, 30))
        size, stride, dilation = random.randint(1, 4), random.randint(1, 3), random.choice((1, 1, 2))
        low, high = (random.choice((0, 0, 1, size)) for _ in range(2))
        if starts_of(whole, size, stride, dilation, low, high, ceil_mode):
            return whole, size, stride, dilation, low, high


# Results


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(16))
def test_drawn_gradients(seed: int) -> None:
    """Against window after window in float64, in row-major and in channels-last memory."""
    case = drawn(seed)
    given = case.values(seed)
    taps = max_pool_taps(given["x"], **{"ceil_mode": False, **case.windows})
    exact = max_pool_grad(taps, given["grad"].astype(np.float64), list(case.shape[2:]), **case.of_grad)
    magnitude = max_pool_grad(
        taps, np.abs(given["grad"].astype(np.float64)), list(case.shape[2:]), **case.of_grad
    )
    rounded = ROUNDED[case.dtype]
    allowed = 1.01 * rounded * np.abs(exact) + 32 * min(rounded, 2.0**-24) * magnitude + 2.0**-25
    for last in (False, True):
        order = inner(len(case.shape)) if last else range(len(case.shape))
        plan, unit = compiled(case.graph(last).module(), LAST if last else "")
        used = [launch.kernel for launch in unit.launches if not launch.kernel.startswith("cuda.copy")]
        assert used == ["cuda.pool_taps", "cuda.max_pool_grad"]
        lying = {name: np.ascontiguousarray(value.transpose(order)) for name, value in given.items()}
        found = simulated(plan, unit, lying)
        np.testing.assert_array_equal(found["taps"], taps.transpose(order))
        away = np.abs(found["back"].astype(np.float64) - exact.transpose(order))
        assert (away <= allowed.transpose(order)).all()


def test_the_draws_are_of_every_kind() -> None:
    """Vectors of several widths, windows that overlap, lie apart, leave gaps or find nothing."""
    cases = list(map(drawn, range(16)))
    lists = [dict(zip(case.windows, case.windows.values(), strict=True)) for case in cases]
    pairs = [pair for each in lists for pair in zip(each["sizes"], each["strides"], strict=True)]
    assert any(size > stride for size, stride in pairs) and any(size < stride for size, stride in pairs)
    assert any(max(each["dilations"]) > 1 for each in lists) and any(each["ceil_mode"] for each in lists)
    assert {len(case.counts) for case in cases} == {1, 2, 3} and {case.dtype for case in cases} == set(TYPES)
    taps = [max_pool_taps(case.values(seed)["x"], **case.windows) for seed, case in enumerate(cases)]
    assert any((found == prod(case.windows["sizes"])).any() for found, case in zip(taps, cases, strict=True))


# Legality


@pytest.mark.parametrize(
    ("shape", "windows", "kernels"),
    [
        ((2, 3, 40), {"sizes": [33]}, {"cuda.max_pool_grad"}),
        ((2, 3, 140), {"sizes": [70]}, set[str]()),
        ((2, 3, 200), {"sizes": [2], "strides": [65]}, {"cuda.pool_taps"}),
    ],
)
def test_what_is_refused(shape: tuple[int, ...], windows: dict[str, Any], kernels: set[str]) -> None:
    """Windows that are too long for a thread, and those that are too far apart, are sums of slices."""
    g = Graph("refused")
    x = g.input("x", shape)
    taps = g.max_pool_taps(x, **windows)
    g.output(g.max_pool_grad(taps, g.input("grad", taps.shape), list(shape[2:]), **windows), "back")
    _, unit = compiled(g.module(), "")
    own = {"cuda.pool_taps", "cuda.max_pool_grad"}
    assert {launch.kernel for launch in unit.launches} & own == kernels


# Machine code


def launches_of(dtype: str) -> dict[str, Launch]:
    """Those of the first pooling of a residual network."""
    case = Drawn((32, 64, 112, 112), (56, 56), dtype, {**STEM, "ceil_mode": False})
    _, unit = compiled(case.graph(True).module(), LAST)
    return {launch.kernel: launch for launch in unit.launches}


def cubin_of(launch: Launch) -> Cubin:
    (part,) = emitter(launch.kernel)(launch)
    (cubin,) = compile_kernels([part.code], "sm_90a").values()
    return cubin


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_windows_are_read_at_once_and_written_at_once(dtype: str) -> None:
    """Sixteen bytes of each element and of each gradient once, with the taps of as many channels; no spills, and as
    many threads as a multiprocessor needs."""
    launches, taps = launches_of(dtype), {"bf16": "64", "f32": ""}[dtype]
    wanted: Sequence[tuple[str, dict[str, int], int]] = (
        ("cuda.pool_taps", {"LDG.E.128": 9, f"STG.E{'.64' if taps else ''}": 1}, 80),
        ("cuda.max_pool_grad", {"LDG.E.128": 4, f"LDG.E{'.64' if taps else ''}": 4, "STG.E.128": 4}, 96),
    )
    for kernel, accesses, registers in wanted:
        launch = launches[kernel]
        assert read_integer(launch.record, "vector") == {"bf16": 8, "f32": 4}[dtype]
        cubin = cubin_of(launch)
        names = Counter(instructions(cubin))
        assert {name: names[name] for name in starting(names, ("LDG", "STG"))} == accesses
        assert cubin.stack_bytes == 0 and cubin.registers <= registers and not starting(names, SPILLS)
