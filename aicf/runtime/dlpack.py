"""DLPack and `__cuda_array_interface__`: memory of a device handed between libraries without a copy.

Reads what other libraries give, and makes capsules for them, in the C layout of DLPack 0.8 (which every library still
gives and takes where no version is asked for). It touches no device.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from aicf.errors import InputMismatch
from aicf.runtime.tensors import Array, dense_strides, element_name, numpy_dtype, span_bytes

HOST_DEVICES = (1, 3)
"""DLPack device types whose memory the host reads: CPU, and host memory pinned by CUDA."""
NO_ORDER = -1
"""The stream that asks a producer to order nothing."""

_INT, _UINT, _FLOAT, _BFLOAT, _BOOL, _F8E4M3FN, _F8E5M2 = 0, 1, 2, 4, 6, 10, 12
_CODES = {
    "f64": (_FLOAT, 64),
    "f32": (_FLOAT, 32),
    "f16": (_FLOAT, 16),
    "bf16": (_BFLOAT, 16),
    "f8E4M3FN": (_F8E4M3FN, 8),
    "f8E5M2": (_F8E5M2, 8),
    "i64": (_INT, 64),
    "i32": (_INT, 32),
    "i16": (_INT, 16),
    "i8": (_INT, 8),
    "u8": (_UINT, 8),
    "i1": (_BOOL, 8),
}
"""DLPack's type code and bits of our element types."""
_ELEMENTS = {code: name for name, code in _CODES.items()}
_UNREAD = ("bf16", "f8E4M3FN", "f8E5M2")
"""Element types that NumPy reads no capsule of."""


@dataclass(frozen=True)
class DeviceView:
    """A tensor in memory of a device.

    Args:
        address: Of its first element.
        shape, strides: Sizes, and elements between neighbours.
        dtype: Element type name; of a type that is none of ours, what DLPack or NumPy calls it.
        device: DLPack's device type and index.
        read_only: Whether its owner forbids writing.
        owner: What keeps the memory alive.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: tuple[int, int]
    read_only: bool
    owner: object

    @property
    def nbytes(self) -> int:
        """Bytes from the first to past the last element."""
        return span_bytes(self.shape, self.strides, self.dtype)


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("index", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    """`DLManagedTensor`."""


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Managed._fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]

_NAME = b"dltensor"
_api: Any = ctypes.pythonapi
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_pointer_at = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_is_valid_at = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(
    ("PyCapsule_New", _api)
)


# Reading


def device_of(value: object) -> tuple[int, int] | None:
    """DLPack's device of an array that is not in memory of the host; None for anything else."""
    if hasattr(value, "__dlpack_device__"):
        kind, index = cast(Any, value).__dlpack_device__()
        return None if int(kind) in HOST_DEVICES else (int(kind), int(index))
    return (2, 0) if hasattr(value, "__cuda_array_interface__") else None


def read_view(value: Any, stream: int) -> DeviceView:
    """The memory of `value`, which `device_of` knows.

    Args:
        value: Gives DLPack or `__cuda_array_interface__`.
        stream: Our stream, which its owner lets wait for what writes the memory; `NO_ORDER` to ask for none.

    Raises:
        InputMismatch: its owner does not give it.
    """
    try:
        if hasattr(value, "__dlpack__"):
            return _from_capsule(value.__dlpack__(stream=stream))
        return _from_interface(value)
    except (TypeError, ValueError, RuntimeError, BufferError, KeyError) as error:
        raise InputMismatch(f"{type(value).__name__} does not give its memory: {error}") from error


def host_array(value: Any) -> Array:
    """The NumPy array on the memory of a DLPack object of the host, also of `_UNREAD` types.

    Raises BufferError, RuntimeError, TypeError or ValueError as its owner or NumPy does.
    """
    try:
        return cast(Array, np.from_dlpack(value))
    except (BufferError, RuntimeError):
        view = _from_capsule(value.__dlpack__())
        if view.dtype not in _UNREAD:
            raise
        return np.asarray(_Words(view)).view(numpy_dtype(view.dtype))


class _Words:
    """Memory of elements as NumPy's array interface has it, each as an integer; the array keeps its owner."""

    def __init__(self, view: DeviceView) -> None:
        size = numpy_dtype(view.dtype).itemsize
        self.owner = view.owner
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"<u{size}",
            "shape": view.shape,
            "strides": tuple(size * stride for stride in view.strides),
            "data": (view.address, False),
        }


def interface_stream(value: Any) -> int | None:
    """The stream on which the owner of an array without DLPack works; None if there is none to wait for."""
    if hasattr(value, "__dlpack__"):
        return None
    return value.__cuda_array_interface__.get("stream")


def _from_capsule(capsule: object) -> DeviceView:
    # The capsule is not consumed: it keeps the memory, and its destructor gives it back.
    tensor = _Managed.from_address(_pointer_of(capsule, _NAME)).tensor
    shape = tuple(tensor.shape[axis] for axis in range(tensor.rank))
    strides = tuple(tensor.strides[axis] for axis in range(tensor.rank)) if tensor.strides else None
    kind = (tensor.dtype.code, tensor.dtype.bits)
    known = _ELEMENTS.get(kind) if tensor.dtype.lanes == 1 else None
    return DeviceView(
        (tensor.data or 0) + tensor.offset,
        shape,
        dense_strides(shape) if strides is None else strides,
        known or f"type {kind[0]} of {kind[1]} bits",
        (tensor.device.type, tensor.device.index),
        False,
        capsule,
    )


def _from_interface(value: Any) -> DeviceView:
    interface = value.__cuda_array_interface__
    dtype = np.dtype(interface["typestr"])
    shape = tuple(int(size) for size in interface["shape"])
    steps = interface.get("strides")
    strides = dense_strides(shape) if steps is None else tuple(step // dtype.itemsize for step in steps)
    address, read_only = interface["data"]
    return DeviceView(int(address), shape, strides, element_name(dtype), (2, 0), bool(read_only), value)


# Giving

_given: dict[int, object] = {}
"""What other libraries hold: the structure, its sizes and the owner of the memory, by address of the structure."""


def capsule_of(view: DeviceView) -> object:
    """A DLPack capsule of `view`; its owner lives until the taker, or the capsule, is gone."""
    rank = len(view.shape)
    sizes = (ctypes.c_int64 * max(rank, 1))(*view.shape)
    steps = (ctypes.c_int64 * max(rank, 1))(*view.strides)
    tensor = _Tensor(
        view.address, _Device(*view.device), rank, _DataType(*_CODES[view.dtype], 1), sizes, steps, 0
    )
    managed = _Managed(tensor, None, _drop)
    address = ctypes.addressof(managed)
    _given[address] = (managed, sizes, steps, view.owner)
    return _new_capsule(address, _NAME, _drop_unused)


def _forget(address: int | None) -> None:
    if address is not None:
        _given.pop(address, None)


def _forget_unused(capsule: int | None) -> None:
    """Of a capsule that goes: if nobody took the tensor, it goes too (who takes it renames the capsule)."""
    if capsule is not None and _is_valid_at(capsule, _NAME):
        _forget(_pointer_at(capsule, _NAME))


_drop: Callable[..., None] = _Deleter(_forget)
_drop_unused: Callable[..., None] = _Destructor(_forget_unused)
