"""Descriptor of `cuda.gemv`: matrix products with at most 16 rows, which read the weights once at memory speed.

What it can run, what that costs, and the record of its decisions. No code generator is imported here; `codegen.py`
turns records into code.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import OneOf, Record, RecordCodec, Whole, illegal, read_entry
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.gemm.gemv.scalar_programs import epilogue_reason, prologue_reason
from aicf.backends.cuda.families.gemm.gemv.schedule import (
    NORMED,
    ColumnsSpec,
    GemvProblem,
    RowsSpec,
    Spec,
    TilesSpec,
    candidates,
    choose,
    instructions_us,
    read_problem,
    row_count,
    spec_reason,
)
from aicf.backends.cuda.families.records import (
    CudaKernel,
    Shape,
    integers,
    is_never_written,
    is_programmatic,
    read_early,
    read_integers,
    start_entries,
)
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch, arch_named
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.kinds import EPILOGUES

MOST_ROWS = 16
"""Activation rows above which tensor cores win."""

_LATENCY_US = 1.5
"""Of one kernel in a chain that overlaps with its neighbours."""
_BANDWIDTH_SHARE, _TILES_SHARE = 0.9, 0.76
"""What streaming weights reaches of the memory's bandwidth, and what it does past tensor cores: a chain of up- and
down-projections takes 89 us of these for 2 tokens, 75 of scalar units."""
_PROLOGUE_US, _NORMED_ROWS = 0.4, 2
"""Of a norm that is computed on the way in, and rows that always have theirs computed there."""

KINDS = frozenset({"gemm", *EPILOGUES, "norm_gemm", "gemm_gated", "norm_gated", "gemm_multi"})

# Records

FIRST = "loaded_first"
"""Where there is no programmatic launch: the operands that are loaded before x is, as `early_reads` says elsewhere."""

_CODECS: dict[str, RecordCodec[Any]] = {
    spec.along: RecordCodec(spec) for spec in (RowsSpec, TilesSpec, ColumnsSpec)
}


def read_spec(record: Record) -> Spec:
    """The decisions of a record. Raises RecordError if one is missing or not legal."""
    early = read_early(record) if is_programmatic(record) else read_integers(record, FIRST)
    along = read_entry(record, "along", OneOf(tuple(_CODECS)))
    return _CODECS[along].read(record, early=early)


def spec_record(work: Workload, problem: GemvProblem, spec: Spec, arch: GpuArch) -> dict[str, Attribute]:
    """Every decision about `work`. Results that do not meet in one epilogue have blocks of their own, along y."""
    results = 1 if problem.gated else len(problem.weights)
    shape = Shape(
        (spec.grid(problem), results, 1), (spec.threads, 1, 1), shared_bytes=spec.shared_bytes(problem)
    )
    scheduled = _CODECS[spec.along].entries(spec)
    parts = scheduled.pop("k_parts")
    warps = "" if spec.parts == 1 else f", {spec.parts} warps in order"
    entries: dict[str, Attribute] = {
        "along": StringAttr(spec.along),
        **scheduled,
        "k_parts": parts,
        **shape.entries(),
        "combination_order": StringAttr(f"{spec.order}{warps}"),
        **(start_entries(arch, early_reads(work)) or {FIRST: integers(early_reads(work))}),
        "rounding": StringAttr(work.rounding),
    }
    for key in ("transpose_a", "transpose_b", "prologue_operands", "products"):
        if key in work.attrs:
            entries[key] = work.attrs[key]
    return entries


def early_reads(work: Workload) -> tuple[int, ...]:
    """Operands that no kernel of the program writes: all but x that are weights or constants."""
    return tuple(
        number for number, operand in enumerate(work.operands) if number > 0 and is_never_written(operand)
    )


# Legality


def _dtype_reason(problem: GemvProblem, work: Workload) -> str | None:
    for operand in (*work.operands, *work.results):
        if operand.dtype not in ("f32", "f16", "bf16"):
            return f"operands are f32, f16 or bf16, one is {operand.dtype}"
    if len({work.operands[w].dtype for w in problem.weights}) > 1:
        return "the weights differ in element type"
    if problem.x_dtype != problem.dtype and (problem.x_dtype != "f32" or work.prologue is None):
        return f"x is {problem.x_dtype}, the weights are {problem.dtype}"
    return None


def _layout_reason(problem: GemvProblem, work: Workload) -> str | None:
    size, x_size = ELEMENT_BYTES[problem.dtype], ELEMENT_BYTES[problem.x_dtype]
    if 1 not in problem.w_steps:
        return "the weights are contiguous neither along K nor along N"
    if problem.x_step != 1:
        return "x is not contiguous along K"
    along = "K" if problem.w_steps[1] == 1 else "N"
    extent, line = (problem.k, problem.w_steps[0]) if along == "K" else (problem.n, problem.w_steps[1])
    if (problem.k * size) % 16 or (extent * size) % 16 or (line * size) % 16:
        return f"K, or the weights along {along}, are no multiple of 16 bytes"
    if any((work.operands[w].offset * size) % 16 for w in problem.weights):
        return "the weights do not start at a multiple of 16 bytes"
    if any(((work.operands[0].offset + row) * x_size) % 16 for row in problem.x_rows):
        return "rows of x do not start at a multiple of 16 bytes"
    return None


def _epilogue_reason(problem: GemvProblem, work: Workload) -> str | None:
    if work.code is None:
        without_epilogue = not problem.gated and not problem.epilogue[0] and work.kind not in EPILOGUES
        return None if without_epilogue else "what follows the product has no generated code"
    return epilogue_reason(work, work.code, problem.m * problem.n, problem.epilogue)


def _prologue_reason(work: Workload) -> str | None:
    if work.prologue is None:
        return "the row program before the product has no generated code" if work.kind in NORMED else None
    return prologue_reason(work.prologue)


class GemvKernel(CudaKernel[Spec]):
    """Products of up to 16 rows with weights [N, K] or [K, N], a row program before and an epilogue after."""

    id = "cuda.gemv"
    library = "gemv"
    simplicity = 2
    kinds = KINDS

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if min(prod(o.shape) for o in work.operands) == 0:
            return "nothing to multiply"
        if (rows := row_count(work.attrs, work.operands[0])) > MOST_ROWS:
            return f"x has {rows} rows, at most {MOST_ROWS} are streamed past the weights"
        problem = read_problem(work.kind, work.attrs, work.operands)
        if any(prod(work.operands[w].shape[:-2]) > 1 for w in problem.weights):
            return "the weights have a batch"
        reason = (
            _dtype_reason(problem, work)
            or _layout_reason(problem, work)
            or _epilogue_reason(problem, work)
            or _prologue_reason(work)
        )
        if reason is None and choose(problem, arch_named(target.arch.data)) is None:
            return f"{problem.m} rows of {problem.k} elements do not fit into the registers of a block"
        return reason

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: the weights at memory speed, no less than the latency of one kernel in a chain, or than what
        is computed for them."""
        problem = read_problem(work.kind, work.attrs, work.operands)
        prologue = _PROLOGUE_US if work.prologue is not None else 0.0
        return _product_us(problem, arch_named(target.arch.data)) + prologue

    def unfused_us(self, work: Workload, target: TargetAttr) -> float | None:
        """See `Kernel`: one or two rows always take their norm along. Each block computes that of all rows again, which
        for more of them may take longer than a kernel of its own, and keeps tensor cores from the product."""
        problem = read_problem(work.kind, work.attrs, work.operands)
        if work.kind not in NORMED or problem.m <= _NORMED_ROWS:
            return None
        return _product_us(replace(problem, prologue=()), arch_named(target.arch.data)) + _LATENCY_US

    def schedule(self, work: Workload, target: TargetAttr) -> Spec:
        spec = choose(read_problem(work.kind, work.attrs, work.operands), arch_named(target.arch.data))
        assert spec is not None, "legal work has one"
        return spec

    def record_of(self, work: Workload, target: TargetAttr, schedule: Spec) -> dict[str, Attribute]:
        problem = read_problem(work.kind, work.attrs, work.operands)
        return spec_record(work, problem, schedule, arch_named(target.arch.data))

    def variants(self, work: Workload, target: TargetAttr) -> list[dict[str, Attribute]]:
        return specs(work, target)

    def read(self, work: Workload, record: Record, target: TargetAttr) -> Spec:
        return read_spec(record)

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: Spec) -> str | None:
        problem, arch = read_problem(work.kind, work.attrs, work.operands), arch_named(target.arch.data)
        numbers = Whole(1, len(work.operands) - 1)
        if not arch.has_programmatic_launch and not all(map(numbers.holds, schedule.early)):
            return f"its {illegal(FIRST, list(schedule.early), f'numbers {numbers}')}"
        return spec_reason(schedule, problem, arch)

    def tolerates(self, target: TargetAttr, key: str, record: Record, expected: Record) -> bool:
        """See `Kernel`: what is loaded first is compared with what is written meanwhile by `verify-order`."""
        return key == FIRST or super().tolerates(target, key, record, expected)


def _product_us(problem: GemvProblem, arch: GpuArch) -> float:
    """Predicted microseconds of the variant that is chosen without a measurement."""
    spec = choose(problem, arch)
    assert spec is not None, "legal work has one, and so has what is less of it"
    share = _TILES_SHARE if isinstance(spec, TilesSpec) else _BANDWIDTH_SHARE
    streaming = problem.weight_bytes / (share * arch.bandwidth_gbs * 1e3)
    return max(streaming, instructions_us(problem, spec, arch), _LATENCY_US)


def specs(work: Workload, target: TargetAttr) -> list[dict[str, Attribute]]:
    """Records worth a measurement for legal `work`, the one without a measurement first."""
    problem = read_problem(work.kind, work.attrs, work.operands)
    arch = arch_named(target.arch.data)
    return [spec_record(work, problem, spec, arch) for spec in candidates(problem, arch)[:12]]


KERNELS = (GemvKernel(),)
"""The kernel of this family."""
