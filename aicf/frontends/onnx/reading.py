"""`read_onnx`: from a path, bytes or a ModelProto to a checked module and its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import onnx
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from aicf.errors import AicfError, InvalidIR
from aicf.frontends.onnx.checking import check_model, opsets_of
from aicf.frontends.onnx.graphs import read_graph
from aicf.frontends.onnx.interface import given_inputs, result_names
from aicf.frontends.onnx.loading import load_model
from aicf.frontends.onnx.order import order_nodes
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
        taken: Names of small initializers whose values are those that were given in their place.
        name: Of the file or else of the graph.
        trainable: Which of these are float initializers of rank 1 or more; none unless it is read for training.
        outputs: What it declares of its results, element type and sizes by name; one that it declares nothing of is
            missing.
        readers: Of each trainable parameter the nodes that read it; an Identity node is called as its output.
    """

    module: ModuleOp
    weights: Mapping[str, Array]
    trainable: frozenset[str]
    taken: frozenset[str]
    name: str
    outputs: Mapping[str, tuple[str, tuple[int | str, ...]]]
    readers: Mapping[str, tuple[str, ...]]


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
    graph = read_graph(proto, name, opsets, folder, has_row, training=training, given=given, untie=untie)
    declared = _declared(proto.graph)
    return Reading(
        ModuleOp([graph.op]), graph.weights, graph.trainable, graph.taken, name, declared, graph.readers
    )


def _declared(graph: onnx.GraphProto) -> dict[str, tuple[str, tuple[int | str, ...]]]:
    """What a graph says of its results, for people to read: what they are is for `lower-onnx` to find out."""
    sizes = SizeNames(given_inputs(graph))
    names = result_names(graph)
    found: dict[str, tuple[str, tuple[int | str, ...]]] = {}
    for entry in graph.output:
        try:
            element = element_of_data_type(entry.type.tensor_type.elem_type, f"output '{entry.name}'")
        except AicfError:
            continue
        if (shape := sizes.texts_of(entry)) is not None:
            found[names[entry.name]] = (element.name, shape)
    return found
