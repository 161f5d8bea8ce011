"""The launches of `cuda.attention_backward`: a kernel record and operands become constants of a template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import e, log2
from typing import Any

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.record import read_integer
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import part, stage
from aicf.backends.cuda.families.attention import template as parts
from aicf.backends.cuda.families.attention.backward.problem import (
    GRADIENT,
    MASK,
    BackwardProblem,
    problem_of_launch,
)
from aicf.backends.cuda.families.attention.backward.tensor import template
from aicf.backends.cuda.families.attention.backward.tensor.schedule import (
    STATE_BYTES,
    Phase,
    Spec,
    padded_queries,
    phases,
    read_spec,
)
from aicf.backends.cuda.families.attention.codegen import LOADS
from aicf.backends.cuda.families.attention.problem import AttentionProblem, Rows, read_scale
from aicf.backends.cuda.families.attention.tensor import template as forward
from aicf.backends.cuda.families.records import Shape, is_programmatic, read_shape, read_triple
from aicf.backends.cuda.target import ELEMENT_BYTES

PARAMETERS = ("ptr",) * 8
"""Held rows, streamed rows and results, two of each; the workspace; the mask."""


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


def emit(launch: Launch) -> Sequence[KernelLaunch]:
    """The two launches of an instruction. Raises RecordError if its record lacks an entry."""
    problem, spec = problem_of_launch(launch), read_spec(launch.record)
    shapes = (read_shape(launch.record), _second_shape(launch))
    return [
        _launched(launch, problem, spec, phase, shape)
        for phase, shape in zip(phases(problem.attention, spec), shapes, strict=True)
    ]


def _second_shape(launch: Launch) -> Shape:
    grid, block = (read_triple(launch.record, f"keys_{name}") for name in ("grid", "block"))
    return Shape(grid, block, shared_bytes=read_integer(launch.record, "keys_shared_bytes"))


def _launched(
    launch: Launch, problem: BackwardProblem, spec: Spec, phase: Phase, shape: Shape
) -> KernelLaunch:
    matrices = _matrices(launch, problem, phase)
    constants = {
        **_problem_constants(problem.attention, phase, matrices, read_scale(launch.record)),
        **_method_constants(phase, matrices),
        **_parts(),
        "PROGRAMMATIC": is_programmatic(launch.record),
        "PLANE": padded_queries(problem.attention, spec) * STATE_BYTES // 3,
        "LAST_STATE": padded_queries(problem.attention, spec),
    }
    name = "attention_backward_" + ("queries" if phase.is_rows else "keys")
    source = stage(template.attention_backward, constants)
    code = KernelCode(name, source, PARAMETERS, phase.threads, phase.blocks_per_sm)
    # Without a mask its parameter is not read; it still needs a value.
    mask = launch.ins[MASK] if problem.attention.mask is not None else launch.ins[0]
    arguments = (*matrices.refs, launch.ws[0], mask)
    return launch_in(shape, code, tuple(map(address_of, arguments)))


def _matrices(launch: Launch, problem: BackwardProblem, phase: Phase) -> Matrices:
    attention = problem.attention
    of_queries, of_keys = (attention.q, attention.result), (attention.k, attention.v)
    q, k, v, g = launch.ins[: GRADIENT + 1]
    dq, dk, dv = launch.outs
    if phase.is_rows:
        # There is no second result; its parameter still needs a value.
        return Matrices(of_queries, of_keys, (problem.queries, problem.queries), (q, g, k, v, dq, dq))
    return Matrices(of_keys, of_queries, (problem.keys, problem.values), (k, v, q, g, dk, dv))


def _problem_constants(
    problem: AttentionProblem, phase: Phase, matrices: Matrices, scale: float
) -> dict[str, Any]:
    """What the template knows of the problem."""
    mask, mask_dtype = problem.mask if problem.mask is not None else (problem.q, problem.dtype)
    along = (mask.row, mask.column) if phase.is_rows else (mask.column, mask.row)
    size = ELEMENT_BYTES[mask_dtype]
    return {
        "ROWS": phase.is_rows,
        "BATCH": problem.batch[::-1],
        "COUNT": problem.count,
        "HELD": phase.held,
        "STREAMED": phase.streamed,
        "D": problem.d,
        "DV": problem.dv,
        "DTYPE": problem.dtype,
        **_strides("HELD", matrices.held),
        **_strides("STREAMED", matrices.streamed),
        **_strides("RESULT", matrices.results),
        **{
            f"WIDE{number}": rows.moves_in_eights(phase.held, problem.batch)
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


def _method_constants(phase: Phase, matrices: Matrices) -> dict[str, Any]:
    """What the template knows of its method."""
    pitch1, pitch2 = phase.pitches
    held1, held2 = (
        _copy(phase.block, rows, size, phase.held)
        for rows, size in zip(matrices.held, (phase.d, phase.dv), strict=True)
    )
    streamed1, streamed2 = (
        _copy(phase.tile, rows, size, phase.streamed)
        for rows, size in zip(matrices.streamed, (phase.d, phase.dv), strict=True)
    )
    width, is_kept = phase.chunk
    first_width = FIRST_WIDTH if phase.row_tiles == 1 else width
    return {
        "THREADS": phase.threads,
        "ROW_TILES": phase.row_tiles,
        "BLOCK": phase.block,
        "TILE": phase.tile,
        "BLOCKS": phase.blocks,
        "TILES": -(-phase.streamed // phase.tile),
        "FIRST_WIDTH": first_width,
        "WIDTH": width,
        "KEPT2": is_kept,
        "SCORES": 2 * phase.row_tiles * max(first_width, width),
        "TOTAL": phase.total,
        "HELD1_COPY": held1,
        "HELD2_COPY": held2,
        "STREAMED1_COPY": streamed1,
        "STREAMED2_COPY": streamed2,
        "STREAMED1_TILE": phase.tile * matrices.streamed[0].row * 2,
        "STREAMED2_TILE": phase.tile * matrices.streamed[1].row * 2,
        "PITCH1": pitch1,
        "PITCH2": pitch2,
        "HELD2_AT": phase.block * pitch1,
        "TILES_AT": phase.tiles_at,
        "STREAMED2_AT": phase.tile * pitch1,
        "STATES_AT": phase.states_at,
        "STAGE_BYTES": phase.stage,
    }


FIRST_WIDTH = 16
"""Registers of scores of a 16-row tile while sums are taken, where a warp has one."""


def _copy(rows: int, matrix: Rows, elements: int, count: int) -> dict[str, int | bool]:
    """The copy of `rows` rows of a matrix with `count`, see `HELD1_COPY` in `template.py`."""
    pieces = elements // 8
    return {
        "rows": rows,
        "stride": matrix.row * 2,
        "pitch": elements * 2 + 16,
        "pieces": pieces,
        "lanes": 1 << (pieces - 1).bit_length(),
        "ragged": count % rows != 0,
        "swizzled": False,
    }


def _parts() -> dict[str, Any]:
    """The parts of the template."""
    own = (
        *("block_of", "tiles_seen", "fetch", "multiply", "scale_and_hide", "power", "sum_up", "merge_lanes"),
        *("weigh_rows", "weigh_columns", "accumulate", "store"),
    )
    return {
        "OFFSET": part(parts.offset),
        "COPY_ROWS": part(forward.copy_rows),
        **{name.upper(): part(getattr(template, name)) for name in own},
    }
