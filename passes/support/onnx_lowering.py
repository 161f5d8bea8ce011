"""Walks a graph of the onnx dialect whose sizes are numbers, and writes the function of logical ops that it becomes.

What each op becomes is the op map's (``onnx_ops``). Here values are followed: a name of the graph stands for a tensor
of the function, or for elements that are known already; a node whose operands are all known and small is evaluated
instead of written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from aicf.dialects import onnx
from aicf.dialects.logical import MAX_CONSTANT_ELEMENTS, NAME_ATTR, ROLE_ATTR, ConcatOp, ConstantOp, LogicalOp
from aicf.dialects.types import element_of_dtype, tensor, tensor_info
from aicf.errors import InvalidIR, UnsupportedOp
from aicf.passes.support.identity import (
    IdTable,
    derived_id,
    invalid,
    op_id,
    position_of,
    set_identity,
    sources,
    value_hint,
)
from aicf.passes.support.onnx_names import node_id, node_name
from aicf.passes.support.onnx_ops import Header, Items, Known, Node, Result, Row, Value, find_row
from aicf.passes.support.onnx_ops.attributes import Attributes
from aicf.passes.support.onnx_ops.base import Array, OneResult, Tensor
from aicf.semantics import evaluate

MAX_FOLDED_ELEMENTS = 1 << 16
"""Largest operand or result, in elements, of a node that is evaluated instead of written."""

MAX_NODES = 1 << 17
"""Most nodes of a graph whose loops are unrolled."""


def lower_graph(graph: onnx.GraphOp, ids: IdTable) -> FuncOp:
    """The function that a graph becomes.

    Args:
        graph: Its inputs have numbers as sizes.
        ids: Of the module.

    Raises:
        InvalidIR: a node contradicts the types of its operands.
        UnsupportedOp: an op has no row, or its result's shape is only known at run time.
    """
    return _GraphLowering(graph, ids).run()


class _TooLarge(Exception):
    """A node is not to be evaluated: something it makes has too many elements."""


class _GraphLowering:
    """The state of one walk."""

    def __init__(self, graph: onnx.GraphOp, ids: IdTable) -> None:
        self.graph = graph
        self.ids = ids
        self.block = Block()
        self.values: dict[SSAValue, Value] = {}
        self._written: dict[int, tuple[Known, SSAValue]] = {}
        self._versions = graph.versions
        self._count = 0

    def run(self) -> FuncOp:
        graph = self.graph
        for argument in graph.block.args:
            new = self._argument(argument)
            info = tensor_info(new.type)
            empty = 0 in info.shape
            self.values[argument] = Known(np.empty(info.shape, info.element.dtype)) if empty else new
        values = self.run_block(graph.block, ())
        results = [
            self.tensor(value, f"result '{name.data}'")
            for name, value in zip(graph.result_names, values, strict=True)
        ]
        self.block.add_op(ReturnOp(*results))
        return self._function(results)

    def _argument(self, argument: SSAValue) -> SSAValue:
        assert isinstance(argument.type, onnx.ValueType)
        info = argument.type.info
        assert info is not None
        type_ = info.with_sizes(info.sizes)
        try:
            tensor_info(type_)
        except VerifyException as error:
            index = len(self.block.args)
            raise InvalidIR(f"input '{self.graph.argument_name(index)}': {error}") from error
        new = self.block.insert_arg(type_, len(self.block.args))
        new.name_hint = argument.name_hint
        return new

    def run_block(self, block: Block, parts: tuple[str, ...]) -> list[Value]:
        """Lower the nodes of a graph; what it yields. `parts` says which run of a body it is."""
        for op in block.ops:
            match op:
                case onnx.ConstantOp():
                    self.values[op.result] = Known(op.array)
                case onnx.NoneOp():
                    self.values[op.result] = None
                case onnx.YieldOp():
                    return [self.values[value] for value in op.values]
                case onnx.NodeOp():
                    self._run_node(op, parts)
                case _:
                    raise invalid(op, "is no op of the onnx dialect; an onnx.graph is made of these alone")
        raise invalid(self.graph, "a graph ends without onnx.yield")

    def _run_node(self, op: onnx.NodeOp, parts: tuple[str, ...]) -> None:
        header = self._header(op)
        self._count += 1
        if self._count > MAX_NODES:
            raise UnsupportedOp(
                f"{header}: the graph unrolls into more than {MAX_NODES} nodes; make its loops shorter"
            )
        operands = [self.values[operand] for operand in op.ins]
        lower = self._row_of(op, header).lower
        results = self._fold(header, lower, operands, op, parts)
        if results is None:
            results = self._write(header, lower, operands, op, parts)
        if any(result.first_use for result in op.outs[len(results) :]):
            raise UnsupportedOp(
                f"{header}: it has {len(op.outs)} outputs, of which {len(results)} are supported",
                location=position_of(op),
            )
        self.values.update(zip(op.outs, results, strict=False))

    def _row_of(self, op: onnx.NodeOp, header: Header) -> Row:
        row = find_row(header.op_type, header.domain, header.opset)
        if row is None:
            domain = header.domain or "ai.onnx"
            raise UnsupportedOp(
                f"op '{header.op_type}' of domain '{domain}' opset {header.opset} is not supported "
                f"(node '{header.name}'); replace it by ops of docs/onnx-support.md",
                location=position_of(op),
            )
        return row

    def _header(self, op: onnx.NodeOp) -> Header:
        domain = op.domain_name
        opset = self._versions.get(domain) if op.opset is None else op.opset.value.data
        name = node_name(op)
        if opset is None:
            raise InvalidIR(
                f"{op.op_type.data} '{name}': the graph has no opset of domain '{domain or 'ai.onnx'}'"
            )
        return Header(
            op.op_type.data,
            domain,
            name,
            opset,
            Attributes(op.attrs.data),
            op.graphs,
            tuple(result.first_use is not None for result in op.outs),
        )

    # Evaluating

    def _fold(
        self, header: Header, lower: Any, operands: Sequence[Value], op: onnx.NodeOp, parts: tuple[str, ...]
    ) -> list[Value] | None:
        """The results of a node whose operands are known, None if it has to be written."""
        if header.bodies or not all(_is_known(operand) for operand in operands):
            return None
        folding = _Folding(self, op)
        try:
            found = self._call(header, lower, operands, folding, op)
            known = [folding.known(result) for result in _listed(found)]
        except _TooLarge:
            return None
        return [
            self._remembered(value, header, lower, operands, op, parts, index)
            for index, value in enumerate(known)
        ]

    def _remembered(
        self,
        value: Value,
        header: Header,
        lower: Any,
        operands: Sequence[Value],
        op: onnx.NodeOp,
        parts: tuple[str, ...],
        index: int,
    ) -> Value:
        """A known result that can still be written if it is too large for a constant of the program."""
        if not isinstance(value, Known) or _fits(value.array):
            return value

        def write() -> SSAValue:
            written = self._write(header, lower, operands, op, parts)[index]
            if isinstance(written, Known) and not _fits(written.array):
                raise UnsupportedOp(
                    f"{header}: its result is known, and its {written.array.size} elements are too many for a "
                    "constant of the program; make it an initializer of the model",
                    location=position_of(op),
                )
            return self.tensor(written, f"output {index} of {header}")

        return Known(value.array, write)

    # Writing

    def _write(
        self, header: Header, lower: Any, operands: Sequence[Value], op: onnx.NodeOp, parts: tuple[str, ...]
    ) -> list[Value]:
        writing = _Writing(self, op, header, parts)
        found = self._call(header, lower, operands, writing, op)
        return writing.finish(_listed(found))

    def _call(
        self,
        header: Header,
        lower: Any,
        operands: Sequence[Value],
        emitter: _Folding | _Writing,
        op: onnx.NodeOp,
    ) -> Result:
        try:
            return lower(Node(header, operands, emitter))
        except (VerifyException, ValueError, ArithmeticError) as error:
            raise InvalidIR(f"{header}: {error}", location=position_of(op)) from error

    def tensor(self, value: Value, what: str) -> SSAValue:
        """A value as a tensor of the function; ``what`` says which it is."""
        match value:
            case Known():
                return self.write_known(value)
            case SSAValue():
                return value
            case _:
                kind = "an optional value that is absent" if value is None else "a sequence"
                raise UnsupportedOp(f"{what} is {kind}; a program gives tensors: take it apart in the model")

    def write_known(self, known: Known) -> SSAValue:
        """The constant of a known tensor, or the ops that compute it; each is written once."""
        if id(known) not in self._written:
            self._written[id(known)] = (known, self._new_constant(known))
        return self._written[id(known)][1]

    def _new_constant(self, known: Known) -> SSAValue:
        array = known.array
        if not _fits(array) and known.write is not None:
            return known.write()
        value = array.reshape(-1)[0] if _is_splat(array) else array if array.size else 0
        op = ConstantOp(value, tensor(array.shape, element_of_dtype(array.dtype)))
        identity = self.ids.fresh("constant")
        set_identity(op, identity, [identity])
        self.block.add_op(op)
        return op.result

    def inputs_behind(self, value: SSAValue) -> list[str]:
        """The inputs of the graph that a value is computed from at run time, in their order."""
        seen: set[SSAValue] = set()
        pending = [value]
        while pending:
            current = pending.pop()
            if current in seen or _is_known(self.values.get(current)):
                continue
            seen.add(current)
            owner = current.owner
            node = owner.parent_op() if isinstance(owner, Block) else owner
            if isinstance(node, onnx.NodeOp):
                pending.extend(operand for inner in node.walk() for operand in inner.operands)
        arguments = self.graph.block.args
        return [
            self.graph.argument_name(index)
            for index, argument in enumerate(arguments)
            if argument in seen and self.graph.is_input(index)
        ]

    # The function

    def _function(self, results: Sequence[SSAValue]) -> FuncOp:
        entries: list[DictionaryAttr] = []
        for index, argument in reversed(list(enumerate(self.block.args))):
            if argument.first_use is None and not self.graph.is_input(index):
                self.block.erase_arg(argument)
                continue
            role = "input" if self.graph.is_input(index) else "param"
            entries.append(
                DictionaryAttr(
                    {NAME_ATTR: StringAttr(self.graph.argument_name(index)), ROLE_ATTR: StringAttr(role)}
                )
            )
        function = FuncOp(
            self.graph.sym_name.data,
            ([argument.type for argument in self.block.args], [value.type for value in results]),
            Region(self.block),
            arg_attrs=ArrayAttr(reversed(entries)),
            res_attrs=ArrayAttr(DictionaryAttr({NAME_ATTR: name}) for name in self.graph.result_names),
        )
        function.location = self.graph.location
        return function


class _Folding:
    """Evaluates the ops of a node instead of writing them."""

    def __init__(self, lowering: _GraphLowering, op: onnx.NodeOp) -> None:
        self._lowering = lowering
        self._op = op
        self._arrays: dict[SSAValue, Array] = {}

    def emit(self, op: LogicalOp, suffix: str) -> None:
        """Evaluate an op."""
        if any(math.prod(tensor_info(result.type).shape) > MAX_FOLDED_ELEMENTS for result in op.results):
            raise _TooLarge
        arrays = evaluate(op, [self._arrays[operand] for operand in op.operands], "typed")
        self._arrays.update(zip(op.results, arrays, strict=True))

    def tensor(self, known: Known) -> SSAValue:
        """A placeholder of a known tensor."""
        array = known.array
        if array.size > MAX_FOLDED_ELEMENTS:
            raise _TooLarge
        value = _placeholder(array)
        self._arrays[value] = array
        return value

    def known(self, result: OneResult) -> Value:
        """What a row gave, as known values."""
        match result:
            case SSAValue():
                return Known(self._arrays[result])
            case Items(items):
                return Items(tuple(Known(self._arrays[i]) if isinstance(i, SSAValue) else i for i in items))
            case _:
                return _known_if_array(result)

    def inputs_behind(self, index: int) -> list[str]:
        """The inputs of the graph that an operand is computed from at run time."""
        return self._lowering.inputs_behind(self._op.ins[index])

    def run(self, header: Header, body: Region, values: Sequence[Value], part: str) -> list[Value]:
        """Nodes with graphs are not evaluated."""
        raise _TooLarge


class _Writing:
    """Writes the ops of a node into the function: called `<node>.<part>`, the one of the first result `<node>`."""

    def __init__(
        self, lowering: _GraphLowering, op: onnx.NodeOp, header: Header, parts: tuple[str, ...]
    ) -> None:
        self._lowering = lowering
        self._op = op
        self._parts = parts
        self._src = sources(op) or (header.name,)
        base = op_id(op) or node_id(op)
        for part in parts:
            base = derived_id(base, part)
        self._id = lowering.ids.fresh(base)
        self._own: set[Operation] = set()
        self._arrays: dict[SSAValue, Array] = {}
        """Empty tensors, and what is computed of them alone: they are known, and no op of the program reads them."""

    def emit(self, op: LogicalOp, suffix: str) -> None:
        """Append an op, unless what it gives is known because tensors are empty."""
        if (self._arrays or _is_empty(op)) and self._evaluated(op):
            return
        op.verify()
        self._own.add(op)
        identity = self._lowering.ids.fresh(derived_id(self._id, suffix))
        self._name(op, identity)
        op.location = self._op.location
        self._lowering.block.add_op(op)

    def _evaluated(self, op: LogicalOp) -> bool:
        """Whether the results are known; if not, the op is made to read no empty tensors."""
        shapes = [tensor_info(result.type).shape for result in op.results]
        if all(0 in shape for shape in shapes):
            elements = [tensor_info(result.type).element for result in op.results]
            arrays = [np.empty(shape, element.dtype) for shape, element in zip(shapes, elements, strict=True)]
        elif op.operands and all(operand in self._arrays for operand in op.operands):
            if any(math.prod(shape) > MAX_FOLDED_ELEMENTS for shape in shapes):
                raise UnsupportedOp(
                    f"{op.name} of empty tensors gives more than {MAX_FOLDED_ELEMENTS} elements"
                )
            arrays = list(evaluate(op, [self._arrays[operand] for operand in op.operands], "typed"))
        else:
            self._without_empty(op)
            return False
        self._arrays.update(zip(op.results, arrays, strict=True))
        return True

    def _without_empty(self, op: LogicalOp) -> None:
        operands = list(op.operands)
        if isinstance(op, ConcatOp):
            operands = [operand for operand in operands if 0 not in tensor_info(operand.type).shape]
        op.operands = [
            self._lowering.write_known(Known(self._arrays[operand])) if operand in self._arrays else operand
            for operand in operands
        ]

    def _name(self, op: Operation, identity: str) -> None:
        set_identity(op, identity, self._src)
        op.results[0].name_hint = value_hint(identity)

    def tensor(self, known: Known) -> SSAValue:
        """The constant of a known tensor; a placeholder of an empty one."""
        if known.array.size:
            return self._lowering.write_known(known)
        value = _placeholder(known.array)
        self._arrays[value] = known.array
        return value

    def inputs_behind(self, index: int) -> list[str]:
        """The inputs of the graph that an operand is computed from at run time."""
        return self._lowering.inputs_behind(self._op.ins[index])

    def run(self, header: Header, body: Region, values: Sequence[Value], part: str) -> list[Value]:
        """Lower the nodes of a graph of the node here."""
        self._lowering.values.update(zip(body.block.args, values, strict=True))
        return self._lowering.run_block(body.block, (*self._parts, part) if part else self._parts)

    def finish(self, results: Sequence[OneResult]) -> list[Value]:
        """What the node gives; the op of the first result is called as the node is."""
        values = [self._value(result) for result in results]
        self._name_first(values)
        return values

    def _value(self, result: OneResult) -> Value:
        match result:
            case SSAValue() if result in self._arrays:
                return Known(self._arrays[result])
            case Items(items):
                return Items(tuple(self._item(item) for item in items))
            case _:
                return _known_if_array(result)

    def _item(self, item: Tensor) -> Tensor:
        if isinstance(item, SSAValue) and item in self._arrays:
            return Known(self._arrays[item])
        return item

    def _name_first(self, results: Sequence[Value]) -> None:
        first = results[0] if results else None
        if isinstance(first, SSAValue) and first.owner in self._own and isinstance(first.owner, Operation):
            self._name(first.owner, self._id)


def _placeholder(array: Array) -> SSAValue:
    """A value of the type of an array, which no op gives."""
    return Block(arg_types=[tensor(array.shape, element_of_dtype(array.dtype))]).args[0]


def _is_empty(op: LogicalOp) -> bool:
    return any(0 in tensor_info(result.type).shape for result in op.results)


def _listed(result: Result) -> list[OneResult]:
    if result is None or isinstance(result, SSAValue | Known | Items | np.ndarray):
        return [result]
    return list(result)


def _known_if_array(result: OneResult) -> Value:
    return Known(result) if isinstance(result, np.ndarray) else result


def _is_known(value: Value) -> bool:
    if isinstance(value, Items):
        return not any(isinstance(item, SSAValue) for item in value.items)
    return not isinstance(value, SSAValue)


def _is_splat(array: Array) -> bool:
    """Whether all elements have the same bits, as far as the layout tells where there are many."""
    if array.size > MAX_FOLDED_ELEMENTS:
        return all(stride == 0 for stride, size in zip(array.strides, array.shape, strict=True) if size > 1)
    raw = array.tobytes()
    return array.size > 0 and raw == raw[: array.itemsize] * array.size


def _fits(array: Array) -> bool:
    return array.size <= MAX_CONSTANT_ELEMENTS or _is_splat(array)
