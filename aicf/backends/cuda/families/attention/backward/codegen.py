"""What the code generators of attention's gradients share where there are two launches: which operands each one reads
and writes, the problem as constants of a template, and parts of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import e, log2
from typing import Any

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.record import read_integer
from aicf.backends.cuda.compiler.specializer import part
from aicf.backends.cuda.families.attention import template as parts
from aicf.backends.cuda.families.attention.backward import template
from aicf.backends.cuda.families.attention.backward.problem import GRADIENT, BackwardProblem
from aicf.backends.cuda.families.attention.codegen import LOADS
from aicf.backends.cuda.families.attention.problem import AttentionProblem, Rows
from aicf.backends.cuda.families.records import Shape, read_triple
from aicf.backends.cuda.target import ELEMENT_BYTES


@dataclass(frozen=True)
class Matrices:
    """What one launch reads and writes, in pairs, see `template.py`.

    Args:
        held, streamed, results: Where they lie.
        refs: The operands, in the order of the parameters.
    """

    held: tuple[Rows, Rows]
    streamed: tuple[Rows, Rows]
    results: tuple[Rows, Rows]
    refs: tuple[BufferRef, ...]


def keys_shape(launch: Launch) -> Shape:
    """The second launch that a record states. Raises RecordError if it lacks a part of it."""
    grid, block = (read_triple(launch.record, f"keys_{name}") for name in ("grid", "block"))
    return Shape(grid, block, shared_bytes=read_integer(launch.record, "keys_shared_bytes"))


def matrices_of(launch: Launch, problem: BackwardProblem, is_rows: bool) -> Matrices:
    attention = problem.attention
    of_queries, of_keys = (attention.q, attention.result), (attention.k, attention.v)
    q, k, v, g = launch.ins[: GRADIENT + 1]
    dq, dk, dv = launch.outs
    if is_rows:
        # There is no second result; its parameter still needs a value.
        return Matrices(of_queries, of_keys, (problem.queries, problem.queries), (q, g, k, v, dq, dq))
    return Matrices(of_keys, of_queries, (problem.keys, problem.values), (k, v, q, g, dk, dv))


def problem_constants(
    problem: AttentionProblem, is_rows: bool, matrices: Matrices, scale: float
) -> dict[str, Any]:
    """What the template knows of the problem."""
    mask, mask_dtype = problem.mask if problem.mask is not None else (problem.q, problem.dtype)
    along = (mask.row, mask.column) if is_rows else (mask.column, mask.row)
    size, held = ELEMENT_BYTES[mask_dtype], problem.m if is_rows else problem.n
    return {
        "ROWS": is_rows,
        "BATCH": problem.batch[::-1],
        "COUNT": problem.count,
        "HELD": held,
        "STREAMED": problem.n if is_rows else problem.m,
        "D": problem.d,
        "DV": problem.dv,
        "DTYPE": problem.dtype,
        **_strides("HELD", matrices.held),
        **_strides("STREAMED", matrices.streamed),
        **_strides("RESULT", matrices.results),
        **{
            f"WIDE{number}": rows.moves_in_eights(held, problem.batch)
            for number, rows in enumerate(matrices.results, 1)
        },
        "MASKED": problem.mask is not None,
        "MASK_BATCH": tuple(stride * size for stride in reversed(mask.batch)),
        "MASK_HELD": along[0] * size,
        "MASK_STREAMED": along[1] * size,
        "LOAD_MASK": LOADS[mask_dtype],
        # Only a factor above 0 may be left out of the maximum, and only if nothing is added; what a query does not see
        # is -inf with any such factor.
        "FOLDED": problem.mask is None and scale > 0,
        "SCALE": scale if problem.mask is not None else scale * log2(e),
        "LOG2_E": log2(e),
        "SLOPE": scale,
        "CAUSAL": problem.past is not None,
        "PAST": problem.past or 0,
        "EMPTY_AS_ZERO": problem.empty_as_zero,
    }


def _strides(name: str, pair: tuple[Rows, Rows]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, rows in enumerate(pair, 1):
        found[f"{name}{number}_BATCH"] = tuple(stride * 2 for stride in reversed(rows.batch))
        found[f"{name}{number}_ROW"] = rows.row * 2
        found[f"{name}{number}_COLUMN"] = rows.column * 2
    return found


def common_parts() -> dict[str, Any]:
    """The parts of a template that are the same whoever multiplies."""
    names = ("block_of", "tiles_seen", "scale_and_hide", "power", "sum_up", "merge_lanes", "weigh_rows")
    return {
        "OFFSET": part(parts.offset),
        **{name.upper(): part(getattr(template, name)) for name in (*names, "weigh_columns")},
    }
