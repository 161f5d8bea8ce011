"""Attention among primitive ops: `softmax(q k^T * scale + mask) v`, found from its second product backwards.

A causal mask is a select by coordinates between the scores and -inf, as `logical.attention` is lowered. Casts between
float types may stand anywhere: lowered softmax of f16 and bf16 is computed in f32. The scale may be a factor or a
divisor, of the scores or, as PyTorch exports it, its root of queries and of keys; both scale and masks may be missing.
The softmax may give 0 where all scores of a row are -inf, as `logical.softmax` is lowered. PyTorch also exports a
select of 0 for probabilities that are NaN. Which keys are seen may follow from a position that is an operand, and end
at a window; scores may be capped by `tanh`: such an attention is a *cached* one. The body of a step of a decoder also
writes the row of a new token, which all queries that share keys and values then see repeated, and may turn the query
and the new key by their position.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from math import copysign, isfinite
from typing import TypeVar

import numpy as np
from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.bodies.matching import only_reader, splat_number, spread_over, without_casts
from aicf.passes.bodies.rotation import Rotation, rotation_of
from aicf.passes.bodies.views import is_rearrangement

Read = tuple[Operation, int]
"""An op, and the index of one of its operands."""


@dataclass(frozen=True)
class Attention:
    """The parts of an attention.

    Args:
        scores: The product of queries and keys.
        output: The product of probabilities and values.
        queries, keys: Which op reads them: the product of both, or what multiplies them with a constant first.
        scale: Factor of the scores, with those of queries and keys.
        mask_add: The addition of the mask, None without one.
        mask: What is added, of the shape of the scores; None without one.
        past: Query i sees keys 0 to i + past alone; None if it sees all.
        writes: What writes the row of a new token into keys and into values first; None where they are given.
        nan_as_zero: Whether probabilities that are NaN are 0. They are those of whole rows: of one whose mask hides
            every key, or with a score that is NaN or infinite.
        empty_as_zero: Whether probabilities of a row whose scores all are -inf are 0, not NaN.
        position: What adds the number of keys before the first query, an operand, in place of `past`; None without.
        window: How many keys each query sees at most, up to its last; None for all of them.
        softcap: What bounds the scores, before masks; None without.
        turns: What turns the queries and the new key; None where they are given as the scores see them.
    """

    scores: logical.MatmulOp
    output: logical.MatmulOp
    queries: Read
    keys: Read
    scale: float
    mask_add: logical.AddOp | None
    mask: SSAValue | None
    past: int | None = None
    writes: tuple[logical.WriteRowOp, logical.WriteRowOp] | None = None
    nan_as_zero: bool = False
    empty_as_zero: bool = False
    position: Read | None = None
    window: int | None = None
    softcap: float | None = None
    turns: tuple[Rotation, Rotation] | None = None

    @property
    def is_causal(self) -> bool:
        """Whether a query sees the keys up to its own alone."""
        return self.past is not None or self.position is not None

    @property
    def is_cached(self) -> bool:
        """Whether it takes a kernel for keys and values that are a cache, or for what decoders do to scores."""
        return (self.position, self.window, self.softcap) != (None, None, None)

    @property
    def operands(self) -> tuple[SSAValue, ...]:
        """Queries, keys and values, with writes the index of the row, the new key and value, with turns the cosines and
        sines of queries and those of keys, then mask and position, if any; as the ops read them."""
        given = tuple(op.operands[index] for op, index in self.reads)
        given = given if self.mask is None else (*given, self.mask)
        return given if self.position is None else (*given, self.position[0].operands[self.position[1]])

    @property
    def reads(self) -> tuple[Read, ...]:
        """Which op reads each of the operands but mask and position, and as which of its own."""
        if self.writes is None:
            return self.queries, self.keys, (self.output, 1)
        keys, values = self.writes
        state = (keys, 2), (values, 2), (keys, 1)
        if self.turns is None:
            return self.queries, *state, (keys, 0), (values, 0)
        (query, *of_query), (key, *of_key) = (turn.reads for turn in self.turns)
        return query, *state, key, (values, 0), *of_query, *of_key

    @property
    def results(self) -> tuple[SSAValue, ...]:
        """The product, and what writes give."""
        return (self.output.result, *(write.result for write in self.writes or ()))

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
        found = attention_ending_in(products[1])
    except NoAttention:
        return None
    found = replace(found, writes=_writes_of(found))
    found = replace(found, turns=_turns_of(found))
    return found if all(value in given for value in found.operands) and found.has_kernel_layout else None


def _writes_of(found: Attention) -> tuple[logical.WriteRowOp, logical.WriteRowOp] | None:
    """What writes one row, the same one, into keys and values; where the index is one for each of leading batch
    dimensions, one row of each."""
    if found.keys[0] is not found.scores:
        return None
    keys, values = (without_groups(value).owner for value in (found.scores.rhs, found.output.rhs))
    if not isinstance(keys, logical.WriteRowOp) or not isinstance(values, logical.WriteRowOp):
        return None
    token = tensor_info(keys.result.type).rank - 2
    of_token = all(write.axis.value.data == token and write.rows == 1 for write in (keys, values))
    return (keys, values) if of_token and keys.index is values.index else None


def without_groups(value: SSAValue) -> SSAValue:
    """Keys or values before they are repeated for the queries that share them, along batch dims that are the last."""
    if not isinstance(value.owner, logical.BroadcastOp):
        return value
    source, rank = value.owner.operand, tensor_info(value.type).rank
    kept = tensor_info(source.type).rank - 2
    dims, shape = tuple(value.owner.dimensions.get_values()), tensor_info(value.type).shape
    is_of_groups = dims == (*range(kept), rank - 2, rank - 1) and kept < rank - 2
    same = tuple(shape[dim] for dim in dims) == tensor_info(source.type).shape
    return source if is_of_groups and same else value


def _turns_of(found: Attention) -> tuple[Rotation, Rotation] | None:
    """What turns queries and the new key, each read by heads, with its pairs as a dimension."""
    if found.writes is None or found.position is None or found.queries[0] is not found.scores:
        return None
    query, key = rotation_of(found.scores.lhs), rotation_of(found.writes[0].row)
    if query is None or key is None or query.pairs != key.pairs:
        return None
    is_by_heads = all(len(turn.views) == 1 and turn.by_heads is not None for turn in (query, key))
    return (query, key) if is_by_heads else None


class NoAttention(Exception):
    """The product is not the second one of an attention; the message says what is missing.

    Args:
        scores: The product that its softmax is of, by way of arithmetic; None if there is none, so that nobody would
            take it for an attention.
        logits: What the softmax is of; None if there is no softmax.
    """

    def __init__(
        self, message: str, scores: logical.MatmulOp | None = None, logits: SSAValue | None = None
    ) -> None:
        super().__init__(message)
        self.scores = scores
        self.logits = logits


def attention_ending_in(output: logical.MatmulOp) -> Attention:
    """The attention whose second product is `output`.

    Raises:
        NoAttention: its left operand is no softmax of a product over the last dim.
    """
    if output.transpose_a is not None:
        raise NoAttention("its left operand is read transposed")
    return attention_of_weights(without_casts(output.lhs), output)


def attention_of_weights(weights: SSAValue, output: logical.MatmulOp) -> Attention:
    """The attention with these weights, `output` being the product that reads them. Raises as above."""
    weights, nan_as_zero = _with_nan(weights)
    logits, empty_as_zero = _softmax_operand(weights)
    found = _scores_of(without_casts(logits), output)
    return replace(found, nan_as_zero=nan_as_zero, empty_as_zero=empty_as_zero)


def _with_nan(value: SSAValue) -> tuple[SSAValue, bool]:
    """What `value` is where it is not NaN, and whether it is 0 where that is NaN."""
    if not isinstance(value.owner, logical.SelectOp):
        return value, False
    is_nan, number, weights = value.owner.operands
    if not isinstance(is_nan.owner, logical.CompareOp):
        return value, False
    differs = is_nan.owner.predicate.data == "ne" and all(side is weights for side in is_nan.owner.operands)
    zero = splat_number(number)
    if not differs or zero != 0 or copysign(1.0, zero) < 0:
        return value, False
    return without_casts(weights), True


def _scores_of(logits: SSAValue, output: logical.MatmulOp) -> Attention:
    """The scale and the masks between the product of queries and keys and the softmax of `logits`."""
    if (causal := _causal(logits)) is not None:
        scores, seen = causal
        found = _scores_of(without_casts(scores), output)
        return replace(found, past=seen.past, position=seen.position, window=seen.window)
    if (scored := _scored(logits, output)) is not None:
        return scored
    if isinstance(logits.owner, logical.AddOp):
        for scaled, mask in (logits.owner.operands, [*reversed(logits.owner.operands)]):
            if splat_number(mask) == 0:
                # -0.0 becomes 0.0, of which softmax knows no difference.
                return _scores_of(without_casts(scaled), output)
            if (scored := _scored(without_casts(scaled), output)) is not None:
                return replace(scored, mask_add=logits.owner, mask=mask)
    raise NoAttention(_breaking(logits), _producing_product(logits), logits)


def _scored(value: SSAValue, output: logical.MatmulOp) -> Attention | None:
    """The attention without masks whose scores are `value`, capped or not; None if it is no multiple of a product."""
    inner, cap = _uncapped(value)
    scores, scale = _scaled_product(inner)
    divided = inner.owner
    if cap is not None and isinstance(divided, logical.DivOp | logical.MulOp) and scores is None:
        # The cap divides what is scaled already.
        number = splat_number(divided.rhs)
        scores, scale = _scaled_product(without_casts(divided.lhs))
        scale *= 0.0 if not number else 1 / number if isinstance(divided, logical.DivOp) else number
    if scores is None or scale == 0.0:
        return None
    return replace(_attention(scores, output, scale * (cap or 1.0)), softcap=cap)


def _uncapped(value: SSAValue) -> tuple[SSAValue, float | None]:
    """What the bounded scores ``tanh(x) * cap`` are of, and the cap; the value and None if it is not bounded."""
    if not isinstance(value.owner, logical.MulOp):
        return value, None
    bounded, number = without_casts(value.owner.lhs), splat_number(value.owner.rhs)
    if number is None:
        bounded, number = without_casts(value.owner.rhs), splat_number(value.owner.lhs)
    if number is None or not 0 < number < float("inf") or not isinstance(bounded.owner, logical.TanhOp):
        return value, None
    return without_casts(bounded.owner.operand), number


def _attention(scores: logical.MatmulOp, output: logical.MatmulOp, scale: float) -> Attention:
    """An attention without masks, `scale` being the factor of the scores."""
    (queries, of_queries), (keys, of_keys) = _scaled_operand(scores, 0), _scaled_operand(scores, 1)
    return Attention(scores, output, queries, keys, scale * of_queries * of_keys, None, None)


def _scaled_operand(scores: logical.MatmulOp, index: int) -> tuple[Read, float]:
    """What reads queries or keys, and by how much they are multiplied."""
    value = scores.operands[index]
    if isinstance(value, OpResult) and only_reader(value) is scores and isinstance(value.op, logical.MulOp):
        for side, number in enumerate(map(splat_number, reversed(value.op.operands))):
            if number and isfinite(number):
                return (value.op, side), number
    return (scores, index), 1.0


def _breaking(logits: SSAValue) -> str:
    """Which op between a product and its softmax attention has no part for, and what to write in its place."""
    for op in _between(logits):
        known = next((words for op_class, words in _INSTEAD if isinstance(op, op_class)), None)
        masks = isinstance(op, logical.AddOp) and op.results[0] is not logits
        scales = isinstance(op, logical.MulOp | logical.DivOp) and any(
            splat_number(operand) is not None for operand in op.operands
        )
        if (isinstance(op, logical.AddOp) and not masks) or (scales and op.results[0] is not logits):
            continue
        words = _ONE_MASK if masks else known or _ONE_SCALE
        name = op.attributes.get(logical.ID_ATTR)
        called = f"'{name.data}' " if isinstance(name, StringAttr) else ""
        return f"{called}({op.name.removeprefix('logical.')}) is between the product and its softmax: {words}"
    return f"its softmax is not of a product: {_ONE_SCALE}"


_ONE_SCALE = "attention takes one constant scale, then one added mask"
_ONE_MASK = "attention adds one mask; add up the masks first"
_INSTEAD: tuple[tuple[type[Operation], str], ...] = (
    (
        logical.SelectOp,
        "add a mask of 0 and -inf in its place, or compare coordinates (key <= query) and take -inf elsewhere",
    ),
    (logical.ReshapeOp, "keep batch and heads as dimensions of their own in both products"),
    (logical.TransposeOp, "transpose queries and keys in its place"),
    (logical.TanhOp, "write a cap as tanh(scores / cap) * cap, before the mask"),
)


def _between(value: SSAValue, depth: int = 8) -> list[Operation]:
    """The ops between a product and a value that is computed of it element by element or by views, last first."""
    if not isinstance(value, OpResult) or depth == 0 or isinstance(value.op, logical.MatmulOp):
        return []
    sides = [operand for operand in value.op.operands if _producing_product(operand, depth - 1) is not None]
    return [value.op, *(_between(sides[0], depth - 1) if sides else ())]


def _producing_product(value: SSAValue, depth: int = 8) -> logical.MatmulOp | None:
    """A product that `value` is computed of element by element."""
    if not isinstance(value, OpResult) or depth == 0:
        return None
    if isinstance(value.op, logical.MatmulOp):
        return value.op
    if not value.op.has_trait(logical.Elementwise) and not is_rearrangement(value.op):
        return None
    found = (_producing_product(operand, depth - 1) for operand in value.op.operands)
    return next((product for product in found if product is not None), None)


@dataclass(frozen=True)
class Seen:
    """Which keys a query sees: those up to its own number plus `past`, or plus what an op reads, `position`; of these
    the last `window`."""

    past: int | None
    position: Read | None = None
    window: int | None = None


def _causal(logits: SSAValue) -> tuple[SSAValue, Seen] | None:
    """The scores that a causal mask hides some of, and which it leaves; None if `logits` have no such mask."""
    if not isinstance(logits.owner, logical.SelectOp):
        return None
    seen, scores, hidden = logits.owner.operands
    if splat_number(hidden) != float("-inf"):
        return None
    found = seen_keys(seen, logits)
    return None if found is None else (scores, found)


def seen_keys(seen: SSAValue, logits: SSAValue) -> Seen | None:
    """What `seen` says of the keys that each query of `logits` sees; None if it says something else."""
    rank = tensor_info(logits.type).rank
    if isinstance(seen.owner, logical.BroadcastOp):
        # Of one matrix for all heads; a row that is repeated would be seen by all queries alike.
        sizes, own = (tensor_info(value.type).shape[-2:] for value in (logits, seen.owner.operand))
        if tuple(seen.owner.dimensions.get_values()) != (rank - 2, rank - 1) or sizes != own:
            return None
        seen, rank = seen.owner.operand, 2
    if isinstance(seen.owner, logical.AndOp):
        return _windowed(seen.owner.lhs, seen.owner.rhs, rank)
    if not isinstance(seen.owner, logical.CompareOp) or seen.owner.predicate.data != "le":
        return None
    return _last_key(seen.owner.rhs, rank - 2) if _is_iota(seen.owner.lhs, rank - 1) else None


def past_of_seen(seen: SSAValue, logits: SSAValue) -> int | None:
    """The number of keys before the first query where `seen` says which keys each query of `logits` sees, those up to
    itself; None if it says something else."""
    found = seen_keys(seen, logits)
    return None if found is None or found.window is not None else found.past


def _windowed(upper: SSAValue, lower: SSAValue, rank: int) -> Seen | None:
    """``key <= last and key > last - window``."""
    le, gt = upper.owner, lower.owner
    if not isinstance(le, logical.CompareOp) or not isinstance(gt, logical.CompareOp):
        return None
    if (le.predicate.data, gt.predicate.data) != ("le", "gt") or not isinstance(gt.rhs.owner, logical.SubOp):
        return None
    window, found = splat_number(gt.rhs.owner.rhs), _last_key(le.rhs, rank - 2)
    same = gt.rhs.owner.lhs is le.rhs and _is_iota(le.lhs, rank - 1) and _is_iota(gt.lhs, rank - 1)
    return replace(found, window=int(window)) if found is not None and same and window else None


def _last_key(value: SSAValue, axis: int) -> Seen | None:
    """The last key that a query sees, its coordinate along `axis` plus a number; None if `value` is something else."""
    if _is_iota(value, axis):
        return Seen(0)
    if not isinstance(value.owner, logical.AddOp) or not _is_iota(value.owner.lhs, axis):
        return None
    if (number := splat_number(value.owner.rhs)) is not None:
        return Seen(int(number)) if number >= 0 else None
    return Seen(None, (value.owner, 1)) if _is_one_number(value.owner.rhs) else None


def _is_one_number(value: SSAValue) -> bool:
    """Whether all queries and keys of a batch element have the same number. Of what a group takes that was known when
    it was outlined."""
    if not isinstance(value.owner, logical.BroadcastOp):
        return isinstance(value, BlockArgument) and not isinstance(value.owner.parent_op(), FuncOp)
    dims, rank = value.owner.dimensions.get_values(), tensor_info(value.type).rank
    sizes = tensor_info(value.owner.operand.type).shape
    return all(dim < rank - 2 or size == 1 for dim, size in zip(dims, sizes, strict=True))


def _is_iota(value: SSAValue, axis: int) -> bool:
    if not isinstance(value.owner, logical.IotaOp):
        return False
    return value.owner.axis.value.data == axis


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


def _softmax_operand(value: SSAValue) -> tuple[SSAValue, bool]:
    """What a softmax over the last dim is taken of: div(e, sum(e)) with e = exp(x - max(x)); and whether it is 0 where
    all of a row is -inf: then max(x) is made finite, and sum(e) at least 1."""
    quotient = _expect(without_casts(value), logical.DivOp, "is no quotient")
    exponentials = quotient.lhs
    divisor, has_divisor = _at_least(_unspread(quotient.rhs), 1.0)
    total = _expect(divisor, logical.ReduceSumOp, "is not divided by a sum of rows")
    shifted = _expect(_expect(exponentials, logical.ExpOp, "has no exponentials").operand, logical.SubOp, "")
    subtracted, is_finite = _at_least(_unspread(shifted.rhs), _lowest_of(shifted.rhs))
    largest = _expect(subtracted, logical.ReduceMaxOp, "does not subtract the largest of a row")
    last = tensor_info(exponentials.type).rank - 1
    rows = all(tuple(op.axes.get_values()) == (last,) for op in (total, largest))
    spread = spread_over(quotient.rhs, (last,)) and spread_over(shifted.rhs, (last,))
    same = total.operand is exponentials and largest.operand is shifted.lhs and has_divisor == is_finite
    if not (rows and spread and same):
        raise NoAttention("its left operand is no softmax over the last dim")
    if not element_of(exponentials.type).is_float:
        raise NoAttention("its softmax is not of floats")
    return shifted.lhs, is_finite


def _lowest_of(value: SSAValue) -> float:
    """The lowest number of the value's type; NaN for a type without floats."""
    element = element_of(value.type)
    return float(str(np.finfo(element.dtype).min)) if element.is_float else float("nan")


def _at_least(value: SSAValue, least: float) -> tuple[SSAValue, bool]:
    """The value before a maximum of it and a number, and whether it is one."""
    if isinstance(value.owner, logical.MaxOp) and splat_number(value.owner.rhs) == least:
        return value.owner.lhs, True
    return value, False


_Op = TypeVar("_Op", bound=Operation)


def _expect(value: SSAValue, op_class: type[_Op], problem: str) -> _Op:
    if isinstance(value.owner, op_class):
        return value.owner
    raise NoAttention(f"its left operand {problem}" if problem else "its exponentials are not of differences")


def _unspread(value: SSAValue) -> SSAValue:
    """A reduction before the broadcast that repeats it."""
    if isinstance(value.owner, logical.BroadcastOp):
        return value.owner.operand
    return value
