"""The launches of the attention kernels: a kernel record and operands become constants of a template."""

from __future__ import annotations

from collections.abc import Sequence
from math import e, log2
from typing import Any

from aicf.backends.base import Launch
from aicf.backends.common.record import Record
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Snippet, constants_of, part, stage
from aicf.backends.cuda.families.attention import template as attention
from aicf.backends.cuda.families.attention import template_parts as attention_parts
from aicf.backends.cuda.families.attention import template_simt as attention_simt
from aicf.backends.cuda.families.attention.kernel import (
    SIMT_ROWS,
    SIMT_WARPS,
    AttentionKernel,
    AttentionSpec,
    read_spec,
    shared_layout,
    simt_columns,
)
from aicf.backends.cuda.families.attention.problem import (
    AttentionProblem,
    Rows,
    problem_of_launch,
    read_scale,
)
from aicf.backends.cuda.families.records import is_programmatic, read_shape
from aicf.backends.cuda.target import ELEMENT_BYTES

PARAMETERS = ("ptr", "ptr", "ptr", "ptr", "ptr")
"""Queries, keys, values, result, mask."""


def emit(launch: Launch) -> Sequence[KernelLaunch]:
    """The one launch of an attention instruction. Raises RecordError if its record lacks an entry."""
    problem = problem_of_launch(launch)
    tensor_cores = launch.kernel == AttentionKernel.id
    make = _on_tensor_cores if tensor_cores else _on_scalar_units
    code = make(problem, launch.record)
    # Without a mask its parameter is not read; it still needs a value.
    operands = (*launch.ins[:3], launch.outs[0], launch.ins[3] if problem.mask is not None else launch.ins[0])
    return [launch_in(read_shape(launch.record), code, tuple(address_of(operand) for operand in operands))]


def _on_tensor_cores(problem: AttentionProblem, record: Record) -> KernelCode:
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
    return KernelCode("attention", stage(attention.attention, constants), PARAMETERS, spec.threads)


def _on_scalar_units(problem: AttentionProblem, record: Record) -> KernelCode:
    """The code of `cuda.attention_simt`."""
    constants = {
        **problem_constants(problem, read_scale(record), 1.0),
        "PROGRAMMATIC": is_programmatic(record),
        "LOAD": LOADS[problem.dtype],
        "STORE": STORES[problem.dtype],
        "COPY_MATRIX": part(attention_simt.copy_matrix),
        "WARPS": SIMT_WARPS,
        "ROWS": SIMT_ROWS,
        "COLUMNS": simt_columns(problem),
        "THREADS": 32 * SIMT_WARPS,
        "TILES_M": -(-problem.m // (SIMT_WARPS * SIMT_ROWS)),
        "TILES_N": -(-problem.n // 32),
    }
    source = stage(attention_simt.attention_simt, constants)
    return KernelCode("attention_simt", source, PARAMETERS, 32 * SIMT_WARPS)


def problem_constants(problem: AttentionProblem, scale: float, unit: float) -> dict[str, Any]:
    """What all templates know of the problem: strides in bytes, batch dimensions innermost first; scores
    without a mask in units of 1 / `unit`."""
    element = ELEMENT_BYTES[problem.dtype]
    mask, mask_dtype = problem.mask if problem.mask is not None else (problem.q, problem.dtype)
    return {
        "BATCH": problem.batch[::-1],
        "M": problem.m,
        "N": problem.n,
        "D": problem.d,
        "DV": problem.dv,
        "DTYPE": problem.dtype,
        **_strides("Q", problem.q, element),
        **_strides("K", problem.k, element),
        **_strides("V", problem.v, element),
        **_strides("RESULT", problem.result, element),
        "MASKED": problem.mask is not None,
        **_strides("MASK", mask, ELEMENT_BYTES[mask_dtype]),
        "LOAD_MASK": LOADS[mask_dtype],
        "OFFSET": part(attention_parts.offset),
        "BLOCK_OF": part(attention_parts.block_of),
        "TILES_SEEN": part(attention_parts.tiles_seen),
        "COUNT": problem.count,
        "CAUSAL": problem.past is not None,
        "PAST": problem.past or 0,
        "NAN_AS_ZERO": problem.nan_as_zero,
        "SCALE": scale if problem.mask is not None else scale * unit,
        "LOG2_E": unit,
    }


def _strides(name: str, rows: Rows, element: int) -> dict[str, Any]:
    return {
        f"{name}_BATCH": tuple(stride * element for stride in reversed(rows.batch)),
        f"{name}_ROW": rows.row * element,
        f"{name}_COLUMN": rows.column * element,
    }


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
        "COPY_ROWS": part(attention.copy_rows),
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


def descriptor(leading: int) -> int:
    """Constant part of a shared-memory descriptor of 128-byte panels: 1024 bytes from 8 rows to the next 8; `leading`
    is what lies from panel to panel where the matrix runs along N, in units of 16 bytes."""
    return 1 << 62 | (1024 >> 4) << 32 | leading << 16


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


LOADS = {
    "f32": Snippet(("at",), (), "load_f32(at)"),
    "f16": Snippet(("at",), (), "f16_to_f32(load_u16(at))"),
    "bf16": Snippet(("at",), (), "bf16_to_f32(load_u16(at))"),
}
"""One element in global memory as f32, by type."""

STORES = {
    "f32": Snippet(("at", "x"), ("store_f32(at, x)",)),
    "f16": Snippet(("at", "x"), ("store_u16(at, f32_to_f16(x))",)),
    "bf16": Snippet(("at", "x"), ("store_u16(at, f32_to_bf16(x))",)),
}
"""The other way."""
