"""Gradients of activations: the incoming gradient times the slope at the operand or the result."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aicf.frontends.builder import Graph, Value
from aicf.frontends.torch.ops.activations import halves, within
from aicf.frontends.torch.ops.base import Number, Writer, empty_row, is_float, row
from aicf.frontends.torch.ops.elementwise import complement, formula, square

# Functions


@formula("tanh_backward.default")
def _tanh(graph: Graph, gradient: Value, result: Value) -> Value:
    """gradient * (1 - result * result)."""
    return graph.mul(gradient, complement(graph, square(graph, result)))


@formula("sigmoid_backward.default")
def _sigmoid(graph: Graph, gradient: Value, result: Value) -> Value:
    """gradient * result * (1 - result)."""
    return graph.mul(gradient, graph.mul(result, complement(graph, result)))


@formula("logit_backward.default")
def _logit(graph: Graph, gradient: Value, x: Value, eps: float | None = None) -> Value:
    """gradient / (x * (1 - x)); outside of eps to 1 - eps it is 0, or NaN outside of 0 to 1 if there is no eps."""
    low, outside = (0.0, math.nan) if eps is None else (float(eps), 0.0)
    slope = graph.mul(x, complement(graph, x))
    inside = within(graph, x, low, 1 - low)
    return graph.select(inside, graph.div(gradient, slope), outside)


# Activations


@formula("gelu_backward.default")
def _gelu(graph: Graph, gradient: Value, x: Value, *, approximate: str = "none") -> Value:
    """gradient * (P + x * P'), P the normal distribution at x or its approximation by a tanh."""
    share, slope = _tanh_share(graph, x) if approximate == "tanh" else _normal_share(graph, x)
    return graph.mul(gradient, graph.add(share, graph.mul(x, slope)))


def _normal_share(graph: Graph, x: Value) -> tuple[Value, Value]:
    share = graph.mul(graph.add(graph.erf(graph.mul(x, math.sqrt(0.5))), 1.0), 0.5)
    density = graph.mul(graph.exp(graph.mul(square(graph, x), -0.5)), 1 / math.sqrt(2 * math.pi))
    return share, density


def _tanh_share(graph: Graph, x: Value) -> tuple[Value, Value]:
    factor, cubic = math.sqrt(2 / math.pi), 0.044715
    inner = graph.mul(graph.mul(graph.add(graph.mul(square(graph, x), cubic), 1.0), x), factor)
    tanh = graph.tanh(inner)
    inner_slope = graph.mul(graph.add(graph.mul(square(graph, x), 3 * cubic), 1.0), factor)
    slope = graph.mul(graph.mul(complement(graph, square(graph, tanh)), inner_slope), 0.5)
    return graph.mul(graph.add(tanh, 1.0), 0.5), slope


@formula("silu_backward.default")
def _silu(graph: Graph, gradient: Value, x: Value) -> Value:
    """gradient * s * (1 + x * (1 - s)), s the sigmoid of x."""
    share = graph.sigmoid(x)
    slope = graph.add(graph.mul(x, complement(graph, share)), 1.0)
    return graph.mul(gradient, graph.mul(share, slope))


@formula("mish_backward.default")
def _mish(graph: Graph, gradient: Value, x: Value) -> Value:
    """gradient * (t + x * sigmoid(x) * (1 - t * t)), t the tanh of softplus(x)."""
    tanh = graph.tanh(graph.softplus(x))
    slope = graph.mul(graph.silu(x), complement(graph, square(graph, tanh)))
    return graph.mul(gradient, graph.add(tanh, slope))


@row("threshold_backward.default")
def _threshold(writer: Writer, gradient: Value, x: Value, threshold: Number) -> Value:
    """The gradient where x is above the threshold, else 0."""
    gradient, x = (writer.cast(value, writer.dtype) for value in (gradient, x))
    zero = 0.0 if is_float(writer.dtype) else 0
    return writer.graph.select(writer.graph.le(x, writer.operand(threshold, x.dtype)), zero, gradient)


@formula("leaky_relu_backward.default")
def _leaky_relu(graph: Graph, gradient: Value, x: Value, slope: Number, is_result: bool) -> Value:
    """The gradient, times the slope where x is not above 0."""
    return graph.select(graph.gt(x, 0.0), gradient, graph.mul(gradient, float(slope)))


@formula("elu_backward.default")
def _elu(
    graph: Graph,
    gradient: Value,
    alpha: Number,
    scale: Number,
    input_scale: Number,
    is_result: bool,
    x: Value,
) -> Value:
    """gradient * scale above 0; below times the slope of the curve, which follows from the result too."""
    curve = float(alpha) * float(scale)
    if is_result:
        slope = graph.mul(graph.add(x, curve), float(input_scale))
    else:
        slope = graph.mul(graph.exp(graph.mul(x, float(input_scale))), curve * float(input_scale))
    above = gradient if scale == 1 else graph.mul(gradient, float(scale))
    return graph.select(graph.le(x, 0.0), graph.mul(gradient, slope), above)


@formula("hardtanh_backward.default")
def _hardtanh(graph: Graph, gradient: Value, x: Value, low: Number, high: Number) -> Value:
    """The gradient where x is between the bounds, else 0."""
    outside = graph.or_(graph.le(x, float(low)), graph.ge(x, float(high)))
    return graph.select(outside, 0.0, gradient)


@formula("hardswish_backward.default")
def _hardswish(graph: Graph, gradient: Value, x: Value) -> Value:
    """0 up to -3, the gradient from 3 on, and gradient * (x / 3 + 1/2) between."""
    slope = graph.add(graph.div(x, 3.0), 0.5)
    below = graph.select(graph.le(x, -3.0), 0.0, graph.mul(gradient, slope))
    return graph.select(graph.ge(x, 3.0), gradient, below)


@formula("hardsigmoid_backward.default")
def _hardsigmoid(graph: Graph, gradient: Value, x: Value) -> Value:
    """gradient / 6 between -3 and 3, else 0."""
    between = graph.and_(graph.gt(x, -3.0), graph.lt(x, 3.0))
    return graph.select(between, graph.div(gradient, 6.0), 0.0)


@formula("softplus_backward.default")
def _softplus(graph: Graph, gradient: Value, x: Value, beta: Number, threshold: Number) -> Value:
    """gradient * sigmoid(beta * x); above the threshold the gradient itself."""
    scaled = x if beta == 1 else graph.mul(x, float(beta))
    return graph.select(
        graph.gt(scaled, float(threshold)), gradient, graph.mul(gradient, graph.sigmoid(scaled))
    )


@formula("log_sigmoid_backward.default")
def _log_sigmoid(graph: Graph, gradient: Value, x: Value, buffer: object) -> Value:
    """gradient * (1 - sigmoid(x)); what the forward op left is not needed."""
    return graph.mul(gradient, graph.sigmoid(graph.neg(x)))


@empty_row("log_sigmoid_backward.default")
def _log_sigmoid_without_buffer(writer: Writer, gradient: Value, x: Value, buffer: object) -> Value:
    """As above; on a GPU the forward op leaves nothing."""
    return writer.result(_log_sigmoid(writer.graph, writer.widened(gradient), writer.widened(x), None))


@row("glu_backward.default")
def _glu(writer: Writer, gradient: Value, x: Value, axis: int) -> Value:
    """gradient * s for the first half, gradient * first * s * (1 - s) for the second; s the sigmoid of the second."""
    graph = writer.graph
    first, second = halves(writer, writer.widened(x), axis)
    share, gradient = graph.sigmoid(second), writer.widened(gradient)
    of_first = graph.mul(gradient, share)
    of_second = graph.mul(of_first, graph.mul(first, complement(graph, share)))
    return writer.result(graph.concat([of_first, of_second], writer.axis(axis, x.rank)))


@formula("hardshrink_backward.default", "softshrink_backward.default")
def _shrink(graph: Graph, gradient: Value, x: Value, lambd: Number) -> Value:
    """The gradient where x is further from 0 than lambd, else 0."""
    return graph.select(within(graph, x, -float(lambd), float(lambd)), 0.0, gradient)


@row("_prelu_kernel_backward.default")
def _prelu(writer: Writer, gradient: Value, x: Value, weight: Value) -> Sequence[Value]:
    """The gradient of x, and that of the weight for each element."""
    graph = writer.graph
    gradient, x, weight = (writer.widened(value) for value in (gradient, x, weight))
    above = graph.gt(x, 0.0)
    of_x = graph.select(above, gradient, graph.mul(gradient, weight))
    of_weight = graph.select(above, 0.0, graph.mul(gradient, x))
    return [writer.result(of_x), writer.result(of_weight, 1)]


@formula("rrelu_with_noise_backward.default")
def _rrelu(
    graph: Graph,
    gradient: Value,
    x: Value,
    noise: Value,
    lower: Number,
    upper: Number,
    training: bool,
    is_result: bool,
) -> Value:
    """The gradient times the slope that each element had."""
    if training and upper - lower > 1e-6:
        return graph.mul(gradient, noise)
    return _leaky_relu(graph, gradient, x, (lower + upper) / 2, is_result)
