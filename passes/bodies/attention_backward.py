"""The backward part of attention among primitive ops, found from the gradient of the keys backwards.

With the weights `P = softmax(S)` of the scores `S`, computed again from queries and keys, and the gradient `G` of the
result, it is `D = G v^T`, `dS = P * (D - sum(P * D))` row by row, `dq = dS k`, `dk = dS^T q` and `dv = P^T G`, where
the scale is a factor of `dS`. It is how reverse mode writes the gradient of `logical.attention`; casts between float
types may stand anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import TypeVar

from xdsl.ir import Block, Operation, SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.attention import Attention, NoAttention, Read, attention_of_weights, past_of_seen
from aicf.passes.bodies.matching import splat_number, spread_over, without_casts


@dataclass(frozen=True)
class AttentionBackward:
    """The parts of the backward part of an attention.

    Args:
        forward: What computes the weights again; its second product is that of the values' gradient.
        weights_gradient: The product of the result's gradient and the values.
        queries_gradient, keys_gradient, values_gradient: The products that give the results.
    """

    forward: Attention
    weights_gradient: logical.MatmulOp
    queries_gradient: logical.MatmulOp
    keys_gradient: logical.MatmulOp
    values_gradient: logical.MatmulOp

    @property
    def reads(self) -> tuple[tuple[Read, ...], ...]:
        """Which ops read queries, keys, values and the gradient of the result, and as which of their operands."""
        scores = self.forward.scores
        return (
            ((scores, 0), (self.keys_gradient, 1)),
            ((scores, 1), (self.queries_gradient, 1)),
            ((self.weights_gradient, 1),),
            ((self.weights_gradient, 0), (self.values_gradient, 1)),
        )

    @property
    def operands(self) -> tuple[SSAValue, ...]:
        """Queries, keys, values, the gradient of the result, then the mask, if any."""
        given = tuple(op.operands[index] for (op, index), *_ in self.reads)
        return given if self.forward.mask is None else (*given, self.forward.mask)

    @property
    def products(self) -> tuple[logical.MatmulOp, ...]:
        """Those that give the results, in order."""
        return self.queries_gradient, self.keys_gradient, self.values_gradient

    @property
    def results(self) -> tuple[SSAValue, ...]:
        """The gradients of queries, keys and values."""
        return tuple(product.result for product in self.products)


def attention_backward_of(block: Block, given: Container[SSAValue]) -> AttentionBackward | None:
    """The backward part of an attention that a body is, None if it is none or does more.

    Args:
        given: The body's arguments, and views of them.
    """
    products = [op for op in block.ops if isinstance(op, logical.MatmulOp)]
    if len(products) != 5:
        return None
    found = next(filter(None, map(attention_backward_ending_in, products)), None)
    return found if found is not None and all(value in given for value in found.operands) else None


def attention_backward_ending_in(keys_gradient: logical.MatmulOp) -> AttentionBackward | None:
    """The backward part of an attention whose keys' gradient is `keys_gradient`; None if it is no such gradient."""
    if _flags(keys_gradient) != (True, False):
        return None
    scaled = keys_gradient.lhs
    queries_gradient = _reader(
        scaled, keys_gradient, lambda op: op.lhs is scaled and _flags(op) == (False, False)
    )
    if queries_gradient is None:
        return None
    inner, scale, past = _scores_gradient(scaled)
    if (parts := _softmax_gradient(inner)) is None:
        return None
    weights, weights_gradient = parts
    result_gradient = weights_gradient.lhs
    values_gradient = next(
        (
            op
            for op in _products_reading(weights)
            if _flags(op) == (True, False) and without_casts(op.lhs) is weights and op.rhs is result_gradient
        ),
        None,
    )
    if values_gradient is None or _flags(weights_gradient) != (False, True):
        return None
    try:
        forward = attention_of_weights(weights, values_gradient)
    except NoAttention:
        return None
    found = AttentionBackward(forward, weights_gradient, queries_gradient, keys_gradient, values_gradient)
    return found if _is_of(found, scale, past) else None


def _is_of(found: AttentionBackward, scale: float, past: int | None) -> bool:
    """Whether a gradient is that of the same queries and keys, with their scale and causal mask, in a kernel's
    layout."""
    forward = found.forward
    same = all(len({op.operands[index] for op, index in reads}) == 1 for reads in found.reads)
    batch = tensor_info(forward.scores.result.type).shape[:-2]
    in_layout = all(tensor_info(value.type).shape[:-2] == batch for value in found.operands[:4])
    is_plain = forward.queries[0] is forward.keys[0] is forward.scores and _flags(forward.scores) == (
        False,
        True,
    )
    return same and in_layout and is_plain and forward.past == past and forward.scale == scale


def _flags(product: logical.MatmulOp) -> tuple[bool, bool]:
    return product.transpose_a is not None, product.transpose_b is not None


def _reader(
    value: SSAValue, besides: Operation, is_wanted: Callable[[logical.MatmulOp], bool]
) -> logical.MatmulOp | None:
    readers = (use.operation for use in value.uses if use.operation is not besides)
    return next((op for op in readers if isinstance(op, logical.MatmulOp) and is_wanted(op)), None)


def _products_reading(value: SSAValue) -> Iterator[logical.MatmulOp]:
    """The products that read a value, or a cast of it."""
    for use in value.uses:
        if isinstance(use.operation, logical.MatmulOp):
            yield use.operation
        elif isinstance(use.operation, logical.CastOp):
            yield from _products_reading(use.operation.results[0])


def _scores_gradient(value: SSAValue) -> tuple[SSAValue, float, int | None]:
    """What the gradient of the scores is before it is scaled and hidden, the scale, and the keys before the first query
    of a causal mask, None without one."""
    scale, past = 1.0, None
    while True:
        value = without_casts(value)
        op = value.owner
        if isinstance(op, logical.MulOp) and (number := splat_number(op.rhs)) is not None:
            value, scale = op.lhs, scale * number
        elif isinstance(op, logical.DivOp) and (number := splat_number(op.rhs)):
            value, scale = op.lhs, scale / number
        elif isinstance(op, logical.SelectOp) and past is None and splat_number(op.operands[2]) == 0:
            past = past_of_seen(op.operands[0], value)
            if past is None:
                return value, scale, None
            value = op.operands[1]
        else:
            return value, scale, past


_Op = TypeVar("_Op", bound=Operation)


def _made_by(value: SSAValue, op_class: type[_Op]) -> _Op | None:
    owner = without_casts(value).owner
    return owner if isinstance(owner, op_class) else None


def _softmax_gradient(value: SSAValue) -> tuple[SSAValue, logical.MatmulOp] | None:
    """The weights, and the product that is their gradient, of `P * (D - sum(P * D))`."""
    if (product := _made_by(value, logical.MulOp)) is None:
        return None
    for side, other in (product.operands, [*reversed(product.operands)]):
        weights = without_casts(other)
        if (shifted := _made_by(side, logical.SubOp)) is None:
            continue
        gradient = _made_by(shifted.lhs, logical.MatmulOp)
        if gradient is not None and _is_sum_of(shifted.rhs, {weights, gradient.result}):
            return weights, gradient
    return None


def _is_sum_of(value: SSAValue, factors: set[SSAValue]) -> bool:
    """Whether a value is the sum of each row of the product of two others, repeated along it."""
    spread = without_casts(value)
    source = spread.owner.operand if isinstance(spread.owner, logical.BroadcastOp) else spread
    if (total := _made_by(source, logical.ReduceSumOp)) is None:
        return False
    if (product := _made_by(total.operand, logical.MulOp)) is None:
        return False
    last = tensor_info(product.result.type).rank - 1
    of_rows = tuple(total.axes.get_values()) == (last,) and spread_over(spread, (last,))
    return of_rows and set(map(without_casts, product.operands)) == factors
