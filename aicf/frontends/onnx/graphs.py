"""GraphProto to `onnx.graph`: values by name, nodes in order, graphs of nodes as regions, weights set apart."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from xdsl.dialects.builtin import NameLoc, StringAttr, UnknownLoc
from xdsl.ir import Block, Operation, Region, SSAValue

from aicf.dialects.onnx import INPUT, PARAM, ConstantOp, GraphOp, NodeOp, NoneOp, ValueType, YieldOp
from aicf.dialects.types import ElementType, element_of_dtype
from aicf.errors import InvalidIR, UnsupportedOp
from aicf.frontends.onnx.attributes import read_attributes
from aicf.frontends.onnx.functions import Functions
from aicf.frontends.onnx.sizes import SizeNames
from aicf.frontends.onnx.tensors import Array, element_of_data_type, read_tensor

if TYPE_CHECKING:
    from aicf.frontends.onnx.reading import HasRow

MAX_CONSTANT_BYTES = 1024
"""A larger tensor is a parameter: its elements are not in the program."""


def read_graph(
    model: onnx.ModelProto, name: str, opsets: Mapping[str, int], folder: Path | None, has_row: HasRow
) -> tuple[GraphOp, dict[str, Array]]:
    """The graph of a checked model, and the values of its parameters.

    Args:
        model: Its opsets are supported.
        name: What the graph is called from now on.
        opsets: Domain to version.
        folder: Of the files with external data.
        has_row: See `read_onnx`.

    Raises:
        InvalidIR, UnsupportedOp: as `read_onnx`.
    """
    return _Reader(Functions(model, opsets, has_row), folder).read(model.graph, name, opsets)


class _Reader:
    """Reads one model.

    The values of a graph and of those around it are in `_scopes`, innermost last; all parameters are arguments of the
    outermost block.
    """

    def __init__(self, functions: Functions, folder: Path | None) -> None:
        self._functions = functions
        self._folder = folder
        self._top = Block()
        self._block = self._top
        self._entries: list[dict[str, StringAttr]] = []
        self._weights: dict[str, Array] = {}
        self._scopes: list[dict[str, SSAValue]] = []
        self._names: dict[str, int] = {}
        self._argument_names: set[str] = set()

    def read(
        self, graph: onnx.GraphProto, name: str, opsets: Mapping[str, int]
    ) -> tuple[GraphOp, dict[str, Array]]:
        initialized = _initializer_names(graph)
        inputs = [entry for entry in graph.input if entry.name not in initialized]
        sizes = SizeNames(inputs)
        with self._scope():
            for entry in inputs:
                element = _element_of_input(entry)
                self._define(
                    entry.name,
                    self._argument(entry.name, INPUT, ValueType.of(element, sizes.sizes_of(entry))),
                )
            self._read_body(graph)
        names = [entry.name for entry in graph.output]
        return GraphOp(name, opsets, self._entries, names, Region(self._top)), self._weights

    # Graphs

    def _read_body(self, graph: onnx.GraphProto) -> None:
        """Everything of a graph but its inputs, into the current block and scope."""
        if graph.sparse_initializer:
            name = graph.sparse_initializer[0].values.name
            raise UnsupportedOp(
                f"initializer '{name}' is sparse; store it dense: sparse tensors are not supported"
            )
        self._read_initializers(graph)
        self._read_nodes(graph.node)
        results = [self._value(entry.name, f"the outputs of graph '{graph.name}'") for entry in graph.output]
        self._block.add_op(YieldOp(results))

    def _read_initializers(self, graph: onnx.GraphProto) -> None:
        used = _used_names(graph)
        for tensor in graph.initializer:
            if tensor.name in used:
                array = read_tensor(tensor, self._folder, f"initializer '{tensor.name}'")
                self._define(tensor.name, self._tensor(tensor.name, array))

    def _read_nodes(self, nodes: Sequence[onnx.NodeProto]) -> None:
        for node in nodes:
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
                self._read_constant(node)
            else:
                self._read_node(node)

    def _read_node(self, node: onnx.NodeProto) -> None:
        name = self._node_name(node)
        what = f"{node.op_type} '{name}'"
        function = self._functions.body_of(node, name)
        operands = [self._value(operand, what) if operand else self._none() for operand in node.input]
        if function is not None:
            self._expand(function, node, name, operands)
            return
        attributes = read_attributes(node.attribute, self._folder, what)
        bodies = {
            attr.name: self._body(attr.g) for attr in node.attribute if attr.type == onnx.AttributeProto.GRAPH
        }
        op = NodeOp(
            node.op_type,
            operands,
            [ValueType.unknown()] * len(node.output),
            attributes,
            domain=self._functions.domain_of(node),
            opset=self._functions.opset_of(node),
            node_name=name,
            bodies=bodies,
        )
        self._add(op, name)
        for output, result in zip(node.output, op.outs, strict=True):
            if output:
                self._define(output, result)

    def _body(self, graph: onnx.GraphProto) -> Region:
        block = Block(arg_types=[ValueType.unknown() for _ in graph.input])
        outer, self._block = self._block, block
        with self._scope():
            for entry, argument in zip(graph.input, block.args, strict=True):
                self._define(entry.name, argument)
            self._read_body(graph)
        self._block = outer
        return Region(block)

    def _expand(
        self, function: onnx.FunctionProto, node: onnx.NodeProto, name: str, operands: Sequence[SSAValue]
    ) -> None:
        """The nodes of a function in place of the node that calls it; they are called `<node>/<inner node>`."""
        given = dict(zip(function.input, operands, strict=False))
        values = {inner: given[inner] if inner in given else self._none() for inner in function.input}
        outer = self._scopes
        self._scopes = [values]
        with self._functions.entered(function, name):
            self._read_nodes(self._functions.nodes_of(function, node, name))
        results = [self._value(output, f"function {function.name} '{name}'") for output in function.output]
        self._scopes = outer
        for output, result in zip(node.output, results, strict=False):
            if output:
                self._define(output, result)

    # Values

    @contextmanager
    def _scope(self) -> Generator[None]:
        self._scopes.append({})
        yield
        self._scopes.pop()

    def _define(self, name: str, value: SSAValue) -> None:
        if name in self._scopes[-1]:
            raise InvalidIR(f"value '{name}' is defined twice; every value has a name of its own")
        self._scopes[-1][name] = value
        if SSAValue.is_valid_name(name):
            value.name_hint = name

    def _value(self, name: str, reader: str) -> SSAValue:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        raise InvalidIR(
            f"{reader} reads '{name}', which nothing in front of it gives: the name is wrong, or the graph has a cycle"
        )

    def _none(self) -> SSAValue:
        op = NoneOp()
        self._block.add_op(op)
        return op.result

    def _tensor(self, name: str, array: Array) -> SSAValue:
        """A constant of the program where it is small, else a parameter."""
        if array.nbytes > MAX_CONSTANT_BYTES:
            unique = self._unique_argument(name)
            self._weights[unique] = array
            return self._argument(unique, PARAM, ValueType.of(element_of_dtype(array.dtype), array.shape))
        op = ConstantOp(np.asarray(array))
        self._add(op, name)
        return op.result

    def _argument(self, name: str, role: str, type_: ValueType) -> SSAValue:
        if name in self._argument_names:
            raise InvalidIR(f"input '{name}' is there twice; give each a name of its own")
        self._argument_names.add(name)
        self._entries.append({"logical.name": StringAttr(name), "logical.role": StringAttr(role)})
        argument = self._top.insert_arg(type_, len(self._top.args))
        if SSAValue.is_valid_name(name):
            argument.name_hint = name
        return argument

    def _unique_argument(self, name: str) -> str:
        unique, number = name or "constant", 0
        while unique in self._argument_names:
            number += 1
            unique = f"{name}_{number}"
        return unique

    def _read_constant(self, node: onnx.NodeProto) -> None:
        name = self._node_name(node)
        array = _constant_of(node, f"Constant '{name}'", self._folder)
        if node.output and node.output[0]:
            self._define(node.output[0], self._tensor(node.output[0], array))

    # Names

    def _node_name(self, node: onnx.NodeProto) -> str:
        """The node's name, made unique: names of nodes are for people, and ONNX lets several have the same."""
        wanted = self._functions.prefix + (node.name or f"{node.op_type}")
        number = self._names.get(wanted)
        if number is None and node.name:
            self._names[wanted] = 0
            return wanted
        number = -1 if number is None else number
        while True:
            number += 1
            candidate = f"{wanted}_{number}"
            if candidate not in self._names:
                break
        self._names[wanted] = number
        self._names[candidate] = 0
        return candidate

    def _add(self, op: Operation, name: str) -> None:
        op.location = NameLoc(StringAttr(name), UnknownLoc())
        self._block.add_op(op)


def _initializer_names(graph: onnx.GraphProto) -> set[str]:
    return {tensor.name for tensor in graph.initializer}


def _used_names(graph: onnx.GraphProto) -> set[str]:
    """The names that nodes and outputs read, those of inner graphs included."""
    used = {entry.name for entry in graph.output}
    for node in graph.node:
        used.update(node.input)
        for attr in node.attribute:
            for inner in (attr.g, *attr.graphs):
                used |= _used_names(inner)
    return used


def _element_of_input(entry: onnx.ValueInfoProto) -> ElementType:
    kind = entry.type.WhichOneof("value")
    if kind != "tensor_type":
        shown = (kind or "no type").removesuffix("_type").replace("_", " ")
        raise UnsupportedOp(f"input '{entry.name}' is of type {shown}; inputs are dense tensors")
    return element_of_data_type(entry.type.tensor_type.elem_type, f"input '{entry.name}'")


def _constant_of(node: onnx.NodeProto, what: str, folder: Path | None) -> Array:
    """The value of a Constant node, whichever attribute it is in."""
    if len(node.attribute) != 1:
        raise InvalidIR(f"{what} has {len(node.attribute)} attributes; it has one value")
    attr = node.attribute[0]
    match attr.name:
        case "value":
            return read_tensor(attr.t, folder, what)
        case "value_float":
            return np.asarray(attr.f, np.float32)
        case "value_floats":
            return np.asarray(attr.floats, np.float32)
        case "value_int":
            return np.asarray(attr.i, np.int64)
        case "value_ints":
            return np.asarray(attr.ints, np.int64)
        case _:
            raise UnsupportedOp(f"{what}: {attr.name} is not supported; give a dense tensor of numbers")
