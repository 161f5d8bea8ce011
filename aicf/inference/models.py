"""The interface of a model that is not compiled: what its text, its ONNX graph or its exported program says of inputs
and outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from aicf.compilation.sources import Source
from aicf.dialects.logical import COUNTS_ATTR, NAME_ATTR, ROLE_ATTR
from aicf.dialects.onnx import GraphOp
from aicf.dialects.types import TensorInfo, element_named, tensor_info
from aicf.engines.interface import UNKNOWN, Interface
from aicf.engines.sizes import linear_sizes
from aicf.inference.counting import OPEN
from aicf.passes.logical.specialize_shapes import symbolic_names
from aicf.passes.logical.to_evaluation import drawing_metas, trains
from aicf.passes.onnx.values import bind_values, check_inputs, converted
from aicf.passes.support.interface import Result, argument_entry, results_of
from aicf.runtime.executable import TensorSpec
from aicf.runtime.tensors import Array

if TYPE_CHECKING:
    from aicf.frontends.torch.exported import ExportedModel


def interface_of(source: Source, values: Mapping[str, Array], *, training: bool = False) -> Interface | None:
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
    unread = () if training or trains(model) else drawing_metas(model)
    return None if _keeps_state(model, unread) else _of_function(model)


def exported_interface(model: ExportedModel, values: Mapping[str, Array]) -> Interface | None:
    """The interface of an exported program of PyTorch; None if it keeps state, as `interface_of`.

    Raises:
        PolicyError: values are given, which only inputs of ONNX models are bound to.
    """
    check_inputs(values, [])
    surface = model.surface()
    if _keeps_state(surface.function, ()):
        return None
    inputs, outputs = ([TensorSpec(*each) for each in specs] for specs in (surface.inputs, surface.outputs))
    return Interface(inputs, outputs, model.dims, linear=linear_sizes(inputs))


def _of_function(function: FuncOp) -> Interface:
    inputs = [
        _spec(_text(entry, NAME_ATTR), tensor_info(argument.type))
        for argument in function.args
        if _text(entry := argument_entry(function, argument.index), ROLE_ATTR) == "input"
    ]
    results = results_of(function)
    counts = [result.attrs[COUNTS_ATTR] for result in results if COUNTS_ATTR in result.attrs]
    outputs = [_result_spec(result, counts) for result in results if COUNTS_ATTR not in result.attrs]
    return Interface(inputs, outputs, symbolic_names(function))


def _result_spec(result: Result, counts: Sequence[Attribute]) -> TensorSpec:
    """A size that another result counts is open."""
    spec = _spec(result.name or "", tensor_info(result.value.type))
    sizes = list(spec.shape)
    for entry in counts:
        axis = entry.data.get(spec.name) if isinstance(entry, DictionaryAttr) else None
        if isinstance(axis, IntegerAttr):
            sizes[axis.value.data] = OPEN
    return replace(spec, shape=tuple(sizes))


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
    types = {spec.name: element_named(spec.dtype) for spec in inputs}
    bind_values(graph.clone(), values)  # what does not fit is told now, not by the first call that follows it
    known = {name: converted(name, value, types[name]) for name, value in values.items()}
    return Interface(inputs, outputs, symbolic_names(graph), known)


def _keeps_state(function: FuncOp, unread: Collection[str]) -> bool:
    """Whether a call changes what a later one sees, `unread` arguments apart."""
    entries = [argument_entry(function, argument.index) for argument in function.args]
    roles = {_text(entry, ROLE_ATTR) for entry in entries if _text(entry, NAME_ATTR) not in unread}
    return bool(roles & {"state", "meta"}) or any(result.updates for result in results_of(function))


def _text(entry: Mapping[str, Attribute], key: str) -> str:
    attribute = entry.get(key)
    return attribute.data if isinstance(attribute, StringAttr) else ""


def _spec(name: str, info: TensorInfo) -> TensorSpec:
    sizes = tuple(size if isinstance(size, int) else str(size) for size in info.sizes)
    return TensorSpec(name, sizes, info.element.name)
