"""From parts that instructions wrote into a buffer back to concatenations, for programs that are raised."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.ir import Block, Operation, SSAValue

from aicf.dialects.emit_types import contiguous_strides
from aicf.dialects.logical import ConcatOp, ReshapeOp, TransposeOp
from aicf.passes.bodies.views import View, is_view

_COPY = re.compile(r"(.*)\.copy(\d+)(?:_\d+)?(@.*)?")
"""The name that `elide-concats` gives the copy of a part: the id of the concatenation, then `copy` and a number."""


@dataclass(frozen=True)
class Box:
    """A part of a contiguous buffer: the first element and the size of each dim."""

    starts: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def ends(self) -> tuple[int, ...]:
        """Past the last element of each dim."""
        return tuple(start + size for start, size in zip(self.starts, self.sizes, strict=True))

    def view(self, shape: Sequence[int]) -> View:
        """The box in a buffer of `shape`."""
        return View.whole(shape).sliced(self.starts, self.sizes, [1] * len(shape))

    def holds(self, other: Box) -> bool:
        """Whether all of `other` is in it."""
        pairs = zip(self.starts, self.ends, other.starts, other.ends, strict=True)
        return all(start <= its_start and its_end <= end for start, end, its_start, its_end in pairs)

    def meets(self, other: Box) -> bool:
        """Whether the two have an element in common."""
        pairs = zip(self.starts, self.ends, other.starts, other.ends, strict=True)
        return all(start < its_end and its_start < end for start, end, its_start, its_end in pairs)


def _coordinates(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    steps = contiguous_strides(shape)
    return tuple(flat // step % size for step, size in zip(steps, shape, strict=True))


def box_of(view: View, shape: Sequence[int]) -> Box | None:
    """The smallest box of a buffer of `shape` that holds a view without negative strides."""
    if prod(view.shape) == 0 or min(view.strides, default=0) < 0:
        return None
    last = view.offset + sum((size - 1) * step for size, step in zip(view.shape, view.strides, strict=True))
    low, high = _coordinates(view.offset, shape), _coordinates(last, shape)
    sizes = tuple(end - start + 1 for start, end in zip(low, high, strict=True))
    return Box(low, sizes) if min(sizes, default=1) > 0 else None


def filling(value: SSAValue, view: View, box: Box, shape: Sequence[int]) -> list[Operation] | None:
    """The ops from a value that is written through `view` to what then fills `box`; None if it does not."""
    wide = [dim for dim, size in enumerate(view.shape) if size != 1]
    order = sorted(range(len(view.shape)), key=lambda dim: -view.strides[dim])
    if wide == sorted(wide, key=lambda dim: -view.strides[dim]):
        order = list(range(len(view.shape)))
    moved = view.transposed(order)
    ops: list[Operation] = [TransposeOp(value, order)] if order != sorted(order) else []
    if prod(box.sizes) != prod(view.shape) or not _is_same(moved.reshaped(box.sizes), box.view(shape)):
        return None
    if moved.shape != box.sizes:
        ops.append(ReshapeOp(ops[-1].results[0] if ops else value, box.sizes))
    return ops


def _is_same(one: View | None, other: View) -> bool:
    if one is None or (one.offset, one.shape) != (other.offset, other.shape):
        return False
    steps = zip(one.shape, one.strides, other.strides, strict=True)
    return all(size == 1 or step == wanted for size, step, wanted in steps)


def inside(view: View, box: Box, shape: Sequence[int]) -> View | None:
    """A view of a buffer of `shape` as one of what lies in `box`, contiguous by itself; None if it leaves the box."""
    reach = box_of(view, shape)
    if reach is None or not box.holds(reach):
        return None
    own = contiguous_strides(box.sizes)
    first = _coordinates(view.offset, shape)

    def local(flat: int) -> int:
        return sum(at * step for at, step in zip(_coordinates(flat, shape), own, strict=True))

    strides: list[int] = []
    for size, step in zip(view.shape, view.strides, strict=True):
        strides.append(0 if size == 1 else local(view.offset + step) - local(view.offset))
        if (
            size != 1
            and local(view.offset + (size - 1) * step) - local(view.offset) != (size - 1) * strides[-1]
        ):
            return None
    offset = sum((at - start) * step for at, start, step in zip(first, box.starts, own, strict=True))
    return View(offset, view.shape, tuple(strides))


@dataclass(frozen=True)
class Operand:
    """What the name of a copied part says: of which concatenation it is, and where along the axis it starts."""

    concat: str
    start: int

    @classmethod
    def named(cls, name: str) -> Operand | None:
        """Of the instruction `name`; None if it is no copy of a part."""
        if (found := _COPY.fullmatch(name)) is None:
            return None
        return cls(found[1] + (found[3] or ""), int(found[2]))


@dataclass(frozen=True)
class Piece:
    """What fills a box: its value, the op after which all of it is written, and what a copy says of itself.

    `operands` are those of the concatenation that it is part of: several, where neighbours were copied as one.
    """

    box: Box
    value: SSAValue
    after: Operation | None
    said: Operand | None = None
    src: Sequence[str] = ()
    operands: tuple[SSAValue, ...] = ()


@dataclass
class Pieces:
    """A buffer of `shape` that instructions fill piece by piece.

    Args:
        add_concat: Inserts a concatenation into the function after an op, with an id, or a new one if it has none, and
            with sources.
    """

    shape: tuple[int, ...]
    block: Block
    add_concat: Callable[[ConcatOp, Operation | None, str | None, Sequence[str]], None]
    outer: list[Piece] = field(default_factory=list[Piece])
    """What is part of nothing else yet."""
    known: list[Piece] = field(default_factory=list[Piece])
    """All pieces, and what was joined of them."""

    def add(self, piece: Piece) -> None:
        """Notes a piece. One that overwrites another takes the buffer over: nothing reads what was in it."""
        if any(other.box.meets(piece.box) for other in self.known):
            self.outer, self.known = [], []
        self.outer.append(piece)
        self.known.append(piece)
        if _volume(self.outer) == prod(self.shape):
            self._join(self.outer)

    def seen(self, view: View, called: str | None = None) -> tuple[SSAValue, View] | None:
        """What a view shows, and how: a piece of the name by which the reader knows it, or of its size, else the whole
        once all is written, before that the smallest piece that holds it; None if not all of it was written."""
        if (reach := box_of(view, self.shape)) is None:
            return None
        if not any(piece.box.holds(reach) for piece in self.known):
            self._join(_around(reach, self.outer))
        holding = sorted(
            (piece for piece in self.known if piece.box.holds(reach)), key=lambda piece: prod(piece.box.sizes)
        )
        named = [piece for piece in holding if called is not None and piece.value.name_hint == called]
        computed = [piece for piece in holding if not is_view(piece.value.owner)]
        exact = [piece for piece in computed if prod(piece.box.sizes) == prod(view.shape)]
        whole = [piece for piece in holding if piece.box.sizes == self.shape]
        for piece in (*named, *exact, *whole, *holding):
            if (local := inside(view, piece.box, self.shape)) is not None:
                return piece.value, local
        return None

    def is_untouched(self, view: View) -> bool:
        """Whether no piece has an element of a view: it shows what was there before."""
        reach = box_of(view, self.shape)
        return reach is not None and not any(piece.box.meets(reach) for piece in self.known)

    @property
    def whole(self) -> SSAValue | None:
        """All of it; None if not all was written."""
        found = self.seen(View.whole(self.shape))
        return None if found is None else found[0]

    def _join(self, pieces: Sequence[Piece]) -> None:
        """Makes pieces one, if they fill a box."""
        if (joined := self._joined(pieces)) is not None:
            self.outer = [*(piece for piece in self.outer if piece not in pieces), joined]

    def _joined(self, pieces: Sequence[Piece]) -> Piece | None:
        """Pieces that fill a box, as one: side by side along an axis, which copies confirm where there are some."""
        if len(pieces) < 2:
            return next(iter(pieces), None)
        cuts = {axis: _sides(pieces, axis) for axis in range(len(self.shape))}
        found = [axis for axis, sides in cuts.items() if len(sides) > 1]
        found.sort(key=lambda axis: not _is_confirmed(cuts[axis], axis))
        if not found:
            return None
        joined = [self._joined(side) for side in cuts[found[0]]]
        parts = [part for part in joined if part is not None]
        return self._concat(parts, found[0]) if len(parts) == len(joined) else None

    def _concat(self, parts: Sequence[Piece], axis: int) -> Piece:
        order = {op: number for number, op in enumerate(self.block.ops)}
        after = max((part.after for part in parts), key=lambda op: -1 if op is None else order[op])
        op = ConcatOp([value for part in parts for value in part.operands or (part.value,)], axis)
        copy = next((part for part in parts if part.said is not None), None)
        self.add_concat(op, after, copy.said.concat if copy and copy.said else None, copy.src if copy else ())
        starts = parts[0].box.starts
        sizes = tuple(end - start for start, end in zip(starts, parts[-1].box.ends, strict=True))
        piece = Piece(Box(starts, sizes), op.result, op)
        self.known.append(piece)
        return piece


def _volume(pieces: Sequence[Piece]) -> int:
    return sum(prod(piece.box.sizes) for piece in pieces)


def _around(reach: Box, pieces: Sequence[Piece]) -> list[Piece]:
    """The fewest pieces that fill a box with `reach` in it; none if no pieces do."""
    while True:
        found = [piece for piece in pieces if piece.box.meets(reach)]
        boxes = [reach, *(piece.box for piece in found)]
        starts = tuple(map(min, zip(*(box.starts for box in boxes), strict=True)))
        ends = tuple(map(max, zip(*(box.ends for box in boxes), strict=True)))
        grown = Box(starts, tuple(end - start for start, end in zip(starts, ends, strict=True)))
        if grown == reach:
            return found if _volume(found) == prod(reach.sizes) else []
        reach = grown


def _sides(pieces: Sequence[Piece], axis: int) -> list[list[Piece]]:
    """The pieces in the order of an axis, apart wherever no piece lies across."""
    sides: list[list[Piece]] = []
    reached = -1
    for piece in sorted(pieces, key=lambda piece: piece.box.starts[axis]):
        if piece.box.starts[axis] >= reached:
            sides.append([])
        sides[-1].append(piece)
        reached = max(reached, piece.box.ends[axis])
    return sides


def _is_confirmed(sides: Sequence[Sequence[Piece]], axis: int) -> bool:
    """Whether the copies among the sides are operands of one concatenation, each at its place."""
    names: set[str] = set()
    first = sides[0][0].box.starts[axis]
    for side in sides:
        said = side[0].said if len(side) == 1 else None
        if said is not None:
            names.add(said.concat)
            if said.start != side[0].box.starts[axis] - first:
                return False
    return len(names) == 1
