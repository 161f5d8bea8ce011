"""Element types of the runtime as NumPy dtypes, and what it needs to know about host arrays. No xDSL here.

The names are those of `dialects.types`; a test holds the two tables together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.array_utils import byte_bounds

from aicf.errors import ArtifactError

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_NUMPY_NAMES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "i1": "bool",
}
_ML_DTYPES = {"bf16": "bfloat16", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2"}

ELEMENT_NAMES = (*_NUMPY_NAMES, *_ML_DTYPES)
"""All element types a program can have at its boundary."""


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The host dtype of element type `name`, as `f32`. Raises ArtifactError for an unknown name."""
    if name in _NUMPY_NAMES:
        return np.dtype(_NUMPY_NAMES[name])
    if name not in _ML_DTYPES:
        raise ArtifactError(f"unknown element type '{name}'; known: {', '.join(ELEMENT_NAMES)}")
    import ml_dtypes  # a tenth of a second to import, and few programs need it

    return np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides of `shape` without gaps, in elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def span_bytes(shape: Sequence[int], strides: Sequence[int], dtype: str) -> int:
    """Bytes from the first to past the last element; `strides` in elements."""
    if 0 in shape:
        return 0
    reach = sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    return (reach + 1) * numpy_dtype(dtype).itemsize


def element_name(dtype: np.dtype[Any]) -> str:
    """`f32` for float32; a dtype without a name of ours keeps NumPy's."""
    for table in (_NUMPY_NAMES, _ML_DTYPES):
        for name, numpy_name in table.items():
            if dtype.name == numpy_name and dtype.isnative:
                return name
    return str(dtype)


def strided_view(flat: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """`flat`, elements in memory order, as an array of another shape and strides in bytes. Unlike NumPy's `as_strided`
    it takes every type of `ml_dtypes`, some of which have no name in NumPy's array interface."""
    return np.ndarray(tuple(shape), flat.dtype, flat.view(np.uint8), 0, tuple(strides))


def describe(shape: Sequence[int | str], dtype: str) -> str:
    """A tensor as people write it: `f32[64, 10]`."""
    return f"{dtype}[{', '.join(str(size) for size in shape)}]"


def describe_array(array: Array) -> str:
    """`describe` of a host array."""
    return describe(array.shape, element_name(array.dtype))


def address(array: Array) -> int:
    """Address of the first element."""
    return array.ctypes.data


def byte_range(array: Array) -> tuple[int, int]:
    """Addresses of the first and past the last byte."""
    if array.flags.c_contiguous:
        start = address(array)
        return start, start + array.nbytes
    return byte_bounds(array)
