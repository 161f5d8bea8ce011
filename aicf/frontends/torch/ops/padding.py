"""ATen ops that pad a tensor, and their gradients.

Amounts are listed from the last dimension on, before and after; negative ones remove elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Number, Writer, empty_row, row
from aicf.frontends.torch.ops.parts import padded


def _amounts(pad: Sequence[int], rank: int) -> list[tuple[int, int]]:
    """The amounts before and after, for each dimension from the first."""
    pairs = list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    return [(0, 0)] * (rank - len(pairs)) + pairs


def _cropped(writer: Writer, x: Value, amounts: Sequence[tuple[int, int]]) -> Value:
    """Without the elements that negative amounts take away."""
    for axis, (low, high) in enumerate(amounts):
        size = writer.sizes(x)[axis]
        x = writer.part(x, axis, max(-low, 0), size - max(-high, 0))
    return x


@row("constant_pad_nd.default")
def _constant_pad(writer: Writer, x: Value, pad: Sequence[int], value: Number = 0) -> Value:
    """The same number around a tensor."""
    amounts = _amounts(pad, x.rank)
    x = _cropped(writer, x, amounts)
    lows, highs = ([max(pair[side], 0) for pair in amounts] for side in (0, 1))
    if not any(lows) and not any(highs):
        return x
    return writer.graph.pad(x, lows, highs, writer.full((), value, x.dtype))


@empty_row("constant_pad_nd.default")
def _constant_pad_of_nothing(writer: Writer, x: object, pad: Sequence[int], value: Number = 0) -> Value:
    """The number alone."""
    return writer.full(writer.shape, value, writer.dtype)


_MODES = {0: "constant", 1: "reflect", 2: "replicate", 3: "circular"}


@row("pad.default", "_pad_enum.default")
def _pad(
    writer: Writer, x: Value, pad: Sequence[int], mode: str | int = "constant", value: Number | None = None
) -> Value:
    """Elements around a tensor, by the name of a mode."""
    match _MODES.get(mode, "") if isinstance(mode, int) else mode:
        case "constant":
            return _constant_pad(writer, x, pad, value or 0)
        case "reflect":
            return _reflection_pad(writer, x, pad)
        case "replicate":
            return _replication_pad(writer, x, pad)
        case _:
            return _circular_pad(writer, x, pad)


@row("_pad_circular.default")
def _circular_pad(writer: Writer, x: Value, pad: Sequence[int]) -> Value:
    """The elements of the other end around a tensor."""
    for axis, (low, high) in enumerate(_amounts(pad, x.rank)):
        size = writer.sizes(x)[axis]
        middle = writer.part(x, axis, max(-low, 0), size - max(-high, 0))
        parts = [middle]
        if low > 0:
            parts.insert(0, writer.part(x, axis, size - low - max(-high, 0), size - max(-high, 0)))
        if high > 0:
            parts.append(writer.part(x, axis, max(-low, 0), max(-low, 0) + high))
        x = writer.graph.concat(parts, axis) if len(parts) > 1 else middle
    return x


@row("reflection_pad1d.default", "reflection_pad2d.default", "reflection_pad3d.default")
def _reflection_pad(writer: Writer, x: Value, pad: Sequence[int]) -> Value:
    """A tensor mirrored at its edges, which are not repeated."""
    amounts = _amounts(pad, x.rank)
    lows, highs = ([max(pair[side], 0) for pair in amounts] for side in (0, 1))
    return _cropped(writer, writer.graph.pad(x, lows, highs, mode="reflect"), amounts)


@row("replication_pad1d.default", "replication_pad2d.default", "replication_pad3d.default")
def _replication_pad(writer: Writer, x: Value, pad: Sequence[int]) -> Value:
    """The elements at the edges repeated."""
    amounts = _amounts(pad, x.rank)
    lows, highs = ([max(pair[side], 0) for pair in amounts] for side in (0, 1))
    return _cropped(writer, writer.graph.pad(x, lows, highs, mode="edge"), amounts)


# Gradients


@row(
    *("reflection_pad1d_backward.default", "reflection_pad2d_backward.default"),
    *("reflection_pad3d_backward.default",),
)
def _reflection_pad_backward(writer: Writer, grad: Value, x: Value, pad: Sequence[int]) -> Value:
    """The gradients of mirrored elements added to those of the elements that they mirror."""

    def mirrored(outer: Value, axis: int, size: int, after: bool) -> Value:
        count = writer.sizes(outer)[axis]
        back = writer.graph.flip(outer, [axis])
        low = size - 1 - count if after else 1
        return padded(writer, back, axis, low, size - low - count)

    return _padding_backward(writer, grad, writer.sizes(x), pad, mirrored)


@row(
    *("replication_pad1d_backward.default", "replication_pad2d_backward.default"),
    *("replication_pad3d_backward.default",),
)
def _replication_pad_backward(writer: Writer, grad: Value, x: Value, pad: Sequence[int]) -> Value:
    """The gradients of repeated elements added to those at the edges."""

    def summed(outer: Value, axis: int, size: int, after: bool) -> Value:
        total = writer.graph.reduce_sum(outer, [axis], keepdims=True)
        return padded(writer, total, axis, size - 1 if after else 0, 0 if after else size - 1)

    return _padding_backward(writer, grad, writer.sizes(x), pad, summed)


def _padding_backward(
    writer: Writer,
    grad: Value,
    shape: Sequence[int],
    pad: Sequence[int],
    folded: Callable[[Value, int, int, bool], Value],
) -> Value:
    """The gradients inside, and those of each side folded onto them, one dimension after the other.

    Args:
        folded: Takes the gradients before or after the tensor, the dimension, its size and whether they are after it;
            returns what is added to those inside.
    """
    grad = writer.widened(grad)
    for axis, (low, high) in enumerate(_amounts(pad, len(shape))):
        size = shape[axis]
        grad = padded(writer, grad, axis, max(-low, 0), max(-high, 0))
        low, high = max(low, 0), max(high, 0)
        total = writer.part(grad, axis, low, low + size)
        if low:
            before = writer.part(grad, axis, 0, low)
            total = writer.graph.add(total, folded(before, axis, size, False))
        if high:
            after = writer.part(grad, axis, low + size, low + size + high)
            total = writer.graph.add(total, folded(after, axis, size, True))
        grad = total
    return writer.result(grad)
