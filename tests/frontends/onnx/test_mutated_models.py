# pyright: basic
"""Bytes of real models with some of them changed: whatever comes of it, it is a program or a clear error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicf.compilation.sources import read_model
from aicf.errors import AicfError
from aicf.frontends.text import make_context
from aicf.passes.logical.specialize_shapes import SpecializeShapesPass
from aicf.passes.onnx.lower_onnx import LowerOnnxPass

pytestmark = pytest.mark.peers

CASES = 350
"""Of each model: 1,050 in all."""
IDLE_FROM = 256
"""Bytes from which on what makes no difference is left alone."""


@dataclass(frozen=True)
class Packaged:
    """A model of a package, and the sizes of its open dimensions."""

    package: str
    path: str
    dims: str
    values: str = ""


MODELS = {
    "magika": Packaged("magika", "models/standard_v3_3/model.onnx", "unk__214=1"),
    "silero": Packaged(
        "silero_vad", "data/silero_vad_op18_ifless.onnx", "batch=1;sequence=576", '{"sr": 16000}'
    ),
    "ppocr-cls": Packaged(
        "rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", "x_0=1;x_2=48;x_3=192"
    ),
}


@cache
def pieces(name: str) -> tuple[bytes, tuple[int, ...]]:
    """The bytes of a model, and the places of those that are no weights."""
    found = MODELS[name]
    spec = find_spec(found.package)
    assert spec is not None and spec.submodule_search_locations
    data = (Path(spec.submodule_search_locations[0]) / found.path).read_bytes()
    kept = bytearray(b"\1") * len(data)
    for piece in _idle(onnx.load_from_string(data).graph):
        start = data.find(piece)
        while len(piece) >= IDLE_FROM and start >= 0:  # equal weights are there more than once
            kept[start : start + len(piece)] = bytes(len(piece))
            start = data.find(piece, start + len(piece))
    return data, tuple(offset for offset, keep in enumerate(kept) if keep)


def _idle(graph: onnx.GraphProto) -> Iterator[bytes]:
    """Elements of tensors, and what exporters noted about nodes: one byte or another makes no difference."""
    yield from (piece for tensor in graph.initializer for piece in _elements(tensor))
    for node in graph.node:
        yield from (entry.value.encode() for entry in node.metadata_props)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield from _elements(attribute.t)
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _idle(attribute.g)


def _elements(tensor: onnx.TensorProto) -> Iterator[bytes]:
    yield tensor.raw_data
    yield np.asarray(tensor.float_data, np.float32).tobytes()


Edit = Callable[[bytearray, int, int], None]


def _replace(data: bytearray, offset: int, byte: int) -> None:
    data[offset] = byte


def _flip(data: bytearray, offset: int, byte: int) -> None:
    data[offset] ^= 1 << byte % 8


def _insert(data: bytearray, offset: int, byte: int) -> None:
    data[offset:offset] = bytes([byte]) * (byte % 4 + 1)


def _delete(data: bytearray, offset: int, byte: int) -> None:
    del data[offset : offset + byte % 8 + 1]


def _repeat(data: bytearray, offset: int, byte: int) -> None:
    data[offset:offset] = data[offset : offset + byte]


def _cut(data: bytearray, offset: int, byte: int) -> None:
    del data[offset:]


EDITS: tuple[Edit, ...] = (*[_replace, _flip] * 4, _insert, _delete, _repeat)
"""Most keep the length, which a file of nested lengths seldom survives the change of."""
edits = st.lists(
    st.tuples(st.sampled_from(EDITS), st.floats(0, 1, exclude_max=True), st.integers(0, 255)),
    min_size=1,
    max_size=4,
)
cuts = st.tuples(st.just(_cut), st.floats(0, 1, exclude_max=True), st.just(0)).map(lambda edit: [edit])


@pytest.mark.parametrize("name", MODELS)
@given(changes=edits | edits | edits | cuts)
@settings(max_examples=CASES)
def test_changed_bytes_are_a_program_or_a_clear_error(
    name: str, changes: list[tuple[Edit, float, int]]
) -> None:
    original, offsets = pieces(name)
    data = bytearray(original)
    for edit, where, byte in changes:
        edit(data, min(offsets[int(where * len(offsets))], len(data) - 1), byte)
        if not data:
            break
    try:
        lowered(bytes(data), MODELS[name])
    except AicfError as error:
        assert "\n" not in str(error)


def lowered(data: bytes, model: Packaged) -> None:
    """Reads a model and writes it in logical ops, which is where all is known of it that a file can get wrong."""
    context = make_context()
    module = read_model(data, context).module
    SpecializeShapesPass(model.dims, model.values).apply(context, module)
    LowerOnnxPass().apply(context, module)
    module.verify()
