"""Tables of interpolation along one axis: the elements that each element of the result reads, and their weights.

All follows from sizes; the arithmetic is PyTorch's, in f32 unless the tensor is f64, so that elements halfway between
two others fall on the same side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from aicf.dialects.logical import MAX_CONSTANT_ELEMENTS
from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer, is_float

Array = npt.NDArray[Any]

FEW_TAPS = 4
"""Up to so many elements are read and added one by one; more are a reduction."""
MAX_TABLE = 1 << 20
"""Most elements of a table; compile time grows with them."""


@dataclass(frozen=True)
class Along:
    """How one axis is resized.

    Args:
        size: Elements of the operand.
        wanted: Elements of the result.
        factor: Result by operand, if the caller states it: the product with ``size`` need not be ``wanted``.
        align: Whether the centers of the first and last elements of operand and result coincide.
        dtype: The type of the coordinates.
    """

    size: int
    wanted: int
    factor: float | None
    align: bool
    dtype: str

    def number(self, value: float) -> Any:
        """In the type of the coordinates."""
        return np.float64(value) if self.dtype == "f64" else np.float32(value)

    @property
    def step(self) -> Any:
        """How far apart elements of the result are in the operand."""
        if self.align:
            return self.number((self.size - 1) / (self.wanted - 1)) if self.wanted > 1 else self.number(0)
        if self.factor:
            return self.number(1.0 / self.factor)
        return self.number(self.size) / self.number(self.wanted)

    @property
    def positions(self) -> Array:
        """The elements of the result by number."""
        return np.arange(self.wanted).astype(self.number(0).dtype)

    def centres(self) -> Array:
        """The coordinates of the result's elements in the operand."""
        if self.align:
            return self.step * self.positions
        half = self.number(0.5)
        return self.step * (self.positions + half) - half


@dataclass(frozen=True)
class Taps:
    """``[wanted, taps]``: the elements that each element of the result takes, and their weights.

    Args:
        size: Elements of the operand.
    """

    indices: Array
    weights: Array
    size: int

    @property
    def picks(self) -> bool:
        """Whether each element of the result is one of the operand."""
        return self.weights.shape[1] == 1 and bool((self.weights == 1).all())

    @property
    def repeats(self) -> int:
        """How many times each element of the operand stands in the result, one after the other; 0 if it does not."""
        times, left = divmod(len(self.indices), self.size)
        repeated = np.repeat(np.arange(self.size), times)
        return times if self.picks and not left and np.array_equal(self.indices[:, 0], repeated) else 0

    def back(self) -> Taps:
        """The transposed table, of gradients: the elements of the result that read each element of the operand."""
        reads: list[dict[int, float]] = [{} for _ in range(self.size)]
        for position, (indices, weights) in enumerate(zip(self.indices, self.weights, strict=True)):
            for index, weight in zip(indices.tolist(), weights.tolist(), strict=True):
                if weight:
                    read = reads[int(index)]
                    read[position] = read.get(position, 0.0) + weight
        most = max(1, *(len(read) for read in reads)) if reads else 1
        indices, weights = np.zeros((self.size, most), np.int64), np.zeros((self.size, most))
        for index, read in enumerate(reads):
            indices[index, : len(read)], weights[index, : len(read)] = list(read), list(read.values())
        return Taps(indices, weights, len(self.indices))


# Which elements are taken


def nearest(along: Along) -> Taps:
    """The element at the coordinate, rounded down."""
    indices = np.floor(along.positions * along.step)
    return _alone(along, indices)


def nearest_exact(along: Along) -> Taps:
    """The element whose centre is nearest."""
    half = along.number(0.5)
    return _alone(along, np.floor((along.positions + half) * along.step))


def _alone(along: Along, indices: Array) -> Taps:
    inside = np.clip(indices.astype(np.int64), 0, along.size - 1)[:, None]
    return Taps(inside, np.ones(inside.shape), along.size)


def linear(along: Along) -> Taps:
    """The two elements around, by their distances."""
    at = np.maximum(along.centres(), along.number(0))
    low = np.minimum(at.astype(np.int64), along.size - 1)
    part = np.clip(at - low.astype(at.dtype), 0, 1)
    high = np.minimum(low + 1, along.size - 1)
    return Taps(np.stack([low, high], 1), np.stack([1 - part, part], 1), along.size)


def cubic(along: Along) -> Taps:
    """Two elements before and two after, by the kernel of Keys, 1981."""
    at = along.centres()
    low = np.floor(at)
    steps = np.arange(-1, 3)
    weights = _keys(np.abs((at - low)[:, None] - steps), -0.75)
    indices = np.clip(low.astype(np.int64)[:, None] + steps, 0, along.size - 1)
    return Taps(indices, weights, along.size)


def _keys(distance: Array, a: float) -> Array:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def _tent(distance: Array) -> Array:
    return np.maximum(1 - distance, 0)


def smooth_linear(along: Along) -> Taps:
    """All elements under a tent as wide as the step: a smaller result sees every element."""
    return _smooth(along, 2, _tent)


def smooth_cubic(along: Along) -> Taps:
    """As `smooth_linear`, under a cubic kernel."""
    return _smooth(along, 4, lambda distance: _keys(distance, -0.5))


def smooth_lanczos(along: Along) -> Taps:
    """As `smooth_linear`, under the middle of a sinc that fades out over three zeros."""
    return _smooth(
        along, 6, lambda distance: np.where(distance < 3, np.sinc(distance) * np.sinc(distance / 3), 0)
    )


def _smooth(along: Along, width: int, kernel: Callable[[Array], Array]) -> Taps:
    step, half = along.step, along.number(0.5)
    wide = max(step, along.number(1))
    support = along.number(width / 2) * wide
    centres = step * (along.positions + half)
    first = np.maximum((centres - support + half).astype(np.int64), 0)
    last = np.minimum((centres + support + half).astype(np.int64), along.size)
    most = max(1, int((last - first).max()))
    indices = first[:, None] + np.arange(most)
    is_in = indices < last[:, None]
    distances = np.abs((indices.astype(centres.dtype) - centres[:, None] + half) / wide)
    weights = np.where(is_in, kernel(distances), 0)
    total = weights.sum(1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    return Taps(np.minimum(indices, along.size - 1), weights, along.size)


# Weighted sums


def table(writer: Writer, array: Array, dtype: str) -> Value:
    """A vector of the program; a long one is constants side by side."""
    if len(array) > MAX_TABLE:
        writer.unsupported(
            f"it reads a table of {len(array)} elements; at most {MAX_TABLE} stand in a program",
            "resize outside, or by a whole factor in mode nearest",
        )
    parts = [
        writer.graph.constant(part, [len(part)], dtype)
        for part in (
            array[at : at + MAX_CONSTANT_ELEMENTS] for at in range(0, len(array), MAX_CONSTANT_ELEMENTS)
        )
    ]
    return writer.graph.concat(parts, 0) if len(parts) > 1 else parts[0]


def along_axis(writer: Writer, x: Value, axis: int, taps: Taps) -> Value:
    """The weighted elements along one axis."""
    if taps.repeats:
        return _repeated(writer, x, axis, taps.repeats)
    if taps.picks:
        return _picked(writer, x, axis, taps.indices[:, 0])
    used = np.any(taps.weights != 0, axis=0)
    indices, weights = taps.indices[:, used], taps.weights[:, used]
    if indices.shape[1] <= FEW_TAPS:
        return _sum_of_few(writer, x, axis, indices, weights)
    return _sum_of_many(writer, x, axis, indices, weights)


def back_along_axis(writer: Writer, grad: Value, axis: int, taps: Taps) -> Value:
    """The gradient of the operand from the gradients of weighted sums."""
    if times := taps.repeats:
        shape = writer.sizes(grad)
        apart = writer.reshape(grad, [*shape[:axis], shape[axis] // times, times, *shape[axis + 1 :]])
        return writer.graph.reduce_sum(apart, [axis + 1])
    return along_axis(writer, grad, axis, taps.back())


def _repeated(writer: Writer, x: Value, axis: int, times: int) -> Value:
    if times == 1:
        return x
    shape = writer.sizes(x)
    apart = writer.reshape(x, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
    spread = writer.expand(apart, [*shape[: axis + 1], times, *shape[axis + 1 :]])
    return writer.reshape(spread, [*shape[:axis], shape[axis] * times, *shape[axis + 1 :]])


def _picked(writer: Writer, x: Value, axis: int, indices: Array) -> Value:
    """One element for each of the result: a slice where they are evenly spaced, or a read."""
    first, count = int(indices[0]), len(indices)
    step = int(indices[1] - indices[0]) if count > 1 else 1
    if step > 0 and np.array_equal(indices, first + step * np.arange(count)):
        return writer.part(x, axis, first, first + step * (count - 1) + 1, step)
    return writer.graph.gather(x, table(writer, indices, "i64"), axis)


def _sum_of_few(writer: Writer, x: Value, axis: int, indices: Array, weights: Array) -> Value:
    graph, after = writer.graph, [1] * (x.rank - 1 - axis)
    total: Value | None = None
    for index, weight in zip(indices.T, weights.T, strict=True):
        factor = writer.reshape(table(writer, weight, x.dtype), [len(weight), *after])
        part = graph.mul(_picked(writer, x, axis, index), factor)
        total = part if total is None else graph.add(total, part)
    assert total is not None
    return total


def _sum_of_many(writer: Writer, x: Value, axis: int, indices: Array, weights: Array) -> Value:
    """The taps of all elements of the result along a new dimension before the axis, and the sum over it."""
    graph, shape = writer.graph, writer.sizes(x)
    count, taps = indices.shape
    read = graph.gather(x, table(writer, indices.T.reshape(-1), "i64"), axis)
    apart = writer.reshape(read, [*shape[:axis], taps, count, *shape[axis + 1 :]])
    factor = table(writer, weights.T.reshape(-1), x.dtype)
    factor = writer.reshape(factor, [taps, count, *[1] * (x.rank - 1 - axis)])
    return graph.reduce_sum(graph.mul(apart, factor), [axis])


def resized(
    writer: Writer, x: Value, wanted: Sequence[Along], kernel: Callable[[Along], Taps], back: bool = False
) -> Value:
    """The tensor with other sizes of its last dimensions, or the gradient of that."""
    apply = back_along_axis if back else along_axis
    first = x.rank - len(wanted)
    tables = [kernel(along) for along in wanted]
    if not is_float(x.dtype) and not all(taps.picks for taps in tables):
        return _resized_bytes(writer, x, tables)
    x = writer.widened(x)
    for axis, taps in enumerate(tables, first):
        x = apply(writer, x, axis, taps)
    return x


def _resized_bytes(writer: Writer, x: Value, tables: Sequence[Taps]) -> Value:
    """Bytes, as PyTorch weighs them: in fixed point, the last axis first, rounded after each."""
    graph = writer.graph
    x = writer.cast(x, "i32")
    for back, original in enumerate(reversed(tables), 1):
        taps = original.back().back()  # which adds up the weights of an element that is taken twice
        digits = _digits(float(taps.weights.max()))
        whole = np.trunc(taps.weights * 2**digits + np.copysign(0.5, taps.weights)).astype(np.int64)
        total = along_axis(writer, x, x.rank - back, Taps(taps.indices, whole, taps.size))
        rounded = graph.shift_right(graph.add(total, 1 << (digits - 1)), digits)
        x = graph.min(graph.max(rounded, 0), 255)
    return writer.cast(x, "u8")


def _digits(most: float) -> int:
    """How many binary digits weights have after the binary point, so that the largest fits 16 bits."""
    digits = 0
    while digits < 22 and int(0.5 + most * 2 ** (digits + 1)) < 1 << 15:
        digits += 1
    return digits
