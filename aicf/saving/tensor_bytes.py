"""Tensors as the bytes of a safetensors file, laid out so that they can be used where they lie, and read so.

The first tensor begins at a multiple of a cache line from the start of the bytes; the header is filled up with spaces
to that end, which the format allows. Reading copies nothing: arrays are views, read-only where the bytes are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import safetensors.numpy

from aicf.runtime.tensors import Array, numpy_dtype
from aicf.support.dataclass_json import parse_json

ALIGN = 64
"""Bytes."""
_LENGTH_BYTES = 8
_MAX_HEADER = 100 << 20
"""Bytes; the limit of the format's own library."""
_METADATA = "__metadata__"
_ELEMENTS = {
    "F64": "f64",
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "F8_E4M3": "f8E4M3FN",
    "F8_E5M2": "f8E5M2",
    "I64": "i64",
    "I32": "i32",
    "I16": "i16",
    "I8": "i8",
    "U8": "u8",
    "BOOL": "i1",
}
"""Names of element types in the format, and ours."""


def to_bytes(tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> bytes:
    """The tensors as a safetensors file, the same bytes for the same tensors and metadata."""
    data = safetensors.numpy.save(dict(tensors))
    start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    header = data[_LENGTH_BYTES:start]
    if metadata:
        header = _with_metadata(header, metadata)
    header += b" " * (-(_LENGTH_BYTES + len(header)) % ALIGN)
    return b"".join([len(header).to_bytes(_LENGTH_BYTES, "little"), header, memoryview(data)[start:]])


def _with_metadata(header: bytes, metadata: Mapping[str, str]) -> bytes:
    """The format's own library writes metadata in an order that differs from call to call."""
    rows = {_METADATA: dict(sorted(metadata.items())), **json.loads(header)}
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False).encode()


def view_tensors(data: bytes | memoryview) -> dict[str, Array]:
    """The tensors of a safetensors file, as views of its bytes.

    Raises:
        ValueError: it is none, or a tensor is of a type that no program has; the message says what is wrong.
    """
    view = memoryview(data)
    length = int.from_bytes(view[:_LENGTH_BYTES], "little")
    start = _LENGTH_BYTES + length
    if len(view) < _LENGTH_BYTES or length > min(_MAX_HEADER, len(view) - _LENGTH_BYTES):
        raise ValueError("its header is longer than the file")
    header = parse_json(bytes(view[_LENGTH_BYTES:start]))
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    rows = cast("dict[str, Any]", header)
    tensors = {name: row for name, row in rows.items() if name != _METADATA}
    found = {name: _tensor(name, row, view[start:]) for name, row in tensors.items()}
    _check_cover(tensors, len(view) - start)
    return found


def _check_cover(rows: Mapping[str, Any], size: int) -> None:
    """Raises ValueError unless tensors lie one after the other and take all of the `size` bytes, as the format says."""
    position = 0
    for begin, end in sorted(row["data_offsets"] for row in rows.values()):
        if begin != position:
            raise ValueError(f"its tensors leave out, or share, bytes at {min(begin, position)}")
        position = end
    if position != size:
        raise ValueError(f"its tensors take {position} bytes of {size}")


def _tensor(name: str, row: Any, data: memoryview) -> Array:
    match row:
        case {"dtype": str(dtype), "shape": shape, "data_offsets": [int(begin), int(end)]}:
            sizes = _sizes(shape)
        case _:
            raise ValueError(f"tensor '{name}' has no dtype, shape and offsets")
    if dtype not in _ELEMENTS:
        raise ValueError(f"tensor '{name}' has the element type {dtype}")
    if sizes is None:
        raise ValueError(f"tensor '{name}' has no legal shape")
    element = numpy_dtype(_ELEMENTS[dtype])
    if not 0 <= begin <= end <= len(data) or end - begin != math.prod(sizes) * element.itemsize:
        raise ValueError(f"the bytes of tensor '{name}' do not fit its shape")
    return np.frombuffer(data[begin:end], element).reshape(sizes)


def _sizes(shape: Any) -> list[int] | None:
    if not isinstance(shape, list):
        return None
    sizes = cast("list[Any]", shape)
    return sizes if all(type(size) is int and size >= 0 for size in sizes) else None
