"""Two masks that are added to scores one after the other, as T5 does with its bias and its mask: one sum of both.

Attention reads one mask. The sum does not depend on the scores: it is made once for all layers that add the same two,
and each then reads half as much. `(x + a) + b` becomes `x + (a + b)`, which rounds otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from aicf.dialects import logical
from aicf.passes.bodies.matching import only_reader, splat_number
from aicf.passes.support.identity import merge_sources, op_id, set_identity, sources


@dataclass(frozen=True)
class TwoMasks:
    """`outer` adds `masks[1]` to what `inner` is: `masks[0]` added to `scores`."""

    inner: logical.AddOp
    outer: logical.AddOp
    scores: SSAValue
    masks: tuple[SSAValue, SSAValue]


def two_masks(logits: SSAValue, scores: logical.MatmulOp) -> TwoMasks | None:
    """The two masks that make `logits` of scaled `scores`; None if they are made otherwise, or something else reads
    what is between."""
    outer = logits.owner
    if not isinstance(outer, logical.AddOp):
        return None
    for between, second in (outer.operands, [*reversed(outer.operands)]):
        inner = between.owner
        if not isinstance(inner, logical.AddOp) or only_reader(between) is not outer:
            continue
        for scaled, first in (inner.operands, [*reversed(inner.operands)]):
            if _is_of(scaled, scores) and not any(_is_of(mask, scores) for mask in (first, second)):
                return TwoMasks(inner, outer, scaled, (first, second))
    return None


def _is_of(value: SSAValue, scores: logical.MatmulOp) -> bool:
    """Whether a value is the product, or a constant multiple of it."""
    op = value.owner
    if isinstance(op, logical.MulOp | logical.DivOp):
        return any(operand is scores.result for operand in op.operands) and any(
            splat_number(operand) is not None for operand in op.operands
        )
    return op is scores


def join(found: TwoMasks, position: Mapping[Operation, int]) -> logical.AddOp:
    """Adds the sum of both masks to the scores; the sum stands for the op that added the first one.

    Args:
        position: Of the ops of the function, in text order: a sum that another attention made is read again.

    Returns:
        The sum.
    """
    block = found.outer.parent
    assert block is not None
    total = _known_sum(found, position)
    if total is None:
        total = logical.AddOp(*found.masks)
        set_identity(total, op_id(found.inner), sources(found.inner))
        total.result.name_hint = found.inner.result.name_hint
        block.insert_op_before(total, found.outer)
    else:
        merge_sources(total, found.inner)
    outer = logical.AddOp(found.scores, total.result)
    outer.attributes |= found.outer.attributes
    outer.location = found.outer.location
    outer.result.name_hint = found.outer.result.name_hint
    block.insert_op_before(outer, found.outer)
    found.outer.result.replace_all_uses_with(outer.result)
    for op in (found.outer, found.inner):
        block.erase_op(op)
    return total


def _known_sum(found: TwoMasks, position: Mapping[Operation, int]) -> logical.AddOp | None:
    first, second = found.masks
    for use in first.uses:
        op = use.operation
        if not isinstance(op, logical.AddOp) or tuple(op.operands) != (first, second):
            continue
        if position.get(op, len(position)) < position[found.outer]:
            return op
    return None
