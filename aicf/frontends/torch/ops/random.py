"""ATen ops that draw random numbers, from Philox streams seeded in each call.

Each node has numbers of its own: `Writer.random` sets them apart. They are not the numbers that PyTorch would draw.
"""

from __future__ import annotations

import math

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Number, Operand, Writer, row, wide

# Numbers


@row("rand.default", "rand.generator", "rand_like.default", "rand_like.generator")
def _rand(writer: Writer, *_: object, **named: object) -> Value:
    """Numbers from 0 to below 1, all equally likely."""
    return writer.random("uniform", writer.shape, writer.dtype)


@row("randn.default", "randn.generator", "randn_like.default", "randn_like.generator")
def _randn(writer: Writer, *_: object, **named: object) -> Value:
    """Numbers of the normal distribution."""
    return writer.random("normal", writer.shape, writer.dtype)


@row("uniform.default")
def _uniform(writer: Writer, x: Value, low: float = 0.0, high: float = 1.0) -> Value:
    """Numbers from low to high, all equally likely."""
    return _moved(writer, _wide_uniform(writer), high - low, low)


@row("normal_functional.default")
def _normal_functional(writer: Writer, x: Value, mean: float = 0.0, std: float = 1.0) -> Value:
    """Numbers of a normal distribution."""
    return _moved(writer, _wide_normal(writer), std, mean)


@row("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor", "normal.float_float")
def _normal(writer: Writer, mean: Operand = 0.0, std: Operand = 1.0, *_: object, **named: object) -> Value:
    """Numbers of normal distributions, whose means and deviations may be tensors."""
    return _moved(writer, _wide_normal(writer), std, mean)


@row("log_normal.default")
def _log_normal(writer: Writer, x: Value, mean: float = 1.0, std: float = 2.0) -> Value:
    """exp of numbers of a normal distribution."""
    return writer.cast(writer.graph.exp(_moved(writer, _wide_normal(writer), std, mean)), writer.dtype)


@row("exponential.default")
def _exponential(writer: Writer, x: Value, rate: float = 1.0) -> Value:
    """Numbers of the exponential distribution."""
    return writer.result(writer.graph.div(_waits(writer), rate))


@row("geometric.default")
def _geometric(writer: Writer, x: Value, p: float) -> Value:
    """How many tries the first success takes."""
    tries = writer.graph.ceil(writer.graph.div(_waits(writer), -math.log1p(-p)))
    return writer.result(writer.graph.max(tries, 1.0))


@row("cauchy.default")
def _cauchy(writer: Writer, x: Value, median: float = 0.0, sigma: float = 1.0) -> Value:
    """Numbers of the Cauchy distribution."""
    graph = writer.graph
    angle = graph.mul(graph.sub(_wide_uniform(writer), 0.5), math.pi)
    return _moved(writer, graph.tan(angle), sigma, median)


def _wide_uniform(writer: Writer) -> Value:
    return writer.random("uniform", writer.shape, wide(writer.dtype))


def _wide_normal(writer: Writer) -> Value:
    return writer.random("normal", writer.shape, wide(writer.dtype))


def _waits(writer: Writer) -> Value:
    """-log(1 - u), numbers of the exponential distribution."""
    graph = writer.graph
    dtype = "f64" if writer.dtype == "f64" else "f32"
    return graph.neg(graph.log1p(graph.neg(writer.random("uniform", writer.shape, dtype))))


def _moved(writer: Writer, drawn: Value, factor: Operand, start: Operand) -> Value:
    """start + factor * drawn."""
    graph = writer.graph
    if factor != 1:
        drawn = graph.mul(drawn, writer.operand(factor, drawn.dtype))
    if start != 0:
        drawn = graph.add(drawn, writer.operand(start, drawn.dtype))
    return writer.result(drawn)


# Whole numbers


@row("randint.default", "randint.generator")
def _randint(writer: Writer, high: int, size: object, **named: object) -> Value:
    """Whole numbers from 0 to below high."""
    return _whole(writer, 0, high)


@row("randint.low", "randint.low_generator")
def _randint_from(writer: Writer, low: int, high: int, size: object, **named: object) -> Value:
    """Whole numbers from low to below high."""
    return _whole(writer, low, high)


@row("randint_like.default", "randint_like.generator")
def _randint_like(writer: Writer, x: Value, high: int, **named: object) -> Value:
    """Whole numbers from 0 to below high."""
    return _whole(writer, 0, high)


@row("randint_like.low_dtype", "randint_like.low_generator_dtype", "random.from")
def _randint_like_from(writer: Writer, x: Value, low: int, high: int | None, **named: object) -> Value:
    """Whole numbers from low to below high."""
    return _whole(writer, low, 2**31 if high is None else high)


@row("random.to")
def _random_to(writer: Writer, x: Value, high: int) -> Value:
    """Whole numbers from 0 to below high."""
    return _whole(writer, 0, high)


_RESOLUTION = 32
"""Random bits of a uniform number of type f64."""


def _whole(writer: Writer, low: int, high: int) -> Value:
    if high - low > 2**_RESOLUTION:
        writer.unsupported(
            f"a range of {high - low} whole numbers", f"draw from at most 2 ** {_RESOLUTION} of them"
        )
    graph = writer.graph
    drawn = graph.floor(graph.mul(writer.random("uniform", writer.shape, "f64"), float(high - low)))
    return writer.result(graph.add(graph.cast(drawn, "i64"), low))


@row("randperm.default", "randperm.generator")
def _randperm(writer: Writer, count: int, **named: object) -> Value:
    """The numbers below a count in random order: the order of as many random numbers."""
    keys = writer.random("uniform", [count], "f64")
    return writer.result(writer.graph.topk_indices(keys, 0, count))


# Choices


@row("bernoulli.default")
def _bernoulli(writer: Writer, chance: Value) -> Value:
    """1 with the chance that each element says, else 0."""
    return _chosen(writer, chance)


@row("bernoulli.p", "bernoulli.Tensor")
def _bernoulli_like(writer: Writer, x: Value, chance: Operand) -> Value:
    """1 with a chance, else 0."""
    return _chosen(writer, chance)


def _chosen(writer: Writer, chance: Operand) -> Value:
    dtype = chance.dtype if isinstance(chance, Value) and chance.dtype == "f64" else "f32"
    drawn = writer.random("uniform", writer.shape, dtype)
    return writer.result(writer.graph.lt(drawn, writer.operand(chance, dtype)))


@row("multinomial.default")
def _multinomial(writer: Writer, weights: Value, count: int, replacement: bool = False) -> Value:
    """Indices that are drawn by their weights; without replacement those whose random wait is the shortest."""
    graph = writer.graph
    weights = writer.cast(weights, "f64" if weights.dtype == "f64" else "f32")
    if not replacement:
        drawn = graph.log1p(graph.neg(writer.random("uniform", writer.sizes(weights), weights.dtype)))
        # Weights of 0 wait for ever; a draw of 0 is no wait at all, but not of those.
        waits = graph.select(graph.gt(weights, 0.0), graph.div(drawn, weights), -math.inf)
        return graph.topk_indices(waits, -1, count)
    ends = graph.cumsum(weights, -1)
    size = writer.sizes(weights)[-1]
    total = writer.part(ends, weights.rank - 1, size - 1, size)
    drawn = graph.mul(writer.random("uniform", writer.shape, weights.dtype), total)
    passed = graph.ge(writer.insert(drawn, drawn.rank), writer.insert(ends, ends.rank - 1))
    index = graph.reduce_sum(graph.cast(passed, "i64"), [drawn.rank])
    return graph.min(index, size - 1)


# Dropout


@row("dropout.default")
def _dropout(writer: Writer, x: Value, rate: float, train: bool) -> Value:
    """x / (1 - rate) where it is kept, 0 elsewhere; x itself outside of training."""
    dropped, _ = _native_dropout(writer, x, rate, train)
    return dropped


@row("native_dropout.default")
def _native_dropout(writer: Writer, x: Value, rate: float, train: bool | None) -> tuple[Value, Value]:
    """dropout, and which elements are kept.

    `logical.dropout` is for steps of training alone: elsewhere it is the identity. PyTorch says by `train` what it is.
    """
    graph = writer.graph
    if train is False or rate == 0:
        return x, writer.full(writer.shape, 1, "i1")
    if rate == 1:
        return writer.full(writer.shape, 0, writer.dtype), writer.full(writer.shape, 0, "i1")
    drawn = writer.random("uniform", writer.shape, "f32")
    kept = graph.ge(drawn, float(rate))
    scaled = writer.result(graph.mul(writer.widened(x), 1 / (1 - rate)))
    return graph.select(kept, scaled, 0.0), kept


@row("native_dropout_backward.default")
def _native_dropout_backward(writer: Writer, gradient: Value, kept: Value, scale: Number) -> Value:
    """gradient * scale where the element was kept, else 0."""
    scaled = writer.result(writer.graph.mul(writer.widened(gradient), float(scale)))
    return writer.graph.select(writer.cast(kept, "i1"), scaled, 0.0)
