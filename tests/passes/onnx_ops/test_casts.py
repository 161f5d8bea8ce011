"""ONNX ops that change the element type, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import aicf
from tests.support.onnx_models import expect, expect_all

DTYPES = ("f4", "f8", "f2", "i4", "i8", "i2", "i1", "u1", "?")


def number_of(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_casts(dtype: str) -> None:
    """To every type, of numbers that all of them hold."""
    x = np.random.default_rng(0).integers(0, 100, (3, 4))
    x = (x + 0.5 if dtype.startswith("f") else x).astype(dtype)
    uses = [("Cast", [0], {"to": number_of(other)}) for other in DTYPES]
    expect_all(uses, [x], expected=[x.astype(other) for other in DTYPES])


def test_floats_that_no_integer_is_saturate() -> None:
    x = np.array([300.0, -300.0, np.inf, np.nan], "f4")
    expect("Cast", [x], to=TensorProto.INT8, expected=[np.array([127, -128, 127, 0], "i1")])


def test_bfloat16() -> None:
    x = np.random.default_rng(1).normal(size=(4, 5)).astype("f4")
    expect("Cast", [x], to=TensorProto.BFLOAT16, expected=[x.astype(ml_dtypes.bfloat16)], rtol=0, atol=0)


FLOAT8 = {
    TensorProto.FLOAT8E4M3FN: (ml_dtypes.float8_e4m3fn, 448.0),
    TensorProto.FLOAT8E5M2: (ml_dtypes.float8_e5m2, 57344.0),
}


@pytest.mark.parametrize("source", ["f4", "f2", "f8", "i4"])
@pytest.mark.parametrize("saturate", [1, 0])
@pytest.mark.parametrize("to", FLOAT8)
def test_floats_of_8_bits(to: int, saturate: int, source: str) -> None:
    """Saturated by default: infinity becomes the largest number, NaN stays NaN. Else as PyTorch and ml_dtypes do it."""
    dtype, largest = FLOAT8[to]
    x = np.random.default_rng(4).normal(size=60) * largest
    if source[0] == "f":
        x = np.concatenate([x, [np.inf, -np.inf, np.nan, largest, -0.0, 2.0**-10]])
    with np.errstate(over="ignore"):
        x = x.astype(source)
    wide = x.astype("f4") if source == "i4" else x
    with np.errstate(all="ignore"):
        expected = (np.clip(wide, -largest, largest) if saturate else wide).astype(dtype)
    expect("Cast", [x], opset=21, to=to, saturate=saturate, expected=[expected], rtol=0, atol=0)


@pytest.mark.parametrize("to", FLOAT8)
def test_every_float_of_8_bits_widens(to: int) -> None:
    dtype, _ = FLOAT8[to]
    x = np.arange(256, dtype=np.uint8).view(dtype)
    with np.errstate(all="ignore"):
        expect("Cast", [x], opset=21, to=TensorProto.FLOAT, expected=[x.astype("f4")], rtol=0, atol=0)


def test_cast_like_reads_the_type_alone() -> None:
    rng = np.random.default_rng(2)
    expect("CastLike", [rng.normal(size=(2, 3)).astype("f4"), np.zeros(5, "f8")])
    expect("CastLike", [rng.integers(-5, 5, (2, 3)), np.zeros((), "f4")], known=[1])


@pytest.mark.parametrize(
    ("source", "target"), [("f4", "i4"), ("i4", "f4"), ("f8", "i8"), ("i1", "u1"), ("?", "u1")]
)
def test_bit_casts(source: str, target: str) -> None:
    x = np.random.default_rng(3).integers(0, 2**20, (3, 5))
    x = (x % 2 == 1) if source == "?" else x.astype("u1").view("i1") if source == "i1" else x.astype(source)
    expect("BitCast", [x], opset=26, to=number_of(target), expected=[x.view(target)], rtol=0, atol=0)


def test_element_types_that_tensors_do_not_have() -> None:
    x = np.ones(3, "f4")
    with pytest.raises(
        aicf.UnsupportedOp, match="Cast 'node': element type 18 of ONNX is not supported; use one of f32"
    ):
        expect("Cast", [x], to=TensorProto.FLOAT8E4M3FNUZ, expected=[])
    with pytest.raises(aicf.InvalidIR, match="f32 has 4 bytes, i64 8"):
        expect("BitCast", [x], opset=26, to=TensorProto.INT64, expected=[])
