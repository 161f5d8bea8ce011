"""What quantises a product: a bias, activations, a division by a step, rounding, a zero point and a cast.

A division takes as long as all the rest. Dividing the scale of the product, its bias and the bounds of its activations
instead takes nothing at run time, and rounds otherwise by a unit in the last place or two of f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp, int_values
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.bodies.matching import splat_number
from aicf.passes.legalize.dequantised import F32
from aicf.passes.logical.lowerings.base import LowerBy, Lowering
from aicf.passes.support.identity import IdTable

_BOUNDS = (logical.MaxOp, logical.MinOp)
_SHORT = ("i8", "u8", "i16")
_STEPS = (2.0**-64, 2.0**64)
"""Between which a step divides scales that are no constants without making subnormal numbers of them."""


@dataclass(frozen=True)
class Requantisation:
    """What quantises a product, op by op.

    Args:
        before: A bias and activations of the product, in order.
        division: By the step.
        step: The number that divides.
        after: Rounding, and the addition of the zero point if there is one.
        zero: The zero point.
        least, most: Of the integers that it becomes.
    """

    before: tuple[LogicalOp, ...]
    division: logical.DivOp
    step: float
    after: tuple[LogicalOp, ...]
    zero: float
    least: int
    most: int

    def rewrite(self, ids: IdTable) -> None:
        """Divides all but the product itself, which whoever asks has taken care of."""
        for op in self.before:
            formula = self._bound if isinstance(op, _BOUNDS) else self._bias
            if isinstance(op, logical.ReluOp):
                formula = self._relu
            LowerBy(formula, ids).match_and_rewrite(op, PatternRewriter(op))
        removed = [self.division, *(self.after[1:] if self.has_bias or self.zero == 0 else ())]
        for op in removed:
            LowerBy(_first, ids).match_and_rewrite(op, PatternRewriter(op))

    @property
    def has_bias(self) -> bool:
        """Whether something is added before activations, to which the zero point is added too."""
        return bool(self.before) and isinstance(self.before[0], logical.AddOp)

    @property
    def start(self) -> float:
        """What stands for 0 where activations cut off."""
        return self.zero if self.has_bias else 0.0

    def _bias(self, lower: Lowering, op: logical.AddOp) -> SSAValue:
        value, bias = op.operands
        return lower.add(logical.AddOp(value, self._divided(lower, bias)), "")

    def _divided(self, lower: Lowering, bias: SSAValue) -> SSAValue:
        """A bias in units of the step, plus the zero point; of what is repeated, before it is."""
        owner = bias.owner
        if isinstance(owner, logical.BroadcastOp):
            once = self._divided(lower, owner.operand)
            sizes = tensor_info(bias.type).sizes
            return lower.broadcast(once, int_values(owner.dimensions), sizes, "bias.broadcast")
        if isinstance(owner, logical.ConstantOp):
            array = (owner.array / np.float32(self.step) + np.float32(self.zero)).astype(np.float32)
            return lower.add(logical.ConstantOp(array, bias.type), "bias")
        quotient = lower.apply(logical.DivOp, bias, self.step, name="quotient")
        return lower.apply(logical.AddOp, quotient, self.zero, name="bias") if self.zero else quotient

    def _relu(self, lower: Lowering, op: logical.ReluOp) -> SSAValue:
        """None where the cast cuts off as much."""
        if self.zero == self.least:
            return op.operand
        if self.start == 0:
            return lower.add(op.of_operands(op.operand), "")
        return lower.add(logical.MaxOp(op.operand, lower.splat(self.start, op.operand, "bound")), "")

    def _bound(self, lower: Lowering, op: logical.MaxOp | logical.MinOp) -> SSAValue:
        """None where the cast cuts off as much."""
        value, bound = op.operands
        number = splat_number(bound)
        assert number is not None
        place = float(np.rint(np.float32(number) / np.float32(self.step))) + self.zero
        is_cut = place <= self.least if isinstance(op, logical.MaxOp) else place >= self.most
        if is_cut:
            return value
        divided = lower.splat(number / self.step + self.start, value, "bound")
        return lower.add(type(op)(value, divided), "")


def _first(_: Lowering, op: LogicalOp) -> SSAValue:
    return op.operands[0]


def requantised(value: SSAValue) -> Requantisation | None:
    """What quantises a product of f32; None if anything else becomes of it, or the step is no number."""
    before: list[LogicalOp] = []
    while (op := _only_reader(value)) is not None and _is_before(op, value, not before):
        before.append(op)
        value = op.results[0]
    if not isinstance(op, logical.DivOp) or op.operands[0] is not value:
        return None
    step = splat_number(op.operands[1])
    rounding = _only_reader(op.result)
    if step is None or not _STEPS[0] <= step <= _STEPS[1] or not isinstance(rounding, logical.RoundOp):
        return None
    after, last = [rounding], _only_reader(rounding.result)
    zero: float = 0.0
    if isinstance(last, logical.AddOp) and (number := splat_number(last.operands[1])) is not None:
        after, zero, last = [rounding, last], float(number), _only_reader(last.result)
    if not isinstance(last, logical.CastOp) or element_of(last.result.type).name not in _SHORT:
        return None
    limits = np.iinfo(element_of(last.result.type).dtype)
    return Requantisation(
        tuple(before), op, float(step), tuple(after), zero, int(limits.min), int(limits.max)
    )


def _only_reader(value: SSAValue) -> LogicalOp | None:
    readers: Sequence[Operation] = [use.operation for use in value.uses]
    return readers[0] if len(readers) == 1 and isinstance(readers[0], LogicalOp) else None


def _is_before(op: LogicalOp, value: SSAValue, is_first: bool) -> bool:
    """Whether an op adds a bias, first of all, or cuts off, so that its result is divided where its operands are."""
    if isinstance(op, logical.ReluOp):
        return True
    if len(op.operands) != 2 or op.operands[0] is not value or element_of(op.operands[1].type) != F32:
        return False
    other = op.operands[1]
    if isinstance(op, logical.AddOp):
        return is_first and isinstance(other.owner, logical.BroadcastOp | logical.ConstantOp)
    return isinstance(op, logical.MaxOp | logical.MinOp) and splat_number(other) is not None
