"""What follows from parameters alone: which values of a function do, and which of them are worth being kept.

An analysis; `prepare-parameters` moves what it finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import prod

from xdsl.dialects import func
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.emit import GroupOp
from aicf.dialects.traits import RandomNumbers, Unpacking
from aicf.dialects.types import TensorInfo, tensor_info
from aicf.passes.bodies.outlining import name_of
from aicf.passes.bodies.views import View, is_view
from aicf.passes.bodies.workload import argument_attrs

SMALL_BYTES = 64 * 1024
"""What is smaller is kept whatever it is made of."""

MOST_GROWTH = 2
"""Elementwise results with more elements than so many times their parameters stay where they are read."""


@dataclass(frozen=True)
class Stays:
    """An op that is computed at every call although it follows from parameters alone.

    Args:
        op: It.
        nbytes: Of its results.
        made_of: Bytes of the parameters that it is computed from.
    """

    op: Operation
    nbytes: int
    made_of: int


@dataclass
class ParameterValues:
    """The values of a function that follow from parameters alone, and which of them are to be computed once.

    Args:
        function: It.
        updated: Parameters that any program updates.
        wanted: Ids of ops that a policy groups with what is computed at every call: they stay.
    """

    function: func.FuncOp
    updated: frozenset[str]
    wanted: frozenset[str] = frozenset()
    fixed: dict[SSAValue, frozenset[BlockArgument]] = field(init=False)
    """Values that follow from parameters, constants and coordinates alone, each with its parameters."""
    crossing: dict[OpResult, None] = field(default_factory=dict[OpResult, None])
    """Values to be computed once, which what is computed at every call reads; in the order of their readers."""
    stays: dict[Operation, Stays] = field(default_factory=dict[Operation, Stays])

    def __post_init__(self) -> None:
        self.fixed = dict(self._fixed())
        self._copied = set(self._read_in_one_piece())
        requested: set[SSAValue] = set()
        for op in self.function.body.block.ops:
            if not any(result in self.fixed for result in op.results):
                for operand in op.operands:
                    self._request(operand, requested)

    def _fixed(self) -> Iterator[tuple[SSAValue, frozenset[BlockArgument]]]:
        found: dict[SSAValue, frozenset[BlockArgument]] = {}
        for argument in self.function.args:
            attrs = argument_attrs(self.function, argument.index)
            is_param = attrs[logical.ROLE_ATTR].data == "param"
            if is_param and attrs[logical.NAME_ATTR].data not in self.updated:
                found[argument] = frozenset((argument,))
        for op in self.function.body.block.ops:
            is_made_anew = op.has_trait(RandomNumbers) or op.has_trait(Unpacking)
            if is_made_anew or not all(operand in found for operand in op.operands):
                continue
            params = frozenset[BlockArgument]().union(*(found[operand] for operand in op.operands))
            found |= dict.fromkeys(op.results, params)
        yield from found.items()

    def _read_in_one_piece(self) -> Iterator[SSAValue]:
        """Views that are in memory of their own: what is seen on top of them strides cannot express, or their reader
        takes no strides."""
        views: dict[SSAValue, View] = {}
        for op in self.function.body.block.ops:
            if is_view(op) and op.operands[0] in self.fixed:
                source = op.operands[0]
                view = views.get(source, View.whole(tensor_info(source.type).shape)).then(op)
                if view is None:
                    yield source
                    view = View.whole(tensor_info(op.results[0].type).shape)
                views[op.results[0]] = view
            elif isinstance(op, logical.ConvOp) and not _is_in_one_piece(views.get(op.weight)):
                yield op.weight

    def _request(self, value: SSAValue, requested: set[SSAValue]) -> None:
        """Finds what has to cross for a reader of `value` that is computed at every call."""
        if value in requested or not self.fixed.get(value) or not isinstance(value, OpResult):
            return
        requested.add(value)
        op = value.op
        if value in self._copied or not is_view(op):
            if (stays := self._against(op)) is None:
                self.crossing[value] = None
                return
            self.stays[op] = stays
        for operand in op.operands:
            self._request(operand, requested)

    def _against(self, op: Operation) -> Stays | None:
        """Why an op is computed at every call, if it is."""
        results = [tensor_info(result.type) for result in op.results]
        params = {argument for result in op.results for argument in self.fixed[result]}
        made_of = [tensor_info(argument.type) for argument in params]
        nbytes, made_of_bytes = _bytes(results), _bytes(made_of)
        grown = max(map(_elements, results)) > MOST_GROWTH * sum(map(_elements, made_of))
        is_wanted = not self.wanted.isdisjoint(ids_of(op))
        moves = op.has_trait(logical.IndexedRead) and _in_loops_only(op)
        is_large = (grown or moves) and nbytes > SMALL_BYTES and is_computed_where_read(op)
        if is_wanted or is_large or (_widens(op) and _in_loops_only(op)):
            return Stays(op, nbytes, made_of_bytes)
        return None


def _elements(info: TensorInfo) -> int:
    return prod(info.shape)


def _bytes(infos: Iterable[TensorInfo]) -> int:
    return sum(_elements(info) * info.element.bytes for info in infos)


def _is_in_one_piece(view: View | None) -> bool:
    return view is None or replace(view, offset=0).is_whole


def is_computed_where_read(op: Operation) -> bool:
    """Whether readers may compute an op themselves, so that its result need not be in memory."""
    return op.has_trait(logical.Elementwise) or op.has_trait(logical.IndexedRead)


def _widens(op: Operation) -> bool:
    """Whether an op is a cast that a reader does for nothing, of fewer bytes than it gives."""
    if not isinstance(op, logical.CastOp):
        return False
    return _bytes([tensor_info(op.operands[0].type)]) < _bytes([tensor_info(op.results[0].type)])


def _in_loops_only(op: Operation) -> bool:
    """Whether all that reads an op, through views or not, is elementwise: loops that may compute it themselves."""
    for use in (use for result in op.results for use in result.uses):
        reader = use.operation
        if not (_in_loops_only(reader) if is_view(reader) else reader.has_trait(logical.Elementwise)):
            return False
    return True


def ids_of(op: Operation) -> Iterable[str]:
    """The ids of an op, or of those in a group."""
    inside = op.body.block.ops if isinstance(op, GroupOp) else (op,)
    return [name for each in inside if (name := name_of(each)) is not None]
