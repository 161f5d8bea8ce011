"""Descriptors of the generated kernels: what they can run, what it would cost, and the record of their decisions.

No code generator is imported here; `codegen.py` turns records into code.
"""

from __future__ import annotations

from typing import cast

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.loop_nest import (
    LoopNest,
    accumulate_ops,
    nest_of,
    overwritable,
    uncoded_reason,
    value_types,
)
from aicf.backends.common.record import Record, RecordCodec, Whole, integer, read_list
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.loops.choice import choose
from aicf.backends.cuda.families.loops.column_choice import holds_sums
from aicf.backends.cuda.families.loops.costs import cost_us
from aicf.backends.cuda.families.loops.schedule import GeneratedSpec, partial_bytes
from aicf.backends.cuda.families.loops.spaces import is_exact, reduces
from aicf.backends.cuda.families.records import (
    CLUSTER_BLOCKS,
    ONE,
    CudaKernel,
    Shape,
    integers,
    read_shape,
    start_entries,
)
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch, arch_named
from aicf.dialects.emit_kernels import (
    SCALAR_OPS,
    AccumulateOp,
    IndexOp,
    KernelOp,
    LoadOp,
    ReduceOp,
    ScanOp,
    StoreOp,
    YieldOp,
    scans_of,
)
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.emit_updates import is_update
from aicf.dialects.kinds import SCALAR_PROGRAMS

_CODEC = RecordCodec(GeneratedSpec)


def operand_reason(work: Workload) -> str | None:
    """Why an operand or result is of no use here."""
    for operand in (*work.operands, *work.results):
        if operand.dtype not in ELEMENT_BYTES:
            return _unsupported(operand.dtype)
    if any(0 in result.shape for result in work.results):
        return "a result has no elements, and a launch has at least one block: take it out of the model"
    return None


def _unsupported(dtype: str) -> str:
    return (
        f"element type {dtype} is not supported on cuda, only {', '.join(ELEMENT_BYTES)}: cast to f32 first"
    )


_STRUCTURE = (YieldOp, StoreOp, ReduceOp, AccumulateOp, ScanOp, IndexOp, LoadOp)
"""What phases hold besides scalar ops."""


def code_reason(code: KernelOp) -> str | None:
    """Why the scalar program has no code here, in a user's words; None if it has."""
    if (reason := uncoded_reason(code, "cuda", SCALAR_OPS, _STRUCTURE)) is not None:
        return reason
    unknown = value_types(code) - set(ELEMENT_BYTES)
    return _unsupported(sorted(unknown)[0]) if unknown else _scan_reason(code)


def _scan_reason(code: KernelOp) -> str | None:
    """A kernel that scans does nothing else across points."""
    ops = [op for phase in code.phases for op in phase.body.block.ops]
    if not scans_of(ops):
        return None
    if len(code.phases) > 1 or any(isinstance(op, ReduceOp | AccumulateOp) for op in ops):
        return "a running sum and a reduction in one kernel have no code on cuda"
    if not all(code.writes_reduce_space(output) for output in range(len(code.out_maps))):
        return "a running sum beside an output of one element a row has no code on cuda"
    return None


class GeneratedKernel(CudaKernel[GeneratedSpec]):
    """Code from the generated scalar program: pointwise chains, and reductions with what is around them."""

    id = "cuda.generated"
    simplicity = 1
    kinds = SCALAR_PROGRAMS

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if (reason := operand_reason(work)) is not None:
            return reason
        if work.code is None:
            return "it is not one set of loops over all elements"
        if is_update(work.code):
            return "it updates several tensors, each of which has loops of its own"
        return code_reason(work.code) or self._sums_reason(work, target)

    def _sums_reason(self, work: Workload, target: TargetAttr) -> str | None:
        """Why sums of columns are none of what rows of this length leave room for."""
        assert work.code is not None
        if not accumulate_ops(work.code):
            return None
        nest, spec = _decide(work, target)
        if holds_sums(nest, spec) and spec.problem(nest) is None:
            return None
        return f"rows of {nest.reduce_size} elements leave no registers for the sums of their columns"

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        nest, spec = _decide(work, target)
        return cost_us(nest, spec, arch_named(target.arch.data))

    def schedule(self, work: Workload, target: TargetAttr) -> GeneratedSpec:
        return _decide(work, target)[1]

    def record_of(self, work: Workload, target: TargetAttr, schedule: GeneratedSpec) -> dict[str, Attribute]:
        assert work.code is not None
        nest = _nest(work)
        entries = loops_record(nest, schedule, work.rounding, arch_named(target.arch.data))
        if workspace := partial_bytes(nest, schedule):
            entries["workspace_bytes"] = integer(workspace)
        if schedule.splits == 1 or schedule.strategy == "column_sums":
            entries["may_alias"] = _may_alias(work, work.code)
        return entries

    def read(self, work: Workload, record: Record, target: TargetAttr) -> GeneratedSpec:
        return read_spec(record)

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: GeneratedSpec) -> str | None:
        arch = arch_named(target.arch.data)
        if schedule.cluster > 1 and not arch.has_clusters:
            return f"{arch.name} has no clusters"
        return schedule.problem(_nest(work))

    def fixed_order(self, work: Workload, target: TargetAttr) -> str | None:
        assert work.code is not None
        if accumulate_ops(work.code):
            return None
        nest, spec = _decide(work, target)
        if reduces(nest) and is_exact(nest):
            return "any: maxima and minima are exact"
        return spec.combination_order(nest)


def _nest(work: Workload) -> LoopNest:
    assert work.code is not None
    operands = (*work.operands, *work.results)
    return nest_of(work.code, [o.strides for o in operands], [o.dtype for o in operands])


def _decide(work: Workload, target: TargetAttr) -> tuple[LoopNest, GeneratedSpec]:
    nest, operands = _nest(work), (*work.operands, *work.results)
    arch, offsets = arch_named(target.arch.data), [o.offset for o in operands]
    return nest, choose(nest, offsets, arch, work.batch_invariant)


def _may_alias(work: Workload, code: KernelOp) -> Attribute:
    """Outputs that may lie on an input of their type."""
    found = [
        ArrayAttr([integer(output), integer(operand)])
        for output, operand in overwritable(code)
        if work.operands[operand].dtype == work.results[output].dtype
    ]
    return ArrayAttr(found)


# Moves


# Records


def spec_record(nest: LoopNest, spec: GeneratedSpec) -> dict[str, Attribute]:
    """Every decision about the loops of one kernel, with one grid for each of its launches."""
    return {
        **_CODEC.entries(spec),
        "grids": ArrayAttr([integers(grid) for grid in spec.grids(nest)]),
        "block": integers([spec.threads, 1, 1]),
        "cluster": integers([1, spec.cluster, 1]),
        "shared_bytes": integer(0),
        "combination_order": StringAttr(spec.combination_order(nest)),
    }


def loops_record(nest: LoopNest, spec: GeneratedSpec, rounding: str, arch: GpuArch) -> dict[str, Attribute]:
    """The record of one kernel but for what is allowed to its memory. It waits before it reads anything."""
    return {**spec_record(nest, spec), "rounding": StringAttr(rounding), **start_entries(arch)}


def read_spec(record: Record) -> GeneratedSpec:
    """The decisions of a record. Raises RecordError if it lacks one, or it is not legal."""
    _, cluster, _ = read_list(record, "cluster", (ONE, Whole(1, CLUSTER_BLOCKS), ONE))
    return _CODEC.read(record, cluster=cluster)


def read_shapes(record: Record) -> list[Shape]:
    """The launches of a record, in order. Raises RecordError if it lacks them."""
    grids = record.get("grids")
    entries = cast("ArrayAttr[Attribute]", grids).data if isinstance(grids, ArrayAttr) else ()
    return [read_shape({**record, "grid": grid}) for grid in entries]


KERNELS = (GeneratedKernel(),)
"""The kernel of this family."""
