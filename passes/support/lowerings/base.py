"""Writing primitive ops in place of a composite one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from aicf.dialects import logical
from aicf.dialects.dims import Size
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import ElementType, element_named, element_of, tensor_info
from aicf.passes.support.identity import Expansion, IdTable, invalid
from aicf.semantics import composite_element


class Lowering:
    """Writes primitive ops in place of one composite; a method adds one op (or none) and gives its value."""

    def __init__(self, rewriter: PatternRewriter, op: LogicalOp, ids: IdTable) -> None:
        self.op = op
        self._expansion = Expansion(rewriter, op, ids)

    def add(self, op: LogicalOp, suffix: str) -> SSAValue:
        """Insert an op as ``<id of the composite>.<suffix>``."""
        return self._expansion.add(op, suffix)

    def finish(self, value: SSAValue) -> None:
        """The composite's result is ``value``."""
        self._expansion.finish([value])

    def widen(self, value: SSAValue) -> SSAValue:
        """The value in the type that composites of its type are computed in."""
        return self.cast(value, composite_element(element_of(value.type)), "widen")

    def narrow(self, value: SSAValue) -> SSAValue:
        """The value in the element type of the composite's result."""
        return self.cast(value, self.op.info.element, "narrow")

    def apply(
        self, op_class: Callable[..., LogicalOp], *operands: SSAValue | float, name: str = ""
    ) -> SSAValue:
        """An elementwise op, called by the op's own name or ``name``; a number is a splat like the operands.

        Two parts of the same name are told apart by a number.
        """
        like = next(operand for operand in operands if isinstance(operand, SSAValue))
        values = [
            operand if isinstance(operand, SSAValue) else self.splat(operand, like, "constant")
            for operand in operands
        ]
        op = op_class(*values)
        return self.add(op, name or op.name.removeprefix("logical."))

    def cast(self, value: SSAValue, element: ElementType, suffix: str) -> SSAValue:
        """The value in another element type; itself if it has that."""
        if element_of(value.type) == element:
            return value
        return self.add(logical.CastOp(value, element), suffix)

    def splat(self, number: float, like: SSAValue, suffix: str) -> SSAValue:
        """A constant of the shape and type of ``like``."""
        return self.add(logical.ConstantOp(number, like.type), suffix)

    def broadcast(
        self, value: SSAValue, dimensions: Sequence[int], sizes: Sequence[Size], suffix: str
    ) -> SSAValue:
        """The value repeated to ``sizes``; itself if it has them."""
        if tensor_info(value.type).sizes == tuple(sizes):
            return value
        return self.add(logical.BroadcastOp(value, dimensions, sizes), suffix)

    def mean(self, value: SSAValue, axes: Sequence[int], keepdims: bool, suffix: str) -> SSAValue:
        """Sum over the count; ``suffix`` names the quotient."""
        total = self.add(logical.ReduceSumOp(value, axes, keepdims=keepdims), _join(suffix, "sum"))
        count = math.prod(static_size(self.op, tensor_info(value.type).sizes[axis]) for axis in axes)
        divisor = self.splat(count, total, _join(suffix, "count"))
        return self.add(logical.DivOp(total, divisor), suffix)


def _join(stem: str, suffix: str) -> str:
    return f"{stem}.{suffix}" if stem else suffix


def static_size(op: LogicalOp, size: Size) -> int:
    """The size as a number.

    Raises:
        InvalidIR: it is symbolic.
    """
    if not isinstance(size, int):
        raise invalid(op, f"a mean over symbolic size {size} has no count; run specialize-shapes first")
    return size


Formula: TypeAlias = Callable[[Lowering, Any], SSAValue | None]
"""From a composite op to its result, written with the lowering's methods in the composite's own element type.

A primitive op may have a formula for some of its uses; it adds nothing and gives None for the others.
"""

Formulas: TypeAlias = Mapping[type[Operation], Formula]


@dataclass(frozen=True)
class LowerBy(RewritePattern):
    """Writes what a formula says."""

    formula: Formula
    ids: IdTable

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        assert isinstance(op, LogicalOp)
        lower = Lowering(rewriter, op, self.ids)
        if (value := self.formula(lower, op)) is not None:
            lower.finish(lower.narrow(value))


def counting_element(element: ElementType, count: int) -> ElementType:
    """The type a mean of ``count`` elements is computed in: f32 or wider, and exact for the count."""
    wide = composite_element(element)
    return wide if int(wide.dtype.type(count)) == count else element_named("f64")
