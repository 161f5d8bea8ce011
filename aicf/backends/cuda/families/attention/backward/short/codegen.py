# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# Templates are text in the form of functions: their parameters have no types.
"""The launch of `cuda.attention_backward_short`: the template with its constants, the tensor maps, the arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import e, log2

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Constant, Snippet, part, stage
from aicf.backends.cuda.families.attention import template as parts
from aicf.backends.cuda.families.attention.backward import template as between
from aicf.backends.cuda.families.attention.backward.problem import (
    GRADIENT,
    MASK,
    BackwardProblem,
    problem_of_launch,
)
from aicf.backends.cuda.families.attention.backward.short import template
from aicf.backends.cuda.families.attention.backward.short.schedule import Spec, layout_of, read_spec
from aicf.backends.cuda.families.attention.codegen import bulk_copy, bulk_map, descriptor
from aicf.backends.cuda.families.attention.problem import AttentionProblem, Rows, read_scale
from aicf.backends.cuda.families.attention.wgmma import template as forward
from aicf.backends.cuda.families.attention.wgmma.codegen import mask_constants
from aicf.backends.cuda.families.records import read_shape

PARAMETERS = ("ptr",) * 8
"""Maps of queries, keys, values and the gradient; the gradients for queries, keys and values; the mask."""


def emit(launch: Launch) -> Sequence[KernelLaunch]:
    """The one launch of an instruction. Raises RecordError if its record lacks an entry."""
    problem, spec = problem_of_launch(launch), read_spec(launch.record)
    attention = problem.attention
    constants = _constants(problem, spec, read_scale(launch.record))
    constants |= _parts(attention, spec) | mask_constants(attention, spec.tile)
    text = stage(template.attention_backward, constants)
    text = re.sub(r"\b(UN)?PACK\b", lambda match: f"{match[0].lower()}_{attention.dtype}", text)
    code = KernelCode("attention_backward_short", text, PARAMETERS, spec.threads, spec.blocks_per_sm)
    q, k, v, g = launch.ins[: GRADIENT + 1]
    arguments = (
        bulk_map(q, attention.q, attention, attention.m, attention.d, spec.tile),
        bulk_map(k, attention.k, attention, attention.n, attention.d, spec.tile),
        bulk_map(v, attention.v, attention, attention.n, attention.dv, spec.tile),
        bulk_map(g, attention.result, attention, attention.m, attention.dv, spec.tile),
        *map(address_of, launch.outs),
        # Without a mask its parameter is not read; it still needs a value.
        address_of(launch.ins[MASK] if attention.mask is not None else launch.outs[0]),
    )
    return [launch_in(read_shape(launch.record), code, arguments)]


def _constants(problem: BackwardProblem, spec: Spec, scale: float) -> dict[str, Constant | Snippet]:
    attention = problem.attention
    layout, d, dv = layout_of(attention, spec), attention.d, attention.dv
    folded = attention.mask is None and scale > 0
    return {
        "ALONG_K": descriptor(1),
        "ALONG_N": descriptor(spec.tile * 128 >> 4),
        "BARRIERS_AT": layout.barriers,
        "BATCH": attention.batch[::-1],
        "BLOCK": spec.tile,
        "BLOCK_N": spec.tile,
        "CAUSAL": attention.past is not None,
        "D": d,
        "DV": dv,
        "EMPTY_AS_ZERO": attention.empty_as_zero,
        # Only a factor above 0 may be left out of the maximum, and only if nothing is added.
        "FOLDED": folded,
        "GRADIENT_AT": layout.gradient,
        "KEYS_AT": layout.keys,
        "LOG2_E": log2(e),
        "M": attention.m,
        "N": attention.n,
        "PANEL_BYTES": spec.tile * 128,
        "PAST": attention.past or 0,
        "ROW_BYTES": layout.row_bytes,
        "SCALE": scale if attention.mask is not None else scale * log2(e),
        "SCORE": spec.tile // 2,
        "SLOPE": scale,
        "STAGING_AT": layout.values,
        "TILE": spec.tile,
        "VALUE_BYTES": layout.value_bytes,
        "VALUES_AT": layout.values,
        "WEIGHTS_AT": layout.weights,
        # In the registers of results
        "QUERIES": 0,
        "KEYS": d // 2,
        "VALUES": d,
        **_strides("QUERIES", problem.queries),
        **_strides("KEYS", problem.keys),
        **_strides("VALUES", problem.values),
    }


def _strides(name: str, rows: Rows) -> dict[str, Constant | Snippet]:
    return {f"{name}_BATCH": tuple(2 * step for step in reversed(rows.batch)), f"{name}_ROW": 2 * rows.row}


def _parts(problem: AttentionProblem, spec: Spec) -> dict[str, Constant | Snippet]:
    n, d, dv, dtype = spec.tile, problem.d, problem.dv, problem.dtype
    score, weight = f"score[0:{n // 2}]", f"weight[0:{n // 4}]"
    queries, keys, values = (
        f"total[{first}:{first + size // 2}]" for first, size in ((0, d), (d // 2, d), (d, dv))
    )
    of_weights = f"wgmma_of_ready_{d}_{dtype}({queries}, w0, w1, w2, w3, b)"
    return {
        "COPY": part(template.copy),
        "COPY_Q": bulk_copy("q_map", problem.q, problem, d, n),
        "COPY_K": bulk_copy("k_map", problem.k, problem, d, n),
        "COPY_V": bulk_copy("v_map", problem.v, problem, dv, n),
        "COPY_G": bulk_copy("g_map", problem.result, problem, dv, n),
        "HIDE": part(forward.hide),
        "ONE_POSITION": False,
        "OFFSET": part(parts.offset),
        "OF_TRANSPOSED": part(template.of_transposed),
        "OF_WEIGHTS": part(template.of_weights),
        "POWER": part(between.power),
        "PUT_WEIGHTS": part(template.put_weights),
        "SCORES": part(template.scores_of),
        "SCORES_READY": Snippet((), (), f"wgmma_start_{n}({score})"),
        "SCORES_DONE_0": Snippet((), (), f"wgmma_result_{n}({score})"),
        "SCORE_PRODUCT": Snippet(("a", "b", "keep"), (), f"wgmma_{n}_{dtype}({score}, a, b, keep)"),
        "SOFTMAX": part(template.softmax),
        "STORE": part(template.store),
        "WEIGH": part(template.weigh),
        "WEIGHTS_READY": Snippet((), (), f"wgmma_ready_{n}({weight})"),
        "QUERIES_READY": Snippet((), (), f"wgmma_start_{d}({queries})"),
        "QUERIES_PRODUCT": Snippet(("w0", "w1", "w2", "w3", "b"), (), of_weights),
        "QUERIES_DONE_1": Snippet((), (), f"wgmma_older_{d}({queries})"),
        "KEYS_READY": Snippet((), (), f"wgmma_start_{d}({keys})"),
        "KEYS_PRODUCT": Snippet(("a", "b", "keep"), (), f"wgmma_{d}_{dtype}_11({keys}, a, b, keep)"),
        "KEYS_DONE_0": Snippet((), (), f"wgmma_result_{d}({keys})"),
        "VALUES_READY": Snippet((), (), f"wgmma_start_{dv}({values})"),
        "VALUES_PRODUCT": Snippet(("a", "b", "keep"), (), f"wgmma_{dv}_{dtype}_11({values}, a, b, keep)"),
        "VALUES_DONE_0": Snippet((), (), f"wgmma_result_{dv}({values})"),
    }
