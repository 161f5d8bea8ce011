"""Walks a graph of the onnx dialect whose sizes are numbers, and writes the function of logical ops that it becomes.

What each op becomes is the op map's (`passes/onnx/ops`). Here values are followed: a name of the graph stands for a
tensor of the function, or for elements that are known already; a node whose operands are all known and small is
evaluated instead of written (`emitters.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from aicf.dialects import onnx
from aicf.dialects.logical import NAME_ATTR, ROLE_ATTR, START_ATTR, ConstantOp
from aicf.dialects.types import element_of_dtype, tensor, tensor_info
from aicf.errors import InvalidIR, UnsupportedOp
from aicf.passes.onnx.counted import count_results, whole, with_counts
from aicf.passes.onnx.declared import Declarations
from aicf.passes.onnx.emitters import Folding, NotKnown, Reader, Visit, Writing
from aicf.passes.onnx.known import fits, follows_from_weights, is_known, is_splat, listed
from aicf.passes.onnx.names import node_name
from aicf.passes.onnx.ops import Counted, Header, Known, Lower, Node, Value, find_row
from aicf.passes.onnx.ops import Result as Lowered
from aicf.passes.onnx.ops.attributes import Attributes
from aicf.passes.support.identity import IdTable, derived_id, invalid, position_of, set_identity
from aicf.passes.support.interface import Result

MAX_NODES = 1 << 17
"""Most nodes of a graph whose loops are unrolled."""


def lower_graph(
    graph: onnx.GraphOp, ids: IdTable, declarations: Declarations, *, training: bool = False
) -> tuple[FuncOp, tuple[str, ...]]:
    """The function that a graph becomes, and the names of nodes in training mode that are taken in evaluation.

    Args:
        graph: Its inputs have numbers as sizes.
        ids: Of the module.
        declarations: Is told what nodes give.
        training: Whether they are not, and random numbers follow from metas.

    Raises:
        InvalidIR: a node contradicts the types of its operands, or, where that is an error, what is declared.
        UnsupportedOp: an op has no row, or its result's shape is only known at run time.
    """
    declarations.take(graph)
    lowering = _GraphLowering(graph, ids, declarations, training)
    return lowering.run(), tuple(dict.fromkeys(lowering.evaluated))


class _GraphLowering:
    """The state of one walk."""

    def __init__(self, graph: onnx.GraphOp, ids: IdTable, declarations: Declarations, training: bool) -> None:
        self.graph = graph
        self.ids = ids
        self.training = training
        self.evaluated: list[str] = []
        self._declarations = declarations
        self.block = Block()
        self._values: dict[SSAValue, Value] = {}
        self._constants: dict[int, tuple[Known, SSAValue]] = {}
        """By the identity of what is known, which stays alive here."""
        self._added: list[DictionaryAttr] = []
        """What the function says of arguments that are none of the graph: its named constants, and metas."""
        self._metas: dict[str, SSAValue] = {}
        self._versions = graph.versions
        self._count = 0

    def run(self) -> FuncOp:
        """The function."""
        for index in range(len(self.graph.block.args)):
            self._take_argument(index)
        values = self._run_block(self.graph.block, ())
        names = [name.data for name in self.graph.result_names]
        results = [
            Result(self._result(name, value), {NAME_ATTR: StringAttr(name)})
            for name, value in zip(names, values, strict=True)
        ]
        results += count_results(names, values)
        self.block.add_op(ReturnOp(*(result.value for result in results)))
        return self._function(results)

    def _take_argument(self, index: int) -> None:
        """An argument of the function for one of the graph. An empty one is known, and has no reader."""
        info = self.graph.argument_info(index)
        type_ = info.with_sizes(info.sizes)
        try:
            tensor_info(type_)
        except VerifyException as error:
            raise InvalidIR(f"input '{self.graph.argument_name(index)}': {error}") from error
        old = self.graph.block.args[index]
        new = self.block.insert_arg(type_, index)
        new.name_hint = old.name_hint
        empty = 0 in info.shape
        self._values[old] = Known(np.empty(info.shape, info.element.dtype)) if empty else new

    def _result(self, name: str, value: Value) -> SSAValue:
        if isinstance(value, Known):
            try:
                return self.write_known(value, None)
            except VerifyException as error:
                raise InvalidIR(f"result '{name}': {error}") from error
        if isinstance(value, SSAValue):
            return value
        if isinstance(value, Counted):
            return value.value
        kind = "an optional value that is absent" if value is None else "a sequence"
        raise UnsupportedOp(f"result '{name}' is {kind}; a program gives tensors: take it apart in the model")

    def _constant_value(self, op: onnx.ConstantOp) -> Known:
        """A constant; one with a name is a parameter where the program reads it."""
        if op.weight is None:
            return Known(op.array)
        name = op.weight

        def write() -> SSAValue:
            type_ = tensor(op.array.shape, element_of_dtype(op.array.dtype))
            argument = self._add_argument(type_, {NAME_ATTR: name, ROLE_ATTR: StringAttr(onnx.PARAM)})
            argument.name_hint = op.result.name_hint
            return argument

        return Known(op.array, write, is_weight=bool(op.array.size))

    def _add_argument(self, type_: Attribute, entry: Mapping[str, Attribute]) -> BlockArgument:
        self._added.append(DictionaryAttr(dict(entry)))
        return self.block.insert_arg(type_, len(self.block.args))

    def meta(self, name: str) -> SSAValue | None:
        """A meta that random numbers follow from in training, an i64 that starts with 0; None in evaluation.

        Raises:
            InvalidIR: something else of the model has its name.
        """
        if not self.training:
            return None
        if name not in self._metas:
            if name in self._argument_names():
                raise InvalidIR(
                    f"'{name}' of '{self.graph.sym_name.data}' is the name of the meta that its random numbers follow "
                    "from in training; give it another one"
                )
            start = ConstantOp(0, tensor([], "i64")).value
            entry = {NAME_ATTR: StringAttr(name), ROLE_ATTR: StringAttr("meta"), START_ATTR: start}
            self._metas[name] = self._add_argument(tensor([], "i64"), entry)
            self._metas[name].name_hint = name
        return self._metas[name]

    def _argument_names(self) -> set[str]:
        of_graph = (self.graph.argument_name(index) for index in range(len(self.graph.block.args)))
        weights = (
            op.weight.data
            for op in self.graph.walk()
            if isinstance(op, onnx.ConstantOp) and op.weight is not None
        )
        return {*of_graph, *weights}

    # Nodes

    def _run_block(self, block: Block, parts: tuple[str, ...]) -> list[Value]:
        """Lower the nodes of a graph; what it yields. `parts` says which run of which bodies it is."""
        for op in block.ops:
            match op:
                case onnx.ConstantOp():
                    self._values[op.result] = self._constant_value(op)
                case onnx.NoneOp():
                    self._values[op.result] = None
                case onnx.YieldOp():
                    return [self._values[value] for value in op.values]
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
        operands = [self._values[operand] for operand in op.ins]
        lower = with_counts(_lower_of(op, header), operands)
        visit = Visit(op, header, lower, list(map(whole, operands)), parts)
        results = self._fold(visit)
        if results is None:
            results = self._write(visit)
        if any(result.first_use for result in op.outs[len(results) :]):
            raise UnsupportedOp(
                f"{header}: it has {len(op.outs)} outputs, of which {len(results)} are supported",
                location=position_of(op),
            )
        self._declarations.check(op, header, results)
        self._values.update(zip(op.outs, results, strict=False))

    def _header(self, op: onnx.NodeOp) -> Header:
        domain, name = op.domain_name, node_name(op)
        opset = self._versions.get(domain) if op.opset is None else op.opset.value.data
        if opset is None:
            shown = domain or "ai.onnx"
            raise InvalidIR(f"{op.op_type.data} '{name}': the graph has no opset of domain '{shown}'")
        outputs = tuple(result.first_use is not None for result in op.outs)
        attributes = Attributes(op.attrs.data)
        return Header(op.op_type.data, domain, name, opset, attributes, op.graphs, outputs, self.training)

    def run_body(self, body: Region, values: Sequence[Value], parts: tuple[str, ...]) -> list[Value]:
        """Lower the nodes of a body of a node; what it gives."""
        self._values.update(zip(body.block.args, values, strict=True))
        return self._run_block(body.block, parts)

    def _fold(self, visit: Visit) -> list[Value] | None:
        """The results of a node whose operands are known, None if it has to be written."""
        if visit.header.bodies or not all(map(is_known, visit.operands)):
            return None
        folding = Folding(self, visit)
        try:
            known = [folding.known(result) for result in listed(_called(visit, folding))]
        except NotKnown:
            return None
        return [self._writable(value, visit, index) for index, value in enumerate(known)]

    def _writable(self, value: Value, visit: Visit, index: int) -> Value:
        """A known result that can still be written: too large for a constant of the program, or made of weights."""
        if not isinstance(value, Known) or value.is_weight:
            return value
        is_weight = follows_from_weights(value, visit.operands)
        if fits(value.array) and not is_weight:
            return value

        def write() -> SSAValue:
            written = self._write(visit)[index]
            if isinstance(written, SSAValue):
                return written
            if isinstance(written, Known) and fits(written.array):
                return self.write_known(written, None)
            raise UnsupportedOp(
                f"{visit.header}: its result is known, and its {value.array.size} elements are too many for a constant "
                "of the program; make it an initializer of the model",
                location=position_of(visit.op),
            )

        return Known(value.array, write, is_weight)

    def _write(self, visit: Visit) -> list[Value]:
        writing = Writing(self, visit)
        return writing.finish(listed(_called(visit, writing)))

    # Constants

    def write_known(self, known: Known, reader: Reader | None) -> SSAValue:
        """The constant of a known tensor, or the ops that compute it; each is written once, for its first reader."""
        if id(known) not in self._constants:
            is_written = known.is_weight or not fits(known.array)
            write = known.write if is_written else None
            value = self._constant(known, reader) if write is None else write()
            self._constants[id(known)] = (known, value)
        return self._constants[id(known)][1]

    def _constant(self, known: Known, reader: Reader | None) -> SSAValue:
        array = known.array
        value = array.reshape(-1)[0] if is_splat(array) else array if array.size else 0
        op = ConstantOp(value, tensor(array.shape, element_of_dtype(array.dtype)))
        op.verify()
        identity = self.ids.fresh("constant" if reader is None else derived_id(reader.id, "constant"))
        set_identity(op, identity, [identity] if reader is None else reader.src)
        self.block.add_op(op)
        return op.result

    # Errors

    def runtime_inputs_of(self, value: SSAValue) -> list[str]:
        """The inputs of the graph that a value is computed from at run time, in their order."""
        seen: set[SSAValue] = set()
        pending = [value]
        while pending:
            current = pending.pop()
            if current in seen or is_known(self._values.get(current)):
                continue
            seen.add(current)
            owner = current.owner
            node = owner.parent_op() if isinstance(owner, Block) else owner
            if isinstance(node, onnx.NodeOp):
                pending.extend(operand for inner in node.walk() for operand in inner.operands)
        return self._inputs_among(seen, self.graph.block)

    def inputs_of(self, value: SSAValue) -> list[str]:
        """The inputs of the graph that a value of the program is computed from, in their order."""
        seen: set[SSAValue] = set()
        pending = [value]
        while pending:
            current = pending.pop()
            if current not in seen and isinstance(current.owner, Operation):
                pending.extend(current.owner.operands)
            seen.add(current)
        return self._inputs_among(seen, self.block)

    def _inputs_among(self, values: set[SSAValue], block: Block) -> list[str]:
        """Names of the inputs whose arguments of a block, the graph's or the program's, are among the values."""
        arguments = zip(block.args, range(len(self.graph.block.args)), strict=False)
        return [
            self.graph.argument_name(index)
            for argument, index in arguments
            if argument in values and self.graph.is_input(index)
        ]

    # The function

    def _function(self, results: Sequence[Result]) -> FuncOp:
        entries = [
            DictionaryAttr({key: entry.data[key] for key in (NAME_ATTR, ROLE_ATTR)})
            for entry in self.graph.arg_attrs
        ]
        for index in reversed(range(len(entries))):
            if self.block.args[index].first_use is None and not self.graph.is_input(index):
                self.block.erase_arg(self.block.args[index])
                del entries[index]
        entries += self._added
        function = FuncOp(
            self.graph.sym_name.data,
            ([argument.type for argument in self.block.args], [result.value.type for result in results]),
            Region(self.block),
            arg_attrs=ArrayAttr(entries),
            res_attrs=ArrayAttr(DictionaryAttr(dict(result.attrs)) for result in results),
        )
        function.location = self.graph.location
        return function


def _lower_of(op: onnx.NodeOp, header: Header) -> Lower:
    row = find_row(header.op_type, header.domain, header.opset)
    if row is None:
        raise UnsupportedOp(
            f"op '{header.op_type}' of domain '{header.domain or 'ai.onnx'}' opset {header.opset} is not supported "
            f"(node '{header.name}'); replace it by ops of docs/onnx-support.md",
            location=position_of(op),
        )
    return row.lower


def _called(visit: Visit, emitter: Folding | Writing) -> Lowered:
    try:
        return visit.lower(Node(visit.header, visit.operands, emitter))
    except (VerifyException, ValueError, ArithmeticError) as error:
        raise InvalidIR(f"{visit.header}: {error}", location=position_of(visit.op)) from error
    except IndexError as error:
        raise InvalidIR(
            f"{visit.header}: an operand or attribute has fewer dimensions or entries than the op takes ({error})",
            location=position_of(visit.op),
        ) from error
    except MemoryError as error:
        raise UnsupportedOp(
            f"{visit.header}: working out what it gives takes more memory than there is; make its sizes smaller",
            location=position_of(visit.op),
        ) from error
