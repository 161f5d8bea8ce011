"""What the code generators of the attention kernels share: the launch, and the problem as constants of a template."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from aicf.backends.base import BufferRef, Launch
from aicf.backends.cuda.codegen.scalar import load_text
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Snippet, part
from aicf.backends.cuda.families.attention import template
from aicf.backends.cuda.families.attention.problem import AttentionProblem, Rows
from aicf.backends.cuda.families.records import read_shape
from aicf.backends.cuda.runtime.device_program import TensorMap
from aicf.backends.cuda.target import ELEMENT_BYTES

PARAMETERS = ("ptr", "ptr", "ptr", "ptr", "ptr")
"""Queries, keys, values, result, and the mask or how many keys come before the first query."""


def launched(launch: Launch, code: KernelCode) -> Sequence[KernelLaunch]:
    """The one launch of an attention instruction. Raises RecordError if its record lacks an entry."""
    # Without either the last parameter is not read; it still needs a value.
    operands = (*launch.ins[:3], launch.outs[0], (*launch.ins, launch.outs[0])[3])
    return [launch_in(read_shape(launch.record), code, tuple(address_of(operand) for operand in operands))]


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
        "OFFSET": part(template.offset),
        "BLOCK_OF": part(template.block_of),
        "TILES_SEEN": part(template.tiles_seen),
        "COUNT": problem.count,
        "CAUSAL": problem.past is not None,
        "PAST": problem.past or 0,
        **before_constants(problem),
        "NAN_AS_ZERO": problem.nan_as_zero,
        "EMPTY_AS_ZERO": problem.empty_as_zero,
        "SCALE": scale if problem.mask is not None else scale * unit,
        "LOG2_E": unit,
    }


def before_constants(problem: AttentionProblem) -> dict[str, Any]:
    """Whether the number of keys before the first query is in memory, and how that of a batch element is read (i64)."""
    if problem.before is None:
        return {"FILLED": False}
    strides, dtype = problem.before
    return {
        "FILLED": True,
        "BEFORE_BATCH": tuple(step * ELEMENT_BYTES[dtype] for step in reversed(strides)),
        "BEFORE": part(template.before),
        "LOAD_BEFORE": Snippet(("at",), (), f"i64({load_text(dtype, 'at')})"),
    }


def _strides(name: str, rows: Rows, element: int) -> dict[str, Any]:
    return {
        f"{name}_BATCH": tuple(stride * element for stride in reversed(rows.batch)),
        f"{name}_ROW": rows.row * element,
        f"{name}_COLUMN": rows.column * element,
    }


def descriptor(leading: int) -> int:
    """Constant part of a shared-memory descriptor of 128-byte panels: 1024 bytes from 8 rows to the next 8; `leading`
    is what lies from panel to panel where the matrix runs along N, in units of 16 bytes."""
    return 1 << 62 | (1024 >> 4) << 32 | leading << 16


LOADS = {
    "f32": Snippet(("at",), (), "load_f32(at)"),
    "f16": Snippet(("at",), (), "f16_to_f32(load_u16(at))"),
    "bf16": Snippet(("at",), (), "bf16_to_f32(load_u16(at))"),
}
"""One element in global memory as f32, by type."""


# Bulk tensor copies


def _copied_batch(rows: Rows, problem: AttentionProblem) -> list[int]:
    """The batch dims that a matrix has, innermost first; it is the same along all others."""
    dims = range(len(problem.batch))
    return [dim for dim in reversed(dims) if rows.batch[dim] != 0 and problem.batch[dim] > 1]


def bulk_map(
    ref: BufferRef, rows: Rows, problem: AttentionProblem, count: int, size: int, box: int
) -> TensorMap:
    """The tensor map of a matrix with `count` rows of `size`, for copies of `box` rows of 64."""
    dims = _copied_batch(rows, problem)
    row = rows.row if count > 1 else size
    return TensorMap(
        ref.base,
        ref.offset,
        ref.dtype,
        (size, count, *(problem.batch[dim] for dim in dims)),
        (2 * row, *(2 * rows.batch[dim] for dim in dims)),
        (64, box, *(1 for _ in dims)),
        swizzle=128,
        l2_promotion=256,
        interleave=0,
        out_of_bounds="zeros",
    )


def bulk_copy(map_: str, rows: Rows, problem: AttentionProblem, size: int, count: int) -> Snippet:
    """Copies `count` rows to shared memory, in panels of 64 elements."""
    dims = _copied_batch(rows, problem)
    index = "".join(
        f", i32(index // {prod(problem.batch[dim + 1 :])} % {problem.batch[dim]})" for dim in dims
    )
    body = [
        f"copy_tensor_{2 + len(dims)}d(u32(at + u32({panel * count * 128})), {map_}, ready, "
        f"i32({64 * panel}), i32(row){index})"
        for panel in range(size // 64)
    ]
    return Snippet(("at", "ready", "row", "index"), tuple(body))
