"""From strides back to logical view ops: the inverse of `views`, for programs that are raised.

Any view that a chain of reshape, transpose, slice, broadcast and one window can give over a contiguous tensor is found
again as at most six ops; the result is checked by walking forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd, prod

from xdsl.ir import Operation, SSAValue

from aicf.dialects.emit_types import contiguous_strides
from aicf.dialects.logical import BroadcastOp, ReshapeOp, SliceOp, TransposeOp, WindowOp
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.views import View


@dataclass(frozen=True)
class _Pick:
    """Dim `base` of the refined base: `size` elements from `start` every `step`."""

    base: int
    start: int
    size: int
    step: int

    @property
    def last(self) -> int:
        """The last element taken."""
        return self.start + (self.size - 1) * self.step


def view_ops(value: SSAValue, view: View) -> list[Operation]:
    """The logical ops that give `view` of `value`, in order; empty if it is the value itself.

    Raises ValueError if no chain of view ops gives it.
    """
    shape = tensor_info(value.type).shape
    whole = view.is_whole and prod(view.shape) == prod(shape)
    if whole and view.shape == shape:
        return []
    if whole:
        return [ReshapeOp(value, view.shape)]
    for ways in (_strided_ops, _windows_of_dims, _overlapping_windows):
        try:
            ops = ways(value, shape, view)
        except ValueError:
            continue
        if _leads_to(ops, shape, view):
            return ops
    raise ValueError(
        f"no reshape, transpose, slice, window and broadcast of {shape} gives strides {view.strides}"
    )


def _leads_to(ops: Sequence[Operation], shape: tuple[int, ...], view: View) -> bool:
    reached: View | None = View.whole(shape)
    for op in ops:
        reached = None if reached is None else reached.then(op)
    return reached is not None and _same(reached, view)


def laid_out(value: SSAValue, view: View, shape: tuple[int, ...]) -> list[Operation] | None:
    """The logical ops from a value that is written through `view` to what then lies in contiguous memory of `shape`.

    Empty if the value lies there as it is; then a reshape at most is left to who reads it. None if the view leaves
    elements out or writes some twice.
    """
    if view.is_whole:
        return []
    order = sorted(range(len(view.shape)), key=lambda dim: -view.strides[dim])
    if not view.transposed(order).is_whole or prod(view.shape) != prod(shape):
        return None
    moved = TransposeOp(value, order)
    ops: list[Operation] = [moved]
    if tensor_info(moved.result.type).shape != shape:
        ops.append(ReshapeOp(moved.result, shape))
    return ops


def _same(one: View, other: View) -> bool:
    steps = zip(one.shape, one.strides, other.strides, strict=False)
    return (
        one.shape == other.shape and one.offset == other.offset and all(n == 1 or a == b for n, a, b in steps)
    )


def _strided_ops(value: SSAValue, shape: tuple[int, ...], view: View) -> list[Operation]:
    spread = [
        dim for dim, (n, step) in enumerate(zip(view.shape, view.strides, strict=True)) if n != 1 and step
    ]
    refined, picks = _refinement(shape, view, spread)
    ops: list[Operation] = []

    def add(op: ReshapeOp | SliceOp | TransposeOp | BroadcastOp) -> SSAValue:
        ops.append(op)
        return op.result

    current = value if refined == shape else add(ReshapeOp(value, refined))
    by_base = {pick.base: pick for pick in picks}
    starts = [by_base[dim].start for dim in range(len(refined))]
    sizes = [by_base[dim].size for dim in range(len(refined))]
    steps = [by_base[dim].step for dim in range(len(refined))]
    if tuple(sizes) != refined:
        current = add(SliceOp(current, starts, sizes, steps))
    order = [pick.base for pick in picks]
    if order != sorted(order):
        current = add(TransposeOp(current, order))
    kept = tuple(view.shape[dim] for dim in spread)
    if tensor_info(current.type).shape != kept:
        current = add(ReshapeOp(current, kept))
    if kept != view.shape:
        add(BroadcastOp(current, spread, view.shape))
    return ops


def _windows_of_dims(value: SSAValue, shape: tuple[int, ...], view: View) -> list[Operation]:
    """Windows where two dims of the view go along one of the base."""
    steps = contiguous_strides(shape)

    def along(dim: int) -> int:
        return next(index for index, step in enumerate(steps) if step <= view.strides[dim])

    return _window_ops(value, view, _pairs(view, lambda dim, other: along(dim) == along(other)))


def _overlapping_windows(value: SSAValue, shape: tuple[int, ...], view: View) -> list[Operation]:
    """Windows where a dim of the view takes steps shorter than the one inside of it is long."""

    def overlap(inner: int, outer: int) -> bool:
        return view.strides[outer] <= (view.shape[inner] - 1) * view.strides[inner]

    return _window_ops(value, view, _pairs(view, overlap))


def _pairs(view: View, belong: Callable[[int, int], bool]) -> list[tuple[int, int]]:
    """Dims (inner, outer) that are neighbours by their strides and belong together; each dim in one pair at most."""
    spread = [
        dim for dim, (n, step) in enumerate(zip(view.shape, view.strides, strict=True)) if n != 1 and step
    ]
    spread.sort(key=lambda dim: (view.strides[dim], -dim))
    pairs: list[tuple[int, int]] = []
    for inner, outer in pairwise(spread):
        if belong(inner, outer) and (not pairs or inner not in pairs[-1]):
            pairs.append((inner, outer))
    return sorted(pairs, key=lambda pair: pair[1])


def _window_ops(value: SSAValue, view: View, pairs: Sequence[tuple[int, int]]) -> list[Operation]:
    """The ops of the view without windows, in which the dims of the windows come last, and then the windows."""
    if not pairs:
        raise ValueError(f"strides {view.strides} show no windows")
    paired = {dim for pair in pairs for dim in pair}
    rest = [dim for dim in range(len(view.shape)) if dim not in paired]
    units = [gcd(*(view.strides[dim] for dim in pair)) for pair in pairs]
    spans = [
        sum((view.shape[dim] - 1) * view.strides[dim] // unit for dim in pair) + 1
        for pair, unit in zip(pairs, units, strict=True)
    ]
    spanned = View(
        view.offset,
        (*(view.shape[dim] for dim in rest), *spans),
        (*(view.strides[dim] for dim in rest), *units),
    )
    ops = view_ops(value, spanned)
    inner, outer = ([pair[index] for pair in pairs] for index in (0, 1))
    dilations, strides = (
        [view.strides[dim] // unit for dim, unit in zip(dims, units, strict=True)] for dims in (inner, outer)
    )
    source = ops[-1].results[0] if ops else value
    ops.append(window := WindowOp(source, [view.shape[dim] for dim in inner], strides, dilations))
    order = [*rest, *outer, *inner]
    if order != sorted(order):
        ops.append(TransposeOp(window.result, [order.index(dim) for dim in range(len(order))]))
    return ops


def _refinement(
    shape: tuple[int, ...], view: View, spread: Sequence[int]
) -> tuple[tuple[int, ...], list[_Pick]]:
    """A shape of the base whose dims the view picks from, and the picks."""
    strides = [view.strides[dim] for dim in spread]
    refined = _refined_shape(shape, strides)
    for candidate in (refined, _nested_shape(prod(shape), strides)):
        if candidate is not None and (picks := _picks(candidate, view, spread)) is not None:
            return candidate, picks
    raise ValueError(f"strides {strides} follow no dims of {refined}")


def _nested_shape(total: int, strides: Sequence[int]) -> tuple[int, ...] | None:
    """The shape whose dims have the strides of the view, whatever those of the base were: it was reshaped before."""
    marks = [*sorted({1, *strides}), total]
    if any(high % low for low, high in pairwise(marks)):
        return None
    return tuple(high // low for low, high in reversed([*pairwise(marks)]))


def _refined_shape(shape: tuple[int, ...], strides: Sequence[int]) -> tuple[int, ...]:
    """The base with dims split where a view stride falls between two of its own."""
    marks = sorted({*contiguous_strides(shape), 1, *strides})
    total = prod(shape)
    chain: list[int] = []
    base = sorted({*contiguous_strides(shape), 1, total})
    for mark in marks:
        below = max(b for b in base if b <= mark)
        above = min((b for b in base if b > mark), default=total)
        if mark in base or (mark % below == 0 and above % mark == 0 and (not chain or mark % chain[-1] == 0)):
            chain.append(mark)
    sizes = [high // low for low, high in zip(chain, [*chain[1:], total], strict=True)]
    refined = tuple(size for size in reversed(sizes) if size != 1)
    squeezed = tuple(size for size in shape if size != 1)
    return shape if refined == squeezed else refined


def _picks(refined: tuple[int, ...], view: View, spread: Sequence[int]) -> list[_Pick] | None:
    """What each refined dim contributes: those that view dims follow, in view order, then the fixed ones.

    None if a view dim follows none of them, or goes past the end of the one it follows.
    """
    strides = contiguous_strides(refined)
    rest = view.offset
    starts: list[int] = []
    for step in strides:
        starts.append(rest // step)
        rest %= step
    picks: list[_Pick] = []
    used: set[int] = set()
    for dim in spread:
        base = next(
            (
                index
                for index, step in enumerate(strides)
                if refined[index] != 1
                and index not in used
                and step <= view.strides[dim] < step * refined[index]
                and view.strides[dim] % step == 0
            ),
            None,
        )
        if base is None:
            return None
        used.add(base)
        pick = _Pick(base, starts[base], view.shape[dim], view.strides[dim] // strides[base])
        if pick.last >= refined[base]:
            return None
        picks.append(pick)
    fixed = [_Pick(index, starts[index], 1, 1) for index in range(len(refined)) if index not in used]
    return [*picks, *fixed]
