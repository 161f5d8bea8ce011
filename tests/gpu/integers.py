"""Programs of products of 8-bit integers with sums of i32, and of what follows them in quantised networks."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from aicf.frontends.builder import Graph, Value
from tests.gpu.convolutions import Convolution, drawn, drawn_channels_last, given
from tests.gpu.programs import Array, Program, arguments, random_arrays

TYPES = tuple((a, b) for a in ("i8", "u8") for b in ("i8", "u8"))
"""Element types of left and right operands."""


def _per_column(g: Graph, sums: Value, name: str, dtype: str = "f32") -> Value:
    """A parameter with a number for every column of the sums."""
    return g.param(name, (sums.shape[-1],), dtype)


def _scaled(g: Graph, sums: Value) -> Value:
    """The sums in f32, times a scale for every column."""
    return g.cast(sums, "f32") * _per_column(g, sums, "scale")


def _bias_relu(g: Graph, sums: Value) -> Value:
    return g.relu(_scaled(g, sums) + _per_column(g, sums, "bias"))


def _requantised(g: Graph, sums: Value, dtype: str) -> Value:
    """Bytes again: the sums less what a zero point adds, scaled, with a zero point of their own, rounded, cut off.

    By a power of two: no number is rounded before it becomes an integer."""
    low, high = (0, 255) if dtype == "u8" else (-128, 127)
    centred = g.cast(sums - _per_column(g, sums, "excess", "i32"), "f32") * 2.0**-10
    return g.cast(g.clamp(g.round(centred + 3.0), low, high), dtype)


def _rows(g: Graph, sums: Value) -> Value:
    """A scale for every row, a residual of bytes, one of f16 for every column."""
    rows = g.param("row_scale", (sums.shape[-2], 1), "f32")
    residual = g.cast(g.input("residual", sums.shape, "u8"), "f32") * 0.5
    return g.cast(sums, "f32") * rows + residual + g.cast(_per_column(g, sums, "bias", "f16"), "f32")


AFTER: dict[str, Callable[[Graph, Value], Value]] = {
    "sums": lambda g, sums: sums,
    "scaled": _scaled,
    "relu": _bias_relu,
    "gelu": lambda g, sums: g.gelu(_scaled(g, sums)),
    "halves": lambda g, sums: g.cast(_bias_relu(g, sums), "f16"),
    "i8": lambda g, sums: _requantised(g, sums, "i8"),
    "u8": lambda g, sums: _requantised(g, sums, "u8"),
    "rows": _rows,
}
"""What follows the sums, by name."""


def integer_product(
    types: tuple[str, str],
    m: int,
    n: int,
    k: int,
    after: str = "sums",
    batch: tuple[int, ...] = (),
    *,
    transpose_b: bool = True,
    b_role: str = "param",
) -> Graph:
    """a b of 8-bit integers, b stored as [N, K] or, without `transpose_b`, as [K, N]."""
    g = Graph("integer_product")
    a = g.input("a", (*batch, m, k), types[0])
    b = (g.param if b_role == "param" else g.input)("b", (n, k) if transpose_b else (k, n), types[1])
    g.output(AFTER[after](g, g.matmul(a, b, transpose_b=transpose_b, widening=True)), "y")
    return g


def _channels(g: Graph, sums: Value, name: str, dtype: str = "f32") -> Value:
    """A parameter with a number for every output channel of the sums."""
    ones = [1] * (len(sums.shape) - 2)
    return g.reshape(g.param(name, (sums.shape[1],), dtype), (sums.shape[1], *ones))


def _convolution_bytes(g: Graph, sums: Value, dtype: str) -> Value:
    low, high = (0, 255) if dtype == "u8" else (-128, 127)
    scaled = g.cast(sums - _channels(g, sums, "excess", "i32"), "f32") * 2.0**-9
    return g.cast(g.clamp(g.round(scaled + 3.0), low, high), dtype)


def _convolution_residual(g: Graph, sums: Value) -> Value:
    scaled = g.cast(sums, "f32") * _channels(g, sums, "scale")
    return g.relu(scaled + g.cast(g.input("residual", sums.shape, "i8"), "f32") * 0.5)


AFTER_CONVOLUTION: dict[str, Callable[[Graph, Value], Value]] = {
    "sums": lambda g, sums: sums,
    "scaled": lambda g, sums: g.cast(sums, "f32") * _channels(g, sums, "scale"),
    "i8": lambda g, sums: _convolution_bytes(g, sums, "i8"),
    "u8": lambda g, sums: _convolution_bytes(g, sums, "u8"),
    "residual": _convolution_residual,
}
"""What follows the sums of a convolution, by name."""


def integer_convolution(
    types: tuple[str, str], made: Convolution, after: str = "sums", padding_value: int = 0
) -> Graph:
    """A convolution of 8-bit integers, with `padding_value` around its operand; `made.after` is not looked at."""
    g = Graph("integer_convolution")
    x = given(g, "x", (made.batch, made.channels, *made.sizes), types[0], made.operand_last)
    shape = (made.outputs, made.channels // made.groups, *made.taps)
    w = given(g, "w", shape, types[1], made.weight_last, made.is_param)
    sums = g.conv(
        x,
        w,
        strides=made.strides,
        dilations=made.dilations,
        low=made.low,
        high=made.high,
        groups=made.groups,
        widening=True,
        padding_value=padding_value,
        name="conv",
    )
    y, rank = AFTER_CONVOLUTION[after](g, sums), len(made.sizes)
    g.output(g.transpose(y, (0, *range(2, 2 + rank), 1)) if made.result_last else y, "y")
    return g


def random_integer_convolution(seed: int) -> Graph:
    """A convolution of any sizes, strides and groups, with anything around it."""
    source = random.Random(seed)
    made = drawn(source, 1 << 22)
    while made.groups > 1 and made.channels == made.groups:  # of single channels: no kernel of tensor cores
        made = drawn(source, 1 << 22)
    types = TYPES[seed % 4]
    around = source.choice((0, 7, 255) if types[0] == "u8" else (0, -128, 127))
    return integer_convolution(types, made, source.choice(sorted(AFTER_CONVOLUTION)), around)


def random_integer_windows(seed: int) -> Graph:
    """A convolution of channels-last memory, with zeros around it and channels of whole 16 bytes."""
    source = random.Random(seed)
    channels = 16 * source.choice((1, 2, 4, 9, 16))
    made = replace(drawn_channels_last(source), channels=channels)
    return integer_convolution(TYPES[seed % 4], made, source.choice(sorted(AFTER_CONVOLUTION)))


def whole_range(graph: Graph, name: str) -> Program:
    """The program of a graph with bytes of the whole range of their types."""
    module = graph.module()
    arrays = random_arrays(module, name)
    source = np.random.default_rng(len(name))
    for argument, _, info in arguments(module):
        if info.element.name in ("i8", "u8"):
            arrays[argument] = _all_bytes(source, info.shape, info.element.name)
    return Program(module, arrays)


def _all_bytes(source: np.random.Generator, shape: tuple[int, ...], name: str) -> Array:
    kind = np.int8 if name == "i8" else np.uint8
    limits = np.iinfo(kind)
    return source.integers(limits.min, limits.max, shape, kind, endpoint=True)


def integer_gated(types: tuple[str, str], m: int, n: int, k: int) -> Graph:
    """silu(x w1) times x w2, both scaled."""
    g = Graph("integer_gated")
    x = g.input("x", (m, k), types[0])
    gate, up = (
        g.matmul(x, g.param(name, (n, k), types[1]), transpose_b=True, widening=True) for name in "gu"
    )
    y = g.mul(g.silu(g.cast(gate, "f32") * 0.001), g.cast(up, "f32") * 0.002)
    g.output(g.cast(y, "f16"), "y")
    return g


def integer_projections(types: tuple[str, str], m: int, n: int, k: int) -> Graph:
    """Three products of one operand, each with scales and a bias."""
    g = Graph("integer_projections")
    x = g.input("x", (m, k), types[0])
    for name in "qkv":
        sums = g.matmul(x, g.param(f"w{name}", (k, n), types[1]), widening=True)
        scaled = g.cast(sums, "f32") * g.param(f"s{name}", (n,), "f32")
        g.output(g.cast(scaled + g.param(f"b{name}", (n,), "f32"), "f16"), name)
    return g
