"""The norm of many tensors together as one sum of squares.

A sum for each tensor would be an instruction for each. Tensors of one element type lie side by side in memory instead,
and are read by one instruction; most are written there in the first place, see `elide-concats`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.logical.lowerings.base import Formulas, Lowering


def _global_norm(lower: Lowering, op: logical.GlobalNormOp) -> SSAValue:
    """The root of the sum of squares, of one element type after the other."""
    total: SSAValue | None = None
    for values in _together(op.parts):
        squares = _sum_of_squares(lower, _joined(lower, values))
        total = squares if total is None else lower.apply(logical.AddOp, total, squares, name="total")
    assert total is not None, "the norm is of one value or more"
    return lower.apply(logical.SqrtOp, total)


def _together(parts: Sequence[SSAValue]) -> list[list[SSAValue]]:
    """The values that lie side by side; each alone where a size is symbolic."""
    if not all(tensor_info(part.type).is_static for part in parts):
        return [[part] for part in parts]
    found: dict[str, list[SSAValue]] = {}
    for value in _whole(list(map(_narrow, parts))):
        found.setdefault(element_of(value.type).name, []).append(value)
    return list(found.values())


def _narrow(value: SSAValue) -> SSAValue:
    """The value before a cast that widens it: half of the bytes."""
    if not isinstance(value.owner, logical.CastOp):
        return value
    source, target = element_of(value.owner.operand.type), element_of(value.type)
    return value.owner.operand if source.is_float and source.bytes < target.bytes else value


def _whole(values: Sequence[SSAValue]) -> Iterator[SSAValue]:
    """The values, and in place of slices that are all of another value, one after the other, that value."""
    slices: dict[SSAValue, list[logical.SliceOp]] = {}
    for value in values:
        if isinstance(value.owner, logical.SliceOp):
            slices.setdefault(value.owner.operand, []).append(value.owner)
        else:
            yield value
    for source, ops in slices.items():
        if _tile(source, ops):
            yield source
        else:
            yield from (op.result for op in ops)


def _tile(source: SSAValue, ops: Sequence[logical.SliceOp]) -> bool:
    """Whether slices are all elements of a value, each once."""
    starts = [tuple(op.starts.get_values()) for op in ops]
    shapes = [tensor_info(op.result.type).shape for op in ops]
    whole = tensor_info(source.type).shape
    axes = [axis for axis, size in enumerate(whole) if any(shape[axis] != size for shape in shapes)]
    if len(axes) != 1 or any(step != 1 for op in ops for step in op.strides.get_values()):
        return False
    at = 0
    for start, size in sorted(
        (start[axes[0]], shape[axes[0]]) for start, shape in zip(starts, shapes, strict=True)
    ):
        if start != at:
            return False
        at += size
    return at == whole[axes[0]]


def _joined(lower: Lowering, values: Sequence[SSAValue]) -> SSAValue:
    """The values side by side, those first whose sizes keep what comes after them aligned."""
    if len(values) == 1:
        return values[0]
    flat = [
        lower.reshape(value, [_elements(value)], "flat")
        for value in sorted(values, key=_alignment, reverse=True)
    ]
    return lower.add(logical.ConcatOp(flat, 0), "joined")


def _elements(value: SSAValue) -> int:
    return prod(tensor_info(value.type).shape)


def _alignment(value: SSAValue) -> int:
    """The largest power of two that divides the number of elements."""
    return _elements(value) & -_elements(value)


def _sum_of_squares(lower: Lowering, value: SSAValue) -> SSAValue:
    wide = lower.cast(value, lower.op.info.element, "wide")
    square, axes = lower.apply(logical.MulOp, wide, wide, name="square"), range(tensor_info(value.type).rank)
    return lower.add(logical.ReduceSumOp(square, axes), "sum") if axes else square


FORMULAS: Formulas = {
    logical.GlobalNormOp: _global_norm,
}
