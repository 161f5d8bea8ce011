"""ATen ops of attention, and their gradients.

PyTorch has a name for each library that computes it. All of them become one op; the logarithms of the sums that some of
them save for the backward op are computed only if something reads them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.attention_dropout import Dropout, drawn_dropout, same_dropout, state_of
from aicf.frontends.torch.ops.base import Empty, Writer, empty_row, is_bool, row

_HIDDEN = float("-inf")
_EFFICIENT = 4
"""Results of the library whose state of random numbers is at 2; others have it at 6."""


@dataclass(frozen=True)
class _Heads:
    """Queries, keys and values as [batch.., heads, tokens, size] with one batch.

    Args:
        mask: Of rank 2 or more, which meets the scores from the right; of truth values, or in the type of the queries.
    """

    query: Value
    key: Value
    value: Value
    mask: Value | None
    causal: bool
    scale: float


def _heads(
    writer: Writer,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None,
    causal: bool,
    scale: float | None,
    grouped: bool = False,
) -> _Heads:
    if any(isinstance(one, Empty) for one in (query, key, value)):
        writer.unsupported("queries, keys or values without elements", "give it at least one of each")
    rank = max(query.rank, key.rank, value.rank, 3, 0 if mask is None else mask.rank)
    query, key, value = (_of_rank(writer, one, rank) for one in (query, key, value))
    scale = scale if scale is not None else 1 / math.sqrt(writer.sizes(query)[-1])
    shapes = [writer.sizes(one) for one in (query, key, value)]
    batch = np.broadcast_shapes(*(shape[:-3] for shape in shapes))
    heads = [shape[-3] for shape in shapes]
    if not grouped and len(set(heads)) > 1:
        heads = [max(heads)] * 3
    if heads[1] != heads[2]:
        heads[1:] = [math.lcm(heads[1], heads[2])] * 2
    query, key, value = (
        _with_heads(writer, one, batch, count, repeats=grouped)
        for one, count in zip((query, key, value), heads, strict=True)
    )
    if mask is not None:
        mask = writer.reshape(mask, [1] * (2 - mask.rank) + list(writer.sizes(mask)))
        mask = mask if is_bool(mask.dtype) else writer.cast(mask, query.dtype)
    return _Heads(query, key, value, mask, causal, scale)


def _of_rank(writer: Writer, value: Value, rank: int) -> Value:
    return writer.reshape(value, [*[1] * (rank - value.rank), *writer.sizes(value)])


def _with_heads(writer: Writer, value: Value, batch: Sequence[int], heads: int, *, repeats: bool) -> Value:
    """The value for a batch and a number of heads, which follow each other if one is there several times."""
    *_, own, tokens, size = writer.sizes(value)
    if not repeats or own == heads:
        return writer.expand(value, [*batch, heads, tokens, size])
    return _repeated(writer, writer.expand(value, [*batch, own, tokens, size]), heads // own)


def _repeated(writer: Writer, value: Value, times: int) -> Value:
    """Each head so many times, one after the other."""
    if times == 1:
        return value
    *batch, heads, tokens, size = writer.sizes(value)
    apart = writer.reshape(value, [*batch, heads, 1, tokens, size])
    spread = writer.expand(apart, [*batch, heads, times, tokens, size])
    return writer.reshape(spread, [*batch, heads * times, tokens, size])


# Forward


def _attended(writer: Writer, heads: _Heads, dropout: Dropout | None = None) -> Value:
    """The op, which gives 0 for queries without visible keys; with dropout, its products and softmax."""
    if dropout is not None:
        weights = dropout.applied(writer, _softmax(writer, heads))
        return _of_values(writer, heads, weights)
    scale = heads.scale
    query = heads.query
    if scale == 0:
        query, scale = query * 0.0, 1.0
    y = writer.graph.attention(
        query,
        heads.key,
        heads.value,
        heads.mask,
        scale=scale,
        causal=heads.causal,
        empty_as_zero=heads.mask is not None,
    )
    return writer.reshape(y, writer.shape)


def _softmax(writer: Writer, heads: _Heads) -> Value:
    """The weights of the values, in the wide type: 0 for queries that see no key, which pass nothing back either."""
    scores = _scores(writer, heads)
    return writer.graph.softmax(scores, scores.rank - 1, empty_as_zero=heads.mask is not None)


def _of_values(writer: Writer, heads: _Heads, weights: Value) -> Value:
    """weights @ value."""
    value = _repeated(writer, heads.value, writer.sizes(weights)[-3] // writer.sizes(heads.value)[-3])
    y = writer.graph.matmul(weights, writer.widened(value))
    return writer.reshape(writer.result(y), writer.shape)


def _drawn(writer: Writer, heads: _Heads, rate: float) -> Dropout | None:
    queries = writer.sizes(heads.query)
    return drawn_dropout(writer, rate, [*queries[:-1], writer.sizes(heads.key)[-2]])


def _scores(writer: Writer, heads: _Heads) -> Value:
    """query @ key.T * scale and the mask, in the wide type: -inf where a key is hidden."""
    graph = writer.graph
    key = _repeated(writer, heads.key, writer.sizes(heads.query)[-3] // writer.sizes(heads.key)[-3])
    scores = graph.matmul(writer.widened(heads.query), writer.widened(key), transpose_b=True) * heads.scale
    if heads.mask is not None:
        scores = (
            graph.select(heads.mask, scores, _HIDDEN)
            if is_bool(heads.mask.dtype)
            else scores + writer.cast(heads.mask, scores.dtype)
        )
    if heads.causal:
        scores = graph.select(_seen(writer, scores), scores, _HIDDEN)
    return scores


def _seen(writer: Writer, scores: Value) -> Value:
    """Which keys are at the position of the query or before it, [queries, keys]."""
    sizes = writer.sizes(scores)[-2:]
    return writer.graph.le(writer.graph.iota(sizes, 1), writer.graph.iota(sizes, 0))


def _logsumexp(writer: Writer, heads: _Heads, index: int) -> Value | None:
    """log(sum(exp(scores))) of each query, as a result, which may have room for more queries."""
    if index not in writer.used or not writer.results[index].count:
        return None
    scores = _scores(writer, heads)
    total = writer.graph.reduce_logsumexp(scores, [scores.rank - 1])
    missing = writer.results[index].shape[-1] - writer.sizes(total)[-1]
    if writer.results[index].count != math.prod(writer.sizes(total)):
        total = writer.graph.pad(total, [0] * total.rank, [*[0] * (total.rank - 1), missing], _HIDDEN * -1)
    return writer.result(writer.reshape(total, writer.results[index].shape), index)


def _refuse_dropout(writer: Writer, rate: float) -> None:
    """For the library of the CPU, which has no dropout in PyTorch either."""
    if rate:
        writer.unsupported(
            f"attention that drops weights, at a rate of {rate}", "call scaled_dot_product_attention for it"
        )


@row("scaled_dot_product_attention.default")
def _attention(
    writer: Writer,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """softmax(query @ key.T * scale + mask) @ value."""
    heads = _heads(writer, query, key, value, mask, causal, scale, enable_gqa)
    return _attended(writer, heads, _drawn(writer, heads, dropout))


@row("_scaled_dot_product_attention_math.default")
def _attention_math(
    writer: Writer,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    dropped: Value | None = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> list[Value | None]:
    """The same, with the weights of the values."""
    if dropped is not None:
        writer.unsupported("attention with a mask of dropped weights", "give it a rate of dropout instead")
    heads = _heads(writer, query, key, value, mask, causal, scale, enable_gqa)
    drawn = _drawn(writer, heads, dropout)
    if 1 not in writer.used:
        return [_attended(writer, heads, drawn), None]
    weights = _softmax(writer, heads)
    if drawn is not None:
        weights = drawn.applied(writer, weights)
    y = _attended(writer, heads) if drawn is None else _of_values(writer, heads, weights)
    return [y, writer.result(writer.reshape(weights, writer.results[1].shape), 1)]


@row("_scaled_dot_product_flash_attention_for_cpu.default")
def _attention_cpu(
    writer: Writer,
    query: Value,
    key: Value,
    value: Value,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> list[Value | None]:
    """The same, with the logarithm of the sum of each query."""
    _refuse_dropout(writer, dropout)
    heads = _heads(writer, query, key, value, attn_mask, causal, scale, True)
    return [_attended(writer, heads), _logsumexp(writer, heads, 1)]


@row("_scaled_dot_product_flash_attention.default")
def _attention_flash(
    writer: Writer,
    query: Value,
    key: Value,
    value: Value,
    dropout: float = 0.0,
    causal: bool = False,
    debug: bool = False,
    *,
    scale: float | None = None,
) -> list[Value | None]:
    """The same; the other results of the library are for dropout."""
    heads = _heads(writer, query, key, value, None, causal, scale, True)
    return _with_state(writer, heads, dropout)


def _with_state(writer: Writer, heads: _Heads, rate: float) -> list[Value | None]:
    """Attention, the logarithms of its sums, and the state of dropout for the backward op."""
    dropout = _drawn(writer, heads, rate)
    seed_at = 2 if len(writer.results) == _EFFICIENT else 6
    return [
        _attended(writer, heads, dropout),
        _logsumexp(writer, heads, 1),
        *state_of(writer, dropout, 2, seed_at),
    ]


@row("_scaled_dot_product_efficient_attention.default", "_scaled_dot_product_cudnn_attention.default")
def _attention_biased(
    writer: Writer,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None,
    wants_sums: bool,
    dropout: float = 0.0,
    causal: bool = False,
    debug: bool = False,
    *,
    scale: float | None = None,
) -> list[Value | None]:
    """The same with a mask."""
    heads = _heads(writer, query, key, value, mask, causal, scale, True)
    return _with_state(writer, heads, dropout)


@row("_scaled_dot_product_fused_attention_overrideable.default")
def _attention_overrideable(
    writer: Writer,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    debug: bool = False,
    *,
    scale: float | None = None,
) -> list[Value | None]:
    """The same for devices of others."""
    heads = _heads(writer, query, key, value, mask, causal, scale, True)
    return _with_state(writer, heads, dropout)


# Backward


def _passed_back(
    writer: Writer,
    heads: _Heads,
    grad: Value,
    y: Value,
    sums: Value,
    shapes: Sequence[Sequence[int]],
    mask_index: int | None = None,
    dropout: Dropout | None = None,
) -> list[Value | None]:
    """To queries, keys and values, and to the mask.

    The weights are exp(scores - logarithm of the sum), and their scores get weight * (g @ value.T - sum(g * y)). Those
    that were dropped pass nothing back; sum(g * y) has them left out already.
    """
    graph, query, used = writer.graph, heads.query, writer.used
    times = writer.sizes(query)[-3] // writer.sizes(heads.key)[-3]
    key, value = (writer.widened(_repeated(writer, one, times)) for one in (heads.key, heads.value))
    wide_query, grad, y = (writer.widened(_of_rank(writer, one, query.rank)) for one in (query, grad, y))
    weights = _weights(writer, heads, sums)
    found: list[Value | None] = [None] * (3 if mask_index is None else 4)
    if 2 in used:
        dropped = weights if dropout is None else dropout.applied(writer, weights)
        product = graph.matmul(dropped, grad, transpose_a=True)
        found[2] = _of_groups(writer, product, times, shapes[2], 2)
    if used & {0, 1, 3}:
        by_weight = graph.matmul(grad, value, transpose_b=True)
        by_weight = by_weight if dropout is None else dropout.applied(writer, by_weight)
        slant = graph.reduce_sum(grad * y, [grad.rank - 1], keepdims=True)
        by_score = weights * (by_weight - slant)
        if 0 in used:
            product = graph.matmul(by_score, key) * heads.scale
            found[0] = writer.result(writer.reshape(product, shapes[0]), 0)
        if 1 in used:
            product = graph.matmul(by_score, wide_query, transpose_a=True) * heads.scale
            found[1] = _of_groups(writer, product, times, shapes[1], 1)
        if mask_index is not None and mask_index in used:
            found[mask_index] = _to_mask(writer, by_score, mask_index)
    return found


def _passed_back_on_gpu(
    writer: Writer,
    heads: _Heads,
    grad: Value,
    y: Value,
    sums: Value,
    shapes: Sequence[Sequence[int]],
    mask_index: int | None,
    dropout: Dropout | None,
) -> list[Value | None]:
    """The same; without dropout, `y` and `sums` are not read: see `nodes.forget_sums`."""
    if dropout is None:
        return _passed_back_again(writer, heads, grad, shapes, mask_index)
    return _passed_back(writer, heads, grad, y, sums, shapes, mask_index, dropout)


def _passed_back_again(
    writer: Writer, heads: _Heads, grad: Value, shapes: Sequence[Sequence[int]], mask_index: int | None
) -> list[Value | None]:
    """The same as reverse mode writes it, with a softmax of the scores: one kernel of a GPU computes all of that, and
    neither the result nor the logarithms of the sums need be saved."""
    graph, query, used = writer.graph, heads.query, writer.used
    times = writer.sizes(query)[-3] // writer.sizes(heads.key)[-3]
    key, value = (_repeated(writer, one, times) for one in (heads.key, heads.value))
    grad, mask = _of_rank(writer, grad, query.rank), heads.mask
    scores = graph.matmul(query, key, transpose_b=True) * heads.scale
    if mask is not None:
        if is_bool(mask.dtype):
            mask = graph.select(mask, graph.constant(0.0, (), query.dtype), _HIDDEN)
        scores = scores + mask
    seen = _seen(writer, scores) if heads.causal else None
    scores = scores if seen is None else graph.select(seen, scores, _HIDDEN)
    weights = graph.softmax(scores, scores.rank - 1, empty_as_zero=mask is not None)
    wide, by_weight = writer.widened(weights), writer.widened(graph.matmul(grad, value, transpose_b=True))
    slant = graph.reduce_sum(by_weight * wide, [wide.rank - 1], keepdims=True)
    by_score = writer.cast((by_weight - slant) * wide, query.dtype)
    by_score = by_score if seen is None else graph.select(seen, by_score, 0.0)
    by_product = by_score * heads.scale
    found: list[Value | None] = [None] * (3 if mask_index is None else 4)
    if 0 in used:
        found[0] = writer.result(writer.reshape(graph.matmul(by_product, key), shapes[0]), 0)
    if 1 in used:
        product = graph.matmul(by_product, query, transpose_a=True)
        found[1] = _of_groups(writer, product, times, shapes[1], 1)
    if 2 in used:
        product = graph.matmul(weights, grad, transpose_a=True)
        found[2] = _of_groups(writer, product, times, shapes[2], 2)
    if mask_index is not None and mask_index in used:
        found[mask_index] = _to_mask(writer, by_score, mask_index)
    return found


def _weights(writer: Writer, heads: _Heads, sums: Value) -> Value:
    """exp(scores - sums), and 0 where a key is hidden, even from a query that sees none."""
    graph = writer.graph
    mask = heads.mask
    is_additive = mask is not None and not is_bool(mask.dtype)
    unmasked = _Heads(heads.query, heads.key, heads.value, mask if is_additive else None, False, heads.scale)
    scores = _scores(writer, unmasked)
    rows = writer.cast(sums, scores.dtype)
    queries = writer.sizes(scores)[-2]
    rows = writer.part(rows, rows.rank - 1, 0, queries)
    rows = writer.reshape(rows, [*writer.sizes(scores)[:-1], 1])
    weights = graph.exp(scores - rows)
    hidden: list[Value] = []
    if heads.causal:
        hidden.append(_seen(writer, scores))
    if is_additive:
        hidden.append(graph.ne(scores, _HIDDEN))
    elif mask is not None:
        hidden.append(mask)
    for seen in hidden:
        weights = graph.select(seen, weights, 0.0)
    return weights


def _of_groups(writer: Writer, product: Value, times: int, shape: Sequence[int], index: int) -> Value:
    """The sum over the queries that share a head of keys and values, as a result."""
    if times > 1:
        *batch, heads, tokens, size = writer.sizes(product)
        apart = writer.reshape(product, [*batch, heads // times, times, tokens, size])
        product = writer.graph.reduce_sum(apart, [apart.rank - 3])
    return writer.result(writer.reshape(product, shape), index)


def _to_mask(writer: Writer, by_score: Value, index: int) -> Value:
    """The sums along the dimensions in which one mask was for all."""
    wanted = writer.results[index].shape
    sizes = writer.sizes(by_score)
    padded = [*[1] * (len(sizes) - len(wanted)), *wanted]
    axes = [axis for axis, size in enumerate(padded) if size != sizes[axis]]
    summed = writer.graph.reduce_sum(by_score, axes) if axes else by_score
    return writer.result(writer.reshape(summed, wanted), index)


def _shapes(writer: Writer, *values: Value) -> list[Sequence[int]]:
    return [writer.sizes(value) for value in values]


@row("_scaled_dot_product_flash_attention_for_cpu_backward.default")
def _cpu_backward(
    writer: Writer,
    grad: Value,
    query: Value,
    key: Value,
    value: Value,
    y: Value,
    sums: Value,
    dropout: float,
    causal: bool,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> list[Value | None]:
    """The gradients of attention."""
    _refuse_dropout(writer, dropout)
    heads = _heads(writer, query, key, value, attn_mask, causal, scale, True)
    return _passed_back(writer, heads, grad, y, sums, _shapes(writer, query, key, value))


@row("_scaled_dot_product_flash_attention_backward.default")
@empty_row("_scaled_dot_product_flash_attention_backward.default")
def _flash_backward(
    writer: Writer,
    grad: Value,
    query: Value,
    key: Value,
    value: Value,
    y: Value,
    sums: Value,
    query_places: object,
    key_places: object,
    most_queries: int,
    most_keys: int,
    dropout: float,
    causal: bool,
    *random: object,
    scale: float | None = None,
) -> list[Value | None]:
    """The gradients of attention."""
    drops = same_dropout(writer, dropout, random)
    heads = _heads(writer, query, key, value, None, causal, scale, True)
    return _passed_back_on_gpu(writer, heads, grad, y, sums, _shapes(writer, query, key, value), None, drops)


@row("_scaled_dot_product_efficient_attention_backward.default")
@empty_row("_scaled_dot_product_efficient_attention_backward.default")
def _efficient_backward(
    writer: Writer,
    grad: Value,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None,
    y: Value,
    sums: Value,
    seed: object,
    offset: object,
    dropout: float,
    wanted: Sequence[bool],
    causal: bool = False,
    *,
    scale: float | None = None,
) -> list[Value | None]:
    """The gradients of attention, with that of the mask."""
    drops = same_dropout(writer, dropout, [seed, offset])
    heads = _heads(writer, query, key, value, mask, causal, scale, True)
    return _passed_back_on_gpu(writer, heads, grad, y, sums, _shapes(writer, query, key, value), 3, drops)


@row("_scaled_dot_product_cudnn_attention_backward.default")
@empty_row("_scaled_dot_product_cudnn_attention_backward.default")
def _cudnn_backward(
    writer: Writer,
    grad: Value,
    query: Value,
    key: Value,
    value: Value,
    y: Value,
    sums: Value,
    seed: object,
    offset: object,
    mask: Value | None,
    query_places: object,
    key_places: object,
    most_queries: int,
    most_keys: int,
    dropout: float,
    causal: bool,
    *,
    scale: float | None = None,
) -> list[Value | None]:
    """The gradients of attention."""
    drops = same_dropout(writer, dropout, [seed, offset])
    heads = _heads(writer, query, key, value, mask, causal, scale, True)
    if drops is not None and sums.rank == query.rank:
        sums = writer.drop(sums, sums.rank - 1)
    return _passed_back_on_gpu(writer, heads, grad, y, sums, _shapes(writer, query, key, value), None, drops)


@row("_scaled_dot_product_fused_attention_overrideable_backward.default")
@empty_row("_scaled_dot_product_fused_attention_overrideable_backward.default")
def _overrideable_backward(
    writer: Writer,
    grad: Value,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None,
    wanted: Sequence[bool],
    y: Value,
    sums: Value,
    query_places: object,
    key_places: object,
    most_queries: int,
    most_keys: int,
    dropout: float,
    causal: bool,
    *random: object,
    scale: float | None = None,
) -> list[Value | None]:
    """The gradients of attention, with that of the mask."""
    drops = same_dropout(writer, dropout, random)
    heads = _heads(writer, query, key, value, mask, causal, scale, True)
    return _passed_back_on_gpu(writer, heads, grad, y, sums, _shapes(writer, query, key, value), 3, drops)
