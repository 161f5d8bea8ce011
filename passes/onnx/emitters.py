"""Where the ops of an ONNX node go: through the interpreter if all is known, else into the function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from xdsl.ir import Block, Operation, Region, SSAValue

from aicf.dialects import onnx
from aicf.dialects.logical import ConcatOp, LogicalOp
from aicf.dialects.types import tensor_info
from aicf.errors import UnsupportedOp
from aicf.passes.onnx.known import MAX_FOLDED_ELEMENTS, as_value, placeholder
from aicf.passes.onnx.names import node_id
from aicf.passes.onnx.ops import Counted, Header, Items, Known, Lower, Value
from aicf.passes.onnx.ops.base import Array, OneResult, Tensor
from aicf.passes.support.identity import IdTable, derived_id, op_id, set_identity, sources, value_hint
from aicf.semantics import evaluate

MAX_OPS = 1 << 16
"""Most ops that one node becomes, such as the steps of a recurrent layer."""


@dataclass(frozen=True)
class Visit:
    """One node on the way through a graph.

    Args:
        op: The node.
        header: What it is.
        lower: What its row says.
        operands: What its operands are.
        parts: Which runs of the bodies around it this is, outermost first.
    """

    op: onnx.NodeOp
    header: Header
    lower: Lower
    operands: Sequence[Value]
    parts: tuple[str, ...]

    @property
    def path(self) -> str:
        """Names this run of the node: no other one in the program has it."""
        return ".".join([self.header.name, *self.parts])


@dataclass(frozen=True)
class Reader:
    """Whom ops are written for: the stem of their ids, and the sources that they have."""

    id: str
    src: tuple[str, ...]


class Walk(Protocol):
    """What emitters need of the walk through the graph."""

    block: Block
    ids: IdTable
    evaluated: list[str]

    def meta(self, name: str) -> SSAValue | None:
        """A meta of the function that the graph becomes; None in evaluation."""
        ...

    def write_known(self, known: Known, reader: Reader) -> SSAValue:
        """The constant of a known tensor, or the ops that compute it."""
        ...

    def run_body(self, body: Region, values: Sequence[Value], parts: tuple[str, ...]) -> list[Value]:
        """Lower the nodes of a body; what it gives."""
        ...

    def runtime_inputs_of(self, value: SSAValue) -> list[str]:
        """The inputs that a value is computed from at run time."""
        ...

    def inputs_of(self, value: SSAValue) -> list[str]:
        """The inputs that a value of the program is computed from."""
        ...


class NotKnown(Exception):
    """A node is not to be evaluated: what it makes has too many elements, or is another one at each step."""


class _OnWalk:
    """What both emitters tell of the walk."""

    def __init__(self, walk: Walk, visit: Visit) -> None:
        self._walk = walk
        self._op = visit.op
        self._arrays: dict[SSAValue, Array] = {}
        self.path = visit.path

    def runtime_inputs_of(self, index: int) -> list[str]:
        """The inputs of the graph that an operand is computed from at run time."""
        return self._walk.runtime_inputs_of(self._op.ins[index])

    def inputs_of(self, value: SSAValue) -> list[str]:
        """The inputs of the graph that a value of the program is computed from."""
        return self._walk.inputs_of(value)

    def evaluate(self, name: str) -> None:
        """Notes a node that is taken in evaluation."""
        self._walk.evaluated.append(name)


class Folding(_OnWalk):
    """Evaluates the ops of a node instead of writing them."""

    def emit(self, op: LogicalOp, suffix: str) -> None:
        """Evaluate an op.

        Raises:
            NotKnown: it gives too many elements.
        """
        if _elements(op) > MAX_FOLDED_ELEMENTS:
            raise NotKnown
        arrays = _empty_results(op) or evaluate(
            op, [self._arrays[operand] for operand in op.operands], "typed"
        )
        self._arrays.update(zip(op.results, arrays, strict=True))

    def tensor(self, known: Known) -> SSAValue:
        """A placeholder of a known tensor. Raises NotKnown if it has too many elements."""
        if known.array.size > MAX_FOLDED_ELEMENTS:
            raise NotKnown
        value = placeholder(known.array)
        self._arrays[value] = known.array
        return value

    def known(self, result: OneResult) -> Value:
        """What a row gave, as a known value."""
        return _with_known(result, self._arrays)

    def meta(self, name: str) -> SSAValue | None:
        """None in evaluation. Raises NotKnown in training: what follows from a meta is another one at each step."""
        if self._walk.meta(name) is not None:
            raise NotKnown
        return None

    def run(self, header: Header, body: Region, values: Sequence[Value], part: str) -> list[Value]:
        """Raises NotKnown: nodes with bodies are written."""
        raise NotKnown


class Writing(_OnWalk):
    """Writes the ops of a node into the function: called `<node>.<part>`, the one of the first result `<node>`.

    Empty tensors, and what is computed of them alone, are known even so: no op of the program reads them.
    """

    def __init__(self, walk: Walk, visit: Visit) -> None:
        super().__init__(walk, visit)
        self._parts = visit.parts
        stem = op_id(visit.op) or node_id(visit.op)
        for part in visit.parts:
            stem = derived_id(stem, part)
        self._reader = Reader(walk.ids.fresh(stem), sources(visit.op) or (visit.header.name,))
        self._name_of_node = str(visit.header)
        self._own: set[Operation] = set()

    def emit(self, op: LogicalOp, suffix: str) -> None:
        """Append an op, unless what it gives is known because tensors are empty."""
        if (self._arrays or not _elements(op)) and self._evaluated(op):
            return
        op.verify()
        self._own.add(op)
        if len(self._own) > MAX_OPS:
            raise UnsupportedOp(
                f"{self._name_of_node}: it is written out as more than {MAX_OPS} ops; make its sizes smaller"
            )
        self._name(op, self._walk.ids.fresh(derived_id(self._reader.id, suffix)))
        op.location = self._op.location
        self._walk.block.add_op(op)

    def _evaluated(self, op: LogicalOp) -> bool:
        """Whether the results are known; if not, the op is made to read no empty tensors."""
        if empty := _empty_results(op):
            arrays: Sequence[Array] = empty
        elif op.operands and all(operand in self._arrays for operand in op.operands):
            if _elements(op) > MAX_FOLDED_ELEMENTS:
                raise UnsupportedOp(
                    f"{op.name} of empty tensors gives more than {MAX_FOLDED_ELEMENTS} elements"
                )
            arrays = evaluate(op, [self._arrays[operand] for operand in op.operands], "typed")
        else:
            self._without_empty(op)
            return False
        self._arrays.update(zip(op.results, arrays, strict=True))
        return True

    def _without_empty(self, op: LogicalOp) -> None:
        operands = list(op.operands)
        if isinstance(op, ConcatOp):
            operands = [operand for operand in operands if 0 not in tensor_info(operand.type).shape]
        op.operands = [self._written(operand) for operand in operands]

    def _written(self, value: SSAValue) -> SSAValue:
        array = self._arrays.get(value)
        return value if array is None else self._walk.write_known(Known(array), self._reader)

    def _name(self, op: Operation, identity: str) -> None:
        set_identity(op, identity, self._reader.src)
        op.results[0].name_hint = value_hint(identity)

    def tensor(self, known: Known) -> SSAValue:
        """The constant of a known tensor; a placeholder of an empty one."""
        if known.array.size:
            return self._walk.write_known(known, self._reader)
        value = placeholder(known.array)
        self._arrays[value] = known.array
        return value

    def meta(self, name: str) -> SSAValue | None:
        """A meta of the program; None in evaluation."""
        return self._walk.meta(name)

    def run(self, header: Header, body: Region, values: Sequence[Value], part: str) -> list[Value]:
        """Lower the nodes of a body here."""
        return self._walk.run_body(body, values, (*self._parts, part) if part else self._parts)

    def finish(self, results: Sequence[OneResult]) -> list[Value]:
        """What the node gives; the op of the first result is called as the node is."""
        values = [_with_known(result, self._arrays) for result in results]
        first = values[0] if values else None
        first = first.value if isinstance(first, Counted) else first
        if isinstance(first, SSAValue) and isinstance(first.owner, Operation) and first.owner in self._own:
            self._name(first.owner, self._reader.id)
        return values


def _empty_results(op: LogicalOp) -> list[Array]:
    """The results of an op all of which have no elements; none for others. NumPy refuses to compute some of them."""
    infos = [tensor_info(result.type) for result in op.results]
    if not all(0 in info.shape for info in infos):
        return []
    return [np.empty(info.shape, info.element.dtype) for info in infos]


def _elements(op: LogicalOp) -> int:
    """Of the largest result; 0 if one is empty."""
    counts = [math.prod(tensor_info(result.type).shape) for result in op.results]
    return max(counts) if all(counts) else 0


def _with_known(result: OneResult, arrays: dict[SSAValue, Array]) -> Value:
    """What a row gave, with the arrays of what an emitter evaluated."""
    if isinstance(result, Items):
        return Items(tuple(_known_item(item, arrays) for item in result.items))
    return _known_item(result, arrays) if isinstance(result, SSAValue) else as_value(result)


def _known_item(item: Tensor, arrays: dict[SSAValue, Array]) -> Tensor:
    array = arrays.get(item) if isinstance(item, SSAValue) else None
    return item if array is None else Known(array)
