# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# Templates are text in the form of functions: their parameters have no types.
"""The launches of `cuda.attention_backward_wgmma`: the template with its constants, the tensor maps, the arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from aicf.backends.base import BufferRef, Launch
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Snippet, part, stage
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
from aicf.backends.cuda.families.attention.backward.short import template as short
from aicf.backends.cuda.families.attention.backward.wgmma import template
from aicf.backends.cuda.families.attention.backward.wgmma.schedule import (
    TILE,
    Phase,
    padded_queries,
    phases,
    read_spec,
)
from aicf.backends.cuda.families.attention.codegen import bulk_copy, bulk_map, descriptor
from aicf.backends.cuda.families.attention.problem import AttentionProblem, read_scale
from aicf.backends.cuda.families.records import Shape, read_shape
from aicf.backends.cuda.runtime.device_program import TensorMap

PARAMETERS = ("ptr",) * 9
"""Maps of held and of streamed rows, two of each, and of states; two results; the workspace; the mask."""


def emit(launch: Launch) -> Sequence[KernelLaunch]:
    """The two launches of an instruction. Raises RecordError if its record lacks an entry."""
    problem, spec = problem_of_launch(launch), read_spec(launch.record)
    shapes = (read_shape(launch.record), keys_shape(launch))
    return [
        _launched(launch, problem, phase, shape)
        for phase, shape in zip(phases(problem.attention, spec), shapes, strict=True)
    ]


def _launched(launch: Launch, problem: BackwardProblem, phase: Phase, shape: Shape) -> KernelLaunch:
    attention = problem.attention
    matrices = matrices_of(launch, problem, phase.is_rows)
    constants = {
        **problem_constants(attention, phase.is_rows, matrices, read_scale(launch.record)),
        **_method_constants(attention, phase),
        **_copies(attention, phase, matrices),
        **_parts(),
        **_products(attention),
    }
    name = "attention_backward_wgmma_" + ("queries" if phase.is_rows else "keys")
    text = stage(template.attention_backward, constants)
    text = re.sub(r"\bPACK\b", f"pack_{attention.dtype}", text)
    code = KernelCode(name, text, PARAMETERS, phase.threads, phase.blocks_per_sm)
    results = map(address_of, matrices.refs[4:])
    # Without a mask its parameter is not read; it still needs a value.
    mask = launch.ins[MASK] if attention.mask is not None else launch.ins[0]
    maps = _maps(attention, phase, matrices)
    arguments = (
        *maps,
        _states(launch.ws[0], attention),
        *results,
        address_of(launch.ws[0]),
        address_of(mask),
    )
    return launch_in(shape, code, arguments)


def _maps(problem: AttentionProblem, phase: Phase, matrices: Matrices) -> list[TensorMap]:
    """Those of the held rows, then of the streamed ones."""
    rows, counts = (*matrices.held, *matrices.streamed), (phase.held,) * 2 + (phase.streamed,) * 2
    sizes, boxes = (phase.d, phase.dv) * 2, (phase.block,) * 2 + (TILE,) * 2
    return [
        bulk_map(ref, matrix, problem, count, size, box)
        for ref, matrix, count, size, box in zip(matrices.refs[:4], rows, counts, sizes, boxes, strict=True)
    ]


def _states(workspace: BufferRef, problem: AttentionProblem) -> TensorMap:
    """The map of the states: three planes for each batch element, of which a copy brings a tile."""
    padded = padded_queries(problem)
    return TensorMap(
        workspace.base,
        workspace.offset,
        "f32",
        (padded, 3 * problem.count),
        (4 * padded,),
        (TILE, 3),
        swizzle=0,
        l2_promotion=256,
        interleave=0,
        out_of_bounds="zeros",
    )


def _method_constants(problem: AttentionProblem, phase: Phase) -> dict[str, Any]:
    """What the template knows of its method."""
    return {
        "ALONG_K": descriptor(1),
        "ALONG_N": descriptor(TILE * 128 >> 4),
        "BARRIERS_AT": phase.barriers,
        "BLOCK": phase.block,
        "BLOCKS": phase.blocks,
        "FIRST_WIDTH": TILE // 2,
        "GUARDED": True,
        "HELD_BYTES": phase.tiles,
        "HELD2_AT": phase.held2,
        "LAST_STATE": padded_queries(problem),
        "PLANE": 4 * padded_queries(problem),
        "ROW_TILES": 1,
        "STAGE_BYTES": phase.stage,
        "STAGES": phase.stages,
        "STAGING_AT": 0,
        "STATES_AT": phase.states,
        "STREAMED2_AT": 2 * TILE * phase.d,
        "TILE": TILE,
        "TILE_BYTES": phase.states + phase.state_bytes,
        "TILES": -(-phase.streamed // TILE),
        "TILES_AT": phase.tiles,
        "TOTAL": phase.total,
        "WIDTH": TILE // 2,
    }


def _copies(problem: AttentionProblem, phase: Phase, matrices: Matrices) -> dict[str, Any]:
    """The bulk copies of held and streamed rows."""
    (held1, held2), (streamed1, streamed2) = matrices.held, matrices.streamed
    return {
        "COPY_HELD1": bulk_copy("held1_map", held1, problem, phase.d, phase.block),
        "COPY_HELD2": bulk_copy("held2_map", held2, problem, phase.dv, phase.block),
        "COPY_STREAMED1": bulk_copy("streamed1_map", streamed1, problem, phase.d, TILE),
        "COPY_STREAMED2": bulk_copy("streamed2_map", streamed2, problem, phase.dv, TILE),
    }


def _parts() -> dict[str, Any]:
    """The parts of the template."""
    own = ("fetch", "refill", "multiply", "pack_weights", "accumulate")
    return {
        **common_parts(),
        **{name.upper(): part(getattr(template, name)) for name in own},
        "STORE": part(short.store),
    }


def _products(problem: AttentionProblem) -> dict[str, Any]:
    """The instructions on registers: products, and what starts and ends them."""
    width, d, dv, dtype = TILE // 2, problem.d, problem.dv, problem.dtype
    found: dict[str, Any] = {}
    for name, first, ends in (("SCORES", 0, "older"), ("GRADIENT", width, "result")):
        score = f"score[{first}:{first + width}]"
        found |= {
            f"{name}_READY": Snippet((), (), f"wgmma_start_{TILE}({score})"),
            f"{name}_PRODUCT": Snippet(("a", "b", "keep"), (), f"wgmma_{TILE}_{dtype}({score}, a, b, keep)"),
            f"{name}_DONE": Snippet((), (), f"wgmma_{ends}_{TILE}({score})"),
        }
    for number, first, size in ((1, 0, d), (2, d // 2, dv)):
        total = f"total[{first}:{first + size // 2}]"
        weight = f"weight[{(number - 1) * width // 2}:{number * width // 2}]"
        product = f"wgmma_of_ready_{size}_{dtype}({total}, w0, w1, w2, w3, b)"
        found |= {
            f"WEIGHTS{number}_READY": Snippet((), (), f"wgmma_ready_{TILE}({weight})"),
            f"RESULT{number}_READY": Snippet((), (), f"wgmma_start_{size}({total})"),
            f"RESULT{number}_PRODUCT": Snippet(("w0", "w1", "w2", "w3", "b"), (), product),
            f"RESULT{number}_DONE": Snippet((), (), f"wgmma_result_{size}({total})"),
        }
    return found
