"""`read_onnx`: from a path, bytes or a ModelProto to a checked module and its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import onnx
from xdsl.utils.exceptions import VerifyException

from aicf.errors import AicfError, InvalidIR
from aicf.frontends.onnx.checking import check_model, opsets_of
from aicf.frontends.onnx.graphs import Reading, read_graph
from aicf.frontends.onnx.loading import load_model
from aicf.frontends.onnx.order import order_nodes
from aicf.frontends.onnx.tensors import Array

OnnxModel: TypeAlias = str | Path | bytes | onnx.ModelProto
"""A path, the bytes of a file, or the model as package `onnx` holds it."""

HasRow: TypeAlias = Callable[[str, str, int], bool]
"""Whether an op type of a domain (\"\" is ONNX's own) is lowered in an opset; if not, its function body is read."""


def read_onnx(
    model: OnnxModel,
    has_row: HasRow,
    *,
    training: bool = False,
    given: Mapping[str, Array] = MappingProxyType({}),
    untie: Sequence[str] = (),
) -> Reading:
    """Reads a model.

    Args:
        model: External data is read from the folder of a path.
        has_row: Tells which ops must be expanded into their function bodies.
        training: Whether small float initializers keep their names, so that they can be trained.
        given: Values by name, which small initializers have in place of those in the file.
        untie: Names or patterns of initializers of which each reader has a copy, see `copies`.

    Raises:
        InvalidIR: it is no ONNX model, is damaged, or breaks a rule of ONNX.
        UnsupportedOp: it uses what AICF has no counterpart of: string or sparse tensors, inputs of dynamic rank, ops
            without a row or a function body.
        InputMismatch: a value that is given has another shape or element type than the file's.
    """
    path = Path(model) if isinstance(model, str | Path) else None
    try:
        return _read(model, path, has_row, training, given, untie)
    except AicfError as error:
        if path is None or error.location is not None:
            raise
        raise type(error)(error.message, location=str(path)) from error
    except RecursionError:
        raise InvalidIR("the model is nested too deeply; flatten its graphs and functions") from None
    except (VerifyException, ValueError, TypeError, OverflowError) as error:
        raise InvalidIR(f"the model is malformed: {error}", location=str(path) if path else None) from error


def _read(
    model: OnnxModel,
    path: Path | None,
    has_row: HasRow,
    training: bool,
    given: Mapping[str, Array],
    untie: Sequence[str],
) -> Reading:
    proto = load_model(model)
    opsets = opsets_of(proto)
    order_nodes(proto)
    check_model(proto)
    name = path.stem if path is not None else proto.graph.name or "model"
    folder = None if path is None else path.parent
    return read_graph(proto, name, opsets, folder, has_row, training=training, given=given, untie=untie)
