"""What a step of a decoder asks of attention, read from a work or a launch: one query a head, the row that it writes,
how far its cache is filled, and what turns the query and the new key. Plain data; imports no code generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.record import Record, read_integer, read_number
from aicf.backends.common.rotation import NOT_TURNED, TURNS, Turns, read_turns, rotation_in
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.families.attention.problem import (
    CACHED,
    AttentionProblem,
    Rows,
    problem_of_operands,
    rows_of,
)
from aicf.backends.cuda.families.records import read_flag

STEP = "attention_step"
CACHED_STEP = "cached_attention_step"
POSITION, NEW_KEY, NEW_VALUE = 3, 4, 5
"""Operands of a step after queries, keys and values; cosines and sines of queries, then of keys, and a mask follow if
there are such, and of a cache how far it is filled comes last."""


@dataclass(frozen=True)
class Writes:
    """The row that a step writes.

    Args:
        position: Element type of its index.
        is_one: Whether all batch elements write the same row, so that there is one index.
        row_k, row_v: The new key and value, one row for each batch element.
        keys, values: Where the new state lies.
    """

    position: str
    is_one: bool
    row_k: Rows
    row_v: Rows
    keys: Rows
    values: Rows


@dataclass(frozen=True)
class Filled:
    """How far a cache of keys and values is filled.

    Args:
        position: Strides, over the batch dimensions, and the type of the operand that says how many keys come before
            the query.
        window: Keys that the query sees at most, up to its own; 0 for all of them.
        softcap: What bounds the scores; 0.0 without.
    """

    position: tuple[tuple[int, ...], str]
    window: int
    softcap: float


@dataclass(frozen=True)
class StepProblem:
    """An attention, the row that is written before it, None where keys and values are given, how far these are filled,
    None where that is known, and what turns the query and the new key, None where nothing does."""

    attention: AttentionProblem
    writes: Writes | None
    filled: Filled | None = None
    turns: Turns | None = None

    @property
    def seen(self) -> int:
        """Keys that the query sees."""
        problem = self.attention
        return problem.n if problem.past is None else min(problem.n, problem.past + 1)

    @property
    def sharing(self) -> int:
        """Queries that share keys and values: along the last batch dims, if these are the same along them and so is all
        else that follows from no query. One of them writes the new row, so the new keys and values count, too."""
        attention, writes, filled, turns = self.attention, self.writes, self.filled, self.turns
        strides = [attention.k.batch, attention.v.batch]
        if writes is not None:
            strides += [each.batch for each in (writes.keys, writes.values, writes.row_k, writes.row_v)]
        strides += [] if filled is None else [filled.position[0]]
        strides += [] if turns is None else [each.batch for each in turns.query]
        dim = len(attention.batch)
        while dim > 0 and (attention.batch[dim - 1] == 1 or not any(each[dim - 1] for each in strides)):
            dim -= 1
        return prod(attention.batch[dim:])


Operand = OperandInfo | BufferRef


def problem_of(work: Workload) -> StepProblem:
    """The problem of a work of kind `attention` or `attention_step`, or of these kinds with a cache."""
    return _problem(work.kind, work.operands, work.results, work.attrs)


def problem_of_launch(launch: Launch) -> StepProblem:
    """The problem of an instruction of these kinds."""
    return _problem(launch.kind, launch.ins, launch.outs, launch.record)


def as_attention(
    kind: str, ins: Sequence[Operand], outs: Sequence[Operand], entries: Record
) -> list[Operand]:
    """Queries, keys, values and the mask, if there is one, all with the batch dims of the result."""
    given = [*ins[:POSITION], *_rest(kind, ins, entries)]
    if kind in (CACHED, CACHED_STEP) and read_flag(entries, "position"):
        given.pop()
    query = _joined(given[0]) if is_turned(kind, entries) else given[0]
    keys = (_repeated(each, outs[0].shape[:-2]) for each in given[1:POSITION])
    return [query, *keys, *given[POSITION:]]


def is_turned(kind: str, entries: Record) -> bool:
    """Whether the query and the new key are turned on the way."""
    return kind == CACHED_STEP and rotation_in(entries) != NOT_TURNED


def _rest(kind: str, ins: Sequence[Operand], entries: Record) -> Sequence[Operand]:
    """A mask, and how far a cache is filled, if there are such."""
    if kind not in (STEP, CACHED_STEP):
        return ins[POSITION:]
    return ins[NEW_VALUE + 1 + (TURNS if is_turned(kind, entries) else 0) :]


def _problem(kind: str, ins: Sequence[Operand], outs: Sequence[Operand], entries: Record) -> StepProblem:
    filled = None
    if kind in (CACHED, CACHED_STEP) and read_flag(entries, "position"):
        position = (ins[-1].strides[:-2], ins[-1].dtype)
        filled = Filled(position, read_integer(entries, "window"), read_number(entries, "softcap"))
    attention = problem_of_operands(as_attention(kind, ins, outs, entries), outs[0], entries)
    if filled is not None:
        attention = replace(attention, past=None)
    if kind not in (STEP, CACHED_STEP):
        return StepProblem(attention, None, filled)
    turns = None
    if is_turned(kind, entries):
        factors = ins[NEW_VALUE + 1 : NEW_VALUE + 1 + TURNS]
        turns = read_turns(rotation_in(entries), factors, len(ins[0].shape))
    key = ins[NEW_KEY] if turns is None else _joined(ins[NEW_KEY])
    rows = [_repeated(each, attention.batch) for each in (key, ins[NEW_VALUE], outs[1], outs[2])]
    is_one = prod(ins[POSITION].shape) == 1
    writes = Writes(ins[POSITION].dtype, is_one, *map(rows_of, rows))
    return StepProblem(attention, writes, filled, turns)


def _repeated(operand: Operand, batch: tuple[int, ...]) -> Operand:
    """Keys or values, or a row of them, the same along the batch dims that they lack, which are the last."""
    missing = len(batch) + 2 - len(operand.shape)
    if missing <= 0:
        return operand
    shape = (*operand.shape[:-2], *batch[len(batch) - missing :], *operand.shape[-2:])
    strides = (*operand.strides[:-2], *(0,) * missing, *operand.strides[-2:])
    return replace(operand, shape=shape, strides=strides)


def _joined(operand: Operand) -> Operand:
    """Rows with their pairs as a dimension as rows of elements; of a step of 0 where strides cannot say so."""
    *shape, first, second = operand.shape
    *strides, outer, inner = operand.strides
    step = inner if outer == second * inner else 0
    return replace(operand, shape=(*shape, first * second), strides=(*strides, step))
