"""``logical-canonicalize``: one form for what can be written in several, by rewrites that change no bit.

Views that change nothing disappear, chains of views become one, and so do double negation and arithmetic with
the neutral element. A gather at indices that are known is a slice where they are evenly spaced. A pad that a
pooling or convolution could say itself is its padding. ``x + 0`` of floats is not among them: it turns -0.0 into
0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint

from aicf.dialects.dims import Size
from aicf.dialects.logical import (
    WHOLE,
    AddOp,
    AvgPoolOp,
    BinaryOp,
    BroadcastOp,
    CastOp,
    ConcatOp,
    ConstantOp,
    ConvOp,
    DivOp,
    GatherOp,
    LogicalOp,
    MaxPoolOp,
    MulOp,
    NegOp,
    ReshapeOp,
    SliceOp,
    SubOp,
    TransposeOp,
    WindowOp,
    int_values,
)
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.bodies.views import View
from aicf.passes.logical.iotas import ReshapeOfIotas, ViewOfIota
from aicf.passes.logical.merged_rows import KeepRowsApart
from aicf.passes.logical.pads import TakePadIn
from aicf.passes.logical.reshaped_casts import NarrowBeforeReshape, WidenAfterReshape
from aicf.passes.logical.reshaped_pointwise import ReshapeAfterPointwise
from aicf.passes.logical.saturating_casts import CastWithoutBounds
from aicf.passes.support.greedy import PatternTable, apply_patterns
from aicf.passes.support.identity import (
    derived_id,
    op_id,
    replace_with_op,
    replace_with_value,
    set_identity,
    sources,
)
from aicf.passes.support.works_on import FUNCTIONS


class RemoveIdentity(RewritePattern):
    """A view or cast that gives its operand's very type changes nothing (a transposition is another pattern's)."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if len(op.operands) == 1 and op.operands[0].type == op.results[0].type:
            replace_with_value(rewriter, op, op.operands[0])


class RemoveIdentityTranspose(RewritePattern):
    """A permutation that moves dimensions of size 1 only is a reshape, or nothing."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: TransposeOp, rewriter: PatternRewriter, /) -> None:
        sizes = tensor_info(op.operand.type).sizes
        moved = [dim for dim in int_values(op.permutation) if sizes[dim] != 1]
        if moved != sorted(moved):
            return
        if op.operand.type == op.result.type:
            replace_with_value(rewriter, op, op.operand)
        else:
            replace_with_op(rewriter, op, ReshapeOp(op.operand, op.info.sizes))


class BroadcastToReshape(RewritePattern):
    """A broadcast that repeats nothing only adds dimensions of size 1."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: BroadcastOp, rewriter: PatternRewriter, /) -> None:
        targets = int_values(op.dimensions)
        if any(isinstance(use.operation, LogicalOp) for use in op.result.uses):
            return  # to whoever computes with it, a broadcast row says more than a reshaped one
        if tensor_info(op.operand.type).elements == op.info.elements and list(targets) == sorted(targets):
            replace_with_op(rewriter, op, ReshapeOp(op.operand, op.info.sizes))


class WindowToReshape(RewritePattern):
    """Windows that leave every element where it is: of one element each, or one of all."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: WindowOp, rewriter: PatternRewriter, /) -> None:
        info = tensor_info(op.operand.type)
        view = View.whole(info.shape).then(op) if info.is_static else None
        if view is not None and view.is_whole and tensor_info(op.operand.type).elements == op.info.elements:
            replace_with_op(rewriter, op, ReshapeOp(op.operand, op.info.sizes))


class MergeReshapes(RewritePattern):
    """reshape of reshape: only the last shape matters."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReshapeOp, rewriter: PatternRewriter, /) -> None:
        inner = op.operand.owner
        if isinstance(inner, ReshapeOp):
            replace_with_op(rewriter, op, ReshapeOp(inner.operand, op.info.sizes), inner)


class MergeTransposes(RewritePattern):
    """transpose of transpose: the composed permutation."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: TransposeOp, rewriter: PatternRewriter, /) -> None:
        inner = op.operand.owner
        if isinstance(inner, TransposeOp):
            first = int_values(inner.permutation)
            composed = [first[axis] for axis in int_values(op.permutation)]
            replace_with_op(rewriter, op, TransposeOp(inner.operand, composed), inner)


class TransposeBetweenReshapes(RewritePattern):
    """Dimensions that are joined, moved and taken apart again as they were: a transposition of them as they are."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReshapeOp, rewriter: PatternRewriter, /) -> None:
        moved = op.operand.owner
        joined = moved.operand.owner if isinstance(moved, TransposeOp) else None
        if not isinstance(moved, TransposeOp) or not isinstance(joined, ReshapeOp):
            return
        sizes = tensor_info(joined.operand.type).sizes
        runs = _runs(sizes, joined.info.sizes)
        if runs is None:
            return
        permutation = [dim for run in int_values(moved.permutation) for dim in runs[run]]
        if tuple(sizes[dim] for dim in permutation) == op.info.sizes:
            replace_with_op(rewriter, op, TransposeOp(joined.operand, permutation), moved, joined)


def _runs(sizes: Sequence[Size], joined: Sequence[Size]) -> list[range] | None:
    """The dims of `sizes` that each dim of `joined` is made of; None if it is not of neighbours that are joined, or a
    size is not known."""
    runs: list[range] = []
    end = 0
    for size in joined:
        start, found = end, 1
        while end < len(sizes) and isinstance(each := sizes[end], int) and (found != size or each == 1):
            found, end = found * each, end + 1
        if found != size:
            return None
        runs.append(range(start, end))
    return runs if end == len(sizes) else None


class MergeBroadcasts(RewritePattern):
    """broadcast of broadcast: the composed dimensions."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: BroadcastOp, rewriter: PatternRewriter, /) -> None:
        inner = op.operand.owner
        if isinstance(inner, BroadcastOp):
            outer = int_values(op.dimensions)
            composed = [outer[position] for position in int_values(inner.dimensions)]
            replace_with_op(rewriter, op, BroadcastOp(inner.operand, composed, op.info.sizes), inner)


class MergeConcats(RewritePattern):
    """concat of a concat along the same axis that nothing else reads: one of all operands."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ConcatOp, rewriter: PatternRewriter, /) -> None:
        inner = {part: part.owner for part in op.parts if isinstance(part.owner, ConcatOp)}
        inner = {part: own for part, own in inner.items() if own.axis == op.axis and part.has_one_use()}
        if inner:
            parts = [each for part in op.parts for each in (inner[part].parts if part in inner else (part,))]
            replace_with_op(rewriter, op, ConcatOp(parts, op.axis.value.data), *inner.values())


class SliceOfConcat(RewritePattern):
    """A slice that lies in one operand of a concat is a slice of that."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: SliceOp, rewriter: PatternRewriter, /) -> None:
        concat = op.operand.owner
        if not isinstance(concat, ConcatOp):
            return
        axis, starts = concat.axis.value.data, list(int_values(op.starts))
        size, step = int_values(op.sizes)[axis], int_values(op.strides)[axis]
        for part in concat.parts:
            whole = tensor_info(part.type).sizes[axis]
            if not isinstance(whole, int) or size == WHOLE:
                return
            if starts[axis] < whole:
                if starts[axis] + (size - 1) * step < whole:
                    sliced = SliceOp(part, starts, int_values(op.sizes), int_values(op.strides))
                    replace_with_op(rewriter, op, sliced)
                return
            starts[axis] -= whole


class SliceOfBroadcast(RewritePattern):
    """A slice that takes all of what a broadcast repeats is a broadcast that repeats it less often."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: SliceOp, rewriter: PatternRewriter, /) -> None:
        inner = op.operand.owner
        if not isinstance(inner, BroadcastOp):
            return
        sizes = tensor_info(inner.operand.type).sizes
        targets = int_values(inner.dimensions)
        if all(size in (1, op.info.sizes[target]) for size, target in zip(sizes, targets, strict=True)):
            replace_with_op(rewriter, op, BroadcastOp(inner.operand, targets, op.info.sizes), inner)


class GatherOfConstant(RewritePattern):
    """A gather at indices that are known and evenly spaced, such as a single one, is a slice."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: GatherOp, rewriter: PatternRewriter, /) -> None:
        constant, axis, info = op.indices.owner, op.axis.value.data, tensor_info(op.operand.type)
        whole, indices = info.sizes[axis], tensor_info(op.indices.type)
        if not isinstance(constant, ConstantOp) or not isinstance(whole, int) or not indices.is_static:
            return
        count = prod(indices.shape)
        if whole == 0 or count == 0 or (constant.is_splat and count > 1):
            return
        rows = [int(row) for row in constant.array.reshape(-1)]
        rows = [min(max(row + whole if row < 0 else row, 0), whole - 1) for row in rows]
        steps = {after - before for before, after in pairwise(rows)} or {1}
        step = steps.pop()
        if steps or step < 1:
            return
        starts, sizes, strides = [0] * info.rank, [WHOLE] * info.rank, [1] * info.rank
        starts[axis], sizes[axis], strides[axis] = rows[0], len(rows), step
        sliced = SliceOp(op.operand, starts, sizes, strides)
        name = op_id(op)
        set_identity(sliced, None if name is None else derived_id(name, "slice"), sources(op))
        sliced.location = op.location
        rewriter.insert(sliced, InsertPoint.before(op))
        replace_with_op(rewriter, op, ReshapeOp(sliced.result, op.info.sizes))


class GatherOfSplat(RewritePattern):
    """A gather of elements that all are one number is that number, whatever the indices: they are clamped."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: GatherOp, rewriter: PatternRewriter, /) -> None:
        constant, whole = op.operand.owner, tensor_info(op.operand.type).sizes[op.axis.value.data]
        if isinstance(constant, ConstantOp) and constant.is_splat and whole != 0:
            replace_with_op(rewriter, op, ConstantOp(constant.array, op.result.type), constant)


class RemoveDoubleNegation(RewritePattern):
    """-(-x) is x, for wrapping integers and signed zeros too."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: NegOp, rewriter: PatternRewriter, /) -> None:
        inner = op.operand.owner
        if isinstance(inner, NegOp):
            replace_with_value(rewriter, op, inner.operand)


class RemoveNeutralOperand(RewritePattern):
    """x * 1, 1 * x, x / 1, x - 0, and for integers x + 0 and 0 + x."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if not isinstance(op, BinaryOp):
            return
        if _is_neutral(op, op.rhs):
            replace_with_value(rewriter, op, op.lhs)
        elif isinstance(op, AddOp | MulOp) and _is_neutral(op, op.lhs):
            replace_with_value(rewriter, op, op.rhs)


def _is_neutral(op: BinaryOp, operand: SSAValue) -> bool:
    if isinstance(op, AddOp) and element_of(op.result.type).is_float:
        return False
    constant = operand.owner
    if not isinstance(constant, ConstantOp) or not constant.is_splat:
        return False
    # x - (-0.0) would turn -0.0 into 0.0: only the positive zero is neutral.
    wanted = 1 if isinstance(op, MulOp | DivOp) else 0
    return bool(constant.array == wanted) and not np.signbit(float(constant.array))


PATTERNS: PatternTable = {
    ReshapeOp: (
        RemoveIdentity(),
        ViewOfIota(),
        ReshapeOfIotas(),
        MergeReshapes(),
        TransposeBetweenReshapes(),
        KeepRowsApart(),
        WidenAfterReshape(),
        ReshapeAfterPointwise(),
    ),
    TransposeOp: (ViewOfIota(), RemoveIdentityTranspose(), MergeTransposes()),
    BroadcastOp: (RemoveIdentity(), ViewOfIota(), BroadcastToReshape(), MergeBroadcasts()),
    SliceOp: (RemoveIdentity(), SliceOfConcat(), SliceOfBroadcast()),
    ConcatOp: (RemoveIdentity(), MergeConcats()),
    WindowOp: (WindowToReshape(),),
    CastOp: (RemoveIdentity(), NarrowBeforeReshape(), CastWithoutBounds()),
    GatherOp: (GatherOfSplat(), GatherOfConstant()),
    ConvOp: (TakePadIn(),),
    MaxPoolOp: (TakePadIn(),),
    AvgPoolOp: (TakePadIn(),),
    NegOp: (RemoveDoubleNegation(),),
    AddOp: (RemoveNeutralOperand(),),
    SubOp: (RemoveNeutralOperand(),),
    MulOp: (RemoveNeutralOperand(),),
    DivOp: (RemoveNeutralOperand(),),
}


@dataclass(frozen=True)
class LogicalCanonicalizePass(ModulePass):
    """Applies the exact rewrites until none matches; what a rewrite drops stays in the sources of what replaces it."""

    name = "logical-canonicalize"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        apply_patterns(op, PATTERNS)
