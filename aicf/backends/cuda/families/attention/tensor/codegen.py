"""The launch of `cuda.attention`: a kernel record and operands become constants of a template."""

from __future__ import annotations

from collections.abc import Sequence
from math import e, log2
from typing import Any

from aicf.backends.base import Launch
from aicf.backends.common.record import Record
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.specializer import Snippet, constants_of, part, stage
from aicf.backends.cuda.families.attention.codegen import PARAMETERS, descriptor, launched, problem_constants
from aicf.backends.cuda.families.attention.problem import AttentionProblem, problem_of_launch, read_scale
from aicf.backends.cuda.families.attention.tensor import template
from aicf.backends.cuda.families.attention.tensor.schedule import AttentionSpec, read_spec, shared_layout
from aicf.backends.cuda.families.records import is_programmatic


def emit(launch: Launch) -> Sequence[KernelLaunch]:
    """The one launch of an instruction. Raises RecordError if its record lacks an entry."""
    problem = problem_of_launch(launch)
    return launched(launch, _code(problem, launch.record))


def _code(problem: AttentionProblem, record: Record) -> KernelCode:
    """The code of `cuda.attention`."""
    spec, scale = read_spec(record), read_scale(record)
    constants = {
        **problem_constants(problem, scale, log2(e)),
        "PROGRAMMATIC": is_programmatic(record),
        **_tile_constants(problem, spec),
        # Only a factor above 0 may be left out of the maximum, and only if nothing is added; what a query does not see
        # is -inf with any such factor.
        "FOLDED": problem.mask is None and scale > 0,
    }
    return KernelCode("attention", stage(template.attention, constants), PARAMETERS, spec.threads)


def _tile_constants(problem: AttentionProblem, spec: AttentionSpec) -> dict[str, Any]:
    """What `template.py` knows of its method."""
    shared = shared_layout(problem, spec)
    panels = bool(spec.warpgroups)
    copy_q = _copy(spec.block_m, problem.q.row, problem.d, problem.m, panels)
    copy_k = _copy(spec.block_n, problem.k.row, problem.d, problem.n, panels)
    copy_v = _copy(spec.block_n, problem.v.row, problem.dv, problem.n, panels)
    return {
        **constants_of(spec),
        "WIDE_STORES": problem.result.moves_in_eights(problem.m, problem.batch),
        "THREADS": spec.threads,
        "TILES_M": -(-problem.m // spec.block_m),
        "TILES_N": -(-problem.n // spec.block_n),
        "ROW_TILES": spec.row_tiles,
        "KEYS": spec.keys,
        "QUERY": problem.d // 4,
        "SCORE": spec.keys // 2,
        "TOTAL": problem.dv // 2,
        "Q_COPY": copy_q,
        "K_COPY": copy_k,
        "V_COPY": copy_v,
        "K_TILE": spec.block_n * problem.k.row * 2,
        "V_TILE": spec.block_n * problem.v.row * 2,
        "K_PITCH": shared.k_pitch,
        "V_PITCH": shared.v_pitch,
        "PARTIAL_PITCH": shared.partial_pitch,
        "TILES_AT": shared.tiles,
        "V_AT": shared.v,
        "STAGE_BYTES": shared.stage,
        "STATES_AT": shared.states,
        "COPY_ROWS": part(template.copy_rows),
        "WARPGROUPS": panels,
        **_wgmma_constants(problem, spec),
    }


def _wgmma_constants(problem: AttentionProblem, spec: AttentionSpec) -> dict[str, Any]:
    """The products of warpgroups. Queries and keys lie along K (d), values along N (dv)."""
    score, total = f"score[0:{spec.block_n // 2}]", f"total[0:{problem.dv // 2}]"
    n, dv, dtype = spec.block_n, problem.dv, problem.dtype
    product = f"wgmma_{n}_{dtype}({score}, a, b, keep)"
    of_weights = f"wgmma_of_registers_{dv}_{dtype}({total}, w0, w1, w2, w3, b)"
    return {
        "DESCRIPTOR_Q": descriptor(1),
        "DESCRIPTOR_K": descriptor(1),
        "DESCRIPTOR_V": descriptor(n * 128 >> 4),
        "SCORE_START": Snippet((), (), f"wgmma_start_{n}({score})"),
        "SCORE_PRODUCT": Snippet(("a", "b", "keep"), (), product),
        "SCORE_RESULT": Snippet((), (), f"wgmma_result_{n}({score})"),
        "TOTAL_PRODUCT": Snippet(("w0", "w1", "w2", "w3", "b"), (), of_weights),
        "TOTAL_RESULT": Snippet((), (), f"wgmma_result_{dv}({total})"),
    }


def _copy(rows: int, stride: int, elements: int, count: int, panels: bool) -> dict[str, int | bool]:
    """The copy of `rows` rows of a matrix with `count`, see `Q_COPY` in `template.py`."""
    pieces = elements // 8
    return {
        "rows": rows,
        "stride": stride * 2,
        "pitch": 128 if panels else elements * 2 + 16,
        "pieces": pieces,
        "lanes": 1 << (pieces - 1).bit_length(),
        "ragged": count % rows != 0,
        "swizzled": panels,
        "panel": rows * 128,
    }
