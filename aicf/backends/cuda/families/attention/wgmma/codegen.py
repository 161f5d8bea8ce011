# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# Templates are text in the form of functions: their parameters have no types.
"""The launch of `cuda.attention_wgmma`: the template with its constants, the tensor maps, the arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import e, log2

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Constant, Snippet, constants_of, part, stage
from aicf.backends.cuda.families.attention.codegen import before_constants, bulk_copy, bulk_map, descriptor
from aicf.backends.cuda.families.attention.problem import (
    AttentionProblem,
    heads_as_queries,
    mask_rows,
    problem_of_launch,
    read_scale,
)
from aicf.backends.cuda.families.attention.template import offset
from aicf.backends.cuda.families.attention.wgmma import template
from aicf.backends.cuda.families.attention.wgmma.kernel import (
    LINE_BYTES,
    Spec,
    layout_of,
    read_spec,
    units_of,
)
from aicf.backends.cuda.families.records import read_shape
from aicf.backends.cuda.target import ELEMENT_BYTES

PARAMETERS = ("ptr", "ptr", "ptr", "ptr", "ptr")
"""Maps of queries, keys and values; the result; the mask, or how many keys come before the first query."""


def emit(launch: Launch) -> Sequence[KernelLaunch]:
    """The one launch of an instruction. Raises RecordError if its record lacks an entry."""
    problem = heads_as_queries(problem_of_launch(launch))
    spec, shape = read_spec(launch.record), read_shape(launch.record)
    constants = _constants(problem, spec, read_scale(launch.record), shape.grid[0])
    constants |= _parts(problem, spec) | mask_constants(problem, spec.block_n)
    fewer, more = spec.registers
    names = {
        "FEWER_REGISTERS": f"fewer_registers_{fewer}",
        "MORE_REGISTERS": f"more_registers_{more}",
        "PACK": f"pack_{problem.dtype}",
    }
    text = stage(template.attention, constants)
    text = re.sub(r"\b(" + "|".join(names) + r")\b", lambda match: names[match[1]], text)
    code = KernelCode("attention_wgmma", text, PARAMETERS, spec.threads, spec.blocks_per_sm)
    q, k, v = launch.ins[:3]
    arguments = (
        bulk_map(q, problem.q, problem, problem.m, problem.d, spec.block_m),
        bulk_map(k, problem.k, problem, problem.n, problem.d, spec.block_n),
        bulk_map(v, problem.v, problem, problem.n, problem.dv, spec.block_n),
        address_of(launch.outs[0]),
        # Without either the parameter is not read; it still needs a value.
        address_of((*launch.ins, launch.outs[0])[3]),
    )
    return [launch_in(shape, code, arguments)]


def _constants(
    problem: AttentionProblem, spec: Spec, scale: float, blocks: int
) -> dict[str, Constant | Snippet]:
    layout, units = layout_of(problem, spec), units_of(problem, spec)
    return {
        **constants_of(spec),
        "BATCH": problem.batch[::-1],
        "BARRIERS_AT": layout.barriers,
        "BLOCK_M": spec.block_m,
        "CAUSAL": problem.past is not None,
        "COUNT": problem.count,
        "D": problem.d,
        "DV": problem.dv,
        "DESCRIPTOR": descriptor(1),
        "KEY_BYTES": layout.key_bytes,
        "KEYS_AT": layout.keys,
        "LAPS": -(-units // blocks),
        "LINE_BYTES": LINE_BYTES,
        "LINES_AT": layout.lines,
        "M": problem.m,
        "N": problem.n,
        "NAN_AS_ZERO": problem.nan_as_zero,
        "ONE_POSITION": problem.is_one_position,
        "EMPTY_AS_ZERO": problem.empty_as_zero,
        "PAST": problem.past or 0,
        **before_constants(problem),
        "QUERY_BYTES": layout.query_bytes,
        "RESULT_BATCH": tuple(2 * step for step in reversed(problem.result.batch)),
        "RESULT_ROW": 2 * problem.result.row,
        "SCALE": scale if problem.mask is not None else scale * log2(e),
        "SCORE": spec.block_n // 2,
        "STEP": blocks,
        "TILES_M": -(-problem.m // spec.block_m),
        "TILES_N": -(-problem.n // spec.block_n),
        "TOTAL": problem.dv // 2,
        "TURNS": bool(spec.turns),
        "UNITS": units,
        "VALUE_BYTES": layout.value_bytes,
        "VALUE_DESCRIPTOR": descriptor(spec.block_n * 128 >> 4),
        "VALUES_AT": layout.values,
    }


def mask_constants(problem: AttentionProblem, width: int) -> dict[str, Constant | Snippet]:
    """What the template knows of the mask of a tile of `width` keys: bytes between its elements, how many rows and
    words a lane holds of it, and how two neighbours are loaded and taken apart again."""
    if problem.mask is None:
        nothing = {"ADD_MASK": Snippet((), ()), "FETCH_MASK": Snippet(("tile", "row"), ())}
        return {"MASKED": False, "BIAS": 0, **nothing}
    rows, dtype = problem.mask
    size, held = ELEMENT_BYTES[dtype], mask_rows(rows)
    words, together = size // 2, rows.moves_in(2, problem.m, problem.batch) and problem.n % 2 == 0
    column = size * rows.column
    return {
        "MASKED": True,
        "ADD_MASK": part(template.add_mask),
        "ADD_PAIR": part(template.add_pair),
        "BIAS": held * width // 8 * words,
        "FETCH_MASK": part(template.fetch_mask),
        "LOAD_PAIR": part(template.load_pair),
        "LOG2_E": log2(e),
        "MASK_BATCH": tuple(size * step for step in reversed(rows.batch)),
        "MASK_COLUMN": column,
        "MASK_ROW": size * rows.row,
        "MASK_ROWS": held,
        "MASK_TOGETHER": 2 if together else 1,
        "MASK_WORDS": words,
        "PAIR_OF": Snippet(("line", "one", "other"), (), _load_pair(dtype, column, together)),
        "UNPACKED": Snippet(("words",), (), _UNPACKED[dtype]),
    }


_UNPACKED = {
    "f32": "bits_to_f32(words[0]), bits_to_f32(words[1])",
    "f16": "unpack_f16(words[0])",
    "bf16": "unpack_bf16(words[0])",
}
"""Two neighbours of a mask out of its words, by type."""


def _load_pair(dtype: str, column: int, together: bool) -> str:
    """The words of elements number `one` and `other` of a line, which are neighbours if loaded `together`."""
    first, second = (f"u64(line + u64(i64({index}) * {column}))" for index in ("one", "other"))
    if dtype == "f32":
        return f"load_u32x2({first})" if together else f"(load_u32({first}), load_u32({second}))"
    if together:
        return f"(load_u32({first}),)"
    return f"(u32(u32(load_u16({first})) | u32(u32(load_u16({second})) << u32(16))),)"


def _parts(problem: AttentionProblem, spec: Spec) -> dict[str, Constant | Snippet]:
    n, dv, dtype = spec.block_n, problem.dv, problem.dtype
    score, total, weight = f"score[0:{n // 2}]", f"total[0:{dv // 2}]", f"weight[0:{n // 4}]"
    of_weights = f"wgmma_of_ready_{dv}_{dtype}({total}, w0, w1, w2, w3, b)"
    return {
        "AWAIT": part(template.await_stage),
        "COPY_K": bulk_copy("k_map", problem.k, problem, problem.d, spec.block_n),
        "COPY_Q": bulk_copy("q_map", problem.q, problem, problem.d, spec.block_m),
        "COPY_V": bulk_copy("v_map", problem.v, problem, problem.dv, spec.block_n),
        "HIDE": part(template.hide),
        "MY_TURN": part(template.my_turn),
        "OFFSET": part(offset),
        "PACK_WEIGHTS": part(template.pack_weights),
        "PRODUCE": part(template.produce),
        "RELEASE": part(template.release),
        "RESCALE": part(template.rescale),
        "SCORES": part(template.scores_of),
        "SCORES_DONE_0": Snippet((), (), f"wgmma_result_{n}({score})"),
        "SCORES_DONE_1": Snippet((), (), f"wgmma_older_{n}({score})"),
        "SCORES_READY": Snippet((), (), f"wgmma_start_{n}({score})"),
        "SCORE_PRODUCT": Snippet(("a", "b", "keep"), (), f"wgmma_{n}_{dtype}({score}, a, b, keep)"),
        "STORE": part(template.store),
        "SUMS": part(template.sums_of),
        "SUMS_DONE": Snippet((), (), f"wgmma_result_{dv}({total})"),
        "SUMS_READY": Snippet((), (), f"wgmma_start_{dv}({total})"),
        "SUM_PRODUCT": Snippet(("w0", "w1", "w2", "w3", "b"), (), of_weights),
        "UNIT_OF": part(template.unit_of),
        "WEIGH": part(template.weigh),
        "WEIGHTS_READY": Snippet((), (), f"wgmma_ready_{n}({weight})"),
        "YOUR_TURN": part(template.your_turn),
    }
