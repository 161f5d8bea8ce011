"""Convolutions whose input, result and residual lie in planes or channels last, each for itself, against NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aicf.backends.common.record import read_text
from aicf.backends.cpu.families.conv import kernel as conv_kernels
from aicf.backends.cpu.families.conv.candidates import ConvQuery, candidates_of
from aicf.backends.cpu.families.conv.checks import check
from aicf.backends.cpu.families.conv.problem import ConvProblem
from aicf.backends.cpu.families.conv.schedule import ConvSpec
from tests.backends.cpu.harness import NUMPY
from tests.backends.cpu.strided_kernel import Lies, StridedKernel
from tests.backends.cpu.test_conv import CASES as PLANES
from tests.backends.cpu.test_conv import LEVELS_HERE, program
from tests.support.random_graphs import run_program

Case = tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]

CASES: dict[str, Case] = {name: case[:3] for name, case in PLANES.items()} | {
    "whole lines of channels": ((1, 128, 9, 11), (48, 128, 3, 3), {"low": [1, 1]}),
    "blocks of pixels": ((1, 64, 41, 40), (24, 64, 3, 3), {"low": [1, 1], "high": [0, 1]}),
    "three channels": ((1, 3, 25, 27), (32, 3, 7, 7), {"low": [3, 3], "strides": [2, 2]}),
    "every other pixel": ((2, 24, 14, 14), (40, 24, 1, 1), {"strides": [2, 2]}),
    "a tall image": ((1, 16, 96, 3), (24, 16, 3, 3), {"low": [1, 1], "strides": [2, 1]}),
    "many channels each": ((1, 75, 7, 7), (75, 1, 3, 3), {"low": [1, 1], "groups": 75}),
    "each of channels, steps": (
        (2, 48, 15, 16),
        (48, 1, 5, 5),
        {"low": [2, 2], "strides": [2, 2], "groups": 48},
    ),
    "each of channels, far apart": (
        (1, 40, 9, 30),
        (40, 1, 3, 3),
        {"low": [2, 2], "dilations": [2, 2], "groups": 40},
    ),
    "no window inside": ((1, 16, 2, 2), (16, 1, 5, 5), {"low": [2, 2], "groups": 16}),
}
BOTH: tuple[Lies, Lies] = ("planes", "channels")


def only(algorithm: str, along: str = "channels") -> Any:
    """What chooses the cheapest of one algorithm with its lanes along what is said."""

    def ranked(query: ConvQuery) -> list[tuple[float, ConvSpec]]:
        found = [e for e in candidates_of(query) if (e[1].algorithm, e[1].lanes_along) == (algorithm, along)]
        return sorted(found, key=lambda entry: entry[0])

    return ranked


EVERYWHERE: list[tuple[Lies, Lies, Lies]] = [
    ("channels", "channels", "channels"),
    ("planes", "planes", "channels"),
]
"""Where the input, the residual and the result of every case lie. That the residual and the result lie apart is asked
of each algorithm below: what reads and writes them knows nothing else of a case."""


def run(
    case: Case, lies: tuple[Lies, Lies, Lies], target: str, dtype: str, role: str, threads: int
) -> StridedKernel:
    """Checks a convolution with bias, activation and residual; input, residual and result lie as `lies` says."""
    x, weight, attributes = case
    graph = program(x, weight, attributes, dtype, role)
    source, residual, result = lies
    shapes: dict[str, Lies] = {"x": source, "r": residual}
    random = np.random.default_rng(sum(x) + sum(weight))
    names = ("x", "w", "b", "r")
    kernel = StridedKernel(
        graph, "cpu.conv", [shapes.get(n, "planes") for n in names], result, target, threads
    )
    given = {
        name: random.normal(size=info.shape).astype(NUMPY[dtype])
        for name, info in zip(names, kernel.work.operands, strict=True)
    }
    wanted = run_program(graph.module(), given)["y"]
    unit = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-16}[dtype]
    found = kernel([given[name] for name in names])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=64 * unit * np.abs(wanted).max())
    return kernel


@pytest.mark.parametrize("lies", EVERYWHERE, ids="-".join)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_mixture(case: Case, lies: tuple[Lies, Lies, Lies]) -> None:
    run(case, lies, "cpu", "f32", "param", 1)


SOME = ("pixels", "windows", "a channel each", "many channels each", "groups", "whole lines of channels")
LAST: tuple[Lies, Lies, Lies] = ("channels", "channels", "channels")
LAST_OF_ALL: list[Lies] = ["channels"] * 4


@pytest.mark.parametrize("level", LEVELS_HERE)
@pytest.mark.parametrize(
    ("name", "lies"), [*((name, LAST) for name in SOME), *((name, EVERYWHERE[1]) for name in SOME[::2])]
)
def test_levels(name: str, lies: tuple[Lies, Lies, Lies], level: str) -> None:
    run(CASES[name], lies, f"cpu:{level}", "f64", "param", 1)


@pytest.mark.parametrize("lies", [LAST, ("channels", "planes", "planes")], ids="-".join)
@pytest.mark.parametrize("name", SOME)
def test_a_weight_that_is_no_parameter(name: str, lies: tuple[Lies, Lies, Lies]) -> None:
    kernel = run(CASES[name], lies, "cpu", "f32", "input", 1)
    assert kernel.layouts == [None] * 4


@pytest.mark.parametrize("role", ["param", "input"])
@pytest.mark.parametrize("algorithm", ["gemm", "direct", "depthwise"])
def test_threads_share_channels_last(algorithm: str, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases: dict[str, Case] = {
        "gemm": ((1, 200, 30, 31), (190, 200, 1, 1), {}),
        "direct": ((1, 64, 30, 31), (90, 64, 3, 3), {"low": [1, 1]}),
        "depthwise": ((1, 500, 40, 41), (500, 1, 3, 3), {"low": [1, 1], "groups": 500}),
    }
    monkeypatch.setattr(conv_kernels, "ranked", only(algorithm))
    kernel = run(cases[algorithm], LAST, "cpu", "f32", role, 2)
    assert kernel.threads == 2
    assert read_text(kernel.record, "lanes_along") == "channels"


@pytest.mark.parametrize("along", ["pixels", "channels"])
@pytest.mark.parametrize("algorithm", ["gemm", "direct", "depthwise", "winograd"])
def test_either_way_of_an_algorithm_writes_either_layout(
    algorithm: str, along: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: dict[str, Case] = {
        "gemm": ((2, 20, 7, 9), (19, 20, 1, 1), {}),
        "direct": ((2, 6, 7, 9), (19, 6, 3, 3), {"low": [1, 1]}),
        "depthwise": ((2, 35, 7, 9), (35, 1, 3, 3), {"low": [1, 1], "groups": 35}),
        "winograd": ((2, 21, 7, 9), (19, 21, 3, 3), {"low": [1, 1]}),
    }
    monkeypatch.setattr(conv_kernels, "ranked", only(algorithm, along))
    for residual in BOTH:
        for result in BOTH:
            kernel = run(cases[algorithm], ("channels", residual, result), "cpu", "f32", "param", 1)
            assert read_text(kernel.record, "algorithm") == algorithm
            assert read_text(kernel.record, "lanes_along") == along


@pytest.mark.parametrize("name", SOME)
def test_lanes_are_what_lies_side_by_side(name: str) -> None:
    graph = program(*CASES[name], "f32", "param")
    for lies, along in zip(BOTH, ("pixels", "channels"), strict=True):
        kernel = StridedKernel(graph, "cpu.conv", (lies, lies, lies, lies), lies, "cpu:x86-64-v4")
        assert read_text(kernel.record, "lanes_along") == along


@pytest.mark.parametrize("name", SOME)
def test_the_level_that_few_machines_run_compiles(name: str) -> None:
    graph = program(*CASES[name], "f32", "param")
    assert StridedKernel(graph, "cpu.conv", LAST_OF_ALL, "channels", "cpu:x86-64-v4").compile()


@pytest.mark.parametrize("role", ["param", "input"])
@pytest.mark.parametrize("name", ["windows", "groups", "many channels each", "blocks of pixels"])
def test_halves_are_widened_in_a_copy_of_either_layout(name: str, role: str) -> None:
    for lies in (LAST, ("channels", "planes", "planes")):
        run(CASES[name], lies, "cpu", "f16", role, 1)


def test_records_of_vectors_of_channels_that_contradict_themselves() -> None:
    problem = ConvProblem(
        *("f32", 1, 40, 1, 1, (9, 30), (3, 3), (9, 30), (1, 1), (1, 1), (1, 1)),
        x_strides=(40 * 270, 1, 40 * 30, 40),
    )
    spec = ConvSpec(problem, "depthwise", 8, "channels", 4, 2, 9, prepared=True)
    assert check(spec) is None
    read = "vectors of channels are read where they lie"
    assert check(replace(spec, copies=True)) == read
    halves = replace(problem, operand_type="f16")
    assert check(replace(spec, problem=halves)) == "an input of f16 is widened in a copy of it"
    assert check(replace(spec, tile_pixels=0)) == "tiles, blocks and threads are 1 at least"
    beside = "vectors of channels are of one output for each, which lie side by side in the input"
    assert check(replace(spec, problem=replace(problem, x_strides=(10800, 270, 30, 1)))) == beside
    long = replace(problem, taps=(9, 9), low=(4, 4))
    assert check(replace(spec, problem=long)) == "vectors of channels have windows of 64 elements at most"
