"""Rows that vectors do not fill: elements before the first aligned vector, and after the last whole one.

The last elements of a row are left where its size is no multiple of the vector. Where rows also start at any address,
such as rows of 50257 elements of 2 bytes without a gap between them, the elements up to the first multiple of the
vector are its *head*. Those at both ends are fewer than two vectors, so each is one thread's.

No code generator is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence

from aicf.backends.common.loop_nest import LoopNest
from aicf.backends.cuda.target import ELEMENT_BYTES, PIECE_BYTES


def contiguous_accesses(nest: LoopNest) -> list[int]:
    """The accesses that are contiguous along the row, if the row is one dim."""
    if len(nest.reduce_dims) != 1:
        return []
    return [n for n, stride in enumerate(nest.dims[nest.reduce_dims[0]].strides) if stride == 1]


def lead_of(nest: LoopNest) -> int:
    """The access by which the head is chosen: its vectors are aligned then. The widest of those that are contiguous and
    move from row to row, since alignment is the same for all rows of the others."""
    found = contiguous_accesses(nest)
    moving = [n for n in found if any(_row_strides(nest, n))] or found
    return max(moving, key=lambda n: (ELEMENT_BYTES[nest.accesses[n].dtype], -n))


def steps_from(nest: LoopNest, number: int, lead: int | None, offsets: Sequence[int]) -> list[int]:
    """Elements by which rows of an access start after a multiple of the vector: of the first row, and from one row to
    the next in each dim; all of that relative to the `lead` if there is one.

    Args:
        offsets: Elements from an aligned address to the start of each operand.
    """
    own = [offsets[number] + nest.accesses[number].offset, *_row_strides(nest, number)]
    if lead is None:
        return own
    return [mine - theirs for mine, theirs in zip(own, steps_from(nest, lead, None, offsets), strict=True)]


def has_head(nest: LoopNest, vector: int, offsets: Sequence[int]) -> bool:
    """Whether some row starts between multiples of the vector."""
    return any(step % vector for step in steps_from(nest, lead_of(nest), None, offsets))


def vector_with_ends(nest: LoopNest, offsets: Sequence[int]) -> int:
    """Elements of a vector along rows that it need not fill: 16 bytes of the widest operand. 1 where there is no such
    vector, or operands that move from row to row are aligned at different elements."""
    found = contiguous_accesses(nest)
    if not found:
        return 1
    vector = PIECE_BYTES // max(ELEMENT_BYTES[nest.accesses[n].dtype] for n in found)
    lead = lead_of(nest)
    moving = [n for n in found if any(_row_strides(nest, n))]
    same = all(step % vector == 0 for n in moving for step in steps_from(nest, n, lead, offsets))
    return vector if same else 1


def _row_strides(nest: LoopNest, number: int) -> list[int]:
    return [nest.dims[dim].strides[number] for dim in nest.parallel_dims]
