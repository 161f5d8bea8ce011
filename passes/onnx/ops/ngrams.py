"""TfIdfVectorizer: how often each n-gram of a pool stands in a sequence of numbers, weighted if it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_named, tensor_info
from aicf.passes.onnx.ops.base import Array, Node, Result, row
from aicf.passes.onnx.ops.elementwise import compare
from aicf.passes.onnx.ops.tables import table

_MODES = ("TF", "IDF", "TFIDF")

MAX_COMPARISONS = 512
"""Most comparisons of all tokens that are written out: one for each element of an n-gram at each distance."""


@row("TfIdfVectorizer", since=9)
def _tf_idf(node: Node) -> Result:
    """Counts (TF), weights of what is there at all (IDF) or counts times weights, at the index of each n-gram.

    Elements of an n-gram are neighbours, or as far apart as ``max_skip_count`` lets them.
    """
    shape, mode = node.shape(0), node.attributes.string("mode", "TF")
    if mode not in _MODES:
        raise node.invalid(f"mode is '{mode}'; use one of {', '.join(_MODES)}")
    if len(shape) not in (1, 2):
        raise node.invalid(f"the operand has shape {list(shape)}; it is a sequence, or a batch of them")
    indexes = np.array(node.attributes.ints("ngram_indexes", []), np.int64)
    sequences, length = (1, *shape)[-2:]
    size = int(indexes.max(initial=-1)) + 1
    sizes = (*shape[:-1], size)
    if 0 in (*shape, size):
        return np.zeros(sizes, np.float32)
    tokens = node.cast(node.operand(0), element_named("i64"), "tokens")
    tokens = node.transpose(node.reshape(tokens, (sequences, length)), [1, 0])
    pools = _pools(node)
    _check_written(node, pools, length)
    counts = node.concat([_counted(node, tokens, grams) for grams in pools], 0)
    weighted = _weighted(node, counts, mode)
    zeros = node.full(0, (size, sequences), element_named("f32"))
    placed = node.apply(logical.ScatterOp, zeros, table(node, indexes), weighted, mode="add")
    return node.reshape(node.transpose(placed, [1, 0]), sizes)


def _pools(node: Node) -> list[Array]:
    """The n-grams of the pool, one array for each length: shape [number of n-grams, n]."""
    pool = node.attributes.ints("pool_int64s", None)
    if pool is None:
        raise node.unsupported("its pool is of strings; give the model numbers for them, and a pool of these")
    ends = [*node.attributes.ints("ngram_counts", [])[1:], len(pool)]
    starts = node.attributes.ints("ngram_counts", [])
    if any(start > end for start, end in zip(starts, ends, strict=True)):
        raise node.invalid(f"ngram_counts {starts} are no rising places of a pool of {len(pool)} numbers")
    spans = [pool[start:end] for start, end in zip(starts, ends, strict=True)]
    if any(len(span) % size for size, span in enumerate(spans, 1)):
        raise node.invalid(f"ngram_counts {starts} do not cut the pool into whole n-grams")
    return [np.array(span, np.int64).reshape(-1, size) for size, span in enumerate(spans, 1) if len(span) > 0]


def _counted(node: Node, tokens: SSAValue, grams: Array) -> SSAValue:
    """How often each n-gram is found in each column of the tokens, in f32, if its length is asked for; else 0."""
    length, sequences = tensor_info(tokens.type).shape
    number, size = grams.shape
    return reduce(
        lambda total, step: node.apply(logical.AddOp, total, _found(node, tokens, grams, step)),
        _distances(node, size, length),
        node.full(0, (number, sequences), element_named("f32")),
    )


def _distances(node: Node, size: int, length: int) -> range:
    """How far apart the elements of an n-gram may be in a sequence; none if its length is not asked for."""
    low, high = (node.attributes.int(name, 1) for name in ("min_gram_length", "max_gram_length"))
    if not low <= size <= high:
        return range(0)
    if size == 1:
        return range(1, 2)
    skips = max(node.attributes.int("max_skip_count", 0), -1)
    return range(1, min(skips + 1, (length - 1) // (size - 1)) + 1)


def _check_written(node: Node, pools: Sequence[Array], length: int) -> None:
    """Refuses what would be too many ops, before one is written."""
    sizes = [grams.shape[1] for grams in pools]
    comparisons = sum(size * len(_distances(node, size, length)) for size in sizes)
    if comparisons > MAX_COMPARISONS:
        raise node.unsupported(
            f"its n-grams of up to {max(sizes)} elements, up to max_skip_count + 1 tokens apart, take {comparisons} "
            f"comparisons of all tokens, which are written out one by one; at most {MAX_COMPARISONS} are: give it a "
            "smaller max_skip_count, shorter n-grams or shorter sequences"
        )


def _found(node: Node, tokens: SSAValue, grams: Array, step: int) -> SSAValue:
    """How often each n-gram is found with its elements ``step`` positions apart."""
    length, sequences = tensor_info(tokens.type).shape
    number, size = grams.shape
    positions = length - (size - 1) * step
    sizes = (number, positions, sequences)
    matches = [
        compare(
            node,
            "eq",
            node.broadcast_to(node.slice(tokens, [element * step, 0], [positions, sequences]), sizes),
            node.broadcast_axis(table(node, grams[:, element]), 0, sizes),
        )
        for element in range(size)
    ]
    match = reduce(lambda one, other: node.apply(logical.AndOp, one, other), matches)
    return node.apply(logical.ReduceSumOp, node.cast(match, element_named("f32"), "match"), axes=[1])


def _weighted(node: Node, counts: SSAValue, mode: str) -> SSAValue:
    weights = node.attributes.floats("weights", None)
    if mode == "IDF":
        counts = node.apply(logical.MinOp, counts, 1.0)
    if mode == "TF" or weights is None:
        return counts
    factors = node.broadcast_axis(
        table(node, np.array(weights, np.float32)), 0, tensor_info(counts.type).shape
    )
    return node.apply(logical.MulOp, counts, factors)
