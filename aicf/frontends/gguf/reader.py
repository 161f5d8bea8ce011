"""Reads a GGUF file: its fields, and where its tensors lie. Tensors stay in the file until somebody asks for one.

A file may be cut short, damaged or made to harm: every count and size is checked against the bytes that are there
before anything is made of it, so reading takes time and memory in proportion to the file's header.

Source: the GGUF specification of ggml, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from aicf.dialects.block_schemes import BY_NUMBER, Array, Scheme
from aicf.errors import InvalidIR, UnsupportedOp, did_you_mean, quoted

Field: TypeAlias = "int | float | bool | str | list[Any]"
"""Value of a field; arrays are lists, which may hold lists."""

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_MOST_DIMS = 4
_MOST_DEPTH = 4
"""Of arrays in arrays."""
ALIGNMENT, ALIGN = "general.alignment", 32
"""The field that says which multiples of bytes tensors start at, and what they start at without it."""
STRING, ARRAY = 8, 9
"""Numbers of the types of fields that are no numbers."""
_LENGTH = struct.Struct("<Q")
"""Of a text."""
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Number of a field's type to its `struct` code."""


@dataclass(frozen=True)
class GgufTensor:
    """One tensor: its sizes in row-major order, how its numbers are stored, and its bytes in the file."""

    name: str
    shape: tuple[int, ...]
    scheme: Scheme
    start: int
    nbytes: int


class GgufFile:
    """A file that is read.

    Args:
        path: Of the file.
        data: Its bytes, mapped.
        written: When it was last written, in nanoseconds; 0 for bytes that are no file.
        fields: By name, in the file's order.
        tensors: By name, in the file's order.
        spans: Where each field starts and ends in the file.
    """

    def __init__(
        self,
        path: Path,
        data: Array,
        written: int,
        fields: Mapping[str, Field],
        tensors: Mapping[str, GgufTensor],
        spans: Mapping[str, tuple[int, int]],
    ) -> None:
        self.path, self.data, self.written = path, data, written
        self.fields, self.tensors, self._spans = fields, tensors, spans

    def field(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """A field that must be there.

        Raises InvalidIR: it is not, or is of another kind.
        """
        if name not in self.fields:
            raise self.error(
                f"it has no field '{name}'; {did_you_mean(name, self.fields) or 'make the file again'}"
            )
        value = self.fields[name]
        if not isinstance(value, kind):
            raise self.error(f"field '{name}' is {quoted(value)}, which is of another type")
        return value

    @property
    def header(self) -> bytes:
        """What comes before the first tensor."""
        end = min((tensor.start for tensor in self.tensors.values()), default=len(self.data))
        return self.data[:end].tobytes()

    def stored_field(self, name: str) -> bytes:
        """A field as it is stored: its name, its type and its value."""
        start, end = self._spans[name]
        return self.data[start:end].tobytes()

    def blocks(self, name: str) -> Array:
        """The bytes of a tensor as they are stored: u8[nbytes], mapped. Raises InvalidIR if there is none."""
        tensor = self.tensor(name)
        return self.data[tensor.start : tensor.start + tensor.nbytes]

    def rows(self, name: str) -> Array:
        """The bytes of a tensor by its rows: u8[..., bytes of a row], mapped. Raises InvalidIR if there is none."""
        return self.blocks(name).reshape(*self.tensor(name).shape[:-1], -1)

    def array(self, name: str) -> Array:
        """A tensor in f32. Raises InvalidIR if there is none."""
        tensor = self.tensor(name)
        return tensor.scheme.array(self.blocks(name), tensor.shape)

    def tensor(self, name: str) -> GgufTensor:
        """What is known of a tensor. Raises InvalidIR if there is none."""
        if name not in self.tensors:
            raise self.error(
                f"it has no tensor '{name}'; {did_you_mean(name, self.tensors) or 'make the file again'}"
            )
        return self.tensors[name]

    def error(self, message: str) -> InvalidIR:
        """An error about this file."""
        return InvalidIR(message, location=str(self.path))


def read_gguf(path: str | Path) -> GgufFile:
    """Reads the header of a file.

    Raises:
        InvalidIR: it is no GGUF file, cut short, or contradicts itself.
        UnsupportedOp: it is of another version or byte order, or a tensor's numbers are stored in another way.
    """
    path = Path(path)
    try:
        with path.open("rb") as stream:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            written = os.fstat(stream.fileno()).st_mtime_ns
    except ValueError:
        raise InvalidIR("the file is empty; it should be a GGUF file", location=str(path)) from None
    except OSError as error:
        raise InvalidIR(f"the file cannot be read: {error.strerror}", location=str(path)) from error
    return parsed(data, path, written)


def parsed(data: bytes | mmap.mmap, path: Path, written: int = 0) -> GgufFile:
    """A file from its bytes, which it refers to.

    Args:
        data: All of them.
        path: Where they come from, for errors.
        written: When the file was last written, in nanoseconds.

    Raises: as `read_gguf`.
    """
    try:
        return _parsed(data, path, written)
    except (InvalidIR, UnsupportedOp) as error:
        error.locate(str(path))
        raise


def _parsed(data: bytes | mmap.mmap, path: Path, written: int) -> GgufFile:
    if data[:4] != MAGIC:
        raise InvalidIR("the file does not start with GGUF; give a .gguf file, or a Hugging Face folder")
    cursor = _Cursor(data, 4)
    version = cursor.number("I", "the version")
    if version not in VERSIONS:
        is_swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
        what = "has its bytes in big-endian order" if is_swapped else f"has version {version}"
        raise UnsupportedOp(
            f"the file {what}; versions {' and '.join(map(str, VERSIONS))} in little-endian order are read"
        )
    tensor_count, field_count = (
        cursor.number("Q", f"the number of {what}") for what in ("tensors", "fields")
    )
    cursor.check_count(field_count, _FIELD_BYTES, "fields")
    cursor.check_count(tensor_count, _TENSOR_BYTES, "tensors")
    fields: dict[str, Field] = {}
    spans: dict[str, tuple[int, int]] = {}
    for _ in range(field_count):
        start = cursor.position
        name = cursor.text("the name of a field")
        if name in fields:
            raise InvalidIR(f"field {quoted(name)} is there twice")
        fields[name] = cursor.value(cursor.number("I", "the type of a field"), f"field {quoted(name)}")
        spans[name] = start, cursor.position
    infos = [cursor.tensor_info() for _ in range(tensor_count)]
    tensors = _placed(infos, _data_start(fields, cursor.position), len(data))
    return GgufFile(path, np.frombuffer(data, np.uint8), written, fields, tensors, spans)


_FIELD_BYTES = 8 + 4 + 1
_TENSOR_BYTES = 8 + 4 + 4 + 8
"""The least that a field and the description of a tensor take."""


@dataclass(frozen=True)
class _TensorInfo:
    """The description of a tensor in the header; `offset` counts from the start of the data."""

    name: str
    shape: tuple[int, ...]
    scheme: Scheme
    offset: int


class _Cursor:
    """Reads the header from front to back.

    Args:
        data: The file.
        position: Where it starts.
    """

    def __init__(self, data: bytes | mmap.mmap, position: int) -> None:
        self._data, self.position = data, position

    def number(self, code: str, what: str) -> Any:
        """One number of a `struct` code. Raises InvalidIR at the end of the file."""
        size = struct.calcsize(f"<{code}")
        self._check_left(size, what)
        (value,) = struct.unpack_from(f"<{code}", self._data, self.position)
        self.position += size
        return value

    def text(self, what: str) -> str:
        """One text. Raises InvalidIR at the end of the file, or for what is no UTF-8."""
        size = self.number("Q", f"the length of {what}")
        self._check_left(size, what)
        raw = self._data[self.position : self.position + size]
        self.position += size
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidIR(f"{what} is no UTF-8 text") from None

    def value(self, kind: int, what: str, depth: int = 0) -> Field:
        """One value of a field's type."""
        if kind == STRING:
            return self.text(what)
        if kind == ARRAY:
            return self._array(what, depth + 1)
        if kind not in NUMBERS:
            raise InvalidIR(f"{what} has type {kind}, which there is not")
        return self.number(NUMBERS[kind], what)

    def _array(self, what: str, depth: int) -> list[Any]:
        if depth > _MOST_DEPTH:
            raise InvalidIR(f"{what} has arrays in arrays, more than {_MOST_DEPTH} deep")
        kind, count = self.number("I", f"the type of {what}"), self.number("Q", f"the length of {what}")
        if kind in NUMBERS:
            code = NUMBERS[kind]
            self.check_count(count, struct.calcsize(f"<{code}"), f"elements of {what}")
            values = list(struct.unpack_from(f"<{count}{code}", self._data, self.position))
            self.position += struct.calcsize(f"<{count}{code}")
            return values
        self.check_count(count, 8, f"elements of {what}")
        if kind == STRING:
            return self._texts(count, what)
        return [self.value(kind, what, depth) for _ in range(count)]

    def _texts(self, count: int, what: str) -> list[Any]:
        """As `text`, so often: a vocabulary has many."""
        data, at, end, length = self._data, self.position, len(self._data), _LENGTH.unpack_from
        texts: list[Any] = []
        try:
            for _ in range(count):
                start = at + _LENGTH.size
                at = start + length(data, at)[0]
                if at > end:
                    raise struct.error
                texts.append(data[start:at].decode())
        except struct.error:
            raise InvalidIR(f"the file ends in {what}; it is cut or damaged") from None
        except UnicodeDecodeError:
            raise InvalidIR(f"{what} is no UTF-8 text") from None
        self.position = at
        return texts

    def tensor_info(self) -> _TensorInfo:
        """The description of one tensor."""
        name = self.text("the name of a tensor")
        what = f"tensor {quoted(name)}"
        dims = self.number("I", f"the rank of {what}")
        if not 0 < dims <= _MOST_DIMS:
            raise InvalidIR(f"{what} has {dims} dimensions; there are 1 to {_MOST_DIMS}")
        sizes = [self.number("Q", f"the sizes of {what}") for _ in range(dims)]
        number = self.number("I", f"the type of {what}")
        if number not in BY_NUMBER:
            known = ", ".join(scheme.name for scheme in BY_NUMBER.values())
            raise UnsupportedOp(f"{what} has numbers of type {number}; those that are read: {known}")
        scheme, offset = BY_NUMBER[number], self.number("Q", f"the offset of {what}")
        if sizes[0] % scheme.length or not all(sizes):
            raise InvalidIR(
                f"{what} has rows of {sizes[0]} elements; {scheme.name} has blocks of {scheme.length}"
            )
        return _TensorInfo(name, tuple(reversed(sizes)), scheme, offset)

    def check_count(self, count: int, least: int, what: str) -> None:
        """Raises InvalidIR if so many cannot be in the rest of the file, at `least` bytes each."""
        if count > (len(self._data) - self.position) // least:
            raise InvalidIR(
                f"the file should have {count:,} {what}, and is too short for them; it is cut or damaged"
            )

    def _check_left(self, size: int, what: str) -> None:
        if size > len(self._data) - self.position:
            raise InvalidIR(f"the file ends in {what}; it is cut or damaged")


def _data_start(fields: Mapping[str, Field], position: int) -> int:
    """Where the tensors start: at a multiple of the alignment, after the header."""
    align = fields.get(ALIGNMENT, ALIGN)
    if not isinstance(align, int) or isinstance(align, bool) or align < 1 or align & (align - 1):
        raise InvalidIR(f"field '{ALIGNMENT}' is {quoted(align)}; it is a power of two")
    return -(-position // align) * align


def _placed(infos: list[_TensorInfo], start: int, end: int) -> dict[str, GgufTensor]:
    tensors: dict[str, GgufTensor] = {}
    for info in infos:
        nbytes = prod(info.shape) // info.scheme.length * info.scheme.nbytes
        if info.name in tensors:
            raise InvalidIR(f"tensor {quoted(info.name)} is there twice")
        if start + info.offset + nbytes > end:
            raise InvalidIR(
                f"tensor {quoted(info.name)} has {nbytes:,} bytes from byte {start + info.offset:,}, and the file has "
                f"{end:,}; it is cut or damaged"
            )
        tensors[info.name] = GgufTensor(info.name, info.shape, info.scheme, start + info.offset, nbytes)
    return tensors
