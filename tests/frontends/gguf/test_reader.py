"""Reading GGUF files: fields, tensors, and files that are cut, damaged or made to harm."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicf.errors import AicfError, InvalidIR, UnsupportedOp
from aicf.frontends.gguf.reader import GgufFile, parsed, read_gguf
from tests.frontends.gguf.writer import Stored, gguf, text, value

RNG = np.random.default_rng(97)
VALUES = RNG.standard_normal((3, 5), dtype=np.float32)
CODES = RNG.integers(0, 256, 2 * 34, dtype=np.uint8)
CODES[[1, 35]] &= 0x7B
"""Scales that are finite."""

FIELDS: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 3,
    "llama.epsilon": 1e-5,
    "flag": True,
    "words": ["a", "", "ü"],
    "numbers": [1, -2, 3],
    "nested": [["x"], ["y", "z"]],
    "none": [],
}
TENSORS = {
    "f": Stored((5, 3), 0, VALUES.tobytes()),
    "q": Stored((32, 2), 8, CODES.tobytes()),
}


def read(tmp_path: Path, data: bytes) -> GgufFile:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    return read_gguf(path)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("align", [32, 128])
def test_fields_and_tensors(tmp_path: Path, version: int, align: int) -> None:
    fields = {**FIELDS, **({} if align == 32 else {"general.alignment": align})}
    file = read(tmp_path, gguf(fields, TENSORS, version=version, align=align))
    assert file.fields == fields and list(file.tensors) == ["f", "q"]
    np.testing.assert_array_equal(file.array("f"), VALUES)
    blocks = CODES.reshape(2, 34)
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(file.array("q"), scales * blocks[:, 2:].view(np.int8))
    assert file.tensor("q").shape == (2, 32) and file.tensor("q").scheme.name == "Q8_0"
    np.testing.assert_array_equal(file.blocks("q"), CODES)
    assert file.field("llama.block_count", int) == 3


def test_numbers_of_every_type(tmp_path: Path) -> None:
    kinds = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
    body = b"".join(text(code) + struct.pack(f"<I{code}", kind, 7) for kind, code in kinds.items())
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, len(kinds)) + body
    assert read(tmp_path, data).fields == dict.fromkeys(kinds.values(), 7)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    file = read(tmp_path, gguf(FIELDS, TENSORS))
    for call, message in (
        (
            lambda: file.field("llama.block_cont", int),
            "no field 'llama.block_cont'; did you mean 'llama.block_count'",
        ),
        (lambda: file.field("flag", str), "field 'flag' is True, which is of another type"),
        (lambda: file.array("g"), "no tensor 'g'"),
    ):
        with pytest.raises(InvalidIR, match=message) as error:
            call()
        assert error.value.location == str(file.path)


TENSOR = {"t": Stored((5, 3), 0, VALUES.tobytes())}
WRONG: dict[str, tuple[bytes, type[AicfError], str]] = {
    "empty": (b"", InvalidIR, "the file is empty"),
    "another file": (b"PK\3\4" + bytes(60), InvalidIR, "does not start with GGUF"),
    "version 1": (gguf({}, version=1), UnsupportedOp, "version 1; versions 2 and 3"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), UnsupportedOp, "big-endian"),
    "cut in the counts": (gguf({})[:12], InvalidIR, "ends in the number of tensors"),
    "many fields": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), InvalidIR, "too short for them"),
    "many tensors": (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), InvalidIR, "too short for them"),
    "a long name": (
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 50) + bytes(9),
        InvalidIR,
        "ends in the name",
    ),
    "no UTF-8": (
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"\xff" + value(1) + bytes(9),
        InvalidIR,
        "no UTF-8 text",
    ),
    "a type that there is not": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<Iq", 99, 0),
        InvalidIR,
        "has type 99",
    ),
    "a long array": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 4, 1 << 61),
        InvalidIR,
        "elements of field 'k'",
    ),
    "arrays in arrays": (gguf({"k": [[[[["x"]]]]]}), InvalidIR, "more than 4 deep"),
    "a field twice": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + 2 * (text("k") + value(1)),
        InvalidIR,
        "field 'k' is there twice",
    ),
    "a tensor twice": (gguf({}, TENSOR, repeated=["t"]), InvalidIR, "tensor 't' is there twice"),
    "no dimension": (gguf({}, {"t": Stored((), 0, b"")}), InvalidIR, "has 0 dimensions"),
    "five dimensions": (gguf({}, {"t": Stored((1,) * 5, 0, bytes(4))}), InvalidIR, "has 5 dimensions"),
    "rows of half a block": (gguf({}, {"t": Stored((40, 1), 8, bytes(68))}), InvalidIR, "blocks of 32"),
    "no element": (gguf({}, {"t": Stored((4, 0), 0, b"")}), InvalidIR, "rows of 4 elements"),
    "numbers that are not read": (
        gguf({}, {"t": Stored((32,), 16, bytes(64))}),
        UnsupportedOp,
        "type 16; those",
    ),
    "cut in the data": (gguf({}, TENSOR)[:-40], InvalidIR, "tensor 't' has 60 bytes from byte"),
    "a huge tensor": (gguf({}, {"t": Stored((1 << 62, 4), 0, b"")}), InvalidIR, "it is cut or damaged"),
    "an odd alignment": (gguf({"general.alignment": 48}, TENSOR), InvalidIR, "'general.alignment' is 48"),
    "an alignment of text": (gguf({"general.alignment": "x"}, TENSOR), InvalidIR, "it is a power of two"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_told(tmp_path: Path, name: str) -> None:
    data, kind, message = WRONG[name]
    with pytest.raises(kind, match=message) as error:
        read(tmp_path, data)
    assert error.value.location == str(tmp_path / "model.gguf") and "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidIR, match="cannot be read: No such file"):
        read_gguf(tmp_path / "none.gguf")


EXTREMES = (0, 1, 1 << 31, (1 << 63) - 1, (1 << 64) - 1)


def test_changed_headers_end_in_one_line() -> None:
    """5,000 headers with changed bytes, numbers and lengths: each is read or refused, with little memory."""
    whole = gguf(FIELDS, TENSORS)
    header = whole.index(VALUES.tobytes())
    refused = sum(is_refused(changed(whole, header)) for _ in range(4500))
    tracemalloc.start()
    try:
        refused += sum(is_refused(changed(whole, header)) for _ in range(500))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert 1000 < refused < 5000


def changed(whole: bytes, header: int) -> bytes:
    """A file with a few bytes or numbers of its first `header` bytes changed, and perhaps cut."""
    data = bytearray(whole[: RNG.integers(8, len(whole))] if RNG.random() < 0.2 else whole)
    for _ in range(RNG.integers(1, 4)):
        at = int(RNG.integers(4, min(header, len(data))))
        if RNG.random() < 0.5:
            data[at] = RNG.integers(0, 256)
        else:
            number = struct.pack("<Q", EXTREMES[RNG.integers(len(EXTREMES))])
            data[at : at + 8] = number[: len(data[at : at + 8])]
    return bytes(data)


def is_refused(data: bytes) -> bool:
    """Whether a file is refused, in one line; if not, its tensors can be read."""
    try:
        file = parsed(data, Path("model.gguf"))
    except AicfError as error:
        assert "\n" not in str(error) and len(str(error)) < 1200
        return True
    with np.errstate(all="ignore"):
        assert all(file.array(name).size for name in file.tensors)
    return False
