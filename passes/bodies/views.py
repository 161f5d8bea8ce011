"""Strided views: what a chain of reshape, transpose, slice, window and broadcast does to addresses.

Offsets and strides count elements. A view that strides cannot express is None; then a copy is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TypeGuard

from xdsl.ir import Operation, SSAValue
from xdsl.traits import OpTrait

from aicf.dialects.emit_types import contiguous_strides
from aicf.dialects.logical import BroadcastOp, ConcatOp, ReshapeOp, SliceOp, TransposeOp, WindowOp, int_values
from aicf.dialects.traits import Rearrangement, StridedView
from aicf.dialects.types import tensor_info


def is_view(op: object) -> TypeGuard[Operation]:
    """Whether it is an op whose result is its operand's memory with other strides; the owner of a value may be none."""
    return _is_type_with(type(op), StridedView)


def is_rearrangement(op: object) -> TypeGuard[Operation]:
    """Whether it is such an op whose result has every element of its operand once."""
    return _is_type_with(type(op), Rearrangement)


@cache
def _is_type_with(kind: type[object], trait: type[OpTrait]) -> bool:
    """Whether it is a type of ops with a trait. Traits of a type never change, and passes ask this of all ops they
    meet."""
    return issubclass(kind, Operation) and kind.has_trait(trait)


@dataclass(frozen=True)
class View:
    """Element (i, j, ...) lies `offset + i * strides[0] + j * strides[1] + ...` elements into a contiguous base."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def whole(cls, shape: Sequence[int]) -> View:
        """The base itself."""
        return cls(0, tuple(shape), contiguous_strides(shape))

    @property
    def is_row(self) -> bool:
        """Whether it is contiguous, wherever it starts; size-1 dims have no stride that matters."""
        steps = zip(self.shape, self.strides, contiguous_strides(self.shape), strict=True)
        return all(size == 1 or step == want for size, step, want in steps)

    @property
    def is_whole(self) -> bool:
        """Whether it starts at 0 and is contiguous."""
        return self.offset == 0 and self.is_row

    def transposed(self, permutation: Sequence[int]) -> View:
        """Dim i of the result is dim `permutation[i]`."""
        return View(
            self.offset,
            tuple(self.shape[p] for p in permutation),
            tuple(self.strides[p] for p in permutation),
        )

    def sliced(self, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> View:
        """Elements `start + i * step`, `size` of them, per dim."""
        offset = self.offset + sum(start * step for start, step in zip(starts, self.strides, strict=True))
        return View(offset, tuple(sizes), tuple(a * b for a, b in zip(self.strides, steps, strict=True)))

    def broadcast(self, dimensions: Sequence[int], shape: Sequence[int]) -> View:
        """Dim i becomes dim `dimensions[i]` of `shape`; new and repeated dims have stride 0."""
        strides = [0] * len(shape)
        for dim, target in enumerate(dimensions):
            if self.shape[dim] == shape[target]:
                strides[target] = self.strides[dim]
        return View(self.offset, tuple(shape), tuple(strides))

    def windows(self, shape: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> View:
        """Windows along the last dims: `strides` apart, their elements `dilations` apart; `shape` is of the result."""
        lead = len(self.strides) - len(strides)
        outer = [a * b for a, b in zip(self.strides[lead:], strides, strict=True)]
        inner = [a * b for a, b in zip(self.strides[lead:], dilations, strict=True)]
        return View(self.offset, tuple(shape), (*self.strides[:lead], *outer, *inner))

    def reshaped(self, shape: Sequence[int]) -> View | None:
        """The same elements in row-major order as `shape`, None if strides cannot say it."""
        if prod(shape) == 0 or self.is_whole:
            return View(self.offset, tuple(shape), contiguous_strides(shape))
        strides = _reshaped_strides(self.shape, self.strides, tuple(shape))
        return None if strides is None else View(self.offset, tuple(shape), strides)

    def then(self, op: Operation) -> View | None:
        """The view after applying view op `op` to this one."""
        shape = tensor_info(op.results[0].type).shape
        match op:
            case ReshapeOp():
                return self.reshaped(shape)
            case TransposeOp():
                return self.transposed(tuple(op.permutation.get_values()))
            case SliceOp():
                return self.sliced(tuple(op.starts.get_values()), shape, tuple(op.strides.get_values()))
            case BroadcastOp():
                return self.broadcast(tuple(op.dimensions.get_values()), shape)
            case WindowOp():
                return self.windows(shape, int_values(op.strides), int_values(op.dilations))
            case _:
                return None


def before_reshapes(value: SSAValue) -> SSAValue:
    """The value that reshapes, if there are any, show in another shape."""
    while isinstance(value.owner, ReshapeOp):
        value = value.owner.operand
    return value


def is_same_view(one: SSAValue, other: SSAValue) -> bool:
    """Whether two values are the same, or the same views of the same value: groups clone views for each reader."""
    while one is not other:
        if not is_view(one.owner) or not is_view(other.owner):
            return False
        if type(one.owner) is not type(other.owner) or one.type != other.type:
            return False
        if one.owner.properties != other.owner.properties:
            return False
        one, other = one.owner.operands[0], other.owner.operands[0]
    return True


def view_after(chain: Sequence[Operation], last: View | None = None) -> View | None:
    """Where the source of a chain of reshapes and transposes lies if the last one's result is seen through `last`, by
    default in contiguous memory of its own.

    None if the chain drops or repeats elements, or strides cannot say it.
    """
    view = View.whole(tensor_info(chain[-1].results[0].type).shape) if last is None else last
    for op in reversed(chain):
        if view is not None:
            view = before(op, view)
    return view


def before(op: Operation, view: View) -> View | None:
    """The view of the operand of `op` if its result is seen through `view`, None if strides cannot say it."""
    match op:
        case ReshapeOp():
            return view.reshaped(tensor_info(op.operands[0].type).shape)
        case TransposeOp():
            permutation = tuple(op.permutation.get_values())
            return view.transposed([permutation.index(dim) for dim in range(len(permutation))])
        case _:
            return None


def part_of_concat(op: ConcatOp, index: int, view: View) -> View:
    """The view of operand `index` if the concatenation's result is seen through `view`."""
    axis, shape = op.axis.value.data, tensor_info(op.parts[index].type).shape
    start = sum(tensor_info(part.type).shape[axis] for part in op.parts[:index])
    starts = [start if dim == axis else 0 for dim in range(len(shape))]
    return view.sliced(starts, shape, [1] * len(shape))


def _reshaped_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides of `target` over memory laid out as `shape`/`strides`: matches runs of dims with equal element counts."""
    source = [(size, step) for size, step in zip(shape, strides, strict=True) if size != 1]
    result: list[int] = []
    run: list[tuple[int, int]] = []
    position = 0
    for size in target:
        if size == 1:
            result.append(0)
            continue
        if not run or prod(s for s, _ in run) == 1:
            if position == len(source):
                return None
            run = [source[position]]
            position += 1
        while run[0][0] % size and position < len(source):
            joined = _join(run[0], source[position])
            if joined is None:
                return None
            run = [joined]
            position += 1
        count, step = run[0]
        if count % size:
            return None
        result.append(step * (count // size))
        run = [(count // size, step)]
    return tuple(result)


def _join(outer: tuple[int, int], inner: tuple[int, int]) -> tuple[int, int] | None:
    """Two neighbouring dims as one, if the outer one steps over exactly the inner one."""
    return (outer[0] * inner[0], inner[1]) if outer[1] == inner[0] * inner[1] else None
