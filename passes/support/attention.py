"""Attention among primitive ops: `softmax(q k^T * scale + mask) v`, found from its second product backwards.

Casts between float types may stand anywhere: lowered softmax of f16 and bf16 is computed in f32. The scale may be a
factor or a divisor, and both scale and mask may be missing.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import TypeVar

from xdsl.ir import Block, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.support.matching import splat_number, spread_over, without_casts


@dataclass(frozen=True)
class Attention:
    """The parts of an attention.

    Args:
        scores: The product of queries and keys.
        output: The product of probabilities and values.
        scale: Factor of the scores.
        mask_add: The addition of the mask, None without one.
        mask: What is added, of the shape of the scores; None without one.
    """

    scores: logical.MatmulOp
    output: logical.MatmulOp
    scale: float
    mask_add: logical.AddOp | None
    mask: SSAValue | None

    @property
    def operands(self) -> tuple[SSAValue, ...]:
        """Queries, keys, values and, if there is one, the mask; as the products and the addition read them."""
        given = (self.scores.lhs, self.scores.rhs, self.output.rhs)
        return given if self.mask is None else (*given, self.mask)

    @property
    def has_kernel_layout(self) -> bool:
        """Whether queries, keys and values have the batch dims of the scores and rows along the last dim."""
        flags = (self.scores.transpose_a, self.output.transpose_a, self.output.transpose_b)
        batch = tensor_info(self.scores.result.type).shape[:-2]
        operands = (self.scores.lhs, self.scores.rhs, self.output.rhs)
        same_batch = all(tensor_info(value.type).shape[:-2] == batch for value in operands)
        return same_batch and self.scores.transpose_b is not None and flags == (None, None, None)


def attention_of(block: Block, given: Container[SSAValue]) -> Attention | None:
    """The attention that a body is, None if it is none or does more.

    Args:
        given: The body's arguments, and views of them.
    """
    products = [op for op in block.ops if isinstance(op, logical.MatmulOp)]
    if len(products) != 2:
        return None
    try:
        found = attention_behind(products[1])
    except NoAttention:
        return None
    return found if all(value in given for value in found.operands) and found.has_kernel_layout else None


class NoAttention(Exception):
    """The product is not the second one of an attention; the message says what is missing."""


def attention_behind(output: logical.MatmulOp) -> Attention:
    """The attention whose second product is `output`.

    Raises:
        NoAttention: its left operand is no softmax of a product over the last dim.
    """
    if output.transpose_a is not None:
        raise NoAttention("its left operand is read transposed")
    logits = _softmax_operand(output.lhs)
    return _scores_of(without_casts(logits), output)


def _scores_of(logits: SSAValue, output: logical.MatmulOp) -> Attention:
    """Scale and mask in front of a softmax, down to the product of queries and keys."""
    scores, scale = _scaled_product(logits)
    if scores is not None:
        return Attention(scores, output, scale, None, None)
    if isinstance(logits, OpResult) and isinstance(logits.op, logical.AddOp):
        for scaled, mask in (logits.op.operands, reversed(logits.op.operands)):
            scores, scale = _scaled_product(without_casts(scaled))
            if scores is not None:
                return Attention(scores, output, scale, logits.op, mask)
    raise NoAttention("its softmax is not of a product with a constant scale and an added mask")


def _scaled_product(value: SSAValue) -> tuple[logical.MatmulOp | None, float]:
    """The product that `value` is a constant multiple of, and the factor; None if it is none."""
    if not isinstance(value, OpResult):
        return None, 1.0
    op, scale = value.op, 1.0
    if isinstance(op, logical.MulOp | logical.DivOp):
        number, scaled = splat_number(op.rhs), op.lhs
        if number is None and isinstance(op, logical.MulOp):
            number, scaled = splat_number(op.lhs), op.rhs
        if not number:
            return None, 1.0
        scale = 1.0 / number if isinstance(op, logical.DivOp) else number
        source = without_casts(scaled)
        op = source.op if isinstance(source, OpResult) else op
    return (op if isinstance(op, logical.MatmulOp) else None), scale


def _softmax_operand(value: SSAValue) -> SSAValue:
    """What a softmax over the last dim is taken of: div(e, sum(e)) with e = exp(x - max(x))."""
    quotient = _expect(without_casts(value), logical.DivOp, "is no quotient")
    exponentials = quotient.lhs
    total = _expect(_unspread(quotient.rhs), logical.ReduceSumOp, "is not divided by a sum of rows")
    shifted = _expect(_expect(exponentials, logical.ExpOp, "has no exponentials").operand, logical.SubOp, "")
    largest = _expect(_unspread(shifted.rhs), logical.ReduceMaxOp, "does not subtract the largest of a row")
    last = tensor_info(exponentials.type).rank - 1
    rows = all(tuple(op.axes.get_values()) == (last,) for op in (total, largest))
    spread = spread_over(quotient.rhs, (last,)) and spread_over(shifted.rhs, (last,))
    if not (rows and spread and total.operand is exponentials and largest.operand is shifted.lhs):
        raise NoAttention("its left operand is no softmax over the last dim")
    if not element_of(exponentials.type).is_float:
        raise NoAttention("its softmax is not of floats")
    return shifted.lhs


_Op = TypeVar("_Op", bound=Operation)


def _expect(value: SSAValue, op_class: type[_Op], problem: str) -> _Op:
    if isinstance(value, OpResult) and isinstance(value.op, op_class):
        return value.op
    raise NoAttention(f"its left operand {problem}" if problem else "its exponentials are not of differences")


def _unspread(value: SSAValue) -> SSAValue:
    """A reduction behind the broadcast that repeats it."""
    if isinstance(value, OpResult) and isinstance(value.op, logical.BroadcastOp):
        return value.op.operand
    return value
