"""Rows in blocks: errors against bounds that follow from the layouts, against a search of a grid, and against gguf."""

from __future__ import annotations

import numpy as np
import pytest

from aicf.dialects.block_bits import BLOCK_BITS
from aicf.dialects.block_schemes import BLOCK_SCHEMES, SCHEMES
from aicf.llm.quantizing.encoding import LARGEST, bits_of, encode
from aicf.llm.quantizing.fitting import Codes, fit_scale, fit_scale_and_minimum, unrounded
from tests.support.blocks import half, widened

RNG = np.random.default_rng(307)
STEPS = {"Q4_0": 8, "Q4_1": 15, "Q5_0": 16, "Q5_1": 31, "Q8_0": 127, "Q4_K": 15, "Q5_K": 31, "Q6_K": 32}
"""Steps of a scale that the largest element of a part, or its range, spans."""
WITH_MINIMUM = ("Q4_1", "Q5_1", "Q4_K", "Q5_K")
HALF = 2.0**-11
"""Largest relative error of an f16."""
ROWS, COLUMNS = 40, 512


def numbers() -> np.ndarray:
    """Rows of magnitudes that differ, some of them far from zero, one of zeros, and one of equal elements."""
    x = RNG.standard_normal((ROWS, COLUMNS)) * 10.0 ** RNG.integers(-3, 3, (ROWS, 1))
    x[::3] += 3 * np.abs(x[::3]).max(1, keepdims=True)
    x[4], x[5] = 0, -0.75
    return x.astype(np.float32)


def nested_errors(name: str, block: bytes, part: int) -> float:
    """How far rounding the factors of a part to multiples of those of the block may move its elements."""
    if name == "Q6_K":
        return abs(half(block, 208)) / 2 * 32
    if name in ("Q4_K", "Q5_K"):
        return half(block, 0) / 2 * STEPS[name] + half(block, 2) / 2
    return 0.0


def bounds(name: str, x: np.ndarray, packed: np.ndarray) -> np.ndarray:
    """Of each part the largest root of the mean squared error: half of a step, and what rounding the factors does.

    With signed codes the end of the range opposite to the largest element is one step short.
    """
    scheme, part = BLOCK_SCHEMES[name], BLOCK_BITS[name].part
    parts = x.astype(np.float64).reshape(-1, part)
    largest = np.abs(parts).max(1)
    if name in WITH_MINIMUM:
        lowest = parts.min(1) if name in ("Q4_1", "Q5_1") else np.minimum(parts.min(1), 0)
        step = (parts.max(1) - lowest) / STEPS[name] / 2
    else:
        step = largest / STEPS[name]
    blocks = packed.reshape(-1, scheme.nbytes)
    inner = [
        nested_errors(name, block.tobytes(), number)
        for block in blocks
        for number in range(scheme.length // part)
    ]
    return step + np.array(inner) + 4 * HALF * largest + 2.0**-24 * STEPS[name]


@pytest.mark.parametrize("name", STEPS)
def test_errors_are_below_their_bound(name: str) -> None:
    x, scheme = numbers(), BLOCK_SCHEMES[name]
    packed = encode(scheme, x)
    assert packed.shape == (ROWS, COLUMNS // scheme.length * scheme.nbytes)
    off = (widened(scheme, packed[:12]) - x[:12]).reshape(-1, BLOCK_BITS[name].part)
    assert (np.sqrt((off**2).mean(1)) <= bounds(name, x[:12], packed[:12])).all()
    assert not scheme.rows(packed)[4].any()


EXPECTED = {"Q4_0": 0.081, "Q4_1": 0.070, "Q5_0": 0.041, "Q5_1": 0.034, "Q8_0": 0.0051, "Q4_K": 0.072,
            "Q5_K": 0.036, "Q6_K": 0.0175}  # fmt: skip
"""Of normal elements: relative errors of a search that finds the optimum of each part, rounded up."""


@pytest.mark.parametrize("name", STEPS)
def test_errors_of_normal_elements(name: str) -> None:
    x = RNG.standard_normal((64, 1024)).astype(np.float32)
    off = BLOCK_SCHEMES[name].rows(encode(BLOCK_SCHEMES[name], x)) - x
    assert 0.9 * EXPECTED[name] < np.sqrt((off**2).mean() / (x**2).mean()) < 1.01 * EXPECTED[name]


def test_scales_are_as_good_as_those_of_a_fine_grid() -> None:
    x = RNG.standard_normal((32, 50)).astype(np.float32)
    codes = Codes(-8, 7)
    fit = fit_scale(x, codes, unrounded)
    found = ((fit.scale * codes.nearest(x, fit) - x) ** 2).sum(0)
    grid = np.linspace(-0.7, 0.7, 4001)[:, None, None]
    q = np.clip(np.rint(x / np.where(grid == 0, 1, grid)), -8, 7)
    best = ((grid * q - x) ** 2).sum(1).min(0)
    assert (found <= 1.2 * best).all() and found.sum() <= 1.02 * best.sum()


@pytest.mark.parametrize("is_signed", [True, False])
def test_minima_are_as_good_as_those_of_a_fine_grid(is_signed: bool) -> None:
    x = (RNG.standard_normal((32, 12)) + 0.5).astype(np.float32)
    codes = Codes(0, 15)
    fit = fit_scale_and_minimum(x, codes, unrounded, is_signed=is_signed)
    assert is_signed or (fit.minimum <= 0).all()
    found = ((fit.scale * codes.nearest(x, fit) + fit.minimum - x) ** 2).sum(0)
    best: list[float] = []
    for column in x.T.astype(np.float64):
        minimum = np.linspace(column.min() - 0.3, min(column.min() + 0.5, np.inf if is_signed else 0), 161)
        scale = np.linspace(0.6, 1.1, 161)[:, None] * np.ptp(column) / 15
        q = np.clip(np.rint((column[:, None, None] - minimum) / scale), 0, 15)
        best.append(((scale * q + minimum - column[:, None, None]) ** 2).sum(0).min())
    assert (found <= 1.2 * np.array(best)).all() and found.sum() <= 1.06 * sum(best)


@pytest.mark.parametrize("name", STEPS)
def test_bytes_do_not_depend_on_what_else_is_encoded(name: str) -> None:
    x, scheme = numbers(), BLOCK_SCHEMES[name]
    whole = encode(scheme, x)
    np.testing.assert_array_equal(encode(scheme, x[7:9]), whole[7:9])
    np.testing.assert_array_equal(encode(scheme, x.reshape(4, 10, COLUMNS)).reshape(whole.shape), whole)


def test_numbers_of_other_types_round_to_nearest() -> None:
    x = RNG.standard_normal((3, 64)).astype(np.float32)
    np.testing.assert_array_equal(encode(SCHEMES["F32"], x).view(np.float32), x)
    np.testing.assert_array_equal(encode(SCHEMES["F16"], x).view(np.float16), x.astype(np.float16))


@pytest.mark.parametrize("name", STEPS)
def test_extremes(name: str) -> None:
    """The largest f16 factors, subnormal ones, and numbers that are too small for any."""
    x = np.zeros((4, 256), np.float32)
    x[0], x[1], x[2] = 6e4 * np.sign(RNG.standard_normal(256)), 1e-7, 1e-42
    x[3, ::2] = LARGEST
    rows = BLOCK_SCHEMES[name].rows(encode(BLOCK_SCHEMES[name], x))
    assert np.isfinite(rows).all()
    np.testing.assert_allclose(rows[0], x[0], rtol=0.26)
    assert np.abs(rows[1] - 1e-7).max() <= 1e-7 and not rows[2].any()


def test_bits() -> None:
    assert bits_of(SCHEMES["Q4_0"]) == 4.5 and bits_of(SCHEMES["Q6_K"]) == 6.5625


@pytest.mark.peers
@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_no_block_is_worse_than_that_of_gguf(name: str) -> None:
    """Whose scale follows from the largest element alone; it also reads the blocks as we do."""
    gguf = pytest.importorskip("gguf")
    kind, x = gguf.GGMLQuantizationType[name], numbers()
    packed = encode(BLOCK_SCHEMES[name], x)
    ours = gguf.quants.dequantize(packed, kind)
    np.testing.assert_array_equal(ours, BLOCK_SCHEMES[name].rows(packed))
    theirs = gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind)
    mine, other = (((rows.astype(np.float64) - x) ** 2).reshape(-1, 32).sum(1) for rows in (ours, theirs))
    assert (mine <= other * (1 + 1e-5)).all() and mine.sum() < 0.95 * other.sum()


@pytest.mark.peers
@pytest.mark.parametrize("name", ["Q4_K", "Q5_K", "Q6_K"])
def test_nested_blocks_are_read_by_gguf(name: str) -> None:
    gguf = pytest.importorskip("gguf")
    packed = encode(BLOCK_SCHEMES[name], numbers())
    found = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType[name])
    np.testing.assert_allclose(found, BLOCK_SCHEMES[name].rows(packed), rtol=1e-6, atol=1e-9)
