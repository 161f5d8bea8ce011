"""ONNX ops that compute each element from the elements at its index, against the reference implementation of onnx."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from tests.support.onnx_models import expect, expect_all, expect_known

Array = NDArray[Any]
SHAPE = (3, 4, 5)
INTEGERS = ("i4", "i8", "i2", "i1", "u1")
TOLERANCES = {"f2": 2e-3, "f4": 2e-6, "f8": 1e-12}

OF_FLOATS = (
    *("Abs", "Atan", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Neg", "Reciprocal", "Relu", "Round"),
    *("Asinh", "Sigmoid", "Sign", "Sin", "Sinh", "Tan", "Tanh"),
)
OF_FRACTIONS = ("Asin", "Acos", "Atanh")
OF_POSITIVE = ("Acosh", "Log", "Sqrt")
ARITHMETIC = ("Add", "Sub", "Mul", "Div")
COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")


def normal(dtype: str, seed: int = 0, shape: tuple[int, ...] = SHAPE) -> Array:
    """Away from 0, where functions rise steeply or a rounding decides."""
    x = np.random.default_rng(seed).normal(size=shape)
    return (x + 0.125 * np.sign(x)).astype(dtype)


def whole(dtype: str, seed: int = 0, shape: tuple[int, ...] = SHAPE) -> Array:
    low = 0 if dtype.startswith("u") else -50
    return np.random.default_rng(seed).integers(low, 50, shape).astype(dtype)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_functions_of_floats(dtype: str) -> None:
    x = normal(dtype)
    inputs = [x, np.tanh(x), np.abs(x) + x.dtype.type(1.25)]
    uses = [
        (op_type, [number], {})
        for number, names in enumerate((OF_FLOATS, OF_FRACTIONS, OF_POSITIVE))
        for op_type in names
        if (op_type, dtype) != ("Erf", "f8")  # the reference has it in f32
    ]
    expect_all(uses, inputs, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


def test_erf_of_f64() -> None:
    x = normal("f8")
    expect("Erf", [x], expected=[np.vectorize(math.erf)(x)], rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype: str) -> None:
    uses = [(op_type, [0], {}) for op_type in ("Abs", "Sign", "BitwiseNot", "Relu")]
    names = ("Add", "Sub", "Mul", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Max", "Min", *COMPARISONS)
    uses += [(op_type, [0, 1], {}) for op_type in names]
    expect_all(uses, [whole(dtype), whole(dtype, 1, (4, 1))], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_arithmetic_of_floats(dtype: str) -> None:
    uses = [(op_type, [0, 1], {}) for op_type in (*ARITHMETIC, "Max", "Min", *COMPARISONS)]
    inputs = [normal(dtype), normal(dtype, 1, (4, 1))]
    inputs[0][0, :, 0] = inputs[1][:, 0]
    expect_all(uses, inputs, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


def test_integers_are_divided_toward_zero() -> None:
    x, y = np.array([-7, 7, -7, 7]), np.array([2, -2, -2, 2])
    expect("Div", [x, y], expected=[np.array([-3, -3, 3, 3])])


def test_round_takes_the_even_one_of_two_neighbours() -> None:
    expect("Round", [(whole("i4") / 2).astype("f4")])


def test_what_is_known_is_computed_at_once() -> None:
    expect_known("Mul", [whole("i8"), whole("i8", 1)])
    expect("Add", [normal("f4"), normal("f4", 1, (5,))], known=[1])


def test_truth_values() -> None:
    uses = [(op_type, [0, 1], {}) for op_type in ("And", "Or", "Xor", "Equal")]
    expect_all([*uses, ("Not", [0], {})], [normal("f4") > 0, normal("f4", 1, (4, 5)) > 0])


@pytest.mark.parametrize("dtype", ["u1", "i1", "i4", "i8"])
def test_shifts_by_any_amount(dtype: str) -> None:
    amounts = np.random.default_rng(1).integers(0 if dtype == "u1" else -3, 70, SHAPE).astype(dtype)
    uses = [("BitShift", [0, 1], {"direction": direction}) for direction in ("LEFT", "RIGHT")]
    expect_all(uses, [whole(dtype), amounts], opset=28)


def test_where() -> None:
    inputs = [normal("f4", 2, (4, 1)) > 0, normal("f4"), normal("f4", 1, (5,)), whole("i8"), whole("i8", 1)]
    expect_all([("Where", [0, 1, 2], {}), ("Where", [0, 3, 4], {})], inputs)


def test_special_floats() -> None:
    x = np.array([np.nan, -np.inf, np.inf, -0.0, 3.5], "f4")
    one_sided = [("IsInf", [0], {f"detect_{side}": 0}) for side in ("negative", "positive")]
    expect_all([("IsNaN", [0], {}), ("IsInf", [0], {}), *one_sided], [x])
    expect("IsInf", [x], detect_positive=0, detect_negative=0, expected=[np.zeros(5, bool)])


def test_any_number_of_operands() -> None:
    shapes = (SHAPE, (4, 1), (5,), (1, 1, 5))
    uses = [(op_type, range(count), {}) for op_type in ("Max", "Min", "Sum", "Mean") for count in (1, 2, 4)]
    expect_all(uses, [normal("f4", seed, shape) for seed, shape in enumerate(shapes)])


def test_a_sum_of_short_floats_is_rounded_once() -> None:
    terms = [np.array([value], "f2") for value in (2048.0, 1.0, 1.0, 1.0)]
    expect("Sum", terms, expected=[np.array([2052.0], "f2")], rtol=0)
    expect("Mean", terms, expected=[np.array([512.75], "f2")], rtol=0)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i1", "u1"])
def test_clip(dtype: str) -> None:
    inputs = [whole(dtype), np.array(5, dtype), np.array(20, dtype)]
    uses = [("Clip", operands, {}) for operands in ([0, 1, 2], [0, None, 2], [0, 1], [0])]
    expect_all(uses, inputs)
    expect_all(uses[:1], inputs, known=[1, 2])


def test_clip_to_attributes() -> None:
    x = normal("f4")
    expect_all([("Clip", [0], {"min": -0.25, "max": 0.5}), ("Clip", [0], {"max": 0.5})], [x], opset=10)
    expect("Clip", [x], opset=7, expected=[x])


def test_clip_with_bounds_in_the_wrong_order_gives_the_upper_one() -> None:
    x, bounds = normal("f4"), (np.array(1.0, "f4"), np.array(-1.0, "f4"))
    expect("Clip", [x, *bounds], expected=[np.full(SHAPE, -1.0, "f4")])


def test_bfloat16() -> None:
    x, y = (normal("f4", seed).astype(ml_dtypes.bfloat16) for seed in (0, 1))
    wide = x.astype("f8") * y.astype("f8")
    expect("Mul", [x, y], expected=[wide.astype(ml_dtypes.bfloat16)], rtol=2**-8)


def test_the_direction_of_a_shift_is_one_of_two() -> None:
    with pytest.raises(aicf.InvalidIR, match="direction is 'UP'; use one of LEFT, RIGHT"):
        expect("BitShift", [whole("u1"), whole("u1", 1)], direction="UP", expected=[])


def test_shapes_that_do_not_broadcast() -> None:
    with pytest.raises(aicf.InvalidIR, match="Add 'node': shapes 3x4x5 and 3 do not broadcast"):
        expect("Add", [normal("f4"), normal("f4", 1, (3,))], expected=[])
