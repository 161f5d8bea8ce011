"""Rotary positions among primitive ops: ``pairs * cosines + flip(pairs) * sines``, found from what they give backwards.

The pairs of a head are a dimension of two elements: the last but one where elements i and i + half are a pair, the last
one where neighbours are. Sines are those of the first of a pair negated. What is narrower than f32 is widened first,
and the sum narrowed again. Su et al., RoFormer, 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.kinds import ROTATIONS
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.matching import only_reader
from aicf.passes.bodies.views import is_rearrangement, is_same_view

_, HALVES, NEIGHBOURS = ROTATIONS


@dataclass(frozen=True)
class Casts:
    """Of what is turned to the type of cosines and sines, and of the sum back."""

    widened: logical.CastOp
    narrowed: logical.CastOp


@dataclass(frozen=True)
class Rotation:
    """What turns the elements of heads.

    Args:
        flip: What swaps the elements of each pair.
        kept, turned: The products with cosines and with sines.
        cosines, sines: Which of their operands these are.
        total: Their sum.
        casts: Around all of that; None where the elements have the type of cosines and sines.
        views: What rearranges the result, in order.
        pairs: HALVES or NEIGHBOURS.
    """

    flip: logical.FlipOp
    kept: logical.MulOp
    turned: logical.MulOp
    cosines: int
    sines: int
    total: logical.AddOp
    casts: Casts | None
    views: tuple[Operation, ...]
    pairs: str

    @property
    def ops(self) -> tuple[Operation, ...]:
        """All ops but the views, in the order in which they compute."""
        ops = (self.flip, self.kept, self.turned, self.total)
        return ops if self.casts is None else (self.casts.widened, *ops, self.casts.narrowed)

    @property
    def source_reads(self) -> tuple[tuple[Operation, int], ...]:
        """Which ops read what is turned, and as which of their operands: the cast, or two that read the same."""
        if self.casts is not None:
            return ((self.casts.widened, 0),)
        return (self.kept, 1 - self.cosines), (self.flip, 0)

    @property
    def reads(self) -> tuple[tuple[Operation, int], ...]:
        """Which op reads what is turned, the first that does, cosines and sines, and as which of its operands."""
        return self.source_reads[0], (self.kept, self.cosines), (self.turned, self.sines)

    @property
    def by_heads(self) -> tuple[Operation, ...] | None:
        """The views without reshapes that others follow, if each leaves the elements of a head, and no others, along
        the last dimension; None if one does not."""
        *_, first, second = tensor_info(self.flip.result.type).shape
        after = (*self.views[1:], None)
        kept = tuple(
            view
            for view, next_view in zip(self.views, after, strict=True)
            if not (isinstance(view, logical.ReshapeOp) and isinstance(next_view, logical.ReshapeOp))
        )
        joins = bool(kept) and isinstance(kept[0], logical.ReshapeOp)
        keep = (_keeps_last(view, first * second) for view in kept)
        return kept if joins and all(keep) else None


def rotation_of(value: SSAValue) -> Rotation | None:
    """The rotation that a value is views of; None if there is none, or something else reads what is between."""
    views: list[Operation] = []
    while isinstance(value, OpResult) and is_rearrangement(value.op) and value.has_one_use():
        views.insert(0, value.op)
        value = value.op.operands[0]
    narrowed = value.owner if isinstance(value.owner, logical.CastOp) and value.has_one_use() else None
    value = value if narrowed is None else narrowed.operand
    total = value.owner
    if not isinstance(total, logical.AddOp) or not value.has_one_use():
        return None
    for kept, turned in (total.operands, [*reversed(total.operands)]):
        found = _turned(kept.owner, turned.owner, total, narrowed, tuple(views))
        if found is not None:
            return found
    return None


def _turned(
    kept: object,
    turned: object,
    total: logical.AddOp,
    narrowed: logical.CastOp | None,
    views: tuple[Operation, ...],
) -> Rotation | None:
    if not isinstance(kept, logical.MulOp) or not isinstance(turned, logical.MulOp):
        return None
    if not kept.result.has_one_use() or not turned.result.has_one_use():
        return None
    for sines, other in ((1, turned.lhs.owner), (0, turned.rhs.owner)):
        if not isinstance(other, logical.FlipOp) or only_reader(other.result) is not turned:
            continue
        source = next(
            (at for at, each in enumerate(kept.operands) if is_same_view(each, other.operand)), None
        )
        if source is None or (pairs := _pairs_of(other)) is None:
            continue
        casts = None
        if narrowed is not None and (casts := _casts(other, kept, narrowed)) is None:
            continue
        return Rotation(other, kept, turned, 1 - source, sines, total, casts, views, pairs)
    return None


def _casts(flip: logical.FlipOp, kept: logical.MulOp, narrowed: logical.CastOp) -> Casts | None:
    """The cast of what is turned, which nothing else reads, and that of the result to the same type."""
    widened = flip.operand.owner
    if not isinstance(widened, logical.CastOp):
        return None
    if {use.operation for use in widened.result.uses} != {flip, kept}:
        return None
    same = tensor_info(widened.operand.type).element == tensor_info(narrowed.result.type).element
    return Casts(widened, narrowed) if same else None


def _pairs_of(flip: logical.FlipOp) -> str | None:
    """Along which of the last two dimensions a flip swaps the elements of pairs; None if it does something else."""
    axes, info = tuple(flip.axes.get_values()), tensor_info(flip.result.type)
    for axis, pairs in ((info.rank - 2, HALVES), (info.rank - 1, NEIGHBOURS)):
        if axes == (axis,) and info.rank >= 2 and info.shape[axis] == 2:
            return pairs
    return None


def _keeps_last(view: Operation, size: int) -> bool:
    """Whether a view gives rows of `size`, and does not take them apart."""
    if isinstance(view, logical.TransposeOp):
        order = view.permutation.get_values()
        return order[-1] == len(order) - 1
    return tensor_info(view.results[0].type).shape[-1] == size
