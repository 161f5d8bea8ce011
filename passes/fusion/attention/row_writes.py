"""Rows that are written into keys and values before an attention, as a step of a decoder writes its state.

A program writes the row into its state as it lies, and attention sees the state by heads, through views. Here both are
found among the ops of a function, and in the body of a group the write moves after the views: then it writes into keys
as attention reads them, and the state is a view of its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Block, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.attention import Attention, without_groups
from aicf.passes.bodies.views import View, is_rearrangement
from aicf.passes.support.identity import sources

_READERS = (logical.MatmulOp, logical.BroadcastOp)
"""What reads keys and values by heads: a product, or what repeats them for it."""


@dataclass(frozen=True)
class RowWrite:
    """What writes a row into keys or values.

    Args:
        write: The op.
        views: Those through which attention reads what it gives, in order; the last may repeat it for the queries that
            share it.
        other_views: Those through which all other ops read it.
    """

    write: logical.WriteRowOp
    views: tuple[Operation, ...]
    other_views: tuple[Operation, ...]

    @property
    def result(self) -> OpResult:
        """What is read beside the attention."""
        return self.other_views[-1].results[0] if self.other_views else self.write.result


def row_writes(attention: Attention) -> tuple[RowWrite, RowWrite] | None:
    """The writes of a row, the same one, into the keys and into the values that attention reads; None if either is
    given or keys are scaled first, or something else reads them by heads."""
    if attention.keys[0] is not attention.scores:
        return None
    keys, values = (_write_of(value) for value in (attention.scores.rhs, attention.output.rhs))
    if keys is None or values is None or keys.write.index is not values.write.index:
        return None
    return keys, values


def _write_of(value: SSAValue) -> RowWrite | None:
    groups = value.owner if value.has_one_use() and without_groups(value) is not value else None
    value = value if groups is None else without_groups(value)
    views: list[Operation] = []
    while isinstance(value, OpResult) and is_rearrangement(value.op) and value.has_one_use():
        views.append(value.op)
        value = value.op.operands[0]
    if not isinstance(value, OpResult) or not isinstance(value.op, logical.WriteRowOp) or value.op.rows > 1:
        return None
    repeated = (groups,) if isinstance(groups, Operation) else ()
    return RowWrite(value.op, (*reversed(views), *repeated), () if views else _views_after(value))


def _views_after(value: OpResult) -> tuple[Operation, ...]:
    """The views between a write that attention reads as it is and the one other reader."""
    moved: list[Operation] = []
    readers = [use.operation for use in value.uses if not isinstance(use.operation, _READERS)]
    while len(readers) == 1 and is_rearrangement(readers[0]):
        moved.append(readers[0])
        readers = [use.operation for use in readers[0].results[0].uses]
    return tuple(moved)


def move_after_views(body: Block) -> None:
    """In a body that yields the results of its writes, moves each write after the views between it and a product."""
    for write in [op for op in body.ops if isinstance(op, logical.WriteRowOp)]:
        views = _views_before(write)
        axes = _axes(write, views)
        if views and axes is not None:
            _move(write, views, axes, body)


def _views_before(write: logical.WriteRowOp) -> list[Operation]:
    """The views between a write and a product."""
    views: list[Operation] = []
    value: OpResult = write.result
    while (reader := _view_of(value)) is not None:
        views.append(reader)
        value = reader.results[0]
    return views if any(isinstance(use.operation, _READERS) for use in value.uses) else []


def _view_of(value: SSAValue) -> Operation | None:
    return next((use.operation for use in value.uses if is_rearrangement(use.operation)), None)


def _axes(write: logical.WriteRowOp, views: Sequence[Operation]) -> list[int] | None:
    """Where the axis of the write is after each of the views; None if one of them splits or joins it, or moves the
    leading dimensions that the index has."""
    info, axis = write.info, write.axis.value.data
    view: View | None = View.whole(info.shape)
    steps, rank = list(zip(view.shape, view.strides, strict=True)), tensor_info(write.index.type).rank
    leading, wanted = steps[:rank], steps[axis]
    found: list[int] = []
    for op in views:
        view = None if view is None else view.then(op)
        steps = [] if view is None else list(zip(view.shape, view.strides, strict=True))
        if wanted not in steps or steps[:rank] != leading:
            return None
        found.append(steps.index(wanted))
    return found


def _move(write: logical.WriteRowOp, views: Sequence[Operation], axes: Sequence[int], body: Block) -> None:
    def add(op: LogicalOp, before: Operation) -> SSAValue:
        body.insert_op_before(op, before)
        return op.results[0]

    last, next_op = views[-1], views[-1].next_op
    assert next_op is not None
    keys, row = write.operand, write.row
    for op, axis in zip(views, axes, strict=True):
        keys = add(_view(op, keys, tensor_info(op.results[0].type).shape), next_op)
        shape = list(tensor_info(op.results[0].type).shape)
        shape[axis] = 1
        row = add(_view(op, row, shape), next_op)
    moved = logical.WriteRowOp(row, write.index, keys, axes[-1])
    moved.attributes |= write.attributes
    moved.attributes[logical.SRC_ATTR] = ArrayAttr([StringAttr(name) for name in _sources((write, *views))])
    moved.result.name_hint = write.result.name_hint
    body.insert_op_before(moved, next_op)
    last.results[0].replace_all_uses_with(moved.result)
    state: SSAValue = moved.result
    for op in reversed(views):
        assert body.last_op is not None
        state = add(_undone(op, state), body.last_op)
    write.result.replace_uses_with_if(state, lambda use: use.operation is body.last_op)
    for op in (*reversed(views), write):
        op.detach()
        op.erase()


def _sources(ops: Sequence[Operation]) -> list[str]:
    return list(dict.fromkeys(name for op in ops for name in sources(op)))


def _view(op: Operation, of: SSAValue, shape: Sequence[int]) -> LogicalOp:
    """The same view of another value, which it gives `shape`."""
    if isinstance(op, logical.TransposeOp):
        return logical.TransposeOp(of, op.permutation.get_values())
    return logical.ReshapeOp(of, shape)


def _undone(op: Operation, of: SSAValue) -> LogicalOp:
    """The view that takes a view back."""
    if isinstance(op, logical.TransposeOp):
        permutation = list(op.permutation.get_values())
        return logical.TransposeOp(of, [permutation.index(dim) for dim in range(len(permutation))])
    return logical.ReshapeOp(of, tensor_info(op.operands[0].type).shape)
