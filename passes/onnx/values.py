"""Binding inputs of an ONNX graph to values that shapes of the model follow from: the option `values`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr
from xdsl.rewriter import InsertPoint, Rewriter

from aicf.dialects import dims
from aicf.dialects.dims import NAME_PATTERN, Size
from aicf.dialects.logical import MAX_CONSTANT_ELEMENTS
from aicf.dialects.onnx import ConstantOp, GraphOp, NodeOp, ValueType
from aicf.dialects.types import ElementType, TensorInfo
from aicf.errors import PolicyError

Values: TypeAlias = Mapping[str, NDArray[Any]]
"""Name of an input to its elements."""


def parse_values(text: str) -> dict[str, NDArray[Any]]:
    """Read `{"shape": [2, 3], "trips": 4}`.

    Raises:
        PolicyError: it is no JSON of that form.
    """
    if not text.strip():
        return {}
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f'values: cannot read {text[:80]!r}: {error}; write {{"shape": [2, 3]}}') from None
    if not isinstance(found, dict):
        raise PolicyError('values: it is no dictionary; write inputs and their elements, {"shape": [2, 3]}')
    entries = cast("dict[str, object]", found)
    return {name: _array(name, entry) for name, entry in entries.items()}


def _array(name: str, entry: object) -> NDArray[Any]:
    try:
        array = np.asarray(entry)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise PolicyError(
            f"values: {name} is {str(entry)[:80]}; it is a number, or a list of numbers of one length"
        )
    return array


def check_inputs(values: Values, graphs: Sequence[GraphOp]) -> None:
    """Raises PolicyError if a value is for no input of the graphs."""
    inputs = [
        graph.argument_name(index)
        for graph in graphs
        for index in range(len(graph.block.args))
        if graph.is_input(index)
    ]
    if unknown := [name for name in values if name not in inputs]:
        listed = ", ".join(inputs) or "none; only inputs of ONNX models are bound to values"
        raise PolicyError(f"values: there is no input '{unknown[0]}' to bind; inputs are: {listed}")


def bind_values(graph: GraphOp, values: Values) -> dict[str, int]:
    """Makes inputs constants; they are no inputs any more.

    Returns:
        The symbolic sizes that the shapes of the values settle.

    Raises:
        PolicyError: a value does not fit the type of its input.
    """
    settled: dict[str, int] = {}
    for index in reversed(range(len(graph.block.args))):
        name = graph.argument_name(index)
        if graph.is_input(index) and name in values:
            array = _fitting(name, values[name], graph.argument_info(index), settled)
            _replace(graph, index, array)
    return settled


def bind_sizes(graph: GraphOp, bindings: Mapping[str, int]) -> None:
    """Puts numbers for symbolic sizes into the types of the arguments, and into what is declared of other values."""
    for index, argument in enumerate(graph.block.args):
        info = graph.argument_info(index)
        sizes = [dims.substitute(size, bindings) for size in info.sizes]
        if negative := next((size for size in sizes if isinstance(size, int) and size < 0), None):
            given = ", ".join(f"{name}={value}" for name, value in bindings.items())
            raise PolicyError(
                f'input "{graph.argument_name(index)}" is {info}: a size is {negative} for {given}'
            )
        Rewriter.replace_value_with_new_type(argument, ValueType.of(info.element, sizes))
    for node in graph.walk():
        for result in node.results if isinstance(node, NodeOp) else ():
            if isinstance(result.type, ValueType) and (claim := result.type.claim) is not None:
                Rewriter.replace_value_with_new_type(result, ValueType.declared(claim.bound(bindings)))


def _fitting(name: str, array: NDArray[Any], info: TensorInfo, settled: dict[str, int]) -> NDArray[Any]:
    if array.ndim != info.rank:
        raise PolicyError(f"values: {name} has rank {array.ndim}, the input is {info}, of rank {info.rank}")
    if array.size > MAX_CONSTANT_ELEMENTS:
        raise PolicyError(
            f"values: {name} has {array.size} elements; at most {MAX_CONSTANT_ELEMENTS} stand in a program"
        )
    for size, wanted in zip(array.shape, info.sizes, strict=True):
        _settle(name, size, wanted, info, settled)
    return converted(name, array, info.element)


def converted(name: str, array: NDArray[Any], element: ElementType) -> NDArray[Any]:
    """The values of an input in its own type; floats may be rounded.

    Raises:
        PolicyError: they cannot be written in it.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # what does not fit is told below
        own = array.astype(element.dtype)
        if element.is_float:
            fits = np.array_equal(np.isfinite(own.astype(np.float64)), np.isfinite(array))
        else:
            fits = np.array_equal(own.astype(array.dtype), array)
    if not fits:
        raise PolicyError(f"values: {str(array.tolist())[:80]} is no {element.name}, of which {name} is")
    return own


def _settle(name: str, size: int, wanted: Size, info: TensorInfo, settled: dict[str, int]) -> None:
    wanted = dims.substitute(wanted, settled)
    if isinstance(wanted, int):
        if wanted != size:
            raise PolicyError(f"values: {name} has a dimension of {size}, the input is {info}")
        return
    if NAME_PATTERN.fullmatch(str(wanted)):
        settled[str(wanted)] = size


def _replace(graph: GraphOp, index: int, array: NDArray[Any]) -> None:
    argument = graph.block.args[index]
    op = ConstantOp(array)
    op.result.name_hint = argument.name_hint
    Rewriter.insert_op(op, InsertPoint.at_start(graph.block))
    argument.replace_all_uses_with(op.result)
    graph.block.erase_arg(argument)
    entries = list(graph.arg_attrs)
    del entries[index]
    graph.properties["arg_attrs"] = ArrayAttr(entries)
