"""Tensors as bytes: what the format's own library reads, views without a copy, and every way to be malformed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from aicf.saving.tensor_bytes import ALIGN, to_bytes, view_tensors

RNG = np.random.default_rng(9)
TENSORS = {
    "weight": RNG.normal(size=(7, 5)).astype(np.float32),
    "half": RNG.normal(size=(3, 3)).astype(np.float16),
    "brain": RNG.normal(size=(4,)).astype(ml_dtypes.bfloat16),
    "eighth": RNG.normal(size=(5,)).astype(ml_dtypes.float8_e4m3fn),
    "wide_eighth": RNG.normal(size=(3,)).astype(ml_dtypes.float8_e5m2),
    "mask": RNG.random((2, 9)) < 0.5,
    "bytes": RNG.integers(0, 256, 11).astype(np.uint8),
    "wide": RNG.normal(size=(2,)),
    "count": np.array(-5, np.int64),
    "none": np.zeros((0, 4), np.int32),
}
FOREIGN = ("brain", "eighth", "wide_eighth")
"""Those of types that NumPy does not have."""


def test_the_same_tensors_come_back() -> None:
    found = view_tensors(to_bytes(TENSORS))
    assert found.keys() == TENSORS.keys()
    for name, array in TENSORS.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
        assert found[name].flags.aligned


def test_the_library_of_the_format_reads_it() -> None:
    known = {name: array for name, array in TENSORS.items() if name not in FOREIGN}
    found = safetensors.numpy.load(to_bytes(known))
    for name, array in known.items():
        np.testing.assert_array_equal(found[name], array)


def test_metadata_is_read_by_the_library_of_the_format_and_has_one_order(tmp_path: Path) -> None:
    names = [f'{number} äß"' for number in range(20)]
    known = {name: array for name, array in TENSORS.items() if name not in FOREIGN}
    forwards, backwards = ({name: name * 3 for name in order} for order in (names, names[::-1]))
    data = to_bytes(known, forwards)
    assert data == to_bytes(known, backwards)
    (tmp_path / "a").write_bytes(data)
    with safetensors.safe_open(tmp_path / "a", "numpy") as file:  # pyright: ignore
        assert file.metadata() == forwards
    for found in (safetensors.numpy.load(data), view_tensors(data)):
        assert found.keys() == known.keys()
        for name, array in known.items():
            np.testing.assert_array_equal(found[name], array)
    assert (8 + int.from_bytes(data[:8], "little")) % ALIGN == 0


def test_tensors_begin_at_a_cache_line_and_are_views() -> None:
    data = to_bytes(TENSORS)
    header = int.from_bytes(data[:8], "little")
    assert (8 + header) % ALIGN == 0
    memory = np.frombuffer(bytearray(data), np.uint8)
    found = view_tensors(memoryview(memory))
    assert all(np.shares_memory(memory, array) for array in found.values() if array.size)


def malformed(**row: Any) -> bytes:
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **row}
    header = json.dumps({"w": entry}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(8)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "its header is longer than the file"),
        (b"1234", "its header is longer than the file"),
        ((1 << 60).to_bytes(8, "little") + b"{}", "its header is longer than the file"),
        ((2).to_bytes(8, "little") + b"[]", "its header is no object"),
        ((2).to_bytes(8, "little") + b"{]", "Expecting property name"),
        (malformed(dtype="F8_E8M0"), "tensor 'w' has the element type F8_E8M0"),
        (malformed(dtype=3), "tensor 'w' has no dtype, shape and offsets"),
        (malformed(shape=[-2]), "tensor 'w' has no legal shape"),
        (malformed(shape=2), "tensor 'w' has no legal shape"),
        (malformed(shape=[True, 2]), "tensor 'w' has no legal shape"),
        (malformed(shape=[3]), "the bytes of tensor 'w' do not fit its shape"),
        (malformed(data_offsets=[4, 12]), "the bytes of tensor 'w' do not fit its shape"),
        (malformed(data_offsets=[-8, 0]), "the bytes of tensor 'w' do not fit its shape"),
        (malformed(data_offsets=[0]), "tensor 'w' has no dtype, shape and offsets"),
        (malformed(shape=[1 << 62, 1 << 62]), "the bytes of tensor 'w' do not fit its shape"),
    ],
)
def test_what_is_malformed_is_named(data: bytes, message: str) -> None:
    with pytest.raises(ValueError) as error:
        view_tensors(data)
    assert str(error.value).startswith(message)


def test_bytes_that_no_tensor_has_or_two_have() -> None:
    """As the library of the format: it refuses them too."""
    rows = {
        name: {"dtype": "U8", "shape": [4], "data_offsets": [start, start + 4]}
        for name, start in (("a", 0), ("b", 4))
    }
    for start, size in ((6, 10), (2, 8), (0, 8), (4, 12)):
        rows["b"]["data_offsets"] = [start, start + 4]
        header = json.dumps(rows).encode()
        data = len(header).to_bytes(8, "little") + header + bytes(size)
        with pytest.raises(ValueError, match="its tensors"):
            view_tensors(data)
        with pytest.raises(safetensors.SafetensorError):
            safetensors.numpy.load(data)


def test_a_deep_header() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        view_tensors((1 << 17).to_bytes(8, "little") + b"[" * (1 << 17))
