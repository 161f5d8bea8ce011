"""Casts around reshapes: elements are wide for as short a way as possible, from who computes them to who reads them.

Ops on different sides of a reshape are different instructions, so what is between them is in memory. These rewrites
have it narrow there, and the cast is done in registers by the neighbour on its side.
"""

from __future__ import annotations

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint
from xdsl.traits import OpTrait

from aicf.dialects.logical import CastOp, Composite, Contraction, Elementwise, LogicalOp, Reduction, ReshapeOp
from aicf.dialects.types import element_of
from aicf.passes.support.identity import op_id, replace_with_op, set_identity, sources


class NarrowBeforeReshape(RewritePattern):
    """A cast to fewer bytes of what is reshaped after an op that could do the cast: that is cast before."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: CastOp, rewriter: PatternRewriter, /) -> None:
        reshape = op.operand.owner
        if not isinstance(reshape, ReshapeOp) or not op.operand.has_one_use() or _growth(op) >= 0:
            return
        producer = reshape.operand.owner
        if isinstance(producer, Operation) and _has(producer, Elementwise, Reduction, Contraction):
            cast = CastOp(reshape.operand, element_of(op.result.type))
            _swap(reshape, op, cast, ReshapeOp(cast.result, reshape.info.sizes), rewriter)


class WidenAfterReshape(RewritePattern):
    """A reshape of what is cast to more bytes, for ops that could do the cast: that is cast after."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReshapeOp, rewriter: PatternRewriter, /) -> None:
        cast = op.operand.owner
        if not isinstance(cast, CastOp) or not op.operand.has_one_use() or _growth(cast) <= 0:
            return
        readers = [use.operation for use in op.result.uses]
        widen = (Elementwise, Reduction, Composite)
        if readers and all(_has(each, *widen) and not _has(each, Contraction) for each in readers):
            reshape = ReshapeOp(cast.operand, op.info.sizes)
            _swap(cast, op, reshape, CastOp(reshape.result, element_of(op.result.type)), rewriter)


def _has(op: Operation, *traits: type[OpTrait]) -> bool:
    return any(map(op.has_trait, traits))


def _growth(cast: CastOp) -> int:
    """By how many bytes an element grows."""
    return element_of(cast.result.type).dtype.itemsize - element_of(cast.operand.type).dtype.itemsize


def _swap(
    first: LogicalOp,
    second: LogicalOp,
    new_first: LogicalOp,
    new_second: LogicalOp,
    rewriter: PatternRewriter,
) -> None:
    """Puts two ops in the place of two others that do the same in the other order; each keeps id and location."""
    own, src, location = op_id(first), sources(first), first.location
    set_identity(new_first, op_id(second), sources(second))
    new_first.location = second.location
    rewriter.insert(new_first, InsertPoint.before(second))
    replace_with_op(rewriter, second, new_second)
    set_identity(new_second, own, src)
    new_second.location = location
    rewriter.erase(first)
