"""Meanings of the ops that know indices: iota, pad, gather, flip, tile, one_hot, scatter, topk_indices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.semantics.base import Array, Meaning


def from_the_end(indices: Array, size: int) -> Array:
    """Negative indices counted from the end of ``size`` elements."""
    return np.where(indices < 0, indices + size, indices)


def clamped(indices: Array, size: int) -> Array:
    return np.clip(from_the_end(indices, size), 0, size - 1)


def _iota(op: logical.IotaOp, operands: Sequence[Array]) -> Array:
    shape, axis = op.info.shape, op.axis.value.data
    coordinate = np.arange(shape[axis]).reshape([-1 if dim == axis else 1 for dim in range(len(shape))])
    return np.broadcast_to(coordinate, shape)


def _pad(op: logical.PadOp, operands: Sequence[Array]) -> Array:
    x, value = operands
    amounts = list(zip(int_values(op.low), int_values(op.high), strict=True))
    return np.pad(x, amounts, constant_values=value[()]) if amounts else x


def _gather(op: logical.GatherOp, operands: Sequence[Array]) -> Array:
    x, indices = operands
    axis = op.axis.value.data
    return np.take(x, clamped(indices, x.shape[axis]), axis)


def _gather_elements(op: logical.GatherElementsOp, operands: Sequence[Array]) -> Array:
    x, indices = operands
    axis = op.axis.value.data
    coordinates = _coordinates(indices.shape)
    coordinates[axis] = clamped(indices, x.shape[axis])
    return x[tuple(coordinates)]


def _coordinates(shape: Sequence[int]) -> list[Array]:
    return list(cast("Sequence[Array]", np.indices(shape)))


def _flip(op: logical.FlipOp, operands: Sequence[Array]) -> Array:
    return np.flip(operands[0], int_values(op.axes))


def _tile(op: logical.TileOp, operands: Sequence[Array]) -> Array:
    return np.tile(operands[0], int_values(op.repeats))


def _one_hot(op: logical.OneHotOp, operands: Sequence[Array]) -> Array:
    indices, on, off = operands
    depth, axis = op.depth.value.data, op.axis.value.data
    coordinates = np.moveaxis(np.broadcast_to(np.arange(depth), (*indices.shape, depth)), -1, axis)
    return np.where(coordinates == np.expand_dims(from_the_end(indices, depth), axis), on, off)


_COMBINE: Mapping[str, Callable[[Array, Array, Array], None]] = {
    "add": np.add.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
    "mul": np.multiply.at,
}


def _scatter_rows(mode: str, x: Array, rows: Array, updates: Array) -> Array:
    """Updates combined into rows of ``x``; rows that it lacks take none."""
    result = x.copy()
    inside = (rows >= 0) & (rows < len(x))
    if mode == "set":
        result[rows[inside]] = updates[inside]  # NumPy assigns in order: the last one stays
    else:
        _COMBINE[mode](result, rows[inside], updates[inside])
    return result


def _scatter(op: logical.ScatterOp, operands: Sequence[Array]) -> Array:
    x, indices, updates = operands
    return _scatter_rows(op.mode.data, x, from_the_end(indices, len(x)), updates)


def _write_row(op: logical.WriteRowOp, operands: Sequence[Array]) -> Array:
    row, index, x = operands
    axis = op.axis.value.data
    if index.ndim:
        written = x.copy()
        for lead in np.ndindex(index.shape):
            written[lead] = _with_rows(row[lead], index[lead], x[lead], axis - index.ndim)
        return written
    return _with_rows(row, index, x, axis)


def _with_rows(row: Array, index: Array, x: Array, axis: int) -> Array:
    """Rows in place of the slices of ``x`` from one index on."""
    rows, new = np.moveaxis(x, axis, 0), np.moveaxis(row, axis, 0)
    written = _scatter_rows("set", rows, from_the_end(index + np.arange(len(new)), len(rows)), new)
    return np.moveaxis(written, 0, axis)


def _last_update(op: logical.LastUpdateOp, operands: Sequence[Array]) -> Array:
    (indices,) = operands
    rows = op.rows.value.data
    return _scatter_rows("set", np.full(rows, -1), from_the_end(indices, rows), np.arange(len(indices)))


def _scatter_elements(op: logical.ScatterElementsOp, operands: Sequence[Array]) -> Array:
    x, indices, updates = operands
    coordinates = _coordinates(indices.shape)
    coordinates[op.axis.value.data] = from_the_end(indices, x.shape[op.axis.value.data])
    rows = _flat(coordinates, x.shape).reshape(-1)
    return _scatter_rows(op.mode.data, x.reshape(-1), rows, updates.reshape(-1)).reshape(x.shape)


def _scatter_nd(op: logical.ScatterNdOp, operands: Sequence[Array]) -> Array:
    x, indices, updates = operands
    depth = indices.shape[-1]
    coordinates = [from_the_end(indices[..., dim], x.shape[dim]) for dim in range(depth)]
    rows = _flat(coordinates, x.shape[:depth]).reshape(-1)
    inner = x.shape[depth:]
    result = _scatter_rows(op.mode.data, x.reshape(-1, *inner), rows, updates.reshape(-1, *inner))
    return result.reshape(x.shape)


def _flat(coordinates: Sequence[Array], sizes: Sequence[int]) -> Array:
    """Row-major numbers of indices, -1 for those out of range."""
    flat, inside = np.zeros(coordinates[0].shape, np.int64), np.ones(coordinates[0].shape, np.bool_)
    for coordinate, size in zip(coordinates, sizes, strict=True):
        inside &= (coordinate >= 0) & (coordinate < size)
        flat = flat * size + np.where(inside, coordinate, 0)
    return np.where(inside, flat, -1)


def _topk_indices(op: logical.TopkIndicesOp, operands: Sequence[Array]) -> Array:
    (x,) = operands
    axis = op.axis.value.data
    wanted: list[Any] = [slice(None)] * x.ndim
    wanted[axis] = slice(op.k.value.data)
    return _order(x, axis, op.smallest is not None)[tuple(wanted)]


def _order(x: Array, axis: int, rising: bool) -> Array:
    """Indices in the order of their elements, the lower index first among equals; NumPy sorts NaN to the end."""
    if rising:
        return np.argsort(x, axis, kind="stable")
    backwards = np.argsort(np.flip(x, axis), axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(backwards, axis)


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.IotaOp: _iota,
    logical.PadOp: _pad,
    logical.GatherOp: _gather,
    logical.GatherElementsOp: _gather_elements,
    logical.FlipOp: _flip,
    logical.TileOp: _tile,
    logical.OneHotOp: _one_hot,
    logical.ScatterOp: _scatter,
    logical.ScatterCombineOp: _scatter,
    logical.LastUpdateOp: _last_update,
    logical.WriteRowOp: _write_row,
    logical.ScatterElementsOp: _scatter_elements,
    logical.ScatterNdOp: _scatter_nd,
    logical.TopkIndicesOp: _topk_indices,
}
