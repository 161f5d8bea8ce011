"""The rules of ONNX, which package `onnx` checks, and the versions that are read.

The checker gets the model without the elements of its large tensors: what these may be wrong in is told where they are
read (`tensors`).
"""

from __future__ import annotations

import onnx
import onnx.checker

from aicf.errors import InvalidIR, UnsupportedOp

OPSETS = range(7, 29)
"""The opsets of ONNX's own domain that are read."""

_OWN_NAMES = ("", "ai.onnx")
_CHECKED_BYTES = 1024


def opsets_of(model: onnx.ModelProto) -> dict[str, int]:
    """The version of each domain; "" is ONNX's own.

    Raises:
        InvalidIR: a domain is imported twice, or ONNX's own is not.
        UnsupportedOp: its opset is not read.
    """
    found: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain in _OWN_NAMES else entry.domain
        if found.get(domain, entry.version) != entry.version:
            raise InvalidIR(f'opset: the model imports domain "{domain}" twice, in different versions')
        found[domain] = entry.version
    own = found.get("")
    if own is not None and own not in OPSETS:
        raise UnsupportedOp(
            f"opset {own} of ONNX is not supported; {OPSETS[0]} to {OPSETS[-1]} are: convert the model with "
            "onnx.version_converter"
        )
    return found


def check_model(model: onnx.ModelProto) -> None:
    """Checks everything but the elements of large tensors.

    Raises:
        InvalidIR: a rule of ONNX is broken; the message is the checker's.
    """
    if not model.graph.output:
        raise InvalidIR("the graph has no outputs; name what it computes")
    _check_defined_once(model.graph)
    _check_outputs(model.graph)
    light = onnx.ModelProto()
    light.ir_version = max(model.ir_version, 4)  # from 4 on an initializer need not be an input
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    _copy_graph(model.graph, light.graph)
    try:
        onnx.checker.check_model(light.SerializeToString())  # pyright: ignore[reportUnknownMemberType]
    except onnx.checker.ValidationError as error:
        raise InvalidIR(f"the model breaks a rule of ONNX: {error}") from None


def _check_defined_once(graph: onnx.GraphProto) -> None:
    """The checker says this too, but not of which nodes."""
    producers: dict[str, str] = {}
    for node in graph.node:
        for output in filter(None, node.output):
            what = f"{node.op_type} '{node.name or output}'"
            if output in producers:
                raise InvalidIR(
                    f"{what} gives '{output}', which {producers[output]} gives too; every value has one name"
                )
            producers[output] = what


def _check_outputs(graph: onnx.GraphProto) -> None:
    """A value may be several results, by Identity; a name is one."""
    names = [entry.name for entry in graph.output]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidIR(
            f"output '{twice}' is listed twice; give the second a name of its own, by an Identity node"
        )


def _copy_graph(graph: onnx.GraphProto, light: onnx.GraphProto) -> None:
    light.name = graph.name
    light.node.extend(graph.node)
    light.input.extend(graph.input)
    light.output.extend(graph.output)
    for entry in light.output:
        if not entry.type.HasField("tensor_type") or not entry.type.tensor_type.elem_type:
            entry.type.tensor_type.elem_type = onnx.TensorProto.FLOAT  # an output may declare nothing
    for entry in (*light.input, *light.output):
        if entry.type.HasField("tensor_type"):
            entry.type.tensor_type.shape.SetInParent()  # an output may do without; of inputs `sizes` tells
    listed = {entry.name for entry in graph.input}
    for tensor in graph.initializer:
        if len(tensor.raw_data) <= _CHECKED_BYTES and not tensor.external_data:
            light.initializer.append(tensor)
        elif tensor.name not in listed:
            entry = light.input.add(name=tensor.name)
            entry.type.tensor_type.elem_type = tensor.data_type
            for size in tensor.dims:
                entry.type.tensor_type.shape.dim.add(dim_value=size)
    light.sparse_initializer.extend(graph.sparse_initializer)
