"""Products of matrices and attention, each product and each query on its own."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from aicf.dialects import logical
from tests.support.op_rows.row import (
    NUMBERS,
    SHORT_INTEGERS,
    SIZES,
    Array,
    Draw,
    OperandsAndAttrs,
    Row,
    random_of,
    shape,
    values,
)

MASKS = ("none", "added", "seen")


def _matmul(draw: Draw, dtype: str) -> OperandsAndAttrs:
    rows, inner, columns = (draw(st.sampled_from(SIZES)) for _ in range(3))
    flags = {name: draw(st.booleans()) for name in ("transpose_a", "transpose_b")}
    left, right = _batches(draw)
    a = (inner, rows) if flags["transpose_a"] else (rows, inner)
    b = (columns, inner) if flags["transpose_b"] else (inner, columns)
    return [values(draw, dtype, (*left, *a)), values(draw, dtype, (*right, *b))], flags


def _widening_matmul(draw: Draw, dtype: str) -> OperandsAndAttrs:
    """Operands of any two short types, with numbers at the ends of their ranges."""
    (a, b), flags = _matmul(draw, dtype)
    other = draw(st.sampled_from(SHORT_INTEGERS))
    return [a, values(draw, other, b.shape)], {**flags, "widening": True}


def _batches(draw: Draw) -> tuple[list[int], list[int]]:
    """Two batches that broadcast together: sizes of 1, and dimensions that only one of them has."""
    joint = draw(st.lists(st.integers(1, 3), max_size=2))
    sides = []
    for _ in range(2):
        kept = [1 if draw(st.booleans()) else size for size in joint]
        sides.append(kept[draw(st.integers(0, len(kept))) :])
    return sides[0], sides[1]


def _linear(draw: Draw, dtype: str) -> OperandsAndAttrs:
    x = values(draw, dtype, shape(draw, 1, 3))
    outputs = draw(st.sampled_from(SIZES))
    more = [values(draw, dtype, (outputs,))] if draw(st.booleans()) else []
    return [x, values(draw, dtype, (outputs, x.shape[-1])), *more], {}


def _attention(draw: Draw, dtype: str) -> OperandsAndAttrs:
    batch = draw(st.lists(st.integers(1, 2), max_size=1))
    groups, shared, queries, keys, depth, width = (
        draw(st.sampled_from(sizes)) for sizes in ((1, 2), (1, 3), SIZES[:7], SIZES[:8], SIZES[:7], SIZES[:7])
    )
    sizes = ((groups * shared, queries, depth), (groups, keys, depth), (groups, keys, width))
    operands = [values(draw, dtype, (*batch, *size), special=False) for size in sizes]
    causal = draw(st.booleans())
    position = _position(draw, batch) if causal else []
    attributes = {
        "causal": causal,
        "past": draw(st.integers(0, 4)) if causal and not position else 0,
        "scale": draw(st.sampled_from([None, 0.25, -0.5])),
        "window": draw(st.sampled_from([None, 1, 3])) if causal else None,
        "softcap": draw(st.sampled_from([None, 0.5, 8.0])),
    }
    mask = _mask(draw, dtype, (*batch, groups * shared, queries, keys))
    return [*operands, *mask, *position], attributes


def _position(draw: Draw, batch: list[int]) -> list[Array]:
    """None, or how many keys come before the first query, for all batch elements or for each."""
    shape = draw(st.sampled_from([None, (), tuple(batch)]))
    integer = draw(st.sampled_from([np.int32, np.int64]))
    return [] if shape is None else [np.asarray(random_of(draw).integers(0, 5, shape), integer)]


def _mask(draw: Draw, dtype: str, scores: tuple[int, ...]) -> list[Array]:
    """None, numbers with -inf among them, or truth values; any dimension may be 1, leading ones missing."""
    kind = draw(st.sampled_from(MASKS))
    if kind == "none":
        return []
    sizes = [1 if draw(st.integers(0, 3)) == 3 else size for size in scores]
    sizes = sizes[draw(st.integers(0, len(sizes) - 2)) :]
    hidden = random_of(draw).random(sizes) < 0.2
    if kind == "seen":
        return [~hidden]
    numbers = values(draw, dtype, sizes, special=False)
    return [np.where(hidden, -np.inf, numbers).astype(numbers.dtype)]


def _product(a: Array, b: Array, transpose_a: bool, transpose_b: bool) -> Array:
    left, right = "...km" if transpose_a else "...mk", "...nk" if transpose_b else "...kn"
    return np.einsum(f"{left},{right}->...mn", a, b)


def _widened_product(a: Array, b: Array, transpose_a: bool, transpose_b: bool, widening: bool) -> Array:
    """Of whole numbers, whose low 32 bits are the sums."""
    assert widening
    return _product(a.astype(np.int64), b.astype(np.int64), transpose_a, transpose_b).astype(np.int32)


def _affine(x: Array, weight: Array, *bias: Array) -> Array:
    """Output n is the sum of a row's products with row n of the weight."""
    outputs = np.stack([(x * row).sum(-1, dtype=x.dtype) for row in weight], -1)
    return outputs + bias[0] if bias else outputs


def _attended(
    q: Array,
    k: Array,
    v: Array,
    *more: Array,
    causal: bool,
    past: int,
    scale: float | None,
    window: int | None,
    softcap: float | None,
) -> Array:
    """One query after the other; one that sees no key gives NaN."""
    mask = [value for value in more if value.dtype not in (np.int32, np.int64)]
    positions = np.broadcast_to(more[-1] if len(more) > len(mask) else past, q.shape[:-3])
    result, shared = np.empty((*q.shape[:-1], v.shape[-1])), q.shape[-3] // k.shape[-3]
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    masks = np.broadcast_to(mask[0], (*q.shape[:-1], k.shape[-2])) if mask else None
    for index in np.ndindex(*q.shape[:-1]):
        *batch, head, query = index
        source = (*batch, head // shared)
        scores = k[source] @ q[index] * factor
        if softcap is not None:
            scores = softcap * np.tanh(scores / softcap)
        if masks is not None:
            row = masks[index]
            scores = np.where(row, scores, -np.inf) if row.dtype == np.bool_ else scores + row
        if causal:
            last = query + positions[tuple(batch)]
            scores[last + 1 :] = -np.inf
            if window is not None:
                scores[: max(0, last + 1 - window)] = -np.inf
        weights = np.exp(scores - scores.max())
        result[index] = weights @ v[source] / weights.sum()
    return result


ROWS = (
    Row(logical.MatmulOp, _matmul, _product, NUMBERS),
    Row(logical.MatmulOp, _widening_matmul, _widened_product, SHORT_INTEGERS, name="widening matmul"),
    Row(logical.LinearOp, _linear, _affine, NUMBERS),
    Row(logical.AttentionOp, _attention, _attended),
)
