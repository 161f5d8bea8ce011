"""`fold-rotations`: rotary positions written out as slices and concatenations become one pass over the elements.

An exported model rotates queries and keys by ``x * cos + concat(-x[half:], x[:half]) * sin`` (Su et al., RoFormer,
2021): the halves of a head are pairs of coordinates. A concatenation is memory of its own; the other half of a pair is
an element read at another place.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp, int_values
from aicf.dialects.types import tensor_info
from aicf.passes.support.identity import Expansion, IdTable, merge_sources, op_id
from aicf.passes.support.interface import functions
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.works_on import WorksOn


@dataclass(frozen=True)
class FoldRotationsPass(ModulePass):
    """Writes ``x * cos + turned * sin``, where `turned` has the halves of the last dimension of `x` swapped and the
    first of them negated, with pairs as a dimension: ``pairs * cos + (±flip(pairs)) * sin``. These ops are pointwise
    but for the flip, which loops read in place, so that they are one instruction."""

    name = "fold-rotations"
    works_on = WorksOn(("logical.concat",))

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        ids: IdTable | None = None
        for function in functions(op):
            for each in list(function.walk()):
                if isinstance(each, logical.AddOp) and (found := _rotation_of(each)) is not None:
                    ids = ids or IdTable(op)
                    because = "a half of each pair is read where it lies, so no concatenation is written"
                    record_decision(
                        op, self.name, [op_id(each) or each.name], "pairs as a dimension", because
                    )
                    _fold(each, found, ids)


@dataclass(frozen=True)
class _Rotation:
    """``x * cosines + turned * sines``, all of one shape, and the ops that compute it."""

    x: SSAValue
    cosines: SSAValue
    sines: SSAValue
    ops: tuple[Operation, ...]


def _rotation_of(total: logical.AddOp) -> _Rotation | None:
    """The rotation that ends in an addition; None if it is none."""
    for kept, turned in (total.operands, [*reversed(total.operands)]):
        if not isinstance(kept.owner, logical.MulOp) or not isinstance(turned.owner, logical.MulOp):
            continue
        for halves, sines in (turned.owner.operands, [*reversed(turned.owner.operands)]):
            if (found := _turned(halves)) is not None and found[0] in kept.owner.operands:
                x, ops = found
                cosines = kept.owner.rhs if kept.owner.lhs is x else kept.owner.lhs
                return _Rotation(x, cosines, sines, (kept.owner, turned.owner, *ops))
    return None


def _turned(value: SSAValue) -> tuple[SSAValue, tuple[Operation, ...]] | None:
    """The `x` of which `value` is ``concat(-x[half:], x[:half])`` along the last dimension, and what computes it; None
    if it is none."""
    joined = value.owner
    if not isinstance(joined, logical.ConcatOp) or len(joined.operands) != 2:
        return None
    minus, first = (operand.owner for operand in joined.operands)
    if not isinstance(minus, logical.NegOp):
        return None
    second = minus.operand.owner
    if not isinstance(second, logical.SliceOp) or not isinstance(first, logical.SliceOp):
        return None
    shape, last = tensor_info(value.type).shape, tensor_info(value.type).rank - 1
    is_last = joined.axis.value.data == last and first.operand is second.operand
    same = is_last and tensor_info(first.operand.type).shape == shape
    if not same or (_starts(first), _starts(second)) != (0, shape[last] // 2):
        return None
    return first.operand, (joined, minus, second, first)


def _starts(part: logical.SliceOp) -> int | None:
    """Where a slice of the last dimension starts that has half of it; None of another slice."""
    *outer, start = int_values(part.starts)
    sizes, whole = part.info.shape, tensor_info(part.operand.type).shape
    is_half = sizes[:-1] == whole[:-1] and 2 * sizes[-1] == whole[-1]
    return start if is_half and not any(outer) and set(int_values(part.strides)) == {1} else None


def _fold(total: logical.AddOp, found: _Rotation, ids: IdTable) -> None:
    expansion = Expansion(PatternRewriter(total), total, ids)
    shape = tensor_info(found.x.type).shape
    pairs = (*shape[:-1], 2, shape[-1] // 2)
    axis = len(pairs) - 2

    def add(op: LogicalOp, suffix: str) -> SSAValue:
        return expansion.add(op, suffix)

    x, cosines, sines = (
        add(logical.ReshapeOp(value, pairs), suffix)
        for value, suffix in ((found.x, "pairs"), (found.cosines, "cosines"), (found.sines, "sines"))
    )
    other = add(logical.FlipOp(x, [axis]), "other")
    number = add(logical.IotaOp(axis, pairs, "i32"), "number")
    zero = add(logical.ConstantOp(0, number.type), "zero")
    is_first = add(logical.CompareOp("eq", number, zero), "first")
    signed = add(logical.SelectOp(is_first, add(logical.NegOp(other), "minus"), other), "signed")
    kept = add(logical.MulOp(x, cosines), "kept")
    rotated = add(logical.AddOp(kept, add(logical.MulOp(signed, sines), "turned")), "rotated")
    assert isinstance(rotated, OpResult)
    merge_sources(rotated.op, *found.ops)
    expansion.finish([add(logical.ReshapeOp(rotated, shape), "heads")])
