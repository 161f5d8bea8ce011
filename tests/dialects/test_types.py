"""The element-type table and the checks of tensor types."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ComplexType, NoneAttr, TensorType, UnitAttr, f32
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.dims import parse_size
from aicf.dialects.types import (
    ELEMENTS,
    MAX_TENSOR_BYTES,
    TensorInfo,
    bind_names,
    byte_count,
    element_named,
    element_of,
    element_of_dtype,
    tensor,
    tensor_info,
)


@pytest.mark.parametrize("element", ELEMENTS, ids=lambda element: element.name)
def test_every_row_is_found_by_each_of_its_columns(element) -> None:
    assert (
        element_of(element.type) is element_named(element.name) is element_of_dtype(element.dtype) is element
    )
    assert element_of(tensor((2,), element)) is element
    assert byte_count(tensor((3, 5), element)) == 15 * element.dtype.itemsize


def test_names_and_sizes() -> None:
    assert {element.name: element.bytes for element in ELEMENTS} == {
        **{"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "f8E4M3FN": 1, "f8E5M2": 1},
        **{"i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "i1": 1},
    }
    assert str(tensor((2,), "u8")) == "tensor<2xui8>"


def test_unknown_elements() -> None:
    with pytest.raises(ValueError, match="unknown element type 'f8'; use one of f64, f32"):
        element_named("f8")
    with pytest.raises(ValueError, match="dtype complex64 is not supported; use one of f64"):
        element_of_dtype(np.dtype(np.complex64))
    with pytest.raises(VerifyException, match="element type complex<f32> is not supported"):
        element_of(ComplexType(f32))


def test_symbolic_tensors() -> None:
    type_ = tensor((parse_size("2*N"), 64), "f32")
    info = tensor_info(type_)
    assert str(info) == "2*Nx64xf32" and not info.is_static
    assert str(info.elements) == "128*N"
    assert tensor_info(bind_names(type_, {"N": 3})) == TensorInfo((6, 64), element_named("f32"))
    with pytest.raises(ValueError, match="has symbolic dimensions; run specialize-shapes first"):
        byte_count(type_)


def test_the_largest_tensor() -> None:
    largest = MAX_TENSOR_BYTES // 4
    assert byte_count(tensor((largest,), "f32")) == MAX_TENSOR_BYTES
    with pytest.raises(VerifyException, match=r"takes 140737488355332 bytes; the largest tensor takes"):
        tensor_info(tensor((largest + 1,), "f32"))
    with pytest.raises(VerifyException, match=r"takes \d+ bytes"):
        tensor_info(tensor((1 << 62, 1 << 62), "i1"))
    with pytest.raises(VerifyException, match=r"takes \d+ bytes"):
        bind_names(tensor((parse_size("N"), parse_size("N")), "f64"), {"N": 1 << 32})


def test_foreign_types() -> None:
    with pytest.raises(VerifyException, match="f32 is not a ranked tensor type"):
        tensor_info(f32)
    with pytest.raises(VerifyException, match="encoding unit is not #logical"):
        tensor_info(TensorType(f32, [4], UnitAttr()))
    assert tensor_info(TensorType(f32, [4], NoneAttr())).shape == (4,)
