"""Rotary positions that a step of attention takes along: which operands say how its query and its new key are turned,
and where their pairs lie. For kernels of all backends; imports no code generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from aicf.backends.common.record import OneOf, Record, read_entry
from aicf.dialects.kinds import ROTATIONS

TURNS = 4
"""Operands that say how queries and the new key are turned: cosines and sines of queries, then of keys."""
NOT_TURNED, HALVES, NEIGHBOURS = ROTATIONS


class Operand(Protocol):
    """Sizes, strides in elements, and the element type of an operand."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...


@dataclass(frozen=True)
class Pairs:
    """Where pairs lie, by strides in elements: those of a row, or their cosines or sines.

    Args:
        dtype: Element type.
        batch: Of the batch dimensions, outermost first; 0 where it is the same.
        half: From the first to the second of a pair; 0 where both have one number.
        pair: From pair to pair.
    """

    dtype: str
    batch: tuple[int, ...]
    half: int
    pair: int


@dataclass(frozen=True)
class Turns:
    """What turns the queries and the new key.

    Args:
        pairs: Which elements of a head are a pair: HALVES or NEIGHBOURS.
        query, key: Cosines and sines of each; sines are those of the first of a pair negated.
    """

    pairs: str
    query: tuple[Pairs, Pairs]
    key: tuple[Pairs, Pairs]


def rotation_in(entries: Record) -> str:
    """Which elements of heads are turned as pairs, by the attributes of a work or the entries of a record: one of
    `ROTATIONS`. Raises RecordError if it is something else."""
    return read_entry(entries, "rotation", OneOf(ROTATIONS)) if "rotation" in entries else NOT_TURNED


def read_turns(pairs: str, operands: Sequence[Operand], rank: int) -> Turns:
    """What turns a step.

    Args:
        pairs: HALVES or NEIGHBOURS.
        operands: Cosines and sines of queries, then of keys, each of the shape of what it turns.
        rank: Dimensions of the queries, of which pairs are two; keys may lack the last of the batch dimensions.
    """
    cosines, sines, of_key, sines_of_key = (pairs_of(each, pairs, rank) for each in operands)
    return Turns(pairs, (cosines, sines), (of_key, sines_of_key))


def pairs_of(operand: Operand, pairs: str, rank: int) -> Pairs:
    """The pairs of an operand of one row, ``[..., 1, 2, half]`` (HALVES) or ``[..., 1, half, 2]``; they are the same
    along the last batch dimensions that it lacks of a tensor of `rank` dimensions."""
    *batch, _, outer, inner = operand.strides
    half, pair = (outer, inner) if pairs == HALVES else (inner, outer)
    missing = rank - len(operand.shape)
    return Pairs(operand.dtype, (*batch, *(0,) * missing), half, pair)
