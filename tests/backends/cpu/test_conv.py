"""Convolutions compiled for this machine, at every level that it runs, against float64 NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from aicf.backends.cpu.families.conv.candidates import ConvQuery, ranked
from aicf.backends.cpu.families.conv.checks import check
from aicf.backends.cpu.families.conv.costs import EpilogueCycles
from aicf.backends.cpu.families.conv.problem import ConvProblem
from aicf.backends.cpu.families.conv.record import conv_record, read_conv_spec
from aicf.backends.cpu.families.conv.schedule import ConvSpec
from aicf.backends.cpu.target import LEVELS, host_level
from aicf.dialects.json_values import attribute_of
from aicf.errors import PlanError
from aicf.frontends.builder import Graph
from tests.backends.cpu.harness import NUMPY
from tests.gpu.programs import random_arrays
from tests.support.random_graphs import run_program

Array = NDArray[Any]

LEVELS_HERE = [
    name
    for name in ("x86-64-v2", "x86-64-v3", "x86-64-v4", "generic")
    if LEVELS[name].vector_bytes <= host_level().vector_bytes
    and LEVELS[name].architecture in ("", host_level().architecture)
]

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], str]] = {
    "pixels": ((2, 9, 5, 7), (21, 9, 1, 1), {}, "gemm"),
    "windows": ((2, 5, 9, 17), (37, 5, 3, 2), {"low": [1, 1]}, "direct"),
    "short rows": ((1, 8, 7, 5), (16, 8, 2, 3), {"low": [1, 1]}, "direct"),
    "one side padded": ((1, 3, 8, 9), (5, 3, 3, 2), {"low": [2, 0], "high": [0, 1]}, "direct"),
    "blocks of rows": ((1, 40, 50, 60), (16, 40, 3, 4), {"low": [1, 1]}, "direct"),
    "steps": ((1, 3, 23, 31), (18, 3, 7, 7), {"low": [3, 3], "strides": [2, 2]}, "direct"),
    "no padding": ((1, 4, 12, 19), (33, 4, 2, 3), {"strides": [3, 2], "dilations": [2, 3]}, "direct"),
    "a column": ((1, 4, 40, 1), (8, 4, 5, 1), {"low": [2, 0]}, "direct"),
    "a long window": ((1, 2, 1, 64), (4, 2, 1, 17), {"strides": [1, 3]}, "direct"),
    "one dimension": ((2, 6, 50), (19, 6, 5), {"low": [2], "strides": [2]}, "direct"),
    "groups": ((2, 6, 9, 9), (10, 3, 3, 3), {"low": [1, 1], "groups": 2}, "direct"),
    "a channel each": ((2, 7, 9, 21), (7, 1, 3, 3), {"low": [1, 1], "groups": 7}, "depthwise"),
    "two of each channel": ((1, 5, 11, 40), (10, 1, 3, 3), {"strides": [2, 2], "groups": 5}, "depthwise"),
    "steps of a channel": (
        *((1, 4, 14, 37), (4, 1, 5, 5), {"low": [2, 2], "strides": [2, 2], "groups": 4}),
        "depthwise",
    ),
    "far apart in a channel": (
        *((1, 3, 20, 21), (3, 1, 3, 3), {"low": [2, 2], "dilations": [2, 2], "groups": 3}),
        "depthwise",
    ),
}


def program(
    x: tuple[int, ...], weight: tuple[int, ...], attributes: dict[str, Any], dtype: str, role: str
) -> Graph:
    """A convolution with a bias, an activation and a residual after it."""
    g = Graph("convolution")
    make = g.param if role == "param" else g.input
    w, b = make("w", weight, dtype), g.param("b", (weight[0],), dtype)
    y = g.relu(g.conv(g.input("x", x, dtype), w, b, **attributes, name="c"))
    g.output(y + g.input("r", y.info.shape, dtype), "y")
    return g


def arrays(graph: Graph, seed: int = 0) -> dict[str, Array]:
    return random_arrays(graph.module(), f"convolution {seed}")


def instruction(exe: Any) -> str:
    """The one line of the emit program that is the kernel of the convolution."""
    (line,) = (line for line in exe.ir("emit").splitlines() if 'kernel("cpu.conv_' in line)
    return line


@pytest.mark.parametrize("level", LEVELS_HERE)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_same_answer(case: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], str], level: str) -> None:
    x, weight, attributes, algorithm = case
    dtype = "f64" if level == "x86-64-v3" else "f32"
    graph = program(x, weight, attributes, dtype, "param")
    given = arrays(graph)
    wanted = run_program(graph.module(), given)["y"]
    weights = {name: given.pop(name) for name in ("w", "b")}
    exe = aicf.compile(graph.module(), weights=weights, target=f"cpu:{level}")
    assert f'algorithm = "{algorithm}"' in instruction(exe)
    unit = 2.0 ** (-52 if dtype == "f64" else -23)
    found = exe.run(given)["y"]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=64 * unit * np.abs(wanted).max())


def quantized(
    x: tuple[int, ...], weight: tuple[int, ...], attributes: dict[str, Any], types: tuple[str, str], role: str
) -> Graph:
    """A convolution of short integers with a bias, scaled, rounded and cut off after it."""
    g = Graph("convolution")
    make = g.param if role == "param" else g.input
    w, b = make("w", weight, types[1]), g.param("b", (weight[0],), "i32")
    sums = g.conv(g.input("x", x, types[0]), w, b, **attributes, widening=True, name="c")
    scaled = g.round(g.cast(sums, "f32") * 2.0**-7)
    g.output(g.cast(g.clamp(scaled, min=-128.0, max=127.0), "i8"), "y")
    g.output(sums, "sums")
    return g


@pytest.mark.parametrize(
    ("name", "role", "level"),
    [
        (name, role, LEVELS_HERE[(number + also) % len(LEVELS_HERE)])
        for number, name in enumerate(CASES)
        for also, role in enumerate(("param", "input"))
    ],
)
def test_short_integers_give_the_same_sums(name: str, role: str, level: str) -> None:
    """Bit for bit, of every pair of types; with one channel a group there is none to pair it with. Every case has a
    weight of either role, at levels that take turns."""
    x, weight, attributes, algorithm = CASES[name]
    random = np.random.default_rng(len(x) + weight[0])
    types = ("i16" if weight[0] % 3 == 0 else "u8", "i8" if weight[0] % 2 else "u8")
    graph = quantized(x, weight, attributes, types, role)
    given = {
        "x": random.integers(-255 if types[0] == "i16" else 0, 256, x).astype(NUMPY[types[0]]),
        "w": random.integers(0, 256, weight).astype(np.uint8).view(NUMPY[types[1]]),
        "b": random.integers(-1000, 1000, weight[0]).astype(np.int32),
    }
    wanted = run_program(graph.module(), given)
    weights = {name: given.pop(name) for name in ("w", "b") if name == "b" or role == "param"}
    exe = aicf.compile(graph.module(), weights=weights, target=f"cpu:{level}")
    if algorithm != "depthwise":
        assert 'algorithm = "' in instruction(exe)
    for name, found in exe.run(given).items():
        np.testing.assert_array_equal(found, wanted[name])


@pytest.mark.parametrize("name", ["windows", "groups", "a channel each", "pixels"])
def test_a_weight_that_is_no_parameter_is_packed_at_each_run(name: str) -> None:
    x, weight, attributes, _ = CASES[name]
    graph = program(x, weight, attributes, "f32", "input")
    given = arrays(graph)
    bias = {"b": given.pop("b")}
    exe = aicf.compile(graph.module(), weights=bias, target="cpu")
    for seed in (1, 2):
        given = {**arrays(graph, seed), "b": bias["b"]}
        wanted = run_program(graph.module(), given)["y"]
        found = exe.run({name: array for name, array in given.items() if name != "b"})["y"]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("name", "dtype", "role", "level"),
    [
        ("windows", "f16", "param", "cpu"),
        ("windows", "bf16", "input", "cpu"),
        ("steps", "bf16", "param", "cpu:x86-64-v2"),
        ("blocks of rows", "f16", "param", "cpu"),
        ("one dimension", "f16", "input", "cpu:generic"),
        ("groups", "bf16", "param", "cpu"),
        ("groups", "f16", "input", "cpu"),
        ("no padding", "f16", "param", "cpu"),
        ("a channel each", "f16", "param", "cpu"),
        ("two of each channel", "bf16", "param", "cpu"),
        ("steps of a channel", "f16", "input", "cpu:x86-64-v2"),
    ],
)
def test_halves_are_widened_once(name: str, dtype: str, role: str, level: str) -> None:
    """In a copy of the input and in panels of the weight; sums are of f32 and round once."""
    x, weight, attributes, algorithm = CASES[name]
    graph = program(x, weight, attributes, dtype, role)
    given = arrays(graph)
    wanted = run_program(graph.module(), given)["y"].astype(np.float64)
    weights = {name: given.pop(name) for name in ("w", "b") if name == "b" or role == "param"}
    exe = aicf.compile(graph.module(), weights=weights, target=level)
    line = instruction(exe)
    assert f'algorithm = "{algorithm}"' in line and "copies = true" in line
    unit = 2.0 ** (-11 if dtype == "f16" else -8)
    found = exe.run(given)["y"].astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2 * unit * np.abs(wanted).max())


def test_products_of_halves_are_products() -> None:
    """With windows of one element nothing needs a copy."""
    x, weight, attributes, _ = CASES["pixels"]
    graph = program(x, weight, attributes, "f16", "param")
    given = arrays(graph)
    exe = aicf.compile(graph.module(), weights={name: given.pop(name) for name in ("w", "b")}, target="cpu")
    (decision,) = (each for each in exe.decisions if each.made_by == "legalize-for-target")
    assert "with windows of one element it is a product" in decision.because


@pytest.mark.parametrize("name", ["windows", "a channel each", "pixels"])
def test_threads_give_the_same_bits(name: str) -> None:
    x, weight, attributes, _ = CASES[name]
    x = (x[0], x[1] * 8, *(size * 4 for size in x[2:]))
    weight = (weight[0] * 8, weight[1] if attributes.get("groups") else weight[1] * 8, *weight[2:])
    attributes = {**attributes, **({"groups": x[1]} if "groups" in attributes else {})}
    graph = program(x, weight, attributes, "f32", "param")
    given = arrays(graph)
    weights = {name: given.pop(name) for name in ("w", "b")}
    found = [
        aicf.compile(graph.module(), weights=weights, target="cpu", threads=threads).run(given)["y"].tobytes()
        for threads in (1, 2)
    ]
    assert found[0] == found[1]


PLANES = EpilogueCycles(pixels=1.0, channels=20.0)


def _problem() -> ConvProblem:
    return ConvProblem(
        *("f32", 1, 1, 64, 32, (56, 56), (3, 3), (56, 56), (1, 1), (1, 1), (1, 1)),
        x_strides=(64 * 56 * 56, 56 * 56, 56, 1),
    )


def test_a_record_is_read_again() -> None:
    problem = _problem()
    _, spec = ranked(ConvQuery(problem, LEVELS["x86-64-v4"], 2, True, PLANES, False))[0]
    assert spec.copies and spec.prepared and spec.block_rows < 56
    assert read_conv_spec(conv_record(spec), problem, LEVELS["x86-64-v4"]) == spec


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"copies": False}, "zeros around the input are in a copy of it"),
        ({"tile_pixels": 17}, "a tile has more pixels than a vector lanes"),
        ({"tile_vectors": 0}, "its 'tile_vectors' is 0, legal: 1 to 8"),
        ({"tile_pixels": 1, "block_rows": 0}, "its 'block_rows' is 0, legal: 1 or more"),
        ({"copies": 1}, "its 'copies' is 1, legal: False, True"),
    ],
)
def test_a_record_that_contradicts_itself(entries: dict[str, object], message: str) -> None:
    _, spec = ranked(ConvQuery(_problem(), LEVELS["x86-64-v4"], 1, True, PLANES, False))[0]
    record = {**conv_record(spec), **{name: attribute_of(value) for name, value in entries.items()}}
    with pytest.raises(PlanError, match=message):
        read_conv_spec(record, _problem(), LEVELS["x86-64-v4"])


def test_what_no_algorithm_takes() -> None:
    _, spec = ranked(ConvQuery(_problem(), LEVELS["x86-64-v4"], 1, True, PLANES, False))[0]
    assert check(replace(spec, algorithm="gemm")) == "a product needs windows of one element"
    depthwise = replace(spec, algorithm="depthwise", prepared=False)
    assert check(depthwise) == "depthwise is of one channel a group"
    short = replace(spec, tile_pixels=3, problem=replace(spec.problem, counts=(56, 1)), block_rows=4)
    assert check(short) == "blocks are of whole tiles"


@pytest.mark.parametrize("columns", [1, 7, 8, 29, 224])
@pytest.mark.parametrize("pixels", [1, 6, 14, 300])
def test_widths_of_tiles_are_counted(columns: int, pixels: int) -> None:
    problem = ConvProblem(
        *("f32", 1, 1, 4, 8, (3, columns), (1, 1), (3, columns), (1, 1), (1, 1), (0, 0)),
        x_strides=(12 * columns, 3 * columns, columns, 1),
    )
    spec = ConvSpec(problem, "direct", 8, tile_pixels=pixels)
    tiles = -(-columns // pixels)
    widths = [(columns + index) // tiles for index in range(tiles)]
    for bands in (1, 3):
        counted = [width for width, count in spec.width_counts(bands) for _ in range(count)]
        assert counted == sorted(widths * bands, reverse=True)
