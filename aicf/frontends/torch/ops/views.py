"""ATen ops that view the elements of a tensor in another shape or order. They compute nothing.

Ops that see only some of the elements are in `parts.py`, `diagonals.py` and `strides.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from aicf.dialects.types import element_named
from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer, is_float, row


def moved(writer: Writer, x: Value, source: int, target: int) -> Value:
    """The tensor with one of its dimensions moved; the others keep their order."""
    order = [axis for axis in range(x.rank) if axis != source]
    order.insert(target, source)
    return writer.permute(x, order)


@row(
    *("view.default", "_unsafe_view.default", "reshape.default", "_reshape_alias.default"),
    *("view_copy.default", "_reshape_copy.default"),
)
def _view(writer: Writer, x: Value, shape: Sequence[int], *strides: object) -> Value:
    """The same elements in the same order; one size may be -1."""
    known = math.prod(size for size in shape if size != -1)
    total = math.prod(writer.sizes(x))
    return writer.reshape(x, [total // known if size == -1 else size for size in shape])


@row(
    *("flatten.using_ints", "unflatten.int", "view_as.default", "reshape_as.default", "ravel.default"),
    *("squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default"),
    *("squeeze_copy.default", "squeeze_copy.dim", "squeeze_copy.dims", "unsqueeze_copy.default"),
    *("atleast_1d.default", "atleast_2d.default"),
)
def _reshaped(writer: Writer, x: Value, *how: object) -> Value:
    """The same elements in the same order, in the shape of PyTorch's result."""
    return writer.reshape(x, writer.shape)


@row("expand.default", "expand_as.default", "expand_copy.default", "broadcast_to.default")
def _expand(writer: Writer, x: Value, *how: object, implicit: bool = False) -> Value:
    """Dimensions of size 1 repeated, and new ones before the first."""
    return writer.expand(x, writer.shape)


@row("permute.default", "permute_copy.default")
def _permute(writer: Writer, x: Value, dims: Sequence[int]) -> Value:
    """The dimensions in another order."""
    return writer.permute(x, [writer.axis(axis, x.rank) for axis in dims])


@row(
    *("transpose.int", "transpose_copy.int", "swapaxes.default", "swapdims.default"),
)
def _transpose(writer: Writer, x: Value, dim0: int, dim1: int) -> Value:
    """Two dimensions swapped."""
    if not x.rank:
        return x
    first, second = writer.axis(dim0, x.rank), writer.axis(dim1, x.rank)
    order = list(range(x.rank))
    order[first], order[second] = second, first
    return writer.permute(x, order)


@row("t.default", "t_copy.default")
def _t(writer: Writer, x: Value) -> Value:
    """The transpose of a matrix; a vector as it is."""
    return writer.permute(x, [1, 0]) if x.rank == 2 else x


@row("numpy_T.default")
def _reversed(writer: Writer, x: Value) -> Value:
    """The dimensions in reverse order."""
    return writer.permute(x, list(range(x.rank))[::-1])


@row("mT.default", "matrix_H.default", "adjoint.default", "mH.default")
def _matrix_transpose(writer: Writer, x: Value) -> Value:
    """The last two dimensions swapped."""
    return _transpose(writer, x, -2, -1) if x.rank > 1 else x


@row("movedim.int", "moveaxis.int")
def _move_one(writer: Writer, x: Value, source: int, destination: int) -> Value:
    """One dimension moved."""
    return _move(writer, x, [source], [destination])


@row("movedim.intlist", "moveaxis.intlist")
def _move(writer: Writer, x: Value, source: Sequence[int], destination: Sequence[int]) -> Value:
    """Some dimensions moved; the others keep their order."""
    if not x.rank:
        return x
    targets = {
        writer.axis(to, x.rank): writer.axis(axis, x.rank)
        for axis, to in zip(source, destination, strict=True)
    }
    others = iter(axis for axis in range(x.rank) if axis not in targets.values())
    return writer.permute(x, [targets[at] if at in targets else next(others) for at in range(x.rank)])


@row(
    *("alias.default", "clone.default", "contiguous.default", "lift_fresh_copy.default"),
    *("lift_fresh.default", "lift.default", "alias_copy.default"),
    *("resolve_conj.default", "resolve_neg.default", "positive.default", "conj.default", "_conj.default"),
    *("real.default", "conj_physical.default", "_conj_physical.default", "view_as_real_copy.default"),
)
def _same(writer: Writer, x: Value) -> Value:
    """The operand: a program has values, and no two of them share memory that changes. All numbers are real."""
    return x


@row("detach.default", "detach_copy.default")
def _detached(writer: Writer, x: Value) -> Value:
    """The operand, which passes nothing back."""
    return writer.graph.detach(x) if is_float(x.dtype) else x


@row("view.dtype", "view_copy.dtype")
def _bits(writer: Writer, x: Value, dtype: str) -> Value:
    """The bits of each element as an element of another type of as many bytes."""
    if x.dtype == dtype:
        return x
    if element_named(x.dtype).bytes != element_named(dtype).bytes:
        writer.unsupported(
            f"a view of {x.dtype} as {dtype}, which has elements of another size",
            "view it as a type of as many bytes, or convert it with .to()",
        )
    return writer.graph.bitcast(x, dtype)


# Orders of elements that are no views in PyTorch


@row("flip.default")
def _flip(writer: Writer, x: Value, dims: Sequence[int]) -> Value:
    """The order along some dimensions reversed."""
    axes = sorted({writer.axis(axis, x.rank) for axis in dims})
    return writer.graph.flip(x, axes) if axes and x.rank else x


@row("fliplr.default")
def _flip_columns(writer: Writer, x: Value) -> Value:
    """The order of the columns reversed."""
    return writer.graph.flip(x, [1])


@row("flipud.default")
def _flip_rows(writer: Writer, x: Value) -> Value:
    """The order of the rows reversed."""
    return writer.graph.flip(x, [0])


@row("roll.default")
def _roll(writer: Writer, x: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    """Elements moved along some dimensions, those beyond the end to the start; without dimensions in flat order."""
    shape = writer.sizes(x)
    if not dims:
        flat = writer.reshape(x, [math.prod(shape)])
        return writer.reshape(_rolled(writer, flat, shifts[0], 0), shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(writer, x, shift, writer.axis(dim, x.rank)) if x.rank else x
    return x


def _rolled(writer: Writer, x: Value, shift: int, axis: int) -> Value:
    size = writer.sizes(x)[axis]
    start = -shift % size
    if not start:
        return x
    parts = [writer.part(x, axis, start, size), writer.part(x, axis, 0, start)]
    return writer.graph.concat(parts, axis)


@row("rot90.default")
def _rot90(writer: Writer, x: Value, k: int = 1, dims: Sequence[int] = (0, 1)) -> Value:
    """The plane of two dimensions turned by k quarters, from the first dimension towards the second."""
    first, second = (writer.axis(dim, x.rank) for dim in dims)
    match k % 4:
        case 1:
            return _transpose(writer, writer.graph.flip(x, [second]), first, second)
        case 2:
            return writer.graph.flip(x, sorted((first, second)))
        case 3:
            return _transpose(writer, writer.graph.flip(x, [first]), first, second)
        case _:
            return x


# Channels and pixels


@row("pixel_shuffle.default")
def _pixel_shuffle(writer: Writer, x: Value, factor: int) -> Value:
    """Blocks of channels as blocks of pixels: [.., C * r * r, H, W] as [.., C, H * r, W * r]."""
    *lead, channels, height, width = writer.sizes(x)
    rank = len(lead)
    apart = writer.reshape(x, [*lead, channels // factor**2, factor, factor, height, width])
    order = [*range(rank), *(rank + axis for axis in (0, 3, 1, 4, 2))]
    return writer.reshape(writer.permute(apart, order), writer.shape)


@row("pixel_unshuffle.default")
def _pixel_unshuffle(writer: Writer, x: Value, factor: int) -> Value:
    """Blocks of pixels as blocks of channels: [.., C, H * r, W * r] as [.., C * r * r, H, W]."""
    *lead, channels, height, width = writer.sizes(x)
    rank = len(lead)
    apart = writer.reshape(x, [*lead, channels, height // factor, factor, width // factor, factor])
    order = [*range(rank), *(rank + axis for axis in (0, 2, 4, 1, 3))]
    return writer.reshape(writer.permute(apart, order), writer.shape)


@row("channel_shuffle.default", "native_channel_shuffle.default")
def _channel_shuffle(writer: Writer, x: Value, groups: int) -> Value:
    """Channels in groups, the first of every group first."""
    batch, channels, *spatial = writer.sizes(x)
    apart = writer.reshape(x, [batch, groups, channels // groups, math.prod(spatial)])
    return writer.reshape(writer.permute(apart, [0, 2, 1, 3]), writer.shape)
