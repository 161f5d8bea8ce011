"""Remainders and powers of ONNX: against NumPy's fmod and mod, and Python's integers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.onnx_models import expect, expect_all

EDGES = (0.0, -0.0, 1.0, -1.0, 2.5, -7.75, 1e30, -3e-30, np.inf, -np.inf, np.nan)


@pytest.mark.parametrize("dtype", ["i4", "i8", "i2", "i1", "u1"])
def test_remainders_of_integers(dtype: str) -> None:
    rng = np.random.default_rng(0)
    low = 0 if dtype == "u1" else -60
    x, y = rng.integers(low, 60, (6, 7)).astype(dtype), rng.integers(low, 60, (7,)).astype(dtype)
    y[y == 0] = 7
    expect_all([("Mod", [0, 1], {}), ("Mod", [0, 1], {"fmod": 1})], [x, y])


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_remainders_of_floats_are_exact(dtype: str) -> None:
    """Quotients of every size that f32 has, and of 2^90 in f64; signs, zeros and infinities as NumPy's."""
    rng = np.random.default_rng(1)
    size = {"f2": 20, "f4": 120, "f8": 45}[dtype]
    grid = np.array([(x, y) for x in EDGES for y in EDGES])
    free = rng.normal(size=(400, 2)) * 2.0 ** rng.integers(-size, size, (400, 2))
    with np.errstate(all="ignore"):
        x, y = np.concatenate([grid, free]).astype(dtype).T.copy()
        if dtype == "f8":
            near = np.abs(x) < 2.0**95 * np.abs(y)
            x = np.where(near | ~np.isfinite(x) | (y == 0), x, 1.0)
        wanted = [np.fmod(x, y), np.mod(x, y)]
        expect("Mod", [x, y], expected=wanted[:1], rtol=0, atol=0, fmod=1)
        expect("Mod", [x, y], expected=wanted[1:], rtol=1e-3 if dtype == "f2" else 1e-7, atol=0, opset=28)


def test_powers_of_floats() -> None:
    rng = np.random.default_rng(2)
    base = rng.uniform(0.1, 3, (4, 5)).astype("f4")
    signed, whole = rng.normal(size=(4, 5)).astype("f4"), rng.integers(-4, 5, (4, 5))
    inputs = [base, rng.normal(size=(5,)).astype("f4"), signed, whole, whole.astype("i4")]
    inputs += [rng.normal(size=(4, 5)), base.astype("f8"), whole.astype("i1")]
    pairs = [(0, 1), (2, 3), (2, 4), (0, 5), (6, 1), (6, 3), (2, 7)]
    expect_all([("Pow", pair, {}) for pair in pairs], inputs)


def test_a_large_whole_exponent_keeps_its_parity() -> None:
    base, exponent = np.array([-1.0, -1.0], "f4"), np.array([2**24 + 1, 2**24 + 2])
    expect("Pow", [base, exponent], expected=[np.array([-1, 1], "f4")])
    expect("Pow", [base, exponent], known=[1], expected=[np.array([-1, 1], "f4")])


@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_powers_of_integers(dtype: str) -> None:
    rng = np.random.default_rng(3)
    bits = 8 * np.dtype(dtype).itemsize
    x = np.concatenate([rng.integers(-9, 10, 60), [1, -1, 1, -1, 0, 2, 2, -2]]).astype(dtype)
    y = np.concatenate([rng.integers(0, 10, 60), [-3, -3, 99, 99, 5, bits - 2, -1, 0]])
    powers = [
        int(a) ** int(b) if b >= 0 else (int(a) ** -int(b) if abs(a) == 1 else 0)
        for a, b in zip(x, y, strict=True)
    ]
    wanted = np.array([(p + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1) for p in powers], dtype)
    for exponent in ("i4", "i8"):
        expect("Pow", [x, y.astype(exponent)], expected=[wanted])


@pytest.mark.parametrize("exponent", [0, 1, 2, 5, 7])
def test_a_known_power_of_integers_is_few_products(exponent: int) -> None:
    x = np.random.default_rng(4).integers(-9, 10, (3, 4))
    expect("Pow", [x, np.array(exponent)], known=[1])


def test_an_integer_to_a_broken_power_is_cut_off() -> None:
    x, y = np.array([2, 3, 10]), np.array([0.5, 1.5, -0.5], "f4")
    expect("Pow", [x, y], expected=[np.array([1, 5, 0])])
