"""Products of packed weights with activations of 8 bits: against float64, on every level, and where a policy asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import aicf
from aicf.backends.cpu.target import host_level
from aicf.compilation.compiled import CompiledModel
from aicf.dialects.block_bits import BLOCK_BITS
from aicf.dialects.block_schemes import BLOCK_SCHEMES
from aicf.errors import AicfError
from aicf.frontends.builder import Graph
from aicf.frontends.text import parse_module
from tests.backends.cpu.test_quantised_blocks import kernels_of
from tests.support.blocks import random_rows, widened

RNG = np.random.default_rng(313)
ROWS, COLUMNS = 37, 512
UNIT = 2.0**-23
POLICY = {"precision": {"packed_activations": "int8"}}
WHOLE = tuple(name for name in BLOCK_SCHEMES if BLOCK_BITS[name].floats is None)
"""Schemes whose codes are whole numbers."""
OF_16 = ("Q6_K", "U4_16", "U8_16")
"""Those whose parts have 16 elements."""
PACKED = {name: random_rows(RNG, scheme, ROWS, COLUMNS) for name, scheme in BLOCK_SCHEMES.items()}
WIDE = {name: widened(BLOCK_SCHEMES[name], packed) for name, packed in PACKED.items()}


def compiled(schemes: Sequence[str], target: str = "cpu", **options: Any) -> CompiledModel:
    """x times the weight of each scheme, of activations that are rounded."""
    g = Graph("products")
    x = g.input("x", ("M", COLUMNS))
    for name in schemes:
        weight = g.dequantize_blocks(g.param(name, PACKED[name].shape, "u8"), name)
        g.output(g.linear(x, weight), f"y.{name}")
    options.setdefault("policy", POLICY)
    return aicf.compile(g, {name: PACKED[name] for name in schemes}, target, **options)


def rounded(x: np.ndarray, scheme: str) -> np.ndarray:
    """f64: every element to the nearest of 255 multiples of a step."""
    parts = x.astype(np.float64).reshape(len(x), -1, 16 if scheme in OF_16 else 32)
    step = np.abs(parts).max(2, keepdims=True) / 127
    step[step == 0] = 1
    return (np.rint(parts / step) * step).reshape(x.shape)


def random_x(rows: int) -> np.ndarray:
    x = RNG.standard_normal((rows, COLUMNS)) * 10.0 ** RNG.integers(-4, 4, (rows, 1))
    x[:, :64] *= 30
    return x.astype(np.float32)


def check(found: np.ndarray, x: np.ndarray, scheme: str) -> None:
    """Off by a few units of f32 in the sum of the magnitudes from the product of the rounded elements, which is far
    from that of the elements."""
    near = rounded(x, scheme)
    magnitude = np.abs(near) @ np.abs(WIDE[scheme]).T
    assert (np.abs(found - near @ WIDE[scheme].T) <= 6 * UNIT * magnitude).all()
    assert (np.abs(found - x.astype(np.float64) @ WIDE[scheme].T) > 1e-4 * magnitude).any()


@pytest.fixture(scope="module")
def every_scheme() -> CompiledModel:
    return compiled(WHOLE, dims={"M": [1, 5, 64]})


@pytest.mark.parametrize("rows", [1, 5, 64])
def test_every_scheme(every_scheme: CompiledModel, rows: int) -> None:
    x = random_x(rows)
    found = every_scheme.run({"x": x})
    assert kernels_of(every_scheme) == {"cpu.rounded_matmul_blocks", "cpu.pack_blocks"}
    for name in WHOLE:
        check(found[f"y.{name}"], x, name)


def test_a_row_has_the_same_bits_in_every_batch(every_scheme: CompiledModel) -> None:
    x = random_x(64)
    whole, five, one = (every_scheme.run({"x": rows}) for rows in (x, x[:5], x[:1]))
    for name, found in whole.items():
        np.testing.assert_array_equal(found[:5], five[name])
        np.testing.assert_array_equal(found[:1], one[name])


@pytest.mark.parametrize("level", ["x86-64-v4", "x86-64-v3", "x86-64-v2"])
def test_every_level(level: str) -> None:
    """Without products of four bytes in one instruction; codes of 8 bits are split, or they would saturate."""
    schemes = ("Q4_1", "Q5_0", "Q6_K", "Q8_0")
    x = random_x(3)
    x[1] = np.sign(x[1])  # all codes at the ends
    found = compiled(schemes, f"cpu:{level}", dims={"M": 3}).run({"x": x})
    for name in schemes:
        check(found[f"y.{name}"], x, name) if name != "Q8_0" else check_near(found[f"y.{name}"], x, name)


def check_near(found: np.ndarray, x: np.ndarray, scheme: str) -> None:
    near = rounded(x, scheme)
    assert (np.abs(found - near @ WIDE[scheme].T) <= 6 * UNIT * (np.abs(near) @ np.abs(WIDE[scheme]).T)).all()


@pytest.mark.skipif("avx512vnni" not in host_level().features, reason="one level is that of the host")
def test_levels_of_one_width_give_the_same_bits() -> None:
    """Their sums are exact."""
    x = random_x(3)
    host, other = (
        compiled(("Q4_K",), target, dims={"M": 3}).run({"x": x}) for target in ("cpu", "cpu:x86-64-v4")
    )
    np.testing.assert_array_equal(host["y.Q4_K"], other["y.Q4_K"])


def test_threads_share_panels() -> None:
    x = random_x(70)
    one, two = (compiled(("Q4_1",), dims={"M": 70}, threads=threads).run({"x": x}) for threads in (1, 2))
    np.testing.assert_array_equal(one["y.Q4_1"], two["y.Q4_1"])


def test_edges_of_x(every_scheme: CompiledModel) -> None:
    """Zeros, numbers that count as none, and what is not finite, which reaches all results of its row alone, alone or
    beside numbers."""
    x = np.zeros((5, COLUMNS), np.float32)
    x[4] = random_x(1)
    x[1, 7], x[2], x[3, 40], x[4, 3:90:17] = 1e30, 1e-37, np.inf, np.nan
    found = every_scheme.run({"x": x})
    for name in WHOLE:
        y = found[f"y.{name}"]
        assert not y[0].any() and not y[2].any() and np.isnan(y[3:]).all()
        np.testing.assert_allclose(y[1], WIDE[name][:, 7] * 1e30, rtol=1e-6)


def test_a_record_for_other_vectors_is_told(every_scheme: CompiledModel) -> None:
    lanes, text = host_level().lanes("f32"), every_scheme.ir("emit")
    other = 8 if lanes == 16 else 16
    edited = text.replace(f'"bitwise", lanes = {lanes}', f'"bitwise", lanes = {other}')
    with pytest.raises(AicfError, match=f"'lanes' is {other}, legal: {lanes}"):
        aicf.compile(parse_module(edited), PACKED)


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_without_the_kernel_the_same_elements_are_rounded(target: str) -> None:
    forbidden = ["cpu.rounded_matmul_blocks"] if target == "cpu" else []
    policy = POLICY | {"kernel": {"forbid": forbidden}}
    model = compiled(("Q4_1", "Q6_K"), target, dims={"M": 4}, policy=policy)
    assert "cpu.rounded_matmul_blocks" not in kernels_of(model)
    x = random_x(4)
    found = model.run({"x": x})
    for name in ("Q4_1", "Q6_K"):
        check(found[f"y.{name}"], x, name)


def test_nothing_is_rounded_unless_a_policy_asks() -> None:
    x = random_x(2)
    model = compiled(("Q4_0",), dims={"M": 2}, policy=None)
    assert "cpu.matmul_blocks" in kernels_of(model)
    exact = x.astype(np.float64) @ WIDE["Q4_0"].T
    assert (np.abs(model.run({"x": x})["y.Q4_0"] - exact) <= 1e-6 * np.abs(x) @ np.abs(WIDE["Q4_0"]).T).all()


def test_floats_stay_as_they_are() -> None:
    """The policy allows whole numbers; codes that are floats are multiplied by f32, and the ledger says so."""
    name = "E4M3_32"
    model = compiled((name,), dims={"M": 2})
    assert "cpu.matmul_blocks" in kernels_of(model)
    assert f"the codes of {name} are floats, so activations stay f32" in model.ir("emit")


def test_the_ledger_says_where_no_product_is_rounded() -> None:
    (found,) = (
        each
        for each in compiled(["E4M3_32"], "reference", dims="M=1").decisions
        if each.subjects == ("module",) and each.made_by == "read-packed-weights"
    )
    assert found.choice == "activations stay as they are"
    assert found.because.startswith("packed_activations has no effect")
