"""ATen's fused layers of transformers, which PyTorch calls in inference."""

from __future__ import annotations

import math

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer, row

_HIDDEN = float("-inf")


def _heads(writer: Writer, value: Value, count: int) -> Value:
    """[batch, tokens, heads * size] as [batch, heads, tokens, size]."""
    batch, tokens, whole = writer.sizes(value)
    return writer.permute(writer.reshape(value, [batch, tokens, count, whole // count]), [0, 2, 1, 3])


def _seen(writer: Writer, mask: Value, kind: int | None) -> Value:
    """Which keys are seen, [batch, heads, queries, keys] or ones in place of these; the mask says which are not."""
    sizes = list(writer.sizes(mask))
    if kind == 1:
        sizes = [sizes[0], 1, 1, sizes[1]]
    elif mask.rank == 2:
        sizes = [1, 1, *sizes]
    return writer.graph.not_(writer.reshape(writer.cast(mask, "i1"), sizes))


def _attended(
    writer: Writer,
    query: Value,
    key: Value,
    value: Value,
    count: int,
    qkv_weight: Value,
    qkv_bias: Value,
    mask: Value | None,
    kind: int | None,
) -> tuple[Value, Value, Value, Value | None]:
    """The heads side by side before the last product; the queries, the keys and which of them are seen."""
    graph = writer.graph
    batch, tokens, size = writer.sizes(query)
    queries, keys, values = (
        _heads(
            writer,
            graph.linear(
                one,
                writer.part(qkv_weight, 0, number * size, (number + 1) * size),
                writer.part(qkv_bias, 0, number * size, (number + 1) * size),
            ),
            count,
        )
        for number, one in enumerate((query, key, value))
    )
    seen = None if mask is None else _seen(writer, mask, kind)
    y = graph.attention(queries, keys, values, seen)
    merged = writer.reshape(writer.permute(y, [0, 2, 1, 3]), [batch, tokens, size])
    return merged, queries, keys, seen


@row("_native_multi_head_attention.default")
def _multi_head_attention(
    writer: Writer,
    query: Value,
    key: Value,
    value: Value,
    size: int,
    count: int,
    qkv_weight: Value,
    qkv_bias: Value,
    weight: Value,
    bias: Value,
    mask: Value | None = None,
    wants_weights: bool = True,
    averages: bool = True,
    kind: int | None = None,
) -> list[Value | None]:
    """Attention of several heads between two linear layers, and the weights of the values."""
    graph = writer.graph
    merged, queries, keys, seen = _attended(
        writer, query, key, value, count, qkv_weight, qkv_bias, mask, kind
    )
    y = graph.linear(merged, weight, bias)
    if not wants_weights or 1 not in writer.used:
        return [y, None]
    scores = graph.matmul(writer.widened(queries), writer.widened(keys), transpose_b=True)
    scores = scores * (1 / math.sqrt(size // count))
    if seen is not None:
        scores = graph.select(seen, scores, _HIDDEN)
    weights = graph.softmax(scores, 3)
    return [y, writer.result(graph.reduce_mean(weights, [1]) if averages else weights, 1)]


@row("_transformer_encoder_layer_fwd.default")
def _encoder_layer(
    writer: Writer,
    x: Value,
    size: int,
    count: int,
    qkv_weight: Value,
    qkv_bias: Value,
    weight: Value,
    bias: Value,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    scale1: Value,
    shift1: Value,
    scale2: Value,
    shift2: Value,
    weight1: Value,
    bias1: Value,
    weight2: Value,
    bias2: Value,
    mask: Value | None = None,
    kind: int | None = None,
) -> Value:
    """Attention to itself and two linear layers, each with a sum and a norm before or after it."""
    graph = writer.graph

    def attention(x: Value) -> Value:
        merged, *_ = _attended(writer, x, x, x, count, qkv_weight, qkv_bias, mask, kind)
        return graph.linear(merged, weight, bias)

    def layers(x: Value) -> Value:
        hidden = graph.linear(x, weight1, bias1)
        return graph.linear(graph.gelu(hidden) if use_gelu else graph.relu(hidden), weight2, bias2)

    def first(x: Value) -> Value:
        return graph.layer_norm(x, scale1, shift1, -1, eps)

    def second(x: Value) -> Value:
        return graph.layer_norm(x, scale2, shift2, -1, eps)

    if norm_first:
        x = x + attention(first(x))
        return x + layers(second(x))
    x = first(x + attention(x))
    return second(x + layers(x))
