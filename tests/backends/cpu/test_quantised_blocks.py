"""Products with block-quantised weights against float64, on every level; widened rows bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import aicf
from aicf.backends.cpu.target import host_level
from aicf.compilation.compiled import CompiledModel
from aicf.dialects.block_schemes import BLOCK_SCHEMES
from aicf.dialects.emit import BindOp, ResolvedOp
from aicf.errors import PlanError
from aicf.frontends.builder import Graph
from aicf.frontends.text import parse_module
from tests.support.blocks import random_rows, widened

RNG = np.random.default_rng(211)
ROWS, COLUMNS = 37, 512
UNIT, LEAST = 2.0**-23, 2.0**-126
"""Of the largest element of a part of x, and of any."""
PACKED = {name: random_rows(RNG, scheme, ROWS, COLUMNS) for name, scheme in BLOCK_SCHEMES.items()}
WIDE = {name: widened(BLOCK_SCHEMES[name], packed) for name, packed in PACKED.items()}


def products(schemes: Sequence[str], x: Sequence[int | str] = ("M", COLUMNS)) -> Graph:
    """x times the weight of each scheme."""
    g = Graph("products")
    rows = g.input("x", tuple(x))
    for name in schemes:
        weight = g.dequantize_blocks(g.param(name, PACKED[name].shape, "u8"), name)
        g.output(g.linear(rows, weight, name=f"linear.{name}"), f"y.{name}")
    return g


def compiled(schemes: Sequence[str], target: str = "cpu", **options: Any) -> CompiledModel:
    return aicf.compile(products(schemes), {name: PACKED[name] for name in schemes}, target, **options)


def check(found: np.ndarray, x: np.ndarray, scheme: str) -> None:
    """Off by at most a few units of f32 in the sum of the magnitudes."""
    wanted = x.astype(np.float64) @ WIDE[scheme].T
    magnitude = np.abs(x).astype(np.float64) @ np.abs(WIDE[scheme]).T
    assert (np.abs(found - wanted) <= 4 * UNIT * magnitude).all()


def kernels_of(model: CompiledModel) -> set[str]:
    ops = parse_module(model.ir("emit")).walk()
    return {op.kernel.kernel.data for op in ops if isinstance(op, ResolvedOp) and op.kernel is not None}


def random_x(*sizes: int) -> np.ndarray:
    """Elements of magnitudes that differ from part to part."""
    x = RNG.standard_normal(sizes) * 10.0 ** RNG.integers(-4, 4, (*sizes[:-1], 1))
    return x.astype(np.float32)


@pytest.fixture(scope="module")
def every_scheme() -> CompiledModel:
    return compiled(tuple(BLOCK_SCHEMES), dims={"M": [1, 5, 64]})


@pytest.mark.parametrize("rows", [1, 5, 64])
def test_every_scheme(every_scheme: CompiledModel, rows: int) -> None:
    x = random_x(rows, COLUMNS)
    found = every_scheme.run({"x": x})
    for name in BLOCK_SCHEMES:
        check(found[f"y.{name}"], x, name)


def test_a_row_has_the_same_bits_in_every_batch(every_scheme: CompiledModel) -> None:
    x = random_x(64, COLUMNS)
    whole, five, one = (every_scheme.run({"x": rows}) for rows in (x, x[:5], x[:1]))
    for name, found in whole.items():
        np.testing.assert_array_equal(found[:5], five[name])
        np.testing.assert_array_equal(found[:1], one[name])


@pytest.mark.parametrize("level", ["x86-64-v4", "x86-64-v3", "x86-64-v2"])
def test_every_level(level: str) -> None:
    """Without products of four bytes, digits have 16 bits."""
    schemes = ("Q4_1", "Q5_0", "Q6_K", "U8_128", "E4M3_128")
    x = random_x(3, COLUMNS)
    found = compiled(schemes, f"cpu:{level}", dims={"M": 3}).run({"x": x})
    for name in schemes:
        check(found[f"y.{name}"], x, name)


def test_whole_numbers_widened_to_f32() -> None:
    """As on processors that have no products of pairs."""
    schemes = ("Q5_0", "U8_32")
    text = compiled(schemes, "cpu:x86-64-v3", dims={"M": 3}).ir("emit")
    assert text.count('arithmetic = "pairs"') == 2
    edited = text.replace('"pairs"', '"f32"').replace(
        "exact sums of 24-bit elements", "even and odd elements apart"
    )
    x = random_x(3, COLUMNS)
    found = aicf.compile(parse_module(edited), {name: PACKED[name] for name in schemes}).run({"x": x})
    for name in schemes:
        check(found[f"y.{name}"], x, name)


def test_codes_that_are_nan_reach_the_results_of_their_row() -> None:
    """As they are and in arithmetic; no other row changes."""
    packed = PACKED["E4M3_128"].copy()
    packed[5, 132 + 4 + 77], packed[36, -1] = 0x7F, 0xFF
    g = Graph("nan")
    weight = g.dequantize_blocks(g.param("w", packed.shape, "u8"), "E4M3_128")
    g.output(g.linear(g.input("x", (1, COLUMNS)), weight), "y")
    g.output(g.gather(weight, g.constant([5], (1,), "i64")), "row")
    x = random_x(1, COLUMNS)
    found = aicf.compile(g, {"w": packed}).run({"x": x})
    assert np.flatnonzero(np.isnan(found["y"])).tolist() == [5, 36]
    assert np.flatnonzero(np.isnan(found["row"])).tolist() == [128 + 77]
    others = np.setdiff1d(np.arange(ROWS), [5, 36])
    np.testing.assert_allclose(
        found["y"][0, others], WIDE["E4M3_128"][others] @ x[0], rtol=1e-4, atol=1e-3 * np.abs(x).max()
    )


def test_threads_share_panels() -> None:
    """Each thread prepares the rows for itself; bits are those of one thread."""
    packed = random_rows(RNG, BLOCK_SCHEMES["Q4_1"], 333, COLUMNS)
    g = Graph("shared")
    weight = g.dequantize_blocks(g.param("w", packed.shape, "u8"), "Q4_1")
    g.output(g.linear(g.input("x", (70, COLUMNS)), weight), "y")
    module, x = g.module(), random_x(70, COLUMNS)
    one, two = (aicf.compile(module, {"w": packed}, threads=threads).run({"x": x})["y"] for threads in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_edges_of_x(every_scheme: CompiledModel) -> None:
    """Zeros, the largest and the smallest numbers; what is not finite reaches all results of its row alone."""
    largest = np.finfo(np.float32).max
    x = np.zeros((5, COLUMNS), np.float32)
    x[1, 7], x[2] = 1e-3 * largest, 1e-37 * RNG.standard_normal(COLUMNS)
    x[3, 40], x[4, 3] = np.inf, np.nan
    found = every_scheme.run({"x": x})
    for name in BLOCK_SCHEMES:
        y = found[f"y.{name}"]
        assert not y[0].any() and not np.isfinite(y[3:]).any()
        finite = np.abs(WIDE[name][:, 7] * x[1, 7]) < largest
        np.testing.assert_allclose(y[1][finite], (WIDE[name][:, 7] * x[1, 7])[finite], rtol=1e-6, atol=1e30)
        assert (np.abs(y[2] - WIDE[name] @ x[2]) <= np.abs(WIDE[name]).sum(1) * LEAST).all()


def test_batches_and_strides() -> None:
    """Rows of several dims, the last of which is not the one that lies side by side."""
    g = Graph("turned")
    x = g.transpose(g.input("x", (COLUMNS, 3, 2)), (1, 2, 0))
    weight = g.dequantize_blocks(g.param("Q5_1", PACKED["Q5_1"].shape, "u8"), "Q5_1")
    g.output(g.linear(x, weight), "y")
    given = random_x(COLUMNS, 3, 2)
    found = aicf.compile(g, {"Q5_1": PACKED["Q5_1"]}).run({"x": given})["y"]
    turned = np.ascontiguousarray(given.transpose(1, 2, 0))
    check(found.reshape(6, ROWS), turned.reshape(6, COLUMNS), "Q5_1")


@pytest.mark.parametrize("forbidden", [(), ("cpu.dequantize_blocks", "cpu.matmul_blocks")])
def test_widened_rows(forbidden: Sequence[str]) -> None:
    """A gather widens the rows that it reads; without the kernels the same bits come from arithmetic on bytes."""
    g = Graph("rows")
    indices = g.input("i", (3,), "i64")
    for name in BLOCK_SCHEMES:
        weight = g.dequantize_blocks(g.param(name, PACKED[name].shape, "u8"), name)
        g.output(g.gather(weight, indices), f"y.{name}")
    model = aicf.compile(g, PACKED, policy={"forbid": list(forbidden)})
    kernels = kernels_of(model)
    assert ("cpu.dequantize_blocks" in kernels) == (not forbidden)
    found = model.run({"i": np.array([36, 0, -2])})
    for name, scheme in BLOCK_SCHEMES.items():
        np.testing.assert_array_equal(found[f"y.{name}"], scheme.rows(PACKED[name][[36, 0, 35]]))


def test_a_weight_that_is_an_input_is_widened_first() -> None:
    g = Graph("given")
    packed = g.input("w", PACKED["Q4_0"].shape, "u8")
    g.output(g.linear(g.input("x", (2, COLUMNS)), g.dequantize_blocks(packed, "Q4_0")), "y")
    x = random_x(2, COLUMNS)
    model = aicf.compile(g, {})
    assert "cpu.matmul_blocks" not in kernels_of(model)
    check(model.run({"w": PACKED["Q4_0"], "x": x})["y"], x, "Q4_0")


def test_weights_stay_packed(every_scheme: CompiledModel) -> None:
    """Nothing that is computed ahead has more bytes than a code of 8 bits and its factors."""
    binds = [op for op in parse_module(every_scheme.ir("emit")).walk() if isinstance(op, BindOp)]
    derived = [bind for bind in binds if bind.role.data == "derived"]
    assert derived
    assert all("panels_of_blocks" in str(bind.buffer.type) for bind in derived)


def test_a_policy_of_precision_leaves_packed_weights_alone() -> None:
    """A cast of the widened weight would have it written at every call."""
    model = compiled(("Q4_0",), dims={"M": 2}, policy={"precision": {"to": "bf16"}})
    assert "cpu.matmul_blocks" in kernels_of(model)
    x = random_x(2, COLUMNS)
    check(model.run({"x": x})["y.Q4_0"], x, "Q4_0")


RECORD = {
    "arithmetic": ('"digits"', '"bytes"', "'arithmetic' is bytes, legal: digits, pairs, f32"),
    "tile_rows": ("tile_rows = 4 : i64", "tile_rows = 9 : i64", "'tile_rows' is 9, legal: 1 to 6"),
    "lanes": ('"digits", lanes = 16', '"digits", lanes = 8', "'lanes' is 8, legal: 16"),
}


@pytest.mark.skipif("avx512vnni" not in host_level().features, reason="the record is that of digits")
@pytest.mark.parametrize("case", RECORD.values(), ids=RECORD)
def test_records_that_were_edited_are_told(every_scheme: CompiledModel, case: Sequence[str]) -> None:
    own, other, message = case
    assert own in every_scheme.ir("emit")
    with pytest.raises((PlanError, aicf.errors.InvalidIR), match=message):
        aicf.compile(parse_module(every_scheme.ir("emit").replace(own, other)), PACKED)
