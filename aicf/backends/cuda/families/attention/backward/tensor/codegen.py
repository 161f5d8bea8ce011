"""The launches of `cuda.attention_backward`: a kernel record and operands become constants of a template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import part, stage
from aicf.backends.cuda.families.attention.backward.codegen import (
    Matrices,
    common_parts,
    keys_shape,
    matrices_of,
    problem_constants,
)
from aicf.backends.cuda.families.attention.backward.problem import (
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
from aicf.backends.cuda.families.attention.problem import Rows, read_scale
from aicf.backends.cuda.families.attention.tensor import template as forward
from aicf.backends.cuda.families.records import Shape, is_programmatic, read_shape

PARAMETERS = ("ptr",) * 8
"""Held rows, streamed rows and results, two of each; the workspace; the mask."""


def emit(launch: Launch) -> Sequence[KernelLaunch]:
    """The two launches of an instruction. Raises RecordError if its record lacks an entry."""
    problem, spec = problem_of_launch(launch), read_spec(launch.record)
    shapes = (read_shape(launch.record), keys_shape(launch))
    return [
        _launched(launch, problem, spec, phase, shape)
        for phase, shape in zip(phases(problem.attention, spec), shapes, strict=True)
    ]


def _launched(
    launch: Launch, problem: BackwardProblem, spec: Spec, phase: Phase, shape: Shape
) -> KernelLaunch:
    matrices = matrices_of(launch, problem, phase.is_rows)
    constants = {
        **problem_constants(problem.attention, phase.is_rows, matrices, read_scale(launch.record)),
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
        "GUARDED": False,
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
    own = ("fetch", "multiply", "accumulate", "store")
    return {
        "COPY_ROWS": part(forward.copy_rows),
        **{name.upper(): part(getattr(template, name)) for name in own},
        **common_parts(),
    }
