"""The launch of `cuda.attention_simt`: a kernel record and operands become constants of a template."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.backends.base import Launch
from aicf.backends.common.record import Record
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.specializer import Snippet, part, stage
from aicf.backends.cuda.families.attention.codegen import LOADS, PARAMETERS, launched, problem_constants
from aicf.backends.cuda.families.attention.problem import AttentionProblem, problem_of_launch, read_scale
from aicf.backends.cuda.families.attention.simt import template
from aicf.backends.cuda.families.attention.simt.kernel import SIMT_ROWS, SIMT_WARPS, simt_columns
from aicf.backends.cuda.families.records import is_programmatic


def emit(launch: Launch) -> Sequence[KernelLaunch]:
    """The one launch of an instruction. Raises RecordError if its record lacks an entry."""
    problem = problem_of_launch(launch)
    return launched(launch, _code(problem, launch.record))


def _code(problem: AttentionProblem, record: Record) -> KernelCode:
    """The code of `cuda.attention_simt`."""
    constants = {
        **problem_constants(problem, read_scale(record), 1.0),
        "PROGRAMMATIC": is_programmatic(record),
        "LOAD": LOADS[problem.dtype],
        "STORE": STORES[problem.dtype],
        "COPY_MATRIX": part(template.copy_matrix),
        "WARPS": SIMT_WARPS,
        "ROWS": SIMT_ROWS,
        "COLUMNS": simt_columns(problem),
        "THREADS": 32 * SIMT_WARPS,
        "TILES_M": -(-problem.m // (SIMT_WARPS * SIMT_ROWS)),
        "TILES_N": -(-problem.n // 32),
    }
    source = stage(template.attention_simt, constants)
    return KernelCode("attention_simt", source, PARAMETERS, 32 * SIMT_WARPS)


STORES = {
    "f32": Snippet(("at", "x"), ("store_f32(at, x)",)),
    "f16": Snippet(("at", "x"), ("store_u16(at, f32_to_f16(x))",)),
    "bf16": Snippet(("at", "x"), ("store_u16(at, f32_to_bf16(x))",)),
}
"""One f32 number to an element in global memory, by type."""
