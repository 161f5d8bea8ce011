"""What a group would be made of: its body, outlined from ops of a function, and what feeds it.

View ops and splat constants that feed it are cloned into it; they cost nothing there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects import func
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.emit import GroupOp, YieldOp
from aicf.errors import InvalidIR
from aicf.passes.bodies.matching import is_coordinates
from aicf.passes.bodies.structure import Structure, structure_of_body
from aicf.passes.bodies.view_folding import reads_in_memory
from aicf.passes.bodies.views import is_view
from aicf.passes.bodies.workload import (
    GroupWorkload,
    argument_attrs,
    origin_of,
    workload_of_body,
)
from aicf.passes.support.identity import op_id, sources, value_hint


def name_of(op: Operation) -> str | None:
    """The id of an op or group; None for what has none, such as the function's return."""
    return op.id.data if isinstance(op, GroupOp) else op_id(op)


def id_of(op: Operation) -> str:
    """The op's id. Raises InvalidIR if `assign-ids` has not run."""
    id_ = op.attributes.get(logical.ID_ATTR)
    if not isinstance(id_, StringAttr):
        raise InvalidIR(f"{op.name} has no {logical.ID_ATTR}; run assign-ids before fusing")
    return id_.data


def sources_of(ops: Sequence[Operation]) -> list[str]:
    """The source ids of several ops, each once, in order."""
    return list(dict.fromkeys(source for op in ops for source in sources(op)))


@dataclass(frozen=True)
class Outline:
    """A possible group: its body, and the values that feed it."""

    id: str
    members: tuple[Operation, ...]
    body: Block
    inputs: tuple[SSAValue, ...]
    results: tuple[SSAValue, ...]

    @cached_property
    def origins(self) -> list[tuple[str, bool]]:
        """What each input is: its role, and whether the program updates it."""
        return [origin_of(value) for value in self.inputs]

    @cached_property
    def structure(self) -> Structure:
        """What it computes of what."""
        return *structure_of_body(self.body), *self.origins

    @cached_property
    def work(self) -> GroupWorkload:
        """What a kernel would have to run."""
        return workload_of_body(self.id, self.body, self.origins)


def is_rematerializable(op: Operation) -> bool:
    """Ops that are cloned into the groups they feed: views, splat constants, and what follows from coordinates."""
    if type(op) is logical.ConstantOp:
        return op.is_splat
    return is_view(op) or is_coordinates(op)


def outline(
    members: Sequence[Operation],
    group_id: str,
    results: Sequence[SSAValue] | None = None,
    given: Collection[Operation] = (),
) -> Outline:
    """The body of `members` (in text order), with their producers cloned before them.

    Args:
        results: What the group gives; by default the one value that others read.
        given: Feeders that are not cloned: they are results of other groups.
    """
    builder = _BodyBuilder(set(members), given)
    for op in members:
        builder.clone(op)
    if results is None:
        read = (
            r for op in members for r in op.results if any(u.operation not in builder.inside for u in r.uses)
        )
        results = [next(read)]
    builder.block.add_op(YieldOp([builder.values[result, False] for result in results]))
    return Outline(group_id, tuple(members), builder.block, tuple(builder.inputs), tuple(results))


class _BodyBuilder:
    """Clones members and their producers.

    What feeds a contraction or concatenation is cloned apart ("strided"): there views become operand strides, and a
    constant is an operand in memory, not a scalar of the generated code.
    """

    def __init__(self, inside: set[Operation], given: Collection[Operation]):
        self.inside = inside
        self.given = given
        self.block = Block()
        self.inputs: list[SSAValue] = []
        self.values: dict[tuple[SSAValue, bool], SSAValue] = {}

    def clone(self, op: Operation, *, strided: bool = False) -> None:
        """Adds a copy of `op` after copies of its producers; `strided` if its consumer reads it through strides."""
        operands = [
            self._inner(operand, strided or reads_in_memory(op, index))
            for index, operand in enumerate(op.operands)
        ]
        clone = op.clone_without_regions(clone_operands=False)
        clone.operands = operands
        inside = op in self.inside
        if not inside or isinstance(op, logical.ConstantOp):
            # A copied producer has no identity of its own: the same constant feeds many groups.
            clone.attributes.pop(logical.ID_ATTR, None)
            clone.attributes.pop(logical.SRC_ATTR, None)
        for old, new in zip(op.results, clone.results, strict=True):
            new.name_hint = old.name_hint
            for key in (False, True) if inside else (strided,):
                self.values[old, key] = new
        self.block.add_op(clone)

    def _inner(self, value: SSAValue, strided: bool) -> SSAValue:
        if (value, strided) not in self.values:
            op = value.op if isinstance(value, OpResult) and value.op not in self.inside else None
            in_memory = strided and isinstance(op, logical.ConstantOp)
            if op is not None and op not in self.given and is_rematerializable(op) and not in_memory:
                self.clone(op, strided=strided)
            else:
                self._add_input(value)
        return self.values[value, strided]

    def _add_input(self, value: SSAValue) -> None:
        if value in self.inputs:
            argument: SSAValue = self.block.args[self.inputs.index(value)]
        else:
            argument = self.block.insert_arg(value.type, len(self.block.args))
            argument.name_hint = argument_hint(value)
            self.inputs.append(value)
        for key in (False, True):
            may_be_scalar = (
                isinstance(value, OpResult) and is_rematerializable(value.op) and value.op not in self.given
            )
            if key or not may_be_scalar:
                self.values[value, key] = argument


def argument_hint(value: SSAValue) -> str | None:
    """Interface values and constants are called by their name and id, whatever the text called them."""
    if isinstance(value.owner, logical.ConstantOp):
        return value_hint(id_of(value.owner))
    function = value.owner.parent_op() if isinstance(value, BlockArgument) else None
    if not isinstance(value, BlockArgument) or not isinstance(function, func.FuncOp):
        return value.name_hint
    name = argument_attrs(function, value.index).get(logical.NAME_ATTR)
    return value.name_hint if name is None else value_hint(name.data)
