"""AttributeProto to attributes of the IR."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, FloatAttr, IntegerAttr, StringAttr, f32, i64
from xdsl.ir import Attribute

from aicf.dialects.onnx import dense_of
from aicf.errors import InvalidIR, UnsupportedOp
from aicf.frontends.onnx.tensors import read_tensor

_P = onnx.AttributeProto


def read_attributes(
    attributes: Sequence[onnx.AttributeProto], folder: Path | None, what: str
) -> dict[str, Attribute]:
    """The attributes of a node by name, graphs and types left out.

    Raises:
        InvalidIR: one is given twice, or is damaged.
        UnsupportedOp: one is of a type that AICF does not read.
    """
    found: dict[str, Attribute] = {}
    seen: set[str] = set()
    for attr in attributes:
        if attr.name in seen:
            raise InvalidIR(f"{what}: attribute {attr.name} is given twice")
        seen.add(attr.name)
        if attr.type not in (_P.GRAPH, _P.TYPE_PROTO):  # a type says nothing that values do not
            found[attr.name] = _read(attr, folder, what)
    return found


def _read(attr: onnx.AttributeProto, folder: Path | None, what: str) -> Attribute:
    match attr.type:
        case _P.INT:
            return IntegerAttr(attr.i, i64)
        case _P.FLOAT:
            return FloatAttr(attr.f, f32)
        case _P.STRING:
            return _text(attr.s, attr.name, what)
        case _P.INTS:
            return DenseArrayBase.from_list(i64, list(attr.ints))
        case _P.FLOATS:
            return DenseArrayBase.from_list(f32, list(attr.floats))
        case _P.STRINGS:
            return ArrayAttr([_text(entry, attr.name, what) for entry in attr.strings])
        case _P.TENSOR:
            return dense_of(read_tensor(attr.t, folder, f"{what}: attribute {attr.name}"))
        case _:
            raise UnsupportedOp(f"{what}: attribute {attr.name} is of a type that is not supported")


def _text(data: bytes, name: str, what: str) -> StringAttr:
    try:
        return StringAttr(data.decode())
    except UnicodeDecodeError:
        raise InvalidIR(f"{what}: attribute {name} is no UTF-8 text") from None
