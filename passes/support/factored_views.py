"""Views whose dimensions may be several runs of strides: what a dimension that was joined from others is made of.

Heads joined with the batch, `[B, H, T, S]` read as `[B * H, T, S]` where `B` and `H` are not neighbours in memory, have
no stride; as a dimension of two factors they have two. Offsets are not kept: nothing that asks about factors needs
them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from operator import mul
from typing import TypeAlias

from xdsl.ir import Operation

from aicf.dialects.emit_types import contiguous_strides
from aicf.dialects.logical import BroadcastOp, ReshapeOp, SliceOp, TransposeOp
from aicf.dialects.types import tensor_info

Factor: TypeAlias = tuple[int, int]
"""A number of elements, and the stride between them."""
Factors: TypeAlias = tuple[Factor, ...]
"""A dimension, outermost factor first; of size 1 it has none."""
FactoredView: TypeAlias = tuple[Factors, ...]
"""One entry a dimension."""


def whole(shape: Sequence[int]) -> FactoredView:
    """Contiguous memory of that shape."""
    strides = contiguous_strides(shape)
    return tuple(((size, step),) if size != 1 else () for size, step in zip(shape, strides, strict=True))


def view_through(op: Operation, view: FactoredView) -> FactoredView | None:
    """The view of the result of view op `op` if its operand is seen through `view`; None if factors cannot say it."""
    shape = tensor_info(op.results[0].type).shape
    match op:
        case ReshapeOp():
            return _reshaped(view, shape)
        case TransposeOp():
            return tuple(view[dim] for dim in op.permutation.get_values())
        case SliceOp():
            steps = op.strides.get_values()
            sliced = [_sliced(*each) for each in zip(view, shape, steps, strict=True)]
            return None if None in sliced else tuple(dim for dim in sliced if dim is not None)
        case BroadcastOp():
            repeated: list[Factors] = [((size, 0),) if size != 1 else () for size in shape]
            source = tensor_info(op.operand.type).shape
            for dim, target in enumerate(op.dimensions.get_values()):
                if source[dim] == shape[target]:
                    repeated[target] = view[dim]
            return tuple(repeated)
        case _:
            return None


def view_before(op: Operation, view: FactoredView) -> FactoredView | None:
    """The view of the operand of a reshape or transposition whose result is seen through `view`, else None."""
    match op:
        case ReshapeOp():
            return _reshaped(view, tensor_info(op.operand.type).shape)
        case TransposeOp():
            permutation = op.permutation.get_values()
            return tuple(view[permutation.index(dim)] for dim in range(len(permutation)))
        case _:
            return None


def common_factors(dims: Iterable[Factors], size: int) -> tuple[int, ...] | None:
    """Sizes, outermost first, that split a dimension of `size` so that each part has one stride in all of `dims`; None
    if there are none."""
    ends = {size, 1}
    for factors in dims:
        ends.update(accumulate((count for count, _ in reversed(factors)), mul))
    ordered = sorted(ends, reverse=True)
    if ordered[0] != size or any(outer % inner for outer, inner in pairwise(ordered)):
        return None
    return tuple(outer // inner for outer, inner in pairwise(ordered)) or (1,)


def _sliced(factors: Factors, size: int, step: int) -> Factors | None:
    """Part of a dimension; of one with several factors all of it."""
    if size == 1:
        return ()
    if len(factors) == 1:
        ((_, stride),) = factors
        return ((size, stride * step),)
    count = 1
    for elements, _ in factors:
        count *= elements
    return factors if size == count and step == 1 else None


def _reshaped(view: FactoredView, shape: Sequence[int]) -> FactoredView | None:
    """The same elements in row-major order as `shape`."""
    rest = list(_joined(factor for factors in view for factor in factors))
    result: list[Factors] = []
    for size in shape:
        taken: list[Factor] = []
        while size > 1 and rest:
            count, stride = rest.pop(0)
            if size % count == 0:
                taken.append((count, stride))
                size //= count
            elif count % size == 0:
                taken.append((size, stride * (count // size)))
                rest.insert(0, (count // size, stride))
                size = 1
            else:
                return None
        if size != 1:
            return None
        result.append(tuple(taken))
    return tuple(result)


def _joined(factors: Iterable[Factor]) -> Factors:
    """Neighbours as one where the outer one steps over exactly the inner one."""
    joined: list[Factor] = []
    for count, stride in factors:
        if joined and joined[-1][1] == count * stride:
            joined[-1] = (joined[-1][0] * count, stride)
        else:
            joined.append((count, stride))
    return tuple(joined)
