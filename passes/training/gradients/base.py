"""Writing the backward ops of one forward op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf.dialects import logical
from aicf.dialects.dims import Size
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import byte_count, element_of, tensor_info
from aicf.passes.support.identity import IdTable, name_after
from aicf.passes.support.writing import OpWriter
from aicf.semantics import composite_element


class Tape:
    """Where the backward part of one loss is written: before one op, with the saves of what it reads."""

    def __init__(self, before: Operation, ids: IdTable) -> None:
        self._before = before
        self._ids = ids
        self._saves: dict[SSAValue, SSAValue] = {}

    def write(self, new: LogicalOp, suffix: str, op: Operation) -> SSAValue:
        """Adds an op to the backward part, called `<id of op>.<suffix>`."""
        name_after(new, op, suffix, self._ids)
        Rewriter.insert_op(new, InsertPoint.before(self._before))
        return new.result

    def saved(self, value: SSAValue) -> SSAValue:
        """A value of the forward part as the backward part reads it: marked, unless it is an argument or constant.

        What is a cast to more bytes is cast again: its operand is what is kept. So is, with its mean, what such a cast
        is less a mean.
        """
        if not isinstance(value, OpResult) or isinstance(value.op, logical.ConstantOp):
            return value
        if value not in self._saves and is_centered(value.op):
            self._saves[value] = self._again(value.op, value.op.operands)
        if value not in self._saves and is_widening(value.op):
            cast = logical.CastOp(self.saved(value.op.operands[0]), element_of(value.type))
            self._saves[value] = self.write(cast, "again", value.op)
        if value not in self._saves:
            save = logical.SaveOp(value)
            name_after(save, value.op, "save", self._ids)
            Rewriter.insert_op(save, InsertPoint.after(value.op))
            self._saves[value] = save.result
        return self._saves[value]

    def _again(self, op: Operation, operands: Sequence[SSAValue]) -> SSAValue:
        """An op of the forward part once more, of operands as the backward part reads them; so is a broadcast."""
        made = op.clone()
        assert isinstance(made, LogicalOp)
        for index, operand in enumerate(operands):
            owner = operand.owner
            is_spread = isinstance(owner, logical.BroadcastOp)
            made.operands[index] = self._again(owner, owner.operands) if is_spread else self.saved(operand)
        return self.write(made, "again", op)


def is_centered(op: Operation) -> bool:
    """Whether an op is a cast to more bytes less what is the same for many elements, as a mean is."""
    if not isinstance(op, logical.SubOp):
        return False
    value, mean = (operand.owner for operand in op.operands)
    return isinstance(value, logical.CastOp) and is_widening(value) and isinstance(mean, logical.BroadcastOp)


def is_widening(op: Operation) -> bool:
    """Whether an op casts to elements of more bytes."""
    return isinstance(op, logical.CastOp) and byte_count(op.result.type) > byte_count(op.operand.type)


class Adjoint(OpWriter):
    """Writes what one op passes back to its operands; `grad` is the derivative of the loss by its result.

    For a composite op of f16 or bf16 that is no product, `grad` and saved values are f32, as its formula is.
    """

    def __init__(self, tape: Tape, op: LogicalOp, grad: SSAValue) -> None:
        self.op = op
        self._tape = tape
        self._made: dict[str, SSAValue] = {}
        self.operand_index = 0
        self.passed = grad
        """The derivative in the element type of the result."""
        self.grad = self._wide(grad, "widen")

    def add(self, op: LogicalOp, suffix: str) -> SSAValue:
        """Adds an op called `<id of the forward op>.grad.<suffix>`."""
        return self._tape.write(op, f"grad.{suffix}" if suffix else "grad", self.op)

    def saved(self, value: SSAValue) -> SSAValue:
        """An operand, or the result, of the forward op."""
        return self._wide(self.stored(value), "saved.widen")

    def stored(self, value: SSAValue) -> SSAValue:
        """The same in its own element type: for what only compares or moves elements."""
        return self._tape.saved(value)

    @property
    def result(self) -> SSAValue:
        """The result of the forward op."""
        return self.saved(self.op.result)

    def shared(self, name: str, make: Callable[[], SSAValue]) -> SSAValue:
        """What several operands' gradients share: made for the first that asks."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def compare(self, predicate: logical.Predicate, lhs: SSAValue, rhs: SSAValue | float) -> SSAValue:
        """lhs against rhs, to i1."""
        other = rhs if isinstance(rhs, SSAValue) else self.splat(rhs, lhs, "bound")
        return self.add(logical.CompareOp(predicate, lhs, other), predicate)

    def where(self, condition: SSAValue, on_true: SSAValue | float, on_false: SSAValue | float) -> SSAValue:
        """One of two values, one of which may be a number."""
        like = on_true if isinstance(on_true, SSAValue) else on_false
        assert isinstance(like, SSAValue)
        values = (
            v if isinstance(v, SSAValue) else self.splat(v, like, "number") for v in (on_true, on_false)
        )
        return self.add(logical.SelectOp(condition, *values), "select")

    def product(self, *factors: SSAValue | float) -> SSAValue:
        """Factors of one type, multiplied from the left; the first is no number."""
        value, *rest = factors
        assert isinstance(value, SSAValue)
        for factor in rest:
            value = self.apply(logical.MulOp, value, factor)
        return value

    def spread(self, value: SSAValue, axes: Sequence[int], like: SSAValue) -> SSAValue:
        """A value without `axes`, or with size 1 there, repeated along them to the shape of `like`."""
        sizes = tensor_info(like.type).sizes
        kept = tensor_info(value.type).rank == len(sizes)
        dimensions = [dim for dim in range(len(sizes)) if kept or dim not in axes]
        return self.broadcast(value, dimensions, sizes, "spread")

    def total(self, value: SSAValue, axes: Sequence[int], *, keepdims: bool = False) -> SSAValue:
        """The sum along axes; the value itself if there are none."""
        return self.add(logical.ReduceSumOp(value, axes, keepdims=keepdims), "sum") if axes else value

    def shaped_like(self, value: SSAValue, like: SSAValue) -> SSAValue:
        """The value in the shape of `like`."""
        return self.reshape(value, tensor_info(like.type).sizes)

    def zeros(self, sizes: Sequence[Size]) -> SSAValue:
        """Zeros in the element type of `grad`."""
        return self.add(logical.ConstantOp(0.0, tensor_info(self.grad.type).with_sizes(sizes)), "zeros")

    def _wide(self, value: SSAValue, suffix: str) -> SSAValue:
        element, op = element_of(value.type), self.op
        if not element.is_float or not op.has_trait(logical.Composite) or op.has_trait(logical.Contraction):
            return value  # products take short operands and accumulate in f32 by themselves
        return self.cast(value, composite_element(element), suffix)


Rule: TypeAlias = Callable[[Adjoint, Any], SSAValue]
"""From the adjoint of an op and the op to the derivative of the loss by one operand, of that operand's shape."""


@dataclass(frozen=True)
class ByFormula:
    """The op is written as its formula says before its gradient is taken."""


BY_FORMULA = ByFormula()

Gradient: TypeAlias = tuple[Rule | None, ...] | ByFormula
"""A rule for each operand; the last one is for all further operands too, which `Adjoint.operand_index` tells apart.

None: nothing passes back to that operand, which is an integer, or on which the result depends in steps.
"""

GradientOfOp: TypeAlias = Callable[[Operation], Gradient | None]
"""For a class whose ops have gradients of their own: that of one op, None if it has none."""

Gradients: TypeAlias = Mapping[type[Operation], Gradient | GradientOfOp]

STEPS: Gradient = (None,)
"""The result is no float, or constant between steps: nothing passes back."""
