"""ONNX's Attention and RotaryEmbedding.

Attention becomes ``logical.attention`` wherever that says all of it; what caps scores, or asks for them as an output,
is written as two products with a softmax between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import ElementType, tensor_info
from aicf.passes.onnx.ops.base import Node, Result, row
from aicf.passes.onnx.ops.element_types import element_of_onnx

_HIDDEN = float("-inf")

_QUERY, _KEY, _VALUE, _MASK, _PAST_KEY, _PAST_VALUE, _VALID = range(7)
"""The operands' numbers."""

_Limit: TypeAlias = tuple[int | None, int | None]
"""How many keys to the left and to the right of its own position a query sees; None for all."""


@dataclass(frozen=True)
class _Heads:
    """Queries, keys and values as [batch, heads, tokens, size], with past keys and values before the new ones."""

    query: SSAValue
    key: SSAValue
    value: SSAValue
    past: int
    """The number of keys of the past."""

    @property
    def scores(self) -> tuple[int, int, int, int]:
        """[batch, heads, queries, keys]."""
        batch, heads, queries, _ = tensor_info(self.query.type).shape
        return batch, heads, queries, tensor_info(self.key.type).shape[2]

    @property
    def element(self) -> ElementType:
        """Of the queries."""
        return tensor_info(self.query.type).element


@row("Attention", since=23)
def _attention(node: Node) -> Result:
    """softmax(Q @ K' * scale + mask) @ V of every head, 0 for a query that sees no key."""
    heads = _heads(node)
    value = node.cast(heads.value, heads.element, "value")
    mask = _mask(node, heads)
    scale = node.attributes.float("scale", 0.0) or tensor_info(heads.query.type).shape[-1] ** -0.5
    scores: SSAValue | None = None
    if _is_default(node):
        causal = node.attributes.flag("is_causal") and mask is None
        output = node.apply(
            logical.AttentionOp,
            *(heads.query, heads.key, value, *([] if mask is None else [mask])),
            scale=scale,
            causal=causal,
            past=heads.past if causal else 0,
        )
        if mask is not None:
            output = _without(node, output, _unseeing(node, mask))
    else:
        weights, scores = _weights(node, heads, mask, scale)
        output = _grouped_product(node, weights, value)
    return [_merged(node, output), heads.key, heads.value, scores][: node.outputs]


def _is_default(node: Node) -> bool:
    """All that is asked for is what ``logical.attention`` says."""
    element = node.element(_QUERY)
    precision = element_of_onnx(node.attributes.int("softmax_precision", 0), element)
    wide = precision.bytes > max(element.bytes, 4)
    return not (node.attributes.float("softcap", 0.0) or node.wants(3) or wide)


# Heads


def _heads(node: Node) -> _Heads:
    query = _split(node, _QUERY, "q_num_heads")
    key, value = _split(node, _KEY, "kv_num_heads"), _split(node, _VALUE, "kv_num_heads")
    if node.has(_PAST_KEY) != node.has(_PAST_VALUE):
        raise node.invalid("past_key and past_value are given together or not at all")
    if not node.has(_PAST_KEY):
        return _Heads(query, key, value, 0)
    if node.has(_VALID):
        raise node.invalid("nonpad_kv_seqlen is given with past_key; a cache is of one kind or the other")
    key = node.concat([node.operand(_PAST_KEY), key], 2, "present_key")
    value = node.concat([node.operand(_PAST_VALUE), value], 2, "present_value")
    return _Heads(query, key, value, node.shape(_PAST_KEY)[2])


def _split(node: Node, index: int, count: str) -> SSAValue:
    """An operand of [batch, tokens, heads * size] as [batch, heads, tokens, size]; one of rank 4 is that already."""
    value, sizes = node.operand(index), node.shape(index)
    if len(sizes) == 4:
        return value
    if len(sizes) != 3:
        raise node.invalid(f"operand {index} is {node.type(index)}; it has rank 3 or 4")
    heads = node.attributes.int(count, 0)
    if heads < 1 or sizes[2] % heads:
        raise node.invalid(f"{count} is {heads}; it divides the last dimension of {node.type(index)}")
    apart = node.reshape(value, (*sizes[:2], heads, sizes[2] // heads), "heads")
    return node.transpose(apart, (0, 2, 1, 3), "heads_first")


def _merged(node: Node, output: SSAValue) -> SSAValue:
    """The output as the queries were given: of rank 4, or with the heads side by side."""
    if node.type(_QUERY).rank == 4:
        return output
    batch, heads, tokens, size = tensor_info(output.type).shape
    return node.reshape(
        node.transpose(output, (0, 2, 1, 3), "tokens_first"), (batch, tokens, heads * size), "merged"
    )


# What a query sees


def _mask(node: Node, heads: _Heads) -> SSAValue | None:
    """What is added to the scores, or as i1 which keys are seen; None if that is all, or follows from causality."""
    limits = _limits(node)
    stated = _stated_mask(node, heads)
    if stated is None and not node.has(_VALID) and limits in ([], [(None, 0)]):
        return None
    seen = _seen(node, heads, limits)
    if stated is None or seen is None:
        return stated if seen is None else seen
    if tensor_info(stated.type).element.kind == "bool":
        return node.elementwise(logical.AndOp, stated, seen, name="mask")
    joint = node.joint_shape(tensor_info(stated.type).shape, tensor_info(seen.type).shape)
    spread = node.broadcast_to(stated, joint)
    return node.apply(
        logical.SelectOp, node.broadcast_to(seen, joint), spread, node.splat(_HIDDEN, spread), name="mask"
    )


def _limits(node: Node) -> list[_Limit]:
    """What ``is_causal`` and the window say."""
    attributes = node.attributes
    limits: list[_Limit] = [(None, 0)] if attributes.int("is_causal", 0) else []
    window = [attributes.int(name, -1) for name in ("left_window_size", "right_window_size")]
    if any(size < -1 for size in window):
        raise node.invalid(f"the window is {window}; a size is 0 or more, or -1 for no limit")
    if window != [-1, -1]:
        left, right = (None if size < 0 else size for size in window)
        limits.append((left, right))
    return limits


def _stated_mask(node: Node, heads: _Heads) -> SSAValue | None:
    """The mask with all keys: those that it does not speak of are hidden."""
    if not node.has(_MASK):
        return None
    mask, sizes = node.operand(_MASK), node.shape(_MASK)
    is_bool = node.element(_MASK).kind == "bool"
    if not is_bool:
        mask = node.cast(mask, heads.element, "mask")
    missing = heads.scores[-1] - sizes[-1]
    if missing > 0:
        hidden = node.full(0 if is_bool else _HIDDEN, (), tensor_info(mask.type).element)
        high = [*[0] * (len(sizes) - 1), missing]
        mask = node.apply(logical.PadOp, mask, hidden, low=[0] * len(sizes), high=high, name="padded_mask")
    return node.reshape(mask, (1, *tensor_info(mask.type).shape), "mask_row") if len(sizes) == 1 else mask


def _seen(node: Node, heads: _Heads, limits: Sequence[_Limit]) -> SSAValue | None:
    """Which keys each query may see by its position, and which are no padding: [batch or none, 1, queries, keys]."""
    parts = _near(node, heads, limits)
    if node.has(_VALID):
        parts.append(_valid(node, heads))
    if not parts:
        return None
    return reduce(lambda seen, part: node.elementwise(logical.AndOp, seen, part, name="seen"), parts)


def _near(node: Node, heads: _Heads, limits: Sequence[_Limit]) -> list[SSAValue]:
    """For each limit which keys are inside of it: [batch or none, 1, queries, keys]."""
    if not limits:
        return []
    positions = _positions(node, heads)
    sizes = tensor_info(positions.type).shape
    columns = node.broadcast_to(node.add(logical.IotaOp(1, sizes[-2:], "i64"), "columns"), sizes)
    parts: list[SSAValue] = []
    for left, right in limits:
        if left is not None:
            first = node.apply(logical.SubOp, positions, left, name="first")
            parts.append(node.add(logical.CompareOp("ge", columns, first), "near"))
        if right is not None:
            last = node.apply(logical.AddOp, positions, right, name="last")
            parts.append(node.add(logical.CompareOp("le", columns, last), "near"))
    return parts


def _positions(node: Node, heads: _Heads) -> SSAValue:
    """The position of each query among the keys, as i64: [queries, keys], or [batch, 1, queries, keys]."""
    batch, _, queries, keys = heads.scores
    rows = node.add(logical.IotaOp(0, (queries, keys), "i64"), "rows")
    if not node.has(_VALID):
        return node.apply(logical.AddOp, rows, heads.past, name="places") if heads.past else rows
    valid = node.cast(
        node.reshape(node.operand(_VALID), (batch, 1, 1, 1), "valid"), tensor_info(rows.type).element, "valid"
    )
    first = node.apply(logical.SubOp, valid, queries, name="first")
    return node.elementwise(logical.AddOp, rows, first, name="places")


def _valid(node: Node, heads: _Heads) -> SSAValue:
    """Which keys are no padding: [batch, 1, 1, keys]."""
    batch, _, _, keys = heads.scores
    count = node.broadcast(node.operand(_VALID), [0], (batch, 1, 1, keys), "valid")
    element = tensor_info(count.type).element
    return node.add(
        logical.CompareOp("lt", node.add(logical.IotaOp(3, (batch, 1, 1, keys), element), "keys"), count),
        "no_padding",
    )


def _unseeing(node: Node, mask: SSAValue) -> SSAValue:
    """Which queries see no key, with size 1 in place of the keys."""
    info = tensor_info(mask.type)
    if info.element.kind == "bool":
        some = node.apply(logical.ReduceAnyOp, mask, axes=[info.rank - 1], keepdims=True)
        return node.apply(logical.NotOp, some, name="unseeing")
    most = node.apply(logical.ReduceMaxOp, mask, axes=[info.rank - 1], keepdims=True)
    return node.add(logical.CompareOp("eq", most, node.splat(_HIDDEN, most)), "unseeing")


def _without(node: Node, value: SSAValue, rows: SSAValue) -> SSAValue:
    """0 in some rows of the value, whatever stood there."""
    spread = node.broadcast_to(rows, tensor_info(value.type).shape)
    return node.apply(logical.SelectOp, spread, node.splat(0.0, value), value, name="unseeing_zero")


# Products with a softmax between them


def _weights(node: Node, heads: _Heads, mask: SSAValue | None, scale: float) -> tuple[SSAValue, SSAValue]:
    """The weight of each value, and the scores at the point that ``qk_matmul_output_mode`` names."""
    attributes, element = node.attributes, heads.element
    query = node.apply(logical.MulOp, heads.query, scale, name="scaled")
    stages = [_grouped_product(node, query, heads.key, transposed=True)]
    stages.append(_capped(node, stages[0], attributes.float("softcap", 0.0)))
    if mask is None and attributes.int("is_causal", 0):
        mask = _seen(node, heads, _limits(node))
    stages.append(stages[1] if mask is None else _masked(node, stages[1], mask))
    precision = element_of_onnx(attributes.int("softmax_precision", 0), element)
    wide = node.cast(stages[2], precision, "precision")
    weights = node.apply(logical.SoftmaxOp, wide, axis=3)
    if mask is not None:
        weights = _without(node, weights, _unseeing(node, mask))
    stages.append(node.cast(weights, element, "weights"))
    mode = attributes.int("qk_matmul_output_mode", 0)
    if not 0 <= mode < len(stages):
        raise node.invalid(f"qk_matmul_output_mode is {mode}; it is 0 to {len(stages) - 1}")
    return stages[-1], stages[mode]


def _capped(node: Node, scores: SSAValue, cap: float) -> SSAValue:
    """cap * tanh(scores / cap), or the scores if there is no cap."""
    if not cap:
        return scores
    bounded = node.apply(logical.TanhOp, node.apply(logical.DivOp, scores, cap))
    return node.apply(logical.MulOp, bounded, cap, name="capped")


def _masked(node: Node, scores: SSAValue, mask: SSAValue) -> SSAValue:
    """The scores plus the mask, or -inf where the mask is false."""
    spread = node.broadcast_to(mask, tensor_info(scores.type).shape)
    if tensor_info(mask.type).element.kind != "bool":
        return node.apply(logical.AddOp, scores, spread, name="masked")
    return node.apply(logical.SelectOp, spread, scores, node.splat(_HIDDEN, scores), name="masked")


def _grouped_product(node: Node, lhs: SSAValue, rhs: SSAValue, *, transposed: bool = False) -> SSAValue:
    """The product for every head on the left, several of which may share one on the right."""
    batch, heads, tokens, size = tensor_info(lhs.type).shape
    groups = tensor_info(rhs.type).shape[1]
    if heads == groups:
        return node.apply(logical.MatmulOp, lhs, rhs, transpose_b=transposed)
    if heads % groups:
        raise node.invalid(f"{heads} heads of queries are no multiple of {groups} heads of keys")
    left = node.reshape(lhs, (batch, groups, heads // groups, tokens, size), "groups")
    right = node.reshape(rhs, (batch, groups, 1, *tensor_info(rhs.type).shape[2:]), "groups")
    product = node.apply(logical.MatmulOp, left, right, transpose_b=transposed)
    return node.reshape(product, (batch, heads, *tensor_info(product.type).shape[3:]), "heads")


# Rotary embedding


@row("RotaryEmbedding", since=23)
def _rotary_embedding(node: Node) -> Result:
    """Turns pairs of the elements of each head by an angle that grows with the token's position (Su et al., 2021)."""
    sizes = node.shape(0)
    if len(sizes) == 4:
        return _rotated(node, node.operand(0), heads_axis=1)
    heads = node.attributes.int("num_heads", 0)
    if len(sizes) != 3 or heads < 1 or sizes[2] % heads:
        raise node.invalid(f"X is {node.type(0)} and num_heads {heads}; X of rank 3 has heads side by side")
    apart = node.reshape(node.operand(0), (*sizes[:2], heads, sizes[2] // heads), "heads")
    return node.reshape(_rotated(node, apart, heads_axis=2), sizes, "merged")


def _rotated(node: Node, x: SSAValue, heads_axis: int) -> SSAValue:
    """The first ``rotary_embedding_dim`` elements of each head turned, the others as they are."""
    *leading, size = tensor_info(x.type).shape
    turned = node.attributes.int("rotary_embedding_dim", 0) or size
    pairs = turned // 2
    first, second = _pairs(node, node.slice(x, [0] * 4, (*leading, turned)), leading, pairs)
    cosine, sine = (
        node.broadcast_to(_angles(node, index, heads_axis, pairs), (*leading, pairs)) for index in (1, 2)
    )
    real = node.apply(
        logical.SubOp, node.apply(logical.MulOp, cosine, first), node.apply(logical.MulOp, sine, second)
    )
    imaginary = node.apply(
        logical.AddOp, node.apply(logical.MulOp, sine, first), node.apply(logical.MulOp, cosine, second)
    )
    joined = _joined(node, real, imaginary, (*leading, turned))
    if turned == size:
        return joined
    rest = node.slice(x, [0, 0, 0, turned], (*leading, size - turned), suffix="rest")
    return node.concat([joined, rest], 3)


def _pairs(node: Node, x: SSAValue, leading: Sequence[int], pairs: int) -> tuple[SSAValue, SSAValue]:
    """First and second elements of the pairs: neighbours, or one of each half."""
    if node.attributes.int("interleaved", 0):
        starts, sizes = ((0, 0), (0, 1)), (*leading, pairs, 1)
        apart = node.reshape(x, (*leading, pairs, 2), "pairs")
    else:
        starts, sizes = ((0, 0), (1, 0)), (*leading, 1, pairs)
        apart = node.reshape(x, (*leading, 2, pairs), "pairs")
    parts = (node.slice(apart, (0, 0, 0, *start), sizes, suffix="half") for start in starts)
    first, second = (node.reshape(part, (*leading, pairs), "half") for part in parts)
    return first, second


def _joined(node: Node, first: SSAValue, second: SSAValue, sizes: Sequence[int]) -> SSAValue:
    """Pairs put together as they were taken apart."""
    if not node.attributes.int("interleaved", 0):
        return node.concat([first, second], 3)
    ends = [node.reshape(part, (*tensor_info(part.type).shape, 1), "end") for part in (first, second)]
    return node.reshape(node.concat(ends, 4), sizes, "joined")


def _angles(node: Node, index: int, heads_axis: int, pairs: int) -> SSAValue:
    """Cosines or sines as [batch, 1, tokens, pairs], or with the 1 after the tokens."""
    cache = node.operand(index)
    if node.has(3):
        cache = node.apply(logical.GatherOp, cache, node.operand(3), axis=0, name="at_positions")
    sizes = tensor_info(cache.type).shape
    if len(sizes) != 3 or sizes[2] != pairs:
        raise node.invalid(f"operand {index} gives {sizes}; cosines and sines are [batch, tokens, {pairs}]")
    batch, tokens, _ = sizes
    return node.reshape(
        cache, (batch, 1, tokens, pairs) if heads_axis == 1 else (batch, tokens, 1, pairs), "angles"
    )
