"""Ops that know indices, told as loops over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from aicf.dialects import logical
from tests.support.op_rows.data_movement import axes
from tests.support.op_rows.row import (
    ALL,
    NUMBERS,
    SIZES,
    Array,
    Draw,
    OperandsAndAttrs,
    Row,
    axis_of,
    indices,
    shape,
    values,
)


def _iota(draw: Draw, dtype: str) -> OperandsAndAttrs:
    sizes = shape(draw)
    return [], {"axis": axis_of(draw, sizes), "sizes": list(sizes), "element": dtype}


def _pad(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw, 0))
    amounts = {name: [draw(st.integers(0, 3)) for _ in x.shape] for name in ("low", "high")}
    return [x, values(draw, dtype, ())], amounts


def _gather(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw, 1, 3))
    axis = axis_of(draw, x.shape)
    return [x, indices(draw, shape(draw, 0, 2)[:2], x.shape[axis])], {"axis": axis}


def _beside(draw: Draw, sizes: Sequence[int], axis: int, *, more: bool) -> list[int]:
    """Sizes of indices: at most the operand's, along the axis any if ``more``."""
    return [
        draw(st.sampled_from(SIZES[:6])) if more and dim == axis else draw(st.integers(1, size))
        for dim, size in enumerate(sizes)
    ]


def _gather_elements(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw, 1, 3))
    axis = axis_of(draw, x.shape)
    return [x, indices(draw, _beside(draw, x.shape, axis, more=True), x.shape[axis])], {"axis": axis}


def _flip(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw))
    return [x], {"axes": sorted(draw(st.sets(axes(x.shape), min_size=1)))}


def _tile(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw, 0, 3))
    return [x], {"repeats": [draw(st.integers(1, 3)) for _ in x.shape]}


def _one_hot(draw: Draw, dtype: str) -> OperandsAndAttrs:
    depth, where = draw(st.sampled_from(SIZES[:7])), shape(draw, 0, 2)
    operands = [indices(draw, where, depth), *(values(draw, dtype, ()) for _ in range(2))]
    return operands, {"axis": draw(st.integers(0, len(where))), "depth": depth}


def _modes(dtype: str) -> st.SearchStrategy[Any]:
    return st.sampled_from(logical.SCATTER_MODES if dtype != "i1" else ("set",))


def _rows(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x, count = values(draw, dtype, shape(draw, 1, 3)), draw(st.sampled_from(SIZES))
    updates = values(draw, dtype, (count, *x.shape[1:]))
    return [x, indices(draw, (count,), len(x)), updates], {"mode": draw(_modes(dtype))}


def _combined_rows(draw: Draw, dtype: str) -> OperandsAndAttrs:
    operands, _ = _rows(draw, dtype)
    return operands, {"mode": draw(st.sampled_from(logical.SCATTER_MODES[1:]))}


def _written_row(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw))
    axis = axis_of(draw, x.shape)
    row = values(draw, dtype, [*x.shape[:axis], 1, *x.shape[axis + 1 :]])
    lead = x.shape[: draw(st.integers(0, axis))]
    return [row, indices(draw, lead, x.shape[axis]), x], {"axis": axis}


def _last_update(draw: Draw, dtype: str) -> OperandsAndAttrs:
    rows = draw(st.sampled_from(SIZES))
    return [indices(draw, (draw(st.sampled_from(SIZES)),), rows)], {"rows": rows}


def _elements(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw, 1, 3))
    axis = axis_of(draw, x.shape)
    where = indices(draw, _beside(draw, x.shape, axis, more=True), x.shape[axis])
    return [x, where, values(draw, dtype, where.shape)], {"axis": axis, "mode": draw(_modes(dtype))}


def _nd(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw, 1, 3))
    depth, batch = draw(st.integers(1, x.ndim)), shape(draw, 0, 1)
    each = [indices(draw, batch, size) for size in x.shape[:depth]]
    where = np.stack(each, -1)
    operands = [x, where, values(draw, dtype, (*batch, *x.shape[depth:]))]
    return operands, {"mode": draw(_modes(dtype))}


def _topk(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw))
    axis = axis_of(draw, x.shape)
    k = draw(st.integers(1, x.shape[axis]))
    return [x], {"axis": axis, "k": k, "smallest": draw(st.booleans())}


def _counted(axis: int, sizes: Sequence[int], element: str) -> Array:
    result = np.empty(sizes)
    for index in np.ndindex(*sizes):
        result[index] = index[axis]
    return result


def _padded(x: Array, value: Array, low: Sequence[int], high: Sequence[int]) -> Array:
    sizes = [sum(sides) for sides in zip(low, x.shape, high, strict=True)]
    result = np.full(sizes, value, x.dtype)
    result[tuple(slice(start, start + size) for start, size in zip(low, x.shape, strict=True))] = x
    return result


def _read(index: int, size: int) -> int:
    """Where an index reads: from the end if negative, then the nearest there is."""
    return min(max(index + size if index < 0 else index, 0), size - 1)


def _written(index: int, size: int) -> int | None:
    """Where an index writes: from the end if negative, out of range nowhere."""
    own = index + size if index < 0 else index
    return own if 0 <= own < size else None


def _gathered(x: Array, where: Array, axis: int) -> Array:
    result = np.empty((*x.shape[:axis], *where.shape, *x.shape[axis + 1 :]), x.dtype)
    front: Any = (slice(None),) * axis
    for at in np.ndindex(*where.shape):
        result[front + at] = x[(*front, _read(int(where[at]), x.shape[axis]))]
    return result


def _gathered_elements(x: Array, where: Array, axis: int) -> Array:
    result = np.empty(where.shape, x.dtype)
    for at in np.ndindex(*where.shape):
        result[at] = x[(*at[:axis], _read(int(where[at]), x.shape[axis]), *at[axis + 1 :])]
    return result


def _flipped(x: Array, axes: Sequence[int]) -> Array:
    return x[tuple(slice(None, None, -1 if axis in axes else 1) for axis in range(x.ndim))]


def _tiled(x: Array, repeats: Sequence[int]) -> Array:
    for axis, count in enumerate(repeats):
        x = np.concatenate([x] * count, axis)
    return x


def _one_hots(where: Array, on: Array, off: Array, axis: int, depth: int) -> Array:
    result = np.full((*where.shape[:axis], depth, *where.shape[axis:]), off, on.dtype)
    for at in np.ndindex(*where.shape):
        own = _written(int(where[at]), depth)
        if own is not None:
            result[(*at[:axis], own, *at[axis:])] = on
    return result


COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda old, new: new,
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
}


def _scattered(x: Array, where: Array, updates: Array, mode: str) -> Array:
    return _scattered_nd(x, where[:, None], updates, mode)


def _scattered_nd(x: Array, where: Array, updates: Array, mode: str) -> Array:
    result = x.copy()
    for at in np.ndindex(*where.shape[:-1]):
        own = tuple(
            _written(int(index), size)
            for index, size in zip(where[at], x.shape[: where.shape[-1]], strict=True)
        )
        if None not in own:
            result[own] = COMBINE[mode](result[own], updates[at])
    return result


def _scattered_elements(x: Array, where: Array, updates: Array, axis: int, mode: str) -> Array:
    result = x.copy()
    for at in np.ndindex(*where.shape):
        own = _written(int(where[at]), x.shape[axis])
        if own is not None:
            target = (*at[:axis], own, *at[axis + 1 :])
            result[target] = COMBINE[mode](result[target], updates[at])
    return result


def _with_row(row: Array, index: Array, x: Array, axis: int) -> Array:
    if index.ndim:
        parts = [_with_row(*each, axis - 1) for each in zip(row, index, x, strict=True)]
        return np.stack(parts) if parts else x
    own = _written(int(index), x.shape[axis])
    parts = [row if at == own else x.take([at], axis) for at in range(x.shape[axis])]
    return np.concatenate(parts, axis)


def _last(where: Array, rows: int) -> Array:
    result = np.full(rows, -1)
    for number, index in enumerate(where.tolist()):
        own = _written(index, rows)
        if own is not None:
            result[own] = number
    return result


def _ranked(x: Array, axis: int, k: int, smallest: bool) -> Array:
    """Sorted by Python: NaN above all numbers, the lower index first among equals."""

    def line(elements: Array) -> list[int]:
        ranks = [(value != value, 0 if value != value else value) for value in elements.tolist()]
        if smallest:
            return sorted(range(len(ranks)), key=lambda index: ranks[index])[:k]
        return sorted(range(len(ranks)), key=lambda index: ranks[index], reverse=True)[:k]

    return np.apply_along_axis(line, axis, x)


ROWS = (
    Row(logical.IotaOp, _iota, _counted, NUMBERS, True),
    Row(logical.PadOp, _pad, _padded, ALL, True),
    Row(logical.GatherOp, _gather, _gathered, ALL, True),
    Row(logical.GatherElementsOp, _gather_elements, _gathered_elements, ALL, True),
    Row(logical.FlipOp, _flip, _flipped, ALL, True),
    Row(logical.TileOp, _tile, _tiled, ALL, True),
    Row(logical.OneHotOp, _one_hot, _one_hots, ALL, True),
    Row(logical.ScatterOp, _rows, _scattered, ALL),
    Row(logical.ScatterCombineOp, _combined_rows, _scattered, NUMBERS),
    Row(logical.LastUpdateOp, _last_update, _last, ("i32",)),
    Row(logical.WriteRowOp, _written_row, _with_row, ALL, True),
    Row(logical.ScatterElementsOp, _elements, _scattered_elements, ALL),
    Row(logical.ScatterNdOp, _nd, _scattered_nd, ALL),
    Row(logical.TopkIndicesOp, _topk, _ranked, ALL),
)
