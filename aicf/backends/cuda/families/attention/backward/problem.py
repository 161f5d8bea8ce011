"""What an instruction of kind `attention_backward` asks for, read from a work or a launch. Plain data.

No code generator is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.record import Record
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.families.attention.problem import (
    HALVES,
    AttentionProblem,
    Rows,
    bulk_copy_reason,
    problem_of_operands,
    rows_of,
)

KIND = "attention_backward"
GRADIENT, MASK = 3, 4
"""Operands after queries, keys and values: the gradient of the result, and the mask if there is one."""


@dataclass(frozen=True)
class BackwardProblem:
    """The gradients of an attention.

    Args:
        attention: Of which attention; its result lies as the gradient does that is given.
        queries, keys, values: Where the gradients for them lie.
    """

    attention: AttentionProblem
    queries: Rows
    keys: Rows
    values: Rows


Operands = Sequence[OperandInfo] | Sequence[BufferRef]


def problem_of(work: Workload) -> BackwardProblem:
    """The problem of a work of kind `attention_backward`. Raises RecordError if it lacks an attribute."""
    return _problem(work.operands, work.results, work.attrs)


def problem_of_launch(launch: Launch) -> BackwardProblem:
    """The problem of an instruction of this kind. Raises RecordError if its record lacks an entry."""
    return _problem(launch.ins, launch.outs, launch.record)


def _problem(ins: Operands, outs: Operands, entries: Record) -> BackwardProblem:
    attention = problem_of_operands((*ins[:GRADIENT], *ins[MASK:]), ins[GRADIENT], entries)
    queries, keys, values = map(rows_of, outs)
    return BackwardProblem(attention, queries, keys, values)


# Legality


def types_reason(work: Workload, problem: BackwardProblem) -> str | None:
    """Why element types, attributes or the shapes of gradients have no code."""
    attention = problem.attention
    if attention.dtype not in HALVES:
        return f"tensor cores multiply f16 and bf16 here, not {attention.dtype}: cast it"
    types = {each.dtype for each in (work.operands[GRADIENT], *work.results)}
    if types != {attention.dtype}:
        return f"gradients are {', '.join(sorted(types))} where queries are {attention.dtype}: cast them"
    if attention.nan_as_zero:
        return "there is no gradient here of probabilities that are 0 where they would be NaN"
    batches = {each.shape[:-2] for each in (work.operands[GRADIENT], *work.results)}
    if batches != {attention.batch}:
        return "the gradients have other batch sizes than the queries"
    return None


def bulk_reason(problem: BackwardProblem, fixed: bool = False) -> str | None:
    """Why bulk tensor copies do not read the operands, or wide stores do not write the results. With `fixed` the sizes
    of batch and queries do not count: strides are judged as if there were several of each."""
    attention = problem.attention
    batch, m = (tuple(2 for _ in attention.batch), 2) if fixed else (attention.batch, attention.m)
    for name, rows, count in (
        ("queries", attention.q, m),
        ("keys", attention.k, attention.n),
        ("values", attention.v, attention.n),
        ("gradient", attention.result, m),
    ):
        if rows.row == 0 and count > 1:
            return f"the rows of the {name} are one: copy them apart"
        if (reason := bulk_copy_reason(rows, count, batch)) is not None:
            return f"{reason} of the {name}: copy them first"
    for name, rows, count in (
        ("queries", problem.queries, m),
        ("keys", problem.keys, attention.n),
        ("values", problem.values, attention.n),
    ):
        if not rows.moves_in_eights(count, batch):
            return (
                f"rows of the gradient for the {name} are not neighbours that start at multiples of 16 bytes: "
                "use cuda.attention_backward"
            )
    return None
