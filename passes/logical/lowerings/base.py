"""Writing primitive ops in place of a composite one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import ElementType, element_named, element_of
from aicf.passes.support.identity import Expansion, IdTable
from aicf.passes.support.writing import OpWriter
from aicf.semantics import composite_element


class Lowering(OpWriter):
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

    def finish_all(self, values: Sequence[SSAValue]) -> None:
        """The results of an op that has several."""
        self._expansion.finish(values)

    def widen(self, value: SSAValue) -> SSAValue:
        """The value in the type that composites of its type are computed in."""
        return self.cast(value, composite_element(element_of(value.type)), "widen")

    def narrow(self, value: SSAValue) -> SSAValue:
        """The value in the element type of the composite's result."""
        return self.cast(value, self.op.info.element, "narrow")


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
