"""Element types and tensor types: one table for the IR, the host and the byte counts.

Everything that needs to know what ``bf16`` is (its xDSL type, its NumPy dtype, its size) asks
:data:`ELEMENTS`; everything that needs the sizes of a tensor, symbolic ones included, asks
:func:`tensor_info`. No op is known here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np
from typing_extensions import TypeIs
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    DenseIntOrFPElementsAttr,
    IntegerType,
    NoneAttr,
    Signedness,
    TensorType,
    bf16,
    f8E4M3FN,
    f8E5M2,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
)
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from aicf.dialects import dims
from aicf.dialects.dims import DimsAttr, Size
from aicf.dialects.kept import kept

MAX_TENSOR_BYTES = 1 << 47
"""Largest tensor, in bytes: what one process can address on the machines we target (47-bit user space)."""

AnyTensor: TypeAlias = TensorType[Attribute]


@dataclass(frozen=True)
class ElementType:
    """One row of the element-type table."""

    name: str
    """Name in Python and in messages: ``f32``, ``u8``."""
    type: Attribute
    """xDSL type. Signless integers are signed numbers; ``u8`` is the builtin ``ui8``."""
    dtype: np.dtype[Any]
    """Host dtype, of ``ml_dtypes`` where NumPy has none."""
    kind: Literal["float", "int", "bool"]

    @property
    def bytes(self) -> int:
        """Bytes per element in memory; ``i1`` takes one."""
        return self.dtype.itemsize

    @property
    def is_float(self) -> bool:
        """f64, f32, f16, bf16, or of 8 bits."""
        return self.kind == "float"

    @property
    def is_float8(self) -> bool:
        """A float of 8 bits, which is stored, moved, cast and multiplied, and which nothing else computes with."""
        return self.is_float and self.bytes == 1


u8 = IntegerType(8, Signedness.UNSIGNED)

ELEMENTS: tuple[ElementType, ...] = (
    ElementType("f64", f64, np.dtype(np.float64), "float"),
    ElementType("f32", f32, np.dtype(np.float32), "float"),
    ElementType("f16", f16, np.dtype(np.float16), "float"),
    ElementType("bf16", bf16, np.dtype(ml_dtypes.bfloat16), "float"),
    ElementType("f8E4M3FN", f8E4M3FN, np.dtype(ml_dtypes.float8_e4m3fn), "float"),
    ElementType("f8E5M2", f8E5M2, np.dtype(ml_dtypes.float8_e5m2), "float"),
    ElementType("i64", i64, np.dtype(np.int64), "int"),
    ElementType("i32", i32, np.dtype(np.int32), "int"),
    ElementType("i16", i16, np.dtype(np.int16), "int"),
    ElementType("i8", i8, np.dtype(np.int8), "int"),
    ElementType("u8", u8, np.dtype(np.uint8), "int"),
    ElementType("i1", i1, np.dtype(np.bool_), "bool"),
)

_BY_TYPE: Mapping[Attribute, ElementType] = {element.type: element for element in ELEMENTS}
_BY_NAME: Mapping[str, ElementType] = {element.name: element for element in ELEMENTS}
_BY_DTYPE: Mapping[np.dtype[Any], ElementType] = {element.dtype: element for element in ELEMENTS}

_KNOWN = ", ".join(_BY_NAME)


def is_tensor(type_: Attribute) -> TypeIs[AnyTensor]:
    """Narrow an attribute to a ranked tensor type."""
    return isinstance(type_, TensorType)


@kept
def element_of(type_: Attribute) -> ElementType:
    """The table row of an xDSL element type, or of a tensor's element type.

    Raises:
        VerifyException: the type is not in the table.
    """
    if is_tensor(type_):
        type_ = type_.element_type
    element = _BY_TYPE.get(type_)
    if element is None:
        raise VerifyException(f"element type {type_} is not supported; use one of {_KNOWN}")
    return element


def element_named(name: str) -> ElementType:
    """The table row called ``name``.

    Raises:
        ValueError: no such row.
    """
    element = _BY_NAME.get(name)
    if element is None:
        raise ValueError(f"unknown element type '{name}'; use one of {_KNOWN}")
    return element


def element_of_dtype(dtype: np.dtype[Any]) -> ElementType:
    """The table row of a host dtype.

    Raises:
        ValueError: no such row.
    """
    element = _BY_DTYPE.get(dtype)
    if element is None:
        raise ValueError(f"dtype {dtype} is not supported; use one of {_KNOWN}")
    return element


@dataclass(frozen=True)
class TensorInfo:
    """A tensor type taken apart: its sizes, symbolic ones as polynomials, and its element type."""

    sizes: tuple[Size, ...]
    element: ElementType

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    @property
    def is_static(self) -> bool:
        """No dimension is symbolic."""
        return all(isinstance(size, int) for size in self.sizes)

    @property
    def elements(self) -> Size:
        """Element count: the product of the sizes."""
        return dims.multiply(*self.sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of a static tensor.

        Raises:
            ValueError: a dimension is symbolic.
        """
        static = tuple(size for size in self.sizes if isinstance(size, int))
        if len(static) != self.rank:
            raise ValueError(f"{self} has symbolic dimensions; run specialize-shapes first")
        return static

    @property
    def shape_text(self) -> str:
        """``128x64``, with symbolic sizes by name (``Nx64``); ``scalar`` for rank 0."""
        return "x".join(_size_text(size) for size in self.sizes) or "scalar"

    def with_sizes(self, sizes: Sequence[Size]) -> AnyTensor:
        """The tensor type with the same elements and other sizes."""
        return tensor(sizes, self.element)

    def __str__(self) -> str:
        return "x".join([*(_size_text(size) for size in self.sizes), self.element.name])


def _size_text(size: Size) -> str:
    text = str(size)
    return f"({text})" if " " in text else text


def tensor(sizes: Sequence[Size], element: ElementType | str) -> AnyTensor:
    """The builtin tensor type of the sizes; symbolic ones go into a ``#logical.dims`` encoding.

    Raises:
        ValueError: ``element`` names no element type.
    """
    name = element.name if isinstance(element, ElementType) else element
    return _tensor(tuple(sizes), name)


@lru_cache(maxsize=8192)
def _tensor(sizes: tuple[Size, ...], name: str) -> AnyTensor:
    """`tensor`; a type is made and checked attribute by attribute, and programs have few different ones."""
    element = element_named(name)
    shape = [size if isinstance(size, int) else DYNAMIC_INDEX for size in sizes]
    if DYNAMIC_INDEX in shape:
        return TensorType(element.type, shape, DimsAttr.get(sizes))
    return TensorType(element.type, shape)


@kept
def tensor_info(type_: Attribute) -> TensorInfo:
    """Take a tensor type apart, checking it.

    Raises:
        VerifyException: not a ranked tensor, an unsupported element type, a dynamic dimension without a name,
            a name on a static dimension, a negative one, or more than :data:`MAX_TENSOR_BYTES`.
    """
    if not is_tensor(type_):
        raise VerifyException(f"{type_} is not a ranked tensor type")
    element = element_of(type_.element_type)
    sizes = _checked_sizes(type_)
    static = math.prod(size for size in sizes if isinstance(size, int))
    if static * element.bytes > MAX_TENSOR_BYTES:
        raise VerifyException(
            f"{type_} takes {static * element.bytes} bytes; the largest tensor takes {MAX_TENSOR_BYTES} "
            "(2^47)"
        )
    return TensorInfo(sizes, element)


def check_filled(type_: Attribute) -> None:
    """Refuses a tensor without elements: arguments and constants may be such, but no op computes on them.

    Raises:
        VerifyException: a dimension has size 0, or as :func:`tensor_info`.
    """
    sizes = tensor_info(type_).sizes
    if 0 in sizes:
        raise VerifyException(
            f"{type_}: dimension {sizes.index(0)} has size 0; empty tensors are not supported"
        )


def _checked_sizes(type_: AnyTensor) -> tuple[Size, ...]:
    shape = type_.get_shape()
    names = _dim_entries(type_, len(shape))
    sizes: list[Size] = []
    for axis, (size, name) in enumerate(zip(shape, names, strict=True)):
        if size == DYNAMIC_INDEX and name is None:
            raise VerifyException(
                f"{type_}: dimension {axis} is dynamic but has no name; add #logical.dims with one"
            )
        if size != DYNAMIC_INDEX and name is not None:
            raise VerifyException(f'{type_}: dimension {axis} is static, its #logical.dims entry must be ""')
        if size < 0 and size != DYNAMIC_INDEX:
            raise VerifyException(f"{type_}: dimension {axis} has size {size}; a size is not negative")
        sizes.append(size if name is None else name)
    return tuple(sizes)


def _dim_entries(type_: AnyTensor, rank: int) -> Sequence[Size | None]:
    encoding = type_.encoding
    if isinstance(encoding, NoneAttr):
        return [None] * rank
    if not isinstance(encoding, DimsAttr):
        raise VerifyException(f"{type_}: encoding {encoding} is not #logical.dims")
    entries = encoding.sizes
    if len(entries) != rank:
        raise VerifyException(f"{type_}: #logical.dims has {len(entries)} entries for {rank} dimensions")
    if all(entry is None for entry in entries):
        raise VerifyException(f"{type_}: all dimensions are static; drop #logical.dims")
    return entries


def byte_count(type_: Attribute) -> int:
    """Bytes of a static tensor, dense.

    Raises:
        VerifyException: the type does not check.
        ValueError: a dimension is symbolic.
    """
    info = tensor_info(type_)
    return math.prod(info.shape) * info.element.bytes


def bind_names(type_: Attribute, bindings: Mapping[str, int]) -> AnyTensor:
    """The tensor type with the named dimensions replaced by numbers.

    Raises:
        VerifyException: a size becomes less than 1, or the tensor too big.
    """
    info = tensor_info(type_)
    sizes = [dims.substitute(size, bindings) for size in info.sizes]
    for before, after in zip(info.sizes, sizes, strict=True):
        if isinstance(after, int) and after < 1:
            given = ", ".join(f"{name}={value}" for name, value in bindings.items())
            raise VerifyException(f"size {before} is {after} for {given}; a dimension has at least 1 element")
    bound = info.with_sizes(sizes)
    tensor_info(bound)
    return bound


def dense_array(value: DenseIntOrFPElementsAttr) -> np.ndarray[Any, np.dtype[Any]]:
    """The elements of a dense attribute in the host dtype, read-only; a splat is spread over its type's shape."""
    info = tensor_info(value.type)
    raw = value.data.data
    flat = (
        np.frombuffer(raw, np.int8) != 0
        if info.element.kind == "bool"
        else np.frombuffer(raw, info.element.dtype)
    )
    return np.broadcast_to(flat[0], info.shape) if flat.size == 1 else flat.reshape(info.shape)
