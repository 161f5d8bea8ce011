"""Floats of 8 bits on the CPU and in artifacts: products against float64, moves and saturating casts bit for bit."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from aicf.dialects.types import element_named
from aicf.errors import InvalidIR
from aicf.frontends.builder import Graph

Array = NDArray[Any]
FLOAT8 = ("f8E4M3FN", "f8E5M2")
TARGETS = ("reference", "cpu", "cpu:x86-64-v2")
SHAPES = ((1, 64, 48), (5, 37, 19), (33, 130, 70))


def draw(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(element_named(dtype).dtype)


def bits(array: object) -> Array:
    return np.asarray(array).view(np.uint8)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("a", "b"), tuple(itertools.product(FLOAT8, repeat=2)))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products(shape: tuple[int, int, int], a: str, b: str, target: str) -> None:
    """Sums in f32 of exact products: far closer to float64 than a rounding to 8 bits on the way would be."""
    m, k, n = shape
    x, w, other = draw((m, k), a, 1), draw((n, k), b, 2), draw((k, n), b, 3)
    graph = Graph("products")
    given = graph.input("x", x.shape, a)
    graph.output(
        graph.matmul(given, graph.param("w", w.shape, b), transpose_b=True, widening=True), "of a weight"
    )
    product = graph.matmul(given, graph.input("other", other.shape, b), widening=True)
    graph.output(graph.relu(graph.mul(product, 0.25)), "scaled")
    weight, scaled = aicf.compile(graph, {"w": w}, target)({"x": x, "other": other})
    exact, terms = x.astype(np.float64), np.sqrt(k)
    np.testing.assert_allclose(weight, exact @ w.astype(np.float64).T, rtol=0, atol=2e-6 * terms)
    wanted = np.maximum(exact @ other.astype(np.float64) / 4, 0)
    np.testing.assert_allclose(scaled, wanted, rtol=0, atol=2e-6 * terms)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOAT8)
def test_moves_keep_every_number(dtype: str, target: str) -> None:
    """Infinity and -0 among them; NaN stays NaN."""
    x = np.arange(256, dtype=np.uint8).reshape(16, 16).view(element_named(dtype).dtype)
    order = np.random.default_rng(5).permutation(16).astype(np.int32)
    graph = Graph("moves")
    given = graph.input("x", x.shape, dtype)
    graph.output(graph.transpose(given, [1, 0]), "transposed")
    graph.output(graph.gather(given, graph.input("order", (16,), "i32"), 0), "gathered")
    graph.output(
        graph.concat([graph.slice(given, [3, 2], [5, 11]), graph.slice(given, [0, 5], [9, 11])], 0), "joined"
    )
    graph.output(graph.bitcast(given, "u8"), "bits")
    transposed, gathered, joined, words = aicf.compile(graph, target=target)({"x": x, "order": order})
    for found, wanted in (
        (transposed, x.T),
        (gathered, x[order]),
        (joined, np.concatenate([x[3:8, 2:13], x[:9, 5:]])),
        (words.view(x.dtype), x),
    ):
        is_nan = np.isnan(wanted.astype(np.float32))  # which NaN it is, is left to the target
        np.testing.assert_array_equal(np.isnan(np.asarray(found).astype(np.float32)), is_nan)
        np.testing.assert_array_equal(bits(found)[~is_nan], bits(np.ascontiguousarray(wanted))[~is_nan])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOAT8)
def test_a_clamp_before_the_cast_saturates(dtype: str, target: str) -> None:
    """As ONNX's `saturate`: what is too large becomes the largest number, and NaN stays NaN."""
    element = element_named(dtype)
    largest = float(np.asarray(0x7E if dtype == "f8E4M3FN" else 0x7B, np.uint8).view(element.dtype))
    scale = np.random.default_rng(6).standard_normal(64).astype(np.float32)
    x = np.concatenate([scale * 2 * np.float32(largest), np.float32([np.inf, -np.inf, np.nan, largest])])
    graph = Graph("saturating")
    given = graph.input("x", x.shape)
    graph.output(graph.cast(graph.clamp(given, min=-largest, max=largest), dtype), "inside")
    graph.output(graph.cast(given, dtype), "plain")
    inside, plain = (np.asarray(one).astype(np.float64) for one in aicf.compile(graph, target=target)(x))
    assert np.isnan(inside[66]) and np.isfinite(np.delete(inside, 66)).all()
    np.testing.assert_array_equal(inside[[64, 65, 67]], [largest, -largest, largest])
    beyond = np.abs(x) > 1.1 * largest
    assert not np.isfinite(plain[beyond]).any() and beyond.sum() > 10
    agree = np.isfinite(plain)
    np.testing.assert_array_equal(inside[agree], plain[agree])


def test_artifacts_keep_parameters_of_8_bits(tmp_path: Path) -> None:
    w, x = draw((24, 40), "f8E4M3FN", 7), draw((3, 40), "f8E5M2", 8)
    graph = Graph("stored")
    product = graph.matmul(
        graph.input("x", x.shape, "f8E5M2"),
        graph.param("w", w.shape, "f8E4M3FN"),
        transpose_b=True,
        widening=True,
    )
    graph.output(product, "y")
    exe = aicf.compile(graph, {"w": w}, "cpu")
    exe.save(tmp_path / "stored.aicf")
    np.testing.assert_array_equal(aicf.load(tmp_path / "stored.aicf")(x), exe(x))


def test_what_computes_refuses() -> None:
    graph = Graph("refused")
    x = graph.input("x", (4, 4), "f8E4M3FN")
    with pytest.raises(
        InvalidIR, match=r"relu: not defined for f8E4M3FN, which is only stored and multiplied; cast to"
    ):
        graph.relu(x)
    with pytest.raises(InvalidIR, match=r"whose products are added up in f32; add widening"):
        graph.matmul(x, x)
