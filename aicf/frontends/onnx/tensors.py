"""TensorProto to NumPy arrays, those in files beside the model included; nothing is copied that can be mapped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.helper import tensor_dtype_to_np_dtype

from aicf.dialects.types import MAX_TENSOR_BYTES, ElementType, element_of_dtype
from aicf.errors import InputMismatch, InvalidIR, UnsupportedOp, quoted

Array: TypeAlias = NDArray[Any]


def element_of_data_type(data_type: int, what: str) -> ElementType:
    """The element type of a number of `TensorProto.DataType`; `what` says whose it is.

    Raises:
        InvalidIR: there is no such number.
        UnsupportedOp: AICF has no such type.
    """
    if data_type not in onnx.TensorProto.DataType.values() or not data_type:
        raise InvalidIR(f"{what} has element type {data_type}, which ONNX does not define")
    name = onnx.TensorProto.DataType.Name(data_type).lower()
    if data_type == onnx.TensorProto.STRING:
        raise UnsupportedOp(
            f"{what} holds strings, which AICF does not compute with; take that part out of the model"
        )
    try:
        return element_of_dtype(np.dtype(tensor_dtype_to_np_dtype(data_type)))
    except (ValueError, KeyError) as error:
        raise UnsupportedOp(f"{what} has element type {name}: {error}") from None


def read_tensor(tensor: onnx.TensorProto, folder: Path | None, what: str) -> Array:
    """The elements of a tensor, in row-major order.

    Args:
        tensor: With its data inside, or in a file.
        folder: Where such files lie; None for a model that is no file.
        what: Says which tensor it is.

    Raises:
        InvalidIR: data and shape contradict each other, or the file is missing, too short or elsewhere.
        UnsupportedOp: AICF has no such element type.
    """
    element = element_of_data_type(tensor.data_type, what)
    shape = tuple(tensor.dims)
    if any(size < 0 for size in shape):
        raise InvalidIR(f"{what} has shape {list(shape)}; a size is not negative")
    if math.prod(shape) * element.bytes > MAX_TENSOR_BYTES:
        raise InvalidIR(f"{what} has shape {list(shape)}, more than a tensor can have")
    if tensor.HasField("segment"):
        raise UnsupportedOp(f"{what} is stored in segments; save the model again with package onnx")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _read_external(tensor, folder, what, element, shape)
    try:
        array = numpy_helper.to_array(tensor)
    except (
        Exception
    ) as error:  # whatever package onnx raises on data that does not fit, it is the data's fault
        raise InvalidIR(f"{what} of shape {list(shape)}: its data does not fit: {error}") from None
    if array.shape != shape or array.dtype != element.dtype:
        raise InvalidIR(f"{what} of shape {list(shape)} holds {array.size} elements of {array.dtype}")
    return array


def in_place_of(name: str, array: Array, given: Array) -> Array:
    """The tensor that is given for an initializer.

    Raises:
        InputMismatch: it has another shape or element type.
    """
    if (given.shape, given.dtype) != (array.shape, array.dtype):
        raise InputMismatch(
            f"weight '{name}': expected {array.dtype}{list(array.shape)}, got {given.dtype}{list(given.shape)}; save "
            "it with that type"
        )
    return given


def _read_external(
    tensor: onnx.TensorProto, folder: Path | None, what: str, element: ElementType, shape: Sequence[int]
) -> Array:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if folder is None:
        raise InvalidIR(
            f"{what} lies in a file beside the model; give the path of the model instead of its bytes"
        )
    path = _file_of(entries.get("location", ""), folder, what)
    count = math.prod(shape)
    wanted = count * element.bytes
    offset = _number(entries, "offset", 0, what)
    length = _number(entries, "length", wanted, what)
    if length != wanted:
        raise InvalidIR(f"{what} of shape {list(shape)} takes {wanted} bytes, its entry says {length}")
    size = path.stat().st_size
    if offset + wanted > size:
        raise InvalidIR(
            f"{what} ends at byte {offset + wanted} of {path.name}, which has {size}; it is truncated"
        )
    if not count:
        return np.empty(shape, element.dtype)
    try:
        return np.memmap(path, element.dtype, "r", offset, tuple(shape)).view(np.ndarray)
    except (OSError, ValueError) as error:
        raise InvalidIR(f"{what}: cannot read {path.name}: {error}") from error


def _file_of(location: str, folder: Path, what: str) -> Path:
    """The file of that name below the model's folder, where it really lies."""
    root = folder.resolve()
    try:
        path = (folder / location).resolve()
        inside = bool(location) and not Path(location).is_absolute() and path.is_relative_to(root)
        there = inside and path.is_file()
    except (OSError, ValueError, RuntimeError):
        raise InvalidIR(
            f"{what} lies in {quoted(location)}, which is no path; export the model again"
        ) from None
    if not inside:
        raise InvalidIR(
            f"{what} lies in {quoted(location)}, outside of the folder of the model, directly or by a link; put the "
            "file itself beside the model"
        )
    if not there:
        raise InvalidIR(
            f"{what} lies in {quoted(location)}, and there is no such file beside the model; copy it there"
        )
    return path


def _number(entries: dict[str, str], key: str, default: int, what: str) -> int:
    text = entries.get(key, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidIR(f"{what}: the {key} of its external data is {quoted(text)}; it is a number of bytes")
    return int(text)
