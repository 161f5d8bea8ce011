"""ONNX ops of signal processing: Fourier transforms, windows, and the weights of mel filters.

A complex number is two numbers along the last dimension; a dimension of one is real. A transform is a product with a
matrix of cosines and one of sines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import MAX_CONSTANT_ELEMENTS
from aicf.dialects.types import ElementType, element_named, element_of, tensor_info
from aicf.passes.onnx.ops.base import Node, Result, row
from aicf.passes.onnx.ops.element_types import element_of_onnx

# Fourier transforms


@dataclass(frozen=True)
class _Transform:
    """From ``rows`` numbers to ``columns``: the sum over r of number r times exp(sign * 2 pi i r c / period)."""

    rows: int
    columns: int
    period: int
    sign: int = -1


@dataclass(frozen=True)
class _Complex:
    """Real and imaginary parts, ``[.., length]`` each; None for parts that are all 0."""

    real: SSAValue
    imaginary: SSAValue | None


def _waves(node: Node, of: _Transform, element: ElementType) -> tuple[SSAValue, SSAValue]:
    """The matrices of cosines and sines: constants where they are small, else computed in the program."""
    if of.rows * of.columns <= MAX_CONSTANT_ELEMENTS:
        turns = np.outer(np.arange(of.rows), np.arange(of.columns)) % of.period
        angles = turns * (2 * math.pi / of.period)
        return node.constant(np.cos(angles), element), node.constant(np.sin(angles), element)
    sizes, whole = [of.rows, of.columns], element_named("i32")
    numbers = [node.add(logical.IotaOp(axis, sizes, whole), "number") for axis in (0, 1)]
    turns = node.apply(logical.ModOp, node.apply(logical.MulOp, *numbers), of.period, name="turns")
    angles = node.apply(
        logical.MulOp, node.cast(turns, element, "turns"), 2 * math.pi / of.period, name="angle"
    )
    return node.apply(logical.CosOp, angles), node.apply(logical.SinOp, angles)


def _transformed(node: Node, x: _Complex, of: _Transform) -> _Complex:
    """The transform along the last dimension."""
    cosines, sines = _waves(node, of, element_of(x.real.type))
    if of.sign < 0:
        sines = node.apply(logical.NegOp, sines)
    real = node.apply(logical.MatmulOp, x.real, cosines, name="real")
    imaginary = node.apply(logical.MatmulOp, x.real, sines, name="imaginary")
    if x.imaginary is None:
        return _Complex(real, imaginary)
    turned = [node.apply(logical.MatmulOp, x.imaginary, wave, name="turned") for wave in (sines, cosines)]
    return _Complex(
        node.apply(logical.SubOp, real, turned[0], name="real"),
        node.apply(logical.AddOp, imaginary, turned[1], name="imaginary"),
    )


def _split(node: Node, x: SSAValue) -> _Complex:
    """Parts of a tensor whose last dimension holds them."""
    *sizes, parts = tensor_info(x.type).shape
    if parts not in (1, 2):
        raise node.invalid(f"the last dimension of the operand has {parts} elements; it is 1 (real) or 2")

    def part(number: int) -> SSAValue:
        starts = [*[0] * len(sizes), number]
        return node.reshape(node.slice(x, starts, [*sizes, 1], suffix="part"), sizes, "part")

    return _Complex(part(0), part(1) if parts == 2 else None)


def _stacked(node: Node, x: _Complex) -> SSAValue:
    """Both parts along a new last dimension."""
    sizes = tensor_info(x.real.type).shape
    imaginary = node.splat(0.0, x.real) if x.imaginary is None else x.imaginary
    return node.concat([node.reshape(part, [*sizes, 1], "part") for part in (x.real, imaginary)], len(sizes))


def _resized(node: Node, x: SSAValue, length: int) -> SSAValue:
    """The last dimension cut off, or filled up with zeros."""
    *outer, size = tensor_info(x.type).shape
    if length <= size:
        return node.slice(x, [0] * (len(outer) + 1), [*outer, length], suffix="cut")
    none, zero = [0] * len(outer), node.full(0.0, [], element_of(x.type))
    return node.apply(logical.PadOp, x, zero, low=[*none, 0], high=[*none, length - size])


@row("DFT", since=17)
def _dft_17(node: Node) -> Result:
    """The discrete Fourier transform along the axis of an attribute."""
    return _dft(node, node.attributes.int("axis", 1))


@row("DFT", since=20)
def _dft_20(node: Node) -> Result:
    """The discrete Fourier transform along the axis of an operand."""
    return _dft(node, node.one(2, "axis", "iu") if node.has(2) else -2)


def _dft(node: Node, axis: int) -> SSAValue:
    shape = node.shape(0)
    axis = node.axis(axis, len(shape))
    if axis == len(shape) - 1:
        raise node.invalid(f"axis {axis} is that of real and imaginary parts")
    order = [*(dim for dim in range(len(shape) - 1) if dim != axis), axis, len(shape) - 1]
    x = _split(node, node.transpose(node.operand(0), order))
    inverse, onesided = (node.attributes.flag(name) for name in ("inverse", "onesided"))
    size = 2 * (shape[axis] - 1) if inverse and onesided else shape[axis]
    period = node.one(1, "dft_length", "iu") if node.has(1) else size
    if period < 1:
        raise node.invalid(f"dft_length is {period}; it is at least 1")
    taken = period // 2 + 1 if inverse and onesided else period
    parts = [None if part is None else _resized(node, part, taken) for part in (x.real, x.imaginary)]
    assert parts[0] is not None
    x = _Complex(parts[0], parts[1])
    if inverse and onesided:
        real = _real_inverse(node, x, period)
        result = node.reshape(real, [*tensor_info(real.type).shape, 1], "parts")
    else:
        columns = period // 2 + 1 if onesided else period
        found = _transformed(node, x, _Transform(period, columns, period, 1 if inverse else -1))
        result = _stacked(node, found)
        if inverse:
            result = node.apply(logical.MulOp, result, 1 / period)
    return node.transpose(result, [order.index(dim) for dim in range(len(shape))], "back")


def _real_inverse(node: Node, x: _Complex, period: int) -> SSAValue:
    """The real signal of one half of a spectrum: all but the first and the middle frequency stand for two."""
    info = tensor_info(x.real.type)
    frequency = node.add(logical.IotaOp(info.rank - 1, info.shape, element_named("i32")), "frequency")
    alone = node.add(logical.CompareOp("eq", frequency, node.splat(0, frequency)), "first")
    if period % 2 == 0:
        middle = node.add(logical.CompareOp("eq", frequency, node.splat(period // 2, frequency)), "middle")
        alone = node.apply(logical.OrOp, alone, middle, name="alone")
    one, two = (node.splat(times / period, x.real) for times in (1, 2))
    weight = node.add(logical.SelectOp(alone, one, two), "weight")
    real, imaginary = (
        None if part is None else node.apply(logical.MulOp, part, weight, name="weighted")
        for part in (x.real, x.imaginary)
    )
    assert real is not None
    return _transformed(node, _Complex(real, imaginary), _Transform(info.shape[-1], period, period, 1)).real


@row("STFT", since=17)
def _stft(node: Node) -> Result:
    """The Fourier transforms of overlapping frames of a signal: ``[N, frames, frequencies, 2]``."""
    step = int(node.value(1, "frame_step").reshape(-1)[0])
    x = node.operand(0)
    if tensor_info(x.type).rank == 2:
        x = node.reshape(x, [*tensor_info(x.type).shape, 1], "parts")
    length = _frame_length(node, tensor_info(x.type).shape[1])
    window = node.optional(2)

    def frames(part: SSAValue | None) -> SSAValue | None:
        if part is None:
            return None
        found = node.add(logical.WindowOp(part, [length], [step]), "frames")
        if window is None:
            return found
        return node.apply(
            logical.MulOp, found, node.broadcast_to(window, tensor_info(found.type).shape), name="weighted"
        )

    parts = _split(node, x)
    real = frames(parts.real)
    assert real is not None
    onesided = node.attributes.flag("onesided", True)
    columns = length // 2 + 1 if onesided else length
    framed = _Complex(real, frames(parts.imaginary))
    return _stacked(node, _transformed(node, framed, _Transform(length, columns, length)))


def _frame_length(node: Node, signal: int) -> int:
    if node.has(3):
        return int(node.value(3, "frame_length").reshape(-1)[0])
    return node.shape(2)[0] if node.has(2) else signal


# Windows


_WINDOWS = {
    "HannWindow": (0.5, 0.5),
    "HammingWindow": (25 / 46, 21 / 46),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}
"""Amplitudes of the cosines: 0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N) is the last one."""


@row("HannWindow", since=17)
@row("HammingWindow", since=17)
@row("BlackmanWindow", since=17)
def _window(node: Node) -> Result:
    """The sum of cosines with rising frequencies and alternating signs, over the size of operand 0."""
    size = node.bounded(int(node.value(0, "size").reshape(-1)[0]), "size")
    period = size if node.attributes.flag("periodic", True) else size - 1
    turns = np.arange(size) / max(period, 1)
    waves = [(-1) ** n * a * np.cos(2 * np.pi * n * turns) for n, a in enumerate(_WINDOWS[node.op_type])]
    return sum(waves, np.zeros(size)).astype(_wanted(node).dtype)


def _wanted(node: Node) -> ElementType:
    return element_of_onnx(node.attributes.int("output_datatype", 1))


# Mel filters


@row("MelWeightMatrix", since=17)
def _mel_weight_matrix(node: Node) -> Result:
    """``[frequencies, bins]``: triangles that lie evenly on the mel scale, between whole frequencies."""
    bins, length, rate = (
        int(node.value(index, what).reshape(-1)[0])
        for index, what in enumerate(("num_mel_bins", "dft_length", "sample_rate"))
    )
    low, high = (
        2595 * math.log10(1 + float(node.value(index, what).reshape(-1)[0]) / 700)
        for index, what in ((3, "lower_edge_hertz"), (4, "upper_edge_hertz"))
    )
    node.bounded(bins * length, "num_mel_bins * dft_length")
    mels = np.arange(bins + 2) * ((high - low) / (bins + 2)) + low
    edges = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(np.int64)
    first, middle, last = edges[:-2], edges[1:-1], edges[2:]
    frequency = np.arange(length // 2 + 1)[:, None]
    rising = np.where(
        (frequency >= first) & (frequency <= middle), (frequency - first) / np.maximum(middle - first, 1), 0.0
    )
    rising = np.where((middle == first) & (frequency == middle), 1.0, rising)
    falls = (frequency >= middle) & (frequency < last)
    falling = (last - frequency) / np.maximum(last - middle, 1)
    return np.where(falls, falling, rising).astype(_wanted(node).dtype)
