"""ONNX's quantised tensors, told in float64 or whole numbers; results are equal, not near."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import aicf
from aicf.errors import InvalidIR
from tests.support.onnx_models import Array, expect, one_node

RNG = np.random.default_rng(17)


def exactly(op: str, inputs: list[Array | None], expected: list[Array], **options: Any) -> None:
    expect(op, inputs, len(expected), expected=expected, rtol=0.0, atol=0.0, **options)


def powers(*shape: int) -> Array:
    """Powers of two, by which a division is exact."""
    return (2.0 ** RNG.integers(-4, 0, shape)).astype(np.float32)


def scalar(value: float, dtype: str = "float32") -> Array:
    return np.array(value, dtype)


def quantized(x: Array, scale: Array, zero_point: Array) -> Array:
    """Rounded to nearest even, then moved, then cut off."""
    limits = np.iinfo(zero_point.dtype)
    whole = np.rint(x.astype(np.float64) / scale) + zero_point.astype(np.float64)
    return np.clip(whole, limits.min, limits.max).astype(zero_point.dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
def test_quantize_rounds_to_even_and_saturates(dtype: str) -> None:
    zero_point = scalar(3, dtype)
    # Halves of the scale among them, and numbers on both sides of what the type holds.
    x = np.concatenate([np.arange(-8, 9) / 8, [-1e9, 1e9, np.inf, -np.inf], RNG.normal(0, 40, 40)]).astype(
        np.float32
    )
    exactly("QuantizeLinear", [x, scalar(0.25), zero_point], [quantized(x, scalar(0.25), zero_point)])


def test_quantize_without_zero_point_gives_u8_or_what_is_stated() -> None:
    x = RNG.normal(0, 60, (4, 5)).astype(np.float32)
    exactly("QuantizeLinear", [x, scalar(0.5)], [quantized(x, scalar(0.5), scalar(0, "uint8"))])
    expected = quantized(x, scalar(0.5), scalar(0, "int8"))
    exactly("QuantizeLinear", [x, scalar(0.5)], [expected], output_dtype=3)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_quantize_and_dequantize_along_an_axis(axis: int) -> None:
    x = RNG.normal(0, 4, (3, 4, 5)).astype(np.float32)
    count = x.shape[axis]
    scale, zero_point = powers(count), RNG.integers(-9, 9, count).astype(np.int8)
    along = [1, 1, 1]
    along[axis] = count
    expected = quantized(x, scale.reshape(along), zero_point.reshape(along))
    exactly("QuantizeLinear", [x, scale, zero_point], [expected], axis=axis)
    back = (expected.astype(np.float32) - zero_point.reshape(along)) * scale.reshape(along)
    exactly("DequantizeLinear", [expected, scale, zero_point], [back.astype(np.float32)], axis=axis)


@pytest.mark.parametrize("block", [2, 3])
def test_quantize_and_dequantize_in_blocks(block: int) -> None:
    x = RNG.normal(0, 4, (3, 5, 2)).astype(np.float32)
    blocks = -(-5 // block)
    scale, zero_point = powers(3, blocks, 2), RNG.integers(0, 99, (3, blocks, 2)).astype(np.uint8)
    wide_scale, wide_zero = (np.repeat(value, block, 1)[:, :5] for value in (scale, zero_point))
    expected = quantized(x, wide_scale, wide_zero)
    exactly("QuantizeLinear", [x, scale, zero_point], [expected], axis=1, block_size=block)
    back = (expected.astype(np.float32) - wide_zero) * wide_scale
    exactly(
        "DequantizeLinear", [expected, scale, zero_point], [back.astype(np.float32)], axis=1, block_size=block
    )


@pytest.mark.parametrize("saturate", [1, 0])
@pytest.mark.parametrize("with_zero_point", [True, False])
@pytest.mark.parametrize(("dtype", "number"), [(ml_dtypes.float8_e4m3fn, 17), (ml_dtypes.float8_e5m2, 19)])
def test_quantize_and_dequantize_in_floats_of_8_bits(
    dtype: Any, number: int, with_zero_point: bool, saturate: int
) -> None:
    """A scale for each column."""
    largest, scale = float(ml_dtypes.finfo(dtype).max), powers(5)
    x = (RNG.normal(0, 2, (7, 5)) * largest * scale).astype(np.float32)
    quotient = x / scale
    with np.errstate(all="ignore"):
        expected = (np.clip(quotient, -largest, largest) if saturate else quotient).astype(dtype)
    zero_point, options = (np.zeros(5, dtype), {}) if with_zero_point else (None, {"output_dtype": number})
    given = [x, scale] if zero_point is None else [x, scale, zero_point]
    known = [] if zero_point is None else [2]
    exactly("QuantizeLinear", given, [expected], saturate=saturate, opset=21, known=known, **options)
    with np.errstate(all="ignore"):
        wide = expected.astype(np.float32) * scale
    given = [expected, scale] if zero_point is None else [expected, scale, zero_point]
    exactly("DequantizeLinear", given, [wide], opset=21, known=known)


def test_a_zero_point_of_floats_is_0() -> None:
    point = np.full((), 1, ml_dtypes.float8_e4m3fn)
    with pytest.raises(
        aicf.UnsupportedOp, match="the zero point of floats of 8 bits is 0; give it as a constant"
    ):
        exactly("QuantizeLinear", [scalar(1.0), scalar(1.0), point], [point], opset=21, known=[2])


def test_blocks_of_another_size_are_refused() -> None:
    x, scale = RNG.normal(0, 4, (3, 5)).astype(np.float32), powers(3, 2)
    model = one_node("QuantizeLinear", [x, scale], axis=1, block_size=2)
    with pytest.raises(InvalidIR, match="blocks of 2 along axis 1 of 3x5xf32 need 3 there"):
        aicf.compile(model)


def test_dequantize_of_i32_and_into_f16() -> None:
    x = RNG.integers(-(2**20), 2**20, (3, 4)).astype(np.int32)
    exactly("DequantizeLinear", [x, scalar(0.5)], [(x * np.float32(0.5)).astype(np.float32)])
    small = RNG.integers(-50, 50, (3, 4)).astype(np.int8)
    expected = [(small * 0.5).astype(np.float16)]
    exactly("DequantizeLinear", [small, scalar(0.5, "float16")], expected)


@pytest.mark.parametrize(("low", "high"), [(-3.0, 5.0), (1.0, 5.0), (-5.0, -1.0), (0.0, 0.0)])
def test_dynamic_quantize(low: float, high: float) -> None:
    x = np.linspace(low, high, 24, dtype=np.float32).reshape(4, 6)
    span = np.float32(max(high, 0.0)) - np.float32(min(low, 0.0))
    scale = np.float32(1.0) if span == 0 else span / np.float32(255)
    zero_point = np.rint(np.clip(-np.float32(min(low, 0.0)) / scale, 0, 255)).astype(np.uint8)
    y = np.clip(np.rint(x / scale) + zero_point, 0, 255).astype(np.uint8)
    exactly("DynamicQuantizeLinear", [x], [y, np.asarray(scale), np.asarray(zero_point)])


@pytest.mark.parametrize("left", ["uint8", "int8"])
@pytest.mark.parametrize("right", ["uint8", "int8"])
def test_matmul_integer(left: str, right: str) -> None:
    a, b = (
        RNG.integers(0, 256, shape).astype(np.uint8).view(dtype)
        for shape, dtype in (((3, 70), left), ((70, 5), right))
    )
    exact = a.astype(np.int64), b.astype(np.int64)
    exactly("MatMulInteger", [a, b], [(exact[0] @ exact[1]).astype(np.int32)])
    rows, columns = RNG.integers(0, 99, 3).astype(left), RNG.integers(0, 99, 5).astype(right)
    moved = (exact[0] - rows[:, None]) @ (exact[1] - columns)
    exactly("MatMulInteger", [a, b, rows, columns], [moved.astype(np.int32)])
    batch = np.stack([b, b[::-1]])
    per_batch = np.stack([exact[0] @ each.astype(np.int64) for each in batch])
    exactly("MatMulInteger", [a, batch, scalar(0, left), scalar(0, right)], [per_batch.astype(np.int32)])


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("by_column", [False, True])
def test_quantized_matmul(dtype: str, by_column: bool) -> None:
    a, b = (RNG.integers(0, 256, shape).astype(np.uint8).view(dtype) for shape in ((3, 8), (8, 5)))
    a_zero, y_zero = scalar(7, dtype), scalar(11, dtype)
    b_scale = powers(5) if by_column else scalar(0.5)
    b_zero = RNG.integers(0, 9, 5).astype(dtype) if by_column else scalar(4, dtype)
    product = (a.astype(np.int64) - a_zero) @ (b.astype(np.int64) - b_zero)
    expected = quantized(product * 0.25 * b_scale, scalar(8.0), y_zero)
    inputs: list[Array | None] = [a, scalar(0.25), a_zero, b, b_scale, b_zero, scalar(8.0), y_zero]
    exactly("QLinearMatMul", inputs, [expected])
