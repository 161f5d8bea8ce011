"""Rotary positions before a step of attention: found among the ops of a function, and in the body of a group written as
kernels read them, with queries and the new key by heads before they are turned.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, Operation, SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.attention import Attention
from aicf.passes.bodies.rotation import HALVES, Rotation, rotation_of
from aicf.passes.fusion.attention.row_writes import RowWrite


def rotations(attention: Attention, writes: Sequence[RowWrite]) -> tuple[Rotation, Rotation] | None:
    """What turns the queries and the new key of an attention, in the same pairs; None if either is given."""
    if attention.queries[0] is not attention.scores:
        return None
    query, key = rotation_of(attention.scores.lhs), rotation_of(writes[0].write.row)
    return (query, key) if query is not None and key is not None and query.pairs == key.pairs else None


def turn_by_heads(body: Block) -> None:
    """Moves the views after each rotation of a body before it, but for one that joins the pairs of a head."""
    (scores,) = (op for op in body.ops if isinstance(op, logical.MatmulOp) and op.transpose_b is not None)
    writes = [op for op in body.ops if isinstance(op, logical.WriteRowOp)]
    for value in (scores.lhs, writes[0].row):
        found = rotation_of(value)
        if found is not None and (views := found.by_heads) is not None:
            _move(found, views, value, body)
    for op in reversed(list(body.ops)):
        if op.results and op.results[0].first_use is None:
            body.erase_op(op)


def _move(found: Rotation, views: Sequence[Operation], value: SSAValue, body: Block) -> None:
    """Computes `value`, the last of the views of a rotation, from what was by heads already."""

    def by_heads(source: SSAValue) -> SSAValue:
        for view in views:
            source = add(_with_pairs(view, source))
        return source

    def add(op: LogicalOp, like: Operation | None = None) -> SSAValue:
        if like is not None:
            op.attributes |= like.attributes
            op.results[0].name_hint = like.results[0].name_hint
        body.insert_op_before(op, found.total)
        return op.results[0]

    given, cosines, sines = (by_heads(op.operands[index]) for op, index in found.reads)
    pairs = given
    if found.casts is not None:
        pairs = add(logical.CastOp(given, tensor_info(found.flip.result.type).element), found.casts.widened)
    axis = tensor_info(pairs.type).rank - (2 if found.pairs == HALVES else 1)
    kept = add(logical.MulOp(pairs, cosines), found.kept)
    turned = add(logical.MulOp(add(logical.FlipOp(pairs, [axis]), found.flip), sines), found.turned)
    rotated = add(logical.AddOp(kept, turned), found.total)
    if found.casts is not None:
        element = tensor_info(found.casts.narrowed.result.type).element
        rotated = add(logical.CastOp(rotated, element), found.casts.narrowed)
    joined = add(logical.ReshapeOp(rotated, tensor_info(value.type).shape), found.views[0])
    value.replace_all_uses_with(joined)


def _with_pairs(view: Operation, of: SSAValue) -> LogicalOp:
    """A view of what has the elements of a head joined, as one of what has its pairs as a dimension."""
    if isinstance(view, logical.TransposeOp):
        order = list(view.permutation.get_values())
        return logical.TransposeOp(of, [*order, len(order)])
    *outer, _ = tensor_info(view.results[0].type).shape
    return logical.ReshapeOp(of, (*outer, *tensor_info(of.type).shape[-2:]))
