"""Views whose dimensions may be several runs of strides: what a dimension that was joined from others is made of.

Heads joined with the batch, `[B, H, T, S]` read as `[B * H, T, S]` where `B` and `H` are not neighbours in memory, have
no stride; as a dimension of two factors they have two. Offsets are not kept: nothing that asks about factors needs
them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from math import prod
from operator import mul
from typing import TypeAlias

from xdsl.ir import Operation

from aicf.dialects.emit_types import contiguous_strides
from aicf.dialects.logical import BroadcastOp, ReshapeOp, SliceOp, TransposeOp
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.views import View

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
            sliced = _slice_through(op, view)
            return None if sliced is None else sliced[1]
        case BroadcastOp():
            repeated: list[Factors] = [((size, 0),) if size != 1 else () for size in shape]
            source = tensor_info(op.operand.type).shape
            for dim, target in enumerate(op.dimensions.get_values()):
                if source[dim] == shape[target]:
                    repeated[target] = view[dim]
            return tuple(repeated)
        case _:
            return None


def strided(chain: Sequence[Operation]) -> View | None:
    """What a chain of view ops shows of its source, contiguous memory, if each dim of the last result has one stride.

    A dimension may be of several factors in between: a reshape joins two that are no neighbours in memory, and a slice
    after it keeps one of them.
    """
    view, offset = whole(tensor_info(chain[0].operands[0].type).shape), 0
    for op in chain:
        if isinstance(op, SliceOp):
            if (sliced := _slice_through(op, view)) is None:
                return None
            start, view = sliced
            offset += start
        elif (seen := view_through(op, view)) is not None:
            view = seen
        else:
            return None
    runs = [_joined(factors) for factors in view]
    if any(len(run) > 1 for run in runs):
        return None
    shape = tensor_info(chain[-1].results[0].type).shape
    return View(offset, shape, tuple(run[0][1] if run else 0 for run in runs))


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


def _slice_through(op: SliceOp, view: FactoredView) -> tuple[int, FactoredView] | None:
    """Where a slice begins in what is seen through `view`, in elements of memory, and what it shows."""
    shape = tensor_info(op.result.type).shape
    dims = zip(view, op.starts.get_values(), shape, op.strides.get_values(), strict=True)
    sliced = [found for dim in dims if (found := _sliced(*dim)) is not None]
    if len(sliced) < len(shape):
        return None
    return sum(start for start, _ in sliced), tuple(factors for _, factors in sliced)


def _sliced(factors: Factors, start: int, size: int, step: int) -> tuple[int, Factors] | None:
    """`size` elements of a dimension from `start`, every `step`: the offset of the first, and their factors; None if
    the slice takes other elements of the inner factors at each step of the outermost one."""
    if not factors:
        return 0, ()
    (_, stride), rest = factors[0], factors[1:]
    length = prod(count for count, _ in rest)
    outer, inner = divmod(start, length)
    if (start + (size - 1) * step) // length == outer:
        count, each, apart = 1, size, 0
    elif step % length == 0:
        count, each, apart = size, 1, step // length
    else:  # as many elements of each of several runs, the same ones
        each, apart = length // step, 1
        if length % step or inner >= step or size % each:
            return None
        count = size // each
    if (within := _sliced(rest, inner, each, step)) is None:
        return None
    own: Factors = ((count, stride * apart),) if count != 1 else ()
    return outer * stride + within[0], (*own, *within[1])


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
