"""Pointwise ops after a reshape of a computed value: they are computed in the shape that it was computed in.

Ops on different sides of a reshape are different instructions. An activation that follows the channels of a group norm,
which is computed with its groups as a dimension, becomes part of the norm so.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint
from xdsl.traits import OpTrait

from aicf.dialects.dims import Size
from aicf.dialects.logical import (
    BroadcastOp,
    Composite,
    ConstantOp,
    Contraction,
    Elementwise,
    LogicalOp,
    Reduction,
    ReshapeOp,
)
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.matching import is_iota_like
from aicf.passes.support.identity import derived_id, op_id, replace_with_op, set_identity, sources


class ReshapeAfterPointwise(RewritePattern):
    """A reshape of what an op computes, read by pointwise ops alone that read nothing else but single numbers: these
    ops come first, unless a pointwise op or a reduction follows them, which they are part of as it is."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReshapeOp, rewriter: PatternRewriter, /) -> None:
        producer = op.operand.owner
        if not isinstance(producer, Operation) or not _has(producer, Elementwise, Reduction, Contraction):
            return
        if is_iota_like(op.operand):
            return  # what is made of coordinates is reshaped where they are, see `iotas.py`
        region = _region_of(op)
        if region is None:
            return
        moved: dict[SSAValue, SSAValue] = {op.result: op.operand}
        for each in region:
            _move(each, moved, op, rewriter)
        last = region[-1]
        shape = ReshapeOp(moved[last.results[0]], op.info.sizes)
        identity, src, location = op_id(op), sources(op), op.location
        replace_with_op(rewriter, last, shape)
        set_identity(shape, identity, src)
        shape.location = location
        for each in (*reversed(region[:-1]), op):
            rewriter.erase(each)


def _region_of(reshape: ReshapeOp) -> list[LogicalOp] | None:
    """The pointwise ops that hang on a reshape, each after what it reads; None if others read the reshape or any of
    them but the last, or what reads that is pointwise, too."""
    inside, region = {reshape.result}, list[LogicalOp]()
    waiting = _readers(reshape.result)
    while waiting:
        op = waiting.pop()
        if op in region or not isinstance(op, LogicalOp) or not _may_move(op, inside):
            continue
        region.append(op)
        inside.add(op.results[0])
        waiting += _readers(op.results[0])
    if not region:
        return None
    *inner, last = (reshape, *region)
    if any(user not in region for op in inner for user in _readers(op.results[0])):
        return None
    users = _readers(last.results[0])
    joins = any(_has(user, Elementwise, Reduction) or _is_composite(user) for user in users)
    return None if joins or not users else region


def _readers(value: SSAValue) -> list[Operation]:
    return [use.operation for use in value.uses]


def _is_composite(op: Operation) -> bool:
    """Whether an op may be expanded into pointwise ones that read its operand."""
    return op.has_trait(Composite) and not op.has_trait(Contraction)


def _has(op: Operation, *traits: type[OpTrait]) -> bool:
    return any(map(op.has_trait, traits))


def _may_move(op: LogicalOp, inside: Set[SSAValue]) -> bool:
    """Whether an op is pointwise, and reads nothing but what is inside and single numbers."""
    return _has(op, Elementwise) and all(value in inside or _is_number(value) for value in op.operands)


def _is_number(value: SSAValue) -> bool:
    """Whether all elements of a value are one number, which may be repeated to any shape."""
    match value.owner:
        case ConstantOp() as constant:
            return constant.is_splat
        case BroadcastOp() as broadcast:
            return tensor_info(broadcast.operand.type).rank == 0
        case _:
            return False


def _move(
    op: LogicalOp, moved: dict[SSAValue, SSAValue], reshape: ReshapeOp, rewriter: PatternRewriter
) -> None:
    """Computes an op in the shape of what is reshaped."""
    sizes = tensor_info(reshape.operand.type).sizes
    operands: list[SSAValue] = []
    for number, value in enumerate(op.operands):
        if value not in moved:
            moved[value] = _repeated(value, sizes, op, number, rewriter)
        operands.append(moved[value])
    result = tensor_info(op.results[0].type).with_sizes(sizes)
    new = type(op).create(
        operands=operands, result_types=[result], properties=op.properties, attributes=op.attributes
    )
    new.location, new.results[0].name_hint = op.location, op.results[0].name_hint
    rewriter.insert(new, InsertPoint.before(op))
    moved[op.results[0]] = new.results[0]


def _repeated(
    value: SSAValue, sizes: Sequence[Size], reader: Operation, number: int, rewriter: PatternRewriter
) -> SSAValue:
    """Operand `number` of `reader`, all of whose elements are one number, with other sizes."""
    owner = value.owner
    if isinstance(owner, ConstantOp):
        new = ConstantOp(owner.array, tensor_info(value.type).with_sizes(sizes))
    else:
        assert isinstance(owner, BroadcastOp)
        new = BroadcastOp(owner.operand, [], sizes)
    identity = op_id(reader)
    set_identity(
        new, None if identity is None else derived_id(identity, f"number{number or ''}"), sources(owner)
    )
    new.location = owner.location
    rewriter.insert(new, InsertPoint.before(reader))
    return new.results[0]
