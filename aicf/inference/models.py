"""The interface of a model that is not compiled: what its text, or its ONNX graph, says of inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from aicf.dialects.logical import NAME_ATTR, ROLE_ATTR
from aicf.dialects.onnx import GraphOp
from aicf.dialects.types import TensorInfo, tensor_info
from aicf.inference.interface import UNKNOWN, Interface
from aicf.passes.specialize_shapes import symbolic_names
from aicf.passes.support.interface import argument_entry, results_of
from aicf.passes.support.onnx_values import check_inputs
from aicf.runtime.executable import TensorSpec
from aicf.runtime.tensors import Array, numpy_dtype
from aicf.sources import Source


def interface_of(source: Source, values: Mapping[str, Array]) -> Interface | None:
    """The interface of the one model that was read, with the values of inputs that are known.

    None if there are several, or if it keeps state, whose programs must share it.

    Raises:
        PolicyError: a value is for no input of an ONNX graph.
    """
    module = source.module
    check_inputs(values, [op for op in module.body.block.ops if isinstance(op, GraphOp)])
    models = [op for op in module.body.block.ops if isinstance(op, FuncOp | GraphOp)]
    if len(models) != 1:
        return None
    (model,) = models
    if isinstance(model, GraphOp):
        return _of_graph(model, source, values)
    return None if _keeps_state(model) else _of_function(model)


def _of_function(function: FuncOp) -> Interface:
    inputs = [
        _spec(_text(entry, NAME_ATTR), tensor_info(argument.type))
        for argument in function.args
        if _text(entry := argument_entry(function, argument.index), ROLE_ATTR) == "input"
    ]
    outputs = [_spec(result.name or "", tensor_info(result.value.type)) for result in results_of(function)]
    return Interface(inputs, outputs, symbolic_names(function))


def _of_graph(graph: GraphOp, source: Source, values: Mapping[str, Array]) -> Interface:
    """An output whose type the model does not declare is known when a program is compiled."""
    inputs = [
        _spec(graph.argument_name(index), graph.argument_info(index))
        for index in range(len(graph.block.args))
        if graph.is_input(index)
    ]
    nothing: tuple[str, tuple[int | str, ...]] = (UNKNOWN, (UNKNOWN,))
    outputs: list[TensorSpec] = []
    for name in graph.result_names:
        dtype, shape = source.outputs.get(name.data, nothing)
        outputs.append(TensorSpec(name.data, shape, dtype))
    types = {spec.name: numpy_dtype(spec.dtype) for spec in inputs}
    known = {name: value.astype(types[name]) for name, value in values.items()}
    return Interface(inputs, outputs, symbolic_names(graph), known)


def _keeps_state(function: FuncOp) -> bool:
    """Whether a call changes what a later one sees."""
    roles = {_text(argument_entry(function, argument.index), ROLE_ATTR) for argument in function.args}
    return bool(roles & {"state", "meta"}) or any(result.updates for result in results_of(function))


def _text(entry: Mapping[str, Attribute], key: str) -> str:
    attribute = entry.get(key)
    return attribute.data if isinstance(attribute, StringAttr) else ""


def _spec(name: str, info: TensorInfo) -> TensorSpec:
    sizes = tuple(size if isinstance(size, int) else str(size) for size in info.sizes)
    return TensorSpec(name, sizes, info.element.name)
