"""Arrays in a file that programs use where they lie: it is mapped, not read, and processes share its pages.

    "AICFARRS" | u64 bytes of the table | SHA-256 | table as JSON | arrays, each from a multiple of 64 bytes

The hash covers the table and the sum of every MiB of what follows. A sum takes a fraction of the time of a hash, for
memory alone bounds it; it finds damage, not a forger, as all hashes of the cache do.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import struct
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np

from aicf.errors import ArtifactError
from aicf.runtime.tensors import Array, element_name, numpy_dtype
from aicf.support.dataclass_json import from_json_value, parse_json, to_json_value
from aicf.support.files import write_whole

_MAGIC = b"AICFARRS"
_HEADER = struct.Struct("<8sQ32s")
_ALIGN = 64
"""Bytes: a cache line, where programs want prepared weights to begin."""
_SUMMED = 1 << 20
"""Bytes of the data to one sum."""


@dataclass(frozen=True)
class _Row:
    """Where an array lies, in bytes from the start of the data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * numpy_dtype(self.dtype).itemsize


@dataclass(frozen=True)
class _Table:
    """What the file holds, and how many bytes of data it has."""

    rows: tuple[_Row, ...]
    nbytes: int


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes the arrays, row-major, all or nothing. Raises OSError if the file cannot be written."""
    rows: list[_Row] = []
    end = 0
    for name, array in arrays.items():
        rows.append(_Row(name, element_name(array.dtype), array.shape, end))
        end += _padded(array.nbytes)
    table = json.dumps(to_json_value(_Table(tuple(rows), end)), separators=(",", ":")).encode()
    table += b" " * (-(_HEADER.size + len(table)) % _ALIGN)

    def write(stream: BinaryIO) -> None:
        stream.write(bytes(_HEADER.size) + table)
        for array in arrays.values():
            stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            stream.write(bytes(_padded(array.nbytes) - array.nbytes))
        stream.flush()
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as written:
            digest = _digest(table, written)
        stream.seek(0)
        stream.write(_HEADER.pack(_MAGIC, len(table), digest))

    write_whole(path, write)


def map_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a file by name, on private pages of it: what is written to them stays in this process.

    Raises ArtifactError: it cannot be read, or is damaged.
    """
    try:
        with path.open("rb") as stream:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"the stored weights cannot be read: {error}", location=str(path)) from error
    try:
        return dict(_arrays(data))
    except ValueError as error:
        raise ArtifactError(f"the stored weights are damaged: {error}", location=str(path)) from error


def _arrays(data: mmap.mmap) -> Iterator[tuple[str, Array]]:
    """Raises ValueError for what is damaged."""
    if len(data) < _HEADER.size:
        raise ValueError("the file is cut")
    magic, length, digest = _HEADER.unpack_from(data, 0)
    start = _HEADER.size + length
    if magic != _MAGIC or start > len(data):
        raise ValueError("it has no header")
    text = data[_HEADER.size : start]
    if _digest(text, data) != digest:
        raise ValueError("it fails its hash")
    table = from_json_value(_Table, parse_json(text), "table")
    if start + table.nbytes != len(data):
        raise ValueError("it has another size than its table says")
    for row in table.rows:
        bytes_ = np.frombuffer(data, np.uint8, row.nbytes, start + row.start)
        yield row.name, bytes_.view(numpy_dtype(row.dtype)).reshape(row.shape)


def _digest(table: bytes, data: mmap.mmap) -> bytes:
    """Of a file whose header has this table."""
    start = _HEADER.size + len(table)
    if (len(data) - start) % _ALIGN:
        raise ValueError("the file is cut")
    words = np.frombuffer(data, np.uint64, (len(data) - start) // 8, start)
    middle = len(data) // 2 // _SUMMED * (_SUMMED // 8)
    halves: tuple[Array, Array] = words[:middle], words[middle:]
    with ThreadPoolExecutor(2) as pool:  # memory gives two threads more than one
        return hashlib.sha256(b"".join([table, *pool.map(_sums, halves)])).digest()


def _sums(words: Array) -> bytes:
    if not len(words):
        return b""
    return np.add.reduceat(words, np.arange(0, len(words), _SUMMED // 8), dtype=np.uint64).tobytes()


def _padded(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN
