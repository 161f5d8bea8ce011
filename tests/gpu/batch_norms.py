"""Convolutions whose results a batch norm normalises by the statistics of the batch, channels-last."""

from __future__ import annotations

from dataclasses import dataclass

from aicf.frontends.builder import Graph


@dataclass(frozen=True)
class Normed:
    """One convolution with zeros around, so that its result has as many pixels as its operand, and its norm.

    Args:
        batch, channels, outputs: Images, channels of operand and result.
        size: Of an image.
        taps: Elements of a window along each dimension.
        is_param: Whether the weight is a parameter, which is packed ahead; else it is given with outputs innermost.
    """

    batch: int
    channels: int
    outputs: int
    size: tuple[int, int]
    taps: int
    is_param: bool = False


def normed(made: Normed, dtype: str) -> Graph:
    """From pixels and a weight to normalised elements, none below 0, and what a backward part
    would read of the statistics: means, reciprocal deviations, factors."""
    g = Graph("normed")
    shape = (made.batch, *made.size, made.channels)
    x = g.transpose(g.input("x", shape, dtype), (0, 3, 1, 2))
    windows = (made.taps, made.taps)
    if made.is_param:
        w = g.param("w", (made.outputs, made.channels, *windows), dtype)
    else:
        w = g.transpose(g.input("w", (made.channels, *windows, made.outputs), dtype), (3, 0, 1, 2))
    around = [made.taps // 2] * 2
    wide = g.cast(g.conv(x, w, strides=[1, 1], low=around, high=around, name="conv"), "f32")
    mean = g.reduce_mean(wide, [0, 2, 3], keepdims=True)
    centered = wide - mean
    variance = g.reduce_mean(centered * centered, [0, 2, 3], keepdims=True)
    inverse = g.rsqrt(variance + 1e-5)
    factor = g.reshape(inverse, (made.outputs,)) * g.param("scale", (made.outputs,), "f32")
    scaled = (wide - mean) * g.reshape(factor, (1, made.outputs, 1, 1))
    normalised = g.cast(g.relu(scaled), dtype)
    g.output(g.transpose(normalised, (0, 2, 3, 1)), "y")
    for name, value in (("mean", mean), ("inverse", inverse), ("factor", factor)):
        g.output(value, name)
    return g


def passed_back(made: Normed, dtype: str) -> Graph:
    """The gradient that a convolution passes back through a ReLU to a batch norm: from pixels, a weight, what the norm
    read and what the ReLU gave, to that of the norm's operand, and of its scale and shift."""
    g = Graph("passed_back")
    full = (made.batch, *made.size, made.outputs)
    x = g.transpose(g.input("x", (made.batch, *made.size, made.channels), dtype), (0, 3, 1, 2))
    w = g.transpose(g.input("w", (made.channels, made.taps, made.taps, made.outputs), dtype), (3, 0, 1, 2))
    normed_, given = (g.transpose(g.input(name, full, dtype), (0, 3, 1, 2)) for name in ("normed", "given"))
    mean, factor = (
        g.reshape(g.input(name, (made.outputs,), "f32"), (1, made.outputs, 1, 1))
        for name in ("mean", "factor")
    )
    around = [made.taps // 2] * 2
    y = g.conv(x, w, strides=[1, 1], low=around, high=around, name="conv")
    gradient = g.where(g.gt(given, 0.0), y, 0.0)
    wide = g.cast(gradient, "f32")
    centered = g.cast(normed_, "f32") - mean
    shift = g.reduce_sum(wide, [0, 2, 3], keepdims=True)
    scale = g.reduce_sum(wide * centered, [0, 2, 3], keepdims=True)
    pixels = float(made.batch * made.size[0] * made.size[1])
    back = (wide - shift * (1 / pixels) - centered * (scale * (1 / pixels))) * factor
    g.output(g.transpose(g.cast(back, dtype), (0, 2, 3, 1)), "back")
    g.output(shift, "shift")
    g.output(scale, "scale")
    return g
