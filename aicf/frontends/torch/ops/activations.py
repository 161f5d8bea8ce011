"""ATen's activations. Their gradients are in ``activation_gradients.py``.

An activation that is a logical op stays one op: it computes f16 and bf16 in f32, and fusion recognizes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from aicf.dialects.logical import Approximation
from aicf.frontends.builder import Graph, Value
from aicf.frontends.torch.ops.base import Number, Writer, is_float, row
from aicf.frontends.torch.ops.comparison import open_clamp
from aicf.frontends.torch.ops.elementwise import formula, operator

SOFTPLUS_EXACT = 20.0
"""From here on softplus and its operand are the same number in f32."""
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
"""The numbers of Klambauer and others, 2017."""


@operator("relu.default")
def _relu(graph: Graph, x: Value) -> Value:
    """The larger of x and 0."""
    return graph.relu(x) if is_float(x.dtype) else graph.max(x, 0)


@row("relu6.default")
def _relu6(writer: Writer, x: Value) -> Value:
    """x between 0 and 6."""
    return open_clamp(writer, x, 0, 6)


@row("gelu.default")
def _gelu(writer: Writer, x: Value, *, approximate: Approximation = "none") -> Value:
    """x times the normal distribution of x, or an approximation by a tanh."""
    return writer.graph.gelu(x, approximate)


@operator("silu.default")
def _silu(graph: Graph, x: Value) -> Value:
    """x * sigmoid(x)."""
    return graph.silu(x)


@row("leaky_relu.default")
def _leaky_relu(writer: Writer, x: Value, slope: Number = 0.01) -> Value:
    """x above 0, slope * x below."""
    return writer.graph.leaky_relu(x, float(slope))


@row("elu.default")
def _elu(writer: Writer, x: Value, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Value:
    """scale * x above 0, scale * alpha * expm1(input_scale * x) below."""
    graph = writer.graph
    if scale == 1 and input_scale == 1:
        return graph.elu(x, float(alpha))
    x = writer.widened(x)
    if input_scale == 1:
        return writer.result(graph.mul(graph.elu(x, float(alpha)), float(scale)))
    curve = graph.mul(graph.expm1(graph.mul(x, float(input_scale))), float(alpha) * float(scale))
    line = x if scale == 1 else graph.mul(x, float(scale))
    return writer.result(graph.select(graph.gt(x, 0.0), line, curve))


@row("celu.default")
def _celu(writer: Writer, x: Value, alpha: Number = 1.0) -> Value:
    """x above 0, alpha * expm1(x / alpha) below."""
    return _elu(writer, x, alpha, 1, 1 / alpha)


@row("selu.default")
def _selu(writer: Writer, x: Value) -> Value:
    """elu with numbers that keep mean and variance."""
    return _elu(writer, x, SELU_ALPHA, SELU_SCALE)


@operator("hardswish.default")
def _hardswish(graph: Graph, x: Value) -> Value:
    """x * hardsigmoid(x)."""
    return graph.hard_swish(x)


@operator("hardsigmoid.default")
def _hardsigmoid(graph: Graph, x: Value) -> Value:
    """x / 6 + 1/2, cut off at 0 and 1."""
    return graph.hard_sigmoid(x)


@row("softplus.default")
def _softplus(writer: Writer, x: Value, beta: Number = 1, threshold: Number = SOFTPLUS_EXACT) -> Value:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold."""
    graph = writer.graph
    exact = graph.softplus(x, float(beta))
    if threshold >= SOFTPLUS_EXACT and x.dtype != "f64":
        return exact
    return graph.select(graph.gt(graph.mul(x, float(beta)), float(threshold)), x, exact)


@formula("mish.default")
def _mish(graph: Graph, x: Value) -> Value:
    """x * tanh(softplus(x))."""
    return graph.mul(x, graph.tanh(graph.softplus(x)))


@formula("_prelu_kernel.default")
def _prelu_kernel(graph: Graph, x: Value, weight: Value) -> Value:
    """x above 0, weight * x below."""
    return graph.select(graph.gt(x, 0.0), x, graph.mul(x, weight))


@row("prelu.default")
def _prelu(writer: Writer, x: Value, weight: Value) -> Value:
    """x above 0, weight * x below, one weight for all or one for each channel."""
    if x.rank > 1:
        count = writer.sizes(weight)[0] if weight.rank else 1
        weight = writer.reshape(weight, [count if axis == 1 else 1 for axis in range(x.rank)])
    return writer.result(_prelu_kernel(writer.graph, writer.widened(x), writer.widened(weight)))


@row("threshold.default")
def _threshold(writer: Writer, x: Value, threshold: Number, value: Number) -> Value:
    """x above the threshold, a value elsewhere."""
    below = writer.graph.le(x, writer.operand(threshold, x.dtype))
    return writer.graph.select(below, writer.operand(value, x.dtype), x)


def log_of_sigmoid(graph: Graph, x: Value) -> Value:
    """log(sigmoid(x)), without overflow."""
    return graph.sub(graph.min(x, 0.0), graph.log1p(graph.exp(graph.neg(graph.abs(x)))))


@formula("log_sigmoid.default")
def _log_sigmoid(graph: Graph, x: Value) -> Value:
    """log(sigmoid(x))."""
    return log_of_sigmoid(graph, x)


@row("log_sigmoid_forward.default")
def _log_sigmoid_forward(writer: Writer, x: Value) -> Sequence[Value | None]:
    """log(sigmoid(x)), and on the CPU exp(-|x|), which the gradient here does not read."""
    graph, wide = writer.graph, writer.widened(x)
    result = writer.result(log_of_sigmoid(graph, wide))
    if 1 not in writer.used or not writer.results[1].count:
        return [result, None]
    return [result, writer.result(graph.exp(graph.neg(graph.abs(wide))), 1)]


@row("glu.default")
def _glu(writer: Writer, x: Value, axis: int = -1) -> Value:
    """The first half along an axis times the sigmoid of the second."""
    first, second = halves(writer, x, axis)
    return writer.graph.mul(first, writer.graph.sigmoid(second))


def halves(writer: Writer, x: Value, axis: int) -> tuple[Value, Value]:
    """The two halves of a tensor along an axis."""
    axis = writer.axis(axis, x.rank)
    size = writer.sizes(x)[axis]
    return writer.part(x, axis, 0, size // 2), writer.part(x, axis, size // 2, size)


@row("softshrink.default")
def _softshrink(writer: Writer, x: Value, lambd: Number = 0.5) -> Value:
    """x moved towards 0 by lambd, but not over it; NaN stays NaN."""
    graph, wide, limit = writer.graph, writer.widened(x), float(lambd)
    near = graph.select(graph.is_nan(wide), wide, 0.0)
    below = graph.select(graph.lt(wide, -limit), graph.add(wide, limit), near)
    return writer.result(graph.select(graph.gt(wide, limit), graph.sub(wide, limit), below))


@row("hardshrink.default")
def _hardshrink(writer: Writer, x: Value, lambd: Number = 0.5) -> Value:
    """x, but 0 where it is no further from 0 than lambd."""
    graph, limit = writer.graph, float(lambd)
    return graph.select(within(graph, x, -limit, limit), 0.0, x)


def within(graph: Graph, x: Value, low: float, high: float) -> Value:
    """Whether x lies from low to high."""
    return graph.and_(graph.ge(x, low), graph.le(x, high))


@row("rrelu_with_noise_functional.default", "rrelu_with_noise.default")
def _rrelu(
    writer: Writer,
    x: Value,
    noise: Value,
    lower: Number = 0.125,
    upper: Number = 1 / 3,
    training: bool = False,
    *_: object,
) -> Sequence[Value | None]:
    """A leaky relu: in training with a random slope for each element, which is the second result."""
    graph = writer.graph
    if not training:
        slope = (float(lower) + float(upper)) / 2
        return [graph.leaky_relu(x, slope), noise][: len(writer.results)]
    drawn = writer.random("uniform", writer.sizes(x), "f64" if x.dtype == "f64" else "f32")
    slopes = graph.add(graph.mul(drawn, float(upper) - float(lower)), float(lower))
    slopes = graph.select(graph.gt(x, 0.0), 1.0, slopes)
    results = [writer.result(graph.mul(writer.widened(x), slopes)), writer.cast(slopes, noise.dtype)]
    return results[: len(writer.results)]
