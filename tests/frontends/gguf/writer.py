"""Writes GGUF files, right ones and wrong ones, byte by byte as the format says."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ALIGN = 32


@dataclass(frozen=True)
class Stored:
    """A tensor: its sizes with the fastest first, as in the file, its type's number, its bytes."""

    sizes: tuple[int, ...]
    number: int
    data: bytes


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(given: Any) -> bytes:
    """A field with its type, which follows from Python's: i64, f64, bool, text, or an array of one of them."""
    match given:
        case bool():
            return struct.pack("<I?", 7, given)
        case int():
            return struct.pack("<Iq", 11, given)
        case float():
            return struct.pack("<Id", 12, given)
        case str():
            return struct.pack("<I", 8) + text(given)
        case _:
            items = [value(item) for item in given]
            kind = items[0][:4] if items else struct.pack("<I", 8)
            return (
                struct.pack("<I", 9)
                + kind
                + struct.pack("<Q", len(items))
                + b"".join(item[4:] for item in items)
            )


def gguf(
    fields: Mapping[str, Any],
    tensors: Mapping[str, Stored] | None = None,
    *,
    version: int = 3,
    align: int = ALIGN,
    repeated: Sequence[str] = (),
) -> bytes:
    """A whole file; tensors named in `repeated` are described twice."""
    tensors = tensors or {}
    infos, data = b"", b""
    for name, stored in tensors.items():
        head = text(name) + struct.pack(f"<I{len(stored.sizes)}Q", len(stored.sizes), *stored.sizes)
        info = head + struct.pack("<IQ", stored.number, len(data))
        infos += info * (2 if name in repeated else 1)
        data += stored.data + bytes(-len(stored.data) % align)
    counts = struct.pack("<QQ", len(tensors) + len(repeated), len(fields))
    header = b"GGUF" + struct.pack("<I", version) + counts
    header += b"".join(text(name) + value(given) for name, given in fields.items()) + infos
    return header + bytes(-len(header) % align) + data
