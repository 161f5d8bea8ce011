"""GraphProto to `onnx.graph`: values by name, nodes in order, graphs of nodes as regions, weights set apart."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, NameLoc, StringAttr, UnknownLoc
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from aicf.dialects.dims import Size
from aicf.dialects.onnx import (
    CONTRADICTIONS_ATTR,
    INPUT,
    PARAM,
    ConstantOp,
    GraphOp,
    NodeOp,
    NoneOp,
    ValueType,
    YieldOp,
)
from aicf.dialects.onnx_types import Claim
from aicf.dialects.types import ElementType, element_of_dtype
from aicf.errors import AicfError, InvalidIR, UnsupportedOp
from aicf.frontends.onnx.attributes import read_attributes
from aicf.frontends.onnx.copies import Copies, is_identity
from aicf.frontends.onnx.declared import NamedSize, claims_of, declared_twice, entries_of
from aicf.frontends.onnx.functions import Functions
from aicf.frontends.onnx.interface import given_inputs, result_names, unused
from aicf.frontends.onnx.sizes import SizeNames
from aicf.frontends.onnx.tensors import Array, element_of_data_type, in_place_of, read_tensor

if TYPE_CHECKING:
    from aicf.frontends.onnx.reading import HasRow

MAX_CONSTANT_BYTES = 1024
"""A larger tensor is a parameter, with few exceptions: its elements are not in the program."""


@dataclass(frozen=True)
class Reading:
    """What a model file holds.

    Args:
        module: One `onnx.graph`.
        name: Of the file or else of the graph.
        weights: The values of its parameters by name, as they lie in the file where that is possible.
        trainable: Which of these are float initializers of rank 1 or more; none unless it is read for training.
        taken: Names of small initializers whose values are those that were given in their place.
        outputs: What it declares of its results, element type and sizes by name; one that it declares nothing of is
            missing.
        readers: Of each trainable parameter the nodes that read it; an Identity node is called as its output.
    """

    module: ModuleOp
    name: str
    weights: Mapping[str, Array]
    trainable: frozenset[str]
    taken: frozenset[str]
    outputs: Mapping[str, tuple[str, tuple[int | str, ...]]]
    readers: Mapping[str, tuple[str, ...]]


def read_graph(
    model: onnx.ModelProto,
    name: str,
    opsets: Mapping[str, int],
    folder: Path | None,
    has_row: HasRow,
    *,
    training: bool,
    given: Mapping[str, Array],
    untie: Sequence[str],
) -> Reading:
    """The graph of a checked model, and the values of its parameters.

    Args:
        model: Its opsets are supported.
        name: What the graph is called from now on.
        opsets: Domain to version.
        folder: Of the files with external data.
        has_row, training, given, untie: See `read_onnx`.

    Raises:
        InvalidIR, UnsupportedOp, InputMismatch: as `read_onnx`.
    """
    copies = Copies(model.graph, untie, given)
    reader = _Reader(Functions(model, opsets, has_row), folder, training, given, copies)
    return reader.read(model.graph, name, opsets)


@dataclass(frozen=True)
class _Scope:
    """The values of one graph by name, and what it declares of them."""

    values: dict[str, SSAValue]
    declared: Mapping[str, Claim] = field(default_factory=dict[str, Claim])


class _Reader:
    """Reads one model.

    The values of a graph and of those around it are in `_scopes`, innermost last; all parameters are arguments of the
    outermost block.
    """

    def __init__(
        self,
        functions: Functions,
        folder: Path | None,
        training: bool,
        given: Mapping[str, Array],
        copies: Copies,
    ) -> None:
        self._copies = copies
        self._split: dict[SSAValue, Array] = {}
        """The initializers that some reader has a copy of."""
        self._copied: dict[tuple[SSAValue, str], SSAValue] = {}
        self._readers: dict[str, dict[str, None]] = {}
        self._trained_as: dict[SSAValue, str] = {}
        self._functions = functions
        self._given = given
        self._taken: set[str] = set()
        self._training = training
        self._trainable: set[str] = set()
        self._folder = folder
        self._top = Block()
        self._block = self._top
        self._entries: list[dict[str, StringAttr]] = []
        self._weights: dict[str, Array] = {}
        self._scopes: list[_Scope] = []
        self._names: dict[str, int] = {}
        self._argument_names: set[str] = set()
        self._contradictions: dict[str, None] = {}
        """What is declared and not so, in words."""
        self._claims: dict[SSAValue, Claim] = {}
        """What is declared of what nodes give."""
        self._named: NamedSize = _no_size
        self._result_names: set[str] = set()

    def read(self, graph: onnx.GraphProto, name: str, opsets: Mapping[str, int]) -> Reading:
        inputs = given_inputs(graph)
        sizes = SizeNames(inputs)
        self._result_names = {*result_names(graph).values()}
        self._named = sizes.named
        with self._scope(entries_of(graph)):
            for entry in inputs:
                element = _element_of_input(entry)
                self._define(
                    entry.name,
                    self._argument(entry.name, INPUT, ValueType.of(element, sizes.sizes_of(entry))),
                )
            self._read_body(graph)
        for value, claim in self._claims.items():
            Rewriter.replace_value_with_new_type(value, ValueType.declared(claim))
        names = result_names(graph)
        op = GraphOp(name, opsets, self._entries, list(names.values()), Region(self._top))
        if self._contradictions:
            op.attributes[CONTRADICTIONS_ATTR] = ArrayAttr(map(StringAttr, self._contradictions))
        return Reading(
            ModuleOp([op]),
            name,
            self._weights,
            frozenset(self._trainable),
            frozenset(self._taken),
            {names[entry.name]: said for entry in graph.output if (said := _declared(entry, sizes))},
            {name: tuple(found) for name, found in self._readers.items()},
        )

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
                value = self._initializer(tensor.name, array)
                self._define(tensor.name, value)
                if _may_train(array) and self._copies.is_split(tensor.name):
                    self._split[value] = array

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
        if (copied := self._copies.of_identity(node)) is not None:
            source = self._value(node.input[0], what)
            if source in self._split:
                self._define(copied, self._initializer(copied, self._split[source]))
                return
        reader = node.output[0] if is_identity(node) else name
        operands = [self._operand(operand, reader, what) for operand in node.input]
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
        with self._scope(entries_of(graph)):
            for entry, argument in zip(graph.input, block.args, strict=True):
                self._define(entry.name, argument)
            self._read_body(graph)
        self._block = outer
        return Region(block)

    def _expand(
        self, function: onnx.FunctionProto, node: onnx.NodeProto, name: str, operands: Sequence[SSAValue]
    ) -> None:
        """The nodes of a function in place of the node that calls it; they are called `<node>/<inner node>`."""
        if len(operands) > len(function.input) or len(node.output) > len(function.output):
            raise InvalidIR(
                f"{node.op_type} '{name}': it has {len(operands)} operands and {len(node.output)} results, its "
                f"function {len(function.input)} and {len(function.output)}"
            )
        given = dict(zip(function.input, operands, strict=False))
        values = {inner: given[inner] if inner in given else self._none() for inner in function.input}
        outer, named = self._scopes, self._named
        # Names of sizes in a function are its own.
        self._scopes, self._named = [], _no_size
        with self._scope(function.value_info, values), self._functions.entered(function, name):
            self._read_nodes(self._functions.nodes_of(function, node, name))
            results = [
                self._value(output, f"function {function.name} '{name}'") for output in function.output
            ]
        self._scopes, self._named = outer, named
        for output, result in zip(node.output, results, strict=False):
            if output:
                self._define(output, result)

    # Values

    @contextmanager
    def _scope(
        self, entries: Iterable[onnx.ValueInfoProto], values: dict[str, SSAValue] | None = None
    ) -> Generator[None]:
        """A scope of these values, with what is declared of values in it."""
        claims, wrong = claims_of(entries, self._named)
        self._contradictions.update(dict.fromkeys(wrong))
        self._scopes.append(_Scope({} if values is None else values, claims))
        yield
        self._scopes.pop()

    def _define(self, name: str, value: SSAValue) -> None:
        scope = self._scopes[-1]
        if name in scope.values:
            raise InvalidIR(f"value '{name}' is defined twice; every value has a name of its own")
        if name in scope.declared:
            self._declare(name, value, scope.declared[name])
        scope.values[name] = value
        if SSAValue.is_valid_name(name):
            value.name_hint = name

    def _declare(self, name: str, value: SSAValue, claim: Claim) -> None:
        """Compares a declaration with what is known of the value; one of what a node gives is kept for later.

        What a body is given follows from the node around it, and nothing is known of it here.
        """
        assert isinstance(value.type, ValueType)
        if (known := value.type.claim) is not None:
            if known.joined(claim) is None:
                self._contradictions[f"value '{name}' is {known}, the model declares {claim}"] = None
            return
        if isinstance(value.owner, NodeOp):
            declared = self._claims.get(value, claim)
            if (both := declared.joined(claim)) is None:
                self._contradictions[declared_twice(name, declared, claim)] = None
            self._claims[value] = both or claim

    def _value(self, name: str, reader: str) -> SSAValue:
        for scope in reversed(self._scopes):
            if name in scope.values:
                return scope.values[name]
        raise InvalidIR(
            f"{reader} reads '{name}', which nothing before it produces: the name is wrong, or the graph has a cycle"
        )

    def _operand(self, operand: str, reader: str, what: str) -> SSAValue:
        """What a node reads: a copy of an initializer where each of its readers has one."""
        if not operand:
            return self._none()
        value = self._value(operand, what)
        if value in self._split and (copy := self._copies.of_reader(operand, reader)) is not None:
            if (value, copy) not in self._copied:
                self._copied[value, copy] = self._initializer(copy, self._split[value])
            return self._copied[value, copy]
        if value in self._trained_as:
            self._readers.setdefault(self._trained_as[value], {})[reader] = None
        return value

    def _none(self) -> SSAValue:
        op = NoneOp()
        self._block.add_op(op)
        return op.result

    def _initializer(self, name: str, array: Array) -> SSAValue:
        """What may be trained has a name, however small it is. A constant has the value that is given for it."""
        if _is_constant(array) and name in self._given:
            self._taken.add(name)
            array = in_place_of(name, array, self._given[name])
        if not self._training or not _may_train(array):
            return self._tensor(name, array)
        unique = self._unique_argument(name)
        self._trainable.add(unique)
        if array.nbytes > MAX_CONSTANT_BYTES:
            value = self._parameter(unique, array)
        else:
            self._weights[unique] = array
            self._argument_names.add(unique)
            value = self._constant(name, ConstantOp(np.asarray(array), unique))
        self._trained_as[value] = unique
        return value

    def _tensor(self, name: str, array: Array) -> SSAValue:
        """A constant of the program where it is small or a zero point repeated, else a parameter."""
        if _is_constant(array):
            return self._constant(name, ConstantOp(np.asarray(array)))
        return self._parameter(self._unique_argument(name), array)

    def _parameter(self, name: str, array: Array) -> SSAValue:
        self._weights[name] = array
        return self._argument(name, PARAM, ValueType.of(element_of_dtype(array.dtype), array.shape))

    def _constant(self, name: str, op: ConstantOp) -> SSAValue:
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
        """A name for a parameter. That of a result stays the result's, as where an initializer is an output."""
        stem = name or "constant"
        return unused(stem, self._argument_names | self._result_names)

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


def _no_size(_: str) -> Size | None:
    """Of a name that no input has."""
    return None


def _is_constant(array: Array) -> bool:
    """Whether the elements of a tensor are in the program: of a small one, and of a long vector of one 8-bit integer.

    Such a vector holds the zero points of a quantised weight: a product of integers is simpler if they are known.
    Different 8-bit integers in several dimensions are a weight itself, which is to be multiplied as it is and must not
    become floats at compile time, however small it is.
    """
    is_bytes = array.dtype.kind in "iu" and array.itemsize == 1
    is_uniform = is_bytes and array.size > 0 and bool((array == array.flat[0]).all())
    if is_bytes and array.ndim > 1 and array.size and not is_uniform:
        return False
    if array.nbytes <= MAX_CONSTANT_BYTES:
        return True
    return array.ndim == 1 and is_uniform


def _may_train(array: Array) -> bool:
    """Whether an initializer is one that training changes."""
    return element_of_dtype(array.dtype).kind == "float" and array.ndim > 0


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


def _declared(entry: onnx.ValueInfoProto, sizes: SizeNames) -> tuple[str, tuple[int | str, ...]] | None:
    """What a graph says of a result, for people to read: what it is is for `lower-onnx` to find out."""
    try:
        element = element_of_data_type(entry.type.tensor_type.elem_type, f"output '{entry.name}'")
    except AicfError:
        return None
    shape = sizes.texts_of(entry)
    return None if shape is None else (element.name, shape)


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
