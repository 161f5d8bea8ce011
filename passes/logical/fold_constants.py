"""``fold-constants``: ops whose operands are constants become constants, where the type holds the result exactly.

An op is evaluated in both arithmetics of the semantics; it folds only if rounding to the type changed nothing
and no NaN came out, so folding is invisible at any precision. A splat is folded as one element, whatever its
shape, and stays a splat.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from aicf.dialects.logical import MAX_CONSTANT_ELEMENTS, ConstantOp, Elementwise, LogicalOp, ViewLike
from aicf.dialects.types import tensor, tensor_info
from aicf.passes.support.identity import replace_with_op
from aicf.passes.support.works_on import FUNCTIONS
from aicf.semantics import evaluate

MAX_EVALUATED_ELEMENTS = 1 << 16
"""Largest operand, in elements, that is materialised to fold an op that is not done on splats alone."""


@dataclass(frozen=True)
class FoldConstantsPass(ModulePass):
    """Folds every logical op of constants that its element type represents exactly; the result keeps the op's id."""

    name = "fold-constants"
    works_on = FUNCTIONS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for inner in list(op.walk()):
            if not isinstance(inner, LogicalOp) or not inner.operands:
                continue
            constants = [
                owner for operand in inner.operands if isinstance(owner := operand.owner, ConstantOp)
            ]
            if len(constants) == len(inner.operands):
                _fold(inner, constants)


def _fold(op: LogicalOp, operands: Sequence[ConstantOp]) -> None:
    value = _fold_splats(op, operands) if all(operand.is_splat for operand in operands) else None
    if value is None:
        value = _fold_elements(op, operands)
    if value is not None:
        replace_with_op(PatternRewriter(op), op, ConstantOp(value, op.result.type), *operands)


def _fold_splats(op: LogicalOp, operands: Sequence[ConstantOp]) -> NDArray[Any] | None:
    """The one element of the result, for ops that give a splat for splats."""
    first = operands[0]
    if op.has_trait(ViewLike):
        same = all(operand.value == first.value for operand in operands)
        return first.array if same else None
    if not op.has_trait(Elementwise):
        return None
    scalars = [ConstantOp(operand.array, tensor((), operand.info.element)) for operand in operands]
    scalar_op = type(op).create(
        operands=[scalar.result for scalar in scalars],
        result_types=[tensor((), op.info.element)],
        properties=op.properties,
    )
    return _exact_value(scalar_op, [scalar.array for scalar in scalars])


def _fold_elements(op: LogicalOp, operands: Sequence[ConstantOp]) -> NDArray[Any] | None:
    infos = [tensor_info(operand.result.type) for operand in operands]
    if not all(info.is_static for info in (*infos, op.info)):
        return None
    if any(math.prod(info.shape) > MAX_EVALUATED_ELEMENTS for info in (*infos, op.info)):
        return None
    arrays = [
        np.broadcast_to(operand.array, info.shape) for operand, info in zip(operands, infos, strict=True)
    ]
    value = _exact_value(op, arrays)
    if value is None or (value.size > MAX_CONSTANT_ELEMENTS and not _is_splat(value)):
        return None
    return value


def _exact_value(op: LogicalOp, operands: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    (typed,) = evaluate(op, operands, "typed")
    (exact,) = evaluate(op, operands, "exact")
    if not np.array_equal(typed.astype(exact.dtype), exact):
        return None
    return typed


def _is_splat(value: NDArray[Any]) -> bool:
    raw = np.ascontiguousarray(value).tobytes()
    return raw == raw[: value.itemsize] * value.size
