"""Quantised networks in small: activations and weights are dequantised before products, which `narrow-products` makes
products of the bytes, and quantised after them.

Steps are powers of two, so that nothing is rounded but where it is quantised: all ways of computing give the same
bytes.
"""

from __future__ import annotations

from aicf.frontends.builder import Graph, Value

WEIGHT_STEP = 2.0**-6


def _quantised(g: Graph, x: Value, step: float, zero: int, dtype: str) -> Value:
    low, high = (0, 255) if dtype == "u8" else (-128, 127)
    return g.cast(g.clamp(g.round(x * (1 / step)) + float(zero), low, high), dtype)


def _dequantised(g: Graph, stored: Value, step: float, zero: int) -> Value:
    wide = g.cast(stored, "i32")
    return g.cast(wide - zero if zero else wide, "f32") * step


def _requantised(g: Graph, x: Value, step: float, zero: int, dtype: str) -> Value:
    """As it is after QuantizeLinear and DequantizeLinear."""
    return _dequantised(g, _quantised(g, x, step, zero, dtype), step, zero)


def _weight(g: Graph, name: str, shape: tuple[int, ...]) -> Value:
    return g.cast(g.param(name, shape, "i8"), "f32") * WEIGHT_STEP


def _bias(g: Graph, name: str, size: int, step: float) -> Value:
    return g.cast(g.param(name, (size,), "i32"), "f32") * (step * WEIGHT_STEP)


def convolutional() -> Graph:
    """A first layer of three channels, one with the zero point around it, and one with zeros."""
    g = Graph("convolutional")
    layers = (
        ("stem", 3, 16, 7, 2, 2.0**-5, 117, "u8"),
        ("wide", 16, 32, 3, 1, 2.0**-1, -9, "i8"),
        ("last", 32, 24, 3, 2, 2.0**1, 0, "u8"),
    )
    x = g.input("x", (2, 3, 33, 33), "f32")
    for name, channels, outputs, taps, step, own, zero, dtype in layers:
        x = _requantised(g, x, own, zero, dtype)
        w = _weight(g, f"{name}.w", (outputs, channels, taps, taps))
        low = (taps // 2,) * 2
        y = g.conv(x, w, strides=(step, step), low=low, high=low, name=name)
        bias = g.reshape(_bias(g, f"{name}.b", outputs, own), (outputs, 1, 1))
        x = g.relu(y + bias)
    g.output(_quantised(g, x, 2.0**4, 3, "u8"), "y")
    return g


def transformer() -> Graph:
    """A MLP with a residual, then attention, whose projections share an operand; weights lie as [K, N]."""
    g = Graph("transformer")
    step, width, hidden = 2.0**-4, 64, 256
    x = _requantised(g, g.input("x", (2, 32, width), "f32"), step, 128, "u8")
    h = g.relu(g.matmul(x, _weight(g, "w1", (width, hidden))) + _bias(g, "b1", hidden, step))
    h = _requantised(g, h, 2.0**-1, 0, "u8")
    y = g.matmul(h, _weight(g, "w2", (hidden, width))) + x
    stored = _quantised(g, y, 2.0**3, 5, "i8")
    g.output(stored, "rows")
    z = _dequantised(g, stored, 2.0**-5, 5)
    q, k, v = (g.matmul(z, _weight(g, name, (width, width))) for name in "qkv")
    scores = g.matmul(q, k, transpose_b=True) * 2.0**-6
    g.output(g.matmul(g.softmax(scores), v), "y")
    return g
