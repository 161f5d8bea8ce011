"""Writes a GGUF file: fields, descriptions of tensors, and then the tensors one after another, as they come.

Source: the GGUF specification of ggml, version 3, little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, BinaryIO

from aicf.dialects.block_schemes import Array, Scheme
from aicf.frontends.gguf.reader import ALIGN, ALIGNMENT, ARRAY, MAGIC, NUMBERS, STRING, VERSIONS

_TYPES = {code: number for number, code in NUMBERS.items()} | {"s": STRING}
"""Number of a field's type by its `struct` code; `s` is a text."""


@dataclass(frozen=True)
class Description:
    """A tensor of the file: its name, its sizes in row-major order, and how its numbers are stored."""

    name: str
    shape: tuple[int, ...]
    scheme: Scheme

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return prod(self.shape) // self.scheme.length * self.scheme.nbytes


def field(name: str, code: str, value: Any) -> bytes:
    """A field as it is stored.

    Args:
        name: Of the field.
        code: `struct` code of its type, or `s` for a text; of an array, that of its elements.
        value: A list is an array.
    """
    if isinstance(value, list):
        head = struct.pack("<IIQ", ARRAY, _TYPES[code], len(value))  # pyright: ignore[reportUnknownArgumentType]
        return _text(name) + head + _values(code, value)  # pyright: ignore[reportUnknownArgumentType]
    return _text(name) + struct.pack("<I", _TYPES[code]) + _values(code, [value])


def write_gguf(
    stream: BinaryIO,
    fields: Sequence[bytes],
    descriptions: Sequence[Description],
    tensors: Iterable[Iterable[Array]],
) -> None:
    """Writes a file.

    Args:
        stream: What it is written to.
        fields: As they are stored; none of them is the alignment.
        descriptions: Of the tensors.
        tensors: The bytes of each, u8, in pieces.
    """
    header = [MAGIC, struct.pack("<IQQ", VERSIONS[-1], len(descriptions), len(fields) + 1)]
    header += [*fields, field(ALIGNMENT, "I", ALIGN)]
    offset = 0
    for each in descriptions:
        sizes = each.shape[::-1]
        header.append(_text(each.name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes))
        header.append(struct.pack("<IQ", each.scheme.number, offset))
        offset += _aligned(each.nbytes)
    whole = b"".join(header)
    stream.write(whole + bytes(_aligned(len(whole)) - len(whole)))
    for each, pieces in zip(descriptions, tensors, strict=True):
        written = sum(stream.write(piece.tobytes()) for piece in pieces)
        assert written == each.nbytes, f"tensor '{each.name}' has {written} bytes"
        stream.write(bytes(_aligned(written) - written))


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _values(code: str, values: Sequence[Any]) -> bytes:
    if code == "s":
        return b"".join(map(_text, values))
    return struct.pack(f"<{len(values)}{code}", *values)
