"""`read_onnx`: from a path, bytes or a ModelProto to a checked module and its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import onnx
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from aicf.errors import AicfError, InvalidIR
from aicf.frontends.onnx.checking import check_model, opsets_of
from aicf.frontends.onnx.graphs import read_graph
from aicf.frontends.onnx.loading import load_model
from aicf.frontends.onnx.sizes import SizeNames
from aicf.frontends.onnx.tensors import Array, element_of_data_type

OnnxModel: TypeAlias = str | Path | bytes | onnx.ModelProto
"""A path, the bytes of a file, or the model as package `onnx` holds it."""

HasRow: TypeAlias = Callable[[str, str, int], bool]
"""Whether an op type of a domain (\"\" is ONNX's own) is lowered in an opset; if not, its function body is read."""


@dataclass(frozen=True)
class Reading:
    """What a model file holds.

    Args:
        module: One `onnx.graph`.
        weights: The values of its parameters by name, as they lie in the file where that is possible.
        name: Of the file or else of the graph.
        outputs: What it declares of its results, element type and sizes by name; one that it declares nothing of is
            missing.
    """

    module: ModuleOp
    weights: Mapping[str, Array]
    name: str
    outputs: Mapping[str, tuple[str, tuple[int | str, ...]]]


def read_onnx(model: OnnxModel, has_row: HasRow) -> Reading:
    """Reads a model.

    Args:
        model: External data is read from the folder of a path.
        has_row: Tells which ops must be expanded into their function bodies.

    Raises:
        InvalidIR: it is no ONNX model, is damaged, or breaks a rule of ONNX.
        UnsupportedOp: it uses what AICF has no counterpart of: string or sparse tensors, inputs of dynamic rank, ops
            without a row or a function body.
    """
    path = Path(model) if isinstance(model, str | Path) else None
    try:
        return _read(model, path, has_row)
    except AicfError as error:
        if path is None or error.location is not None:
            raise
        raise type(error)(error.message, location=str(path)) from error
    except RecursionError:
        raise InvalidIR("the model is nested too deeply; flatten its graphs and functions") from None
    except (VerifyException, ValueError, TypeError, OverflowError) as error:
        raise InvalidIR(f"the model is malformed: {error}", location=str(path) if path else None) from error


def _read(model: OnnxModel, path: Path | None, has_row: HasRow) -> Reading:
    proto = load_model(model)
    opsets = opsets_of(proto)
    check_model(proto)
    name = path.stem if path is not None else proto.graph.name or "model"
    graph, weights = read_graph(proto, name, opsets, None if path is None else path.parent, has_row)
    return Reading(ModuleOp([graph]), weights, name, _declared(proto.graph))


def _declared(graph: onnx.GraphProto) -> dict[str, tuple[str, tuple[int | str, ...]]]:
    """What a graph says of its results, for people to read: what they are is for `lower-onnx` to find out."""
    initialized = {tensor.name for tensor in graph.initializer}
    sizes = SizeNames([entry for entry in graph.input if entry.name not in initialized])
    found: dict[str, tuple[str, tuple[int | str, ...]]] = {}
    for entry in graph.output:
        try:
            element = element_of_data_type(entry.type.tensor_type.elem_type, f"output '{entry.name}'")
        except AicfError:
            continue
        if (shape := sizes.texts_of(entry)) is not None:
            found[entry.name] = (element.name, shape)
    return found
