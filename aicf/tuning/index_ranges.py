"""Which operands of a group are indices, and into how many elements: the time of gathers and scatters depends on it."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.emit import GroupOp
from aicf.dialects.types import tensor_info

_PASSED_ON = (logical.CastOp, logical.ReshapeOp, logical.BroadcastOp, logical.TransposeOp, logical.SliceOp)
"""Ops whose result has the numbers of their one operand."""


def index_ranges(group: GroupOp) -> Mapping[SSAValue, int]:
    """Each operand that is read as indices, to the number of elements it chooses from; the least of several."""
    ranges: dict[SSAValue, int] = {}
    for op in group.body.block.ops:
        if (found := _indices(op)) is not None:
            value, count = found
            source = _source(value)
            if isinstance(source, BlockArgument):
                given = group.ins[source.index]
                ranges[given] = min(count, ranges.get(given, count))
    return ranges


def _indices(op: Operation) -> tuple[SSAValue, int] | None:
    """The indices that an op reads and how many elements they choose from; None if it reads none."""
    match op:
        case logical.GatherOp() | logical.GatherElementsOp():
            return op.indices, _size(op.operand, op.axis.value.data)
        case logical.ScatterCombineOp():
            return op.indices, _size(op.operand, 0)
        case logical.LastUpdateOp():
            return op.indices, op.rows.value.data
        case logical.WriteRowOp():
            return op.index, _size(op.operand, op.axis.value.data)
        case _:
            return None


def _size(value: SSAValue, axis: int) -> int:
    return tensor_info(value.type).shape[axis]


def _source(value: SSAValue) -> SSAValue:
    while isinstance(value, OpResult) and isinstance(value.op, _PASSED_ON):
        value = value.op.operands[0]
    return value
