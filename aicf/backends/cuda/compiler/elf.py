"""Reads from a cubin what its kernel needs: registers, stack, static shared memory. The format is 64-bit ELF."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_FRAME_SIZE, _REGISTERS = 0x11, 0x2F
"""Attributes of `.nv.info`: symbol and bytes of its stack frame, symbol and registers of a thread (as cuobjdump reads
them)."""

_SIZED = 4
"""Format of a note that is followed by `size` bytes; in the others those two bytes are the value."""


@dataclass(frozen=True)
class KernelResources:
    """Per thread: registers and stack; per block: static shared memory, bytes."""

    registers: int
    stack_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class _Section:
    name: str
    start: int
    size: int


def kernel_resources(image: bytes, symbol: str) -> KernelResources:
    """What kernel `symbol` of the cubin `image` needs. Raises ValueError if it is no cubin with that kernel."""
    sections = {section.name: section for section in _sections(image)}
    text = sections.get(f".text.{symbol}")
    if text is None:
        raise ValueError(f"the cubin has no kernel '{symbol}'")
    shared = sections.get(f".nv.shared.{symbol}")
    notes = sections.get(".nv.info")
    found = {} if notes is None else _notes(image[notes.start : notes.start + notes.size])
    shared_bytes = 0 if shared is None else shared.size
    return KernelResources(found.get(_REGISTERS, 0), found.get(_FRAME_SIZE, 0), shared_bytes)


def _sections(image: bytes) -> list[_Section]:
    if image[:4] != b"\x7fELF":
        raise ValueError("no ELF image")
    (table,) = struct.unpack_from("<Q", image, 40)
    entry, count, names = struct.unpack_from("<HHH", image, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, table + i * entry) for i in range(count)]
    start, size = headers[names][4], headers[names][5]
    strings = image[start : start + size]
    return [_Section(_text(strings, header[0]), header[4], header[5]) for header in headers]


def _text(strings: bytes, start: int) -> str:
    return strings[start : strings.index(b"\x00", start)].decode()


def _notes(notes: bytes) -> dict[int, int]:
    """The largest value of each attribute that has a symbol and a number."""
    offset = 0
    found: dict[int, int] = {}
    while offset + 4 <= len(notes):
        form, attribute, size = struct.unpack_from("<BBH", notes, offset)
        offset += 4
        if form != _SIZED:
            continue
        if size == 8:
            found[attribute] = max(found.get(attribute, 0), struct.unpack_from("<II", notes, offset)[1])
        offset += size
    return found
