"""The kernel of products with block-quantised weights.

No code generator is imported here; `codegen.py` turns its record into code.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute

from aicf.backends.common.packed_weights import block_weight_reason
from aicf.backends.common.record import Record, RecordCodec, integer, read_text
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.families.blocks.fused import fused_reason
from aicf.backends.cuda.families.blocks.layout import has_tiles, tiles_layout
from aicf.backends.cuda.families.blocks.pack.kernel import pack_record
from aicf.backends.cuda.families.blocks.problem import BlocksProblem, Roles, read_problem, read_roles
from aicf.backends.cuda.families.blocks.schedule import (
    FEW_ROWS,
    MANY_ROWS,
    BlocksSchedule,
    apart_us,
    candidates,
    choose,
    cost_us,
    schedule_reason,
    widened_us,
)
from aicf.backends.cuda.families.loops.kernel import operand_reason
from aicf.backends.cuda.families.records import (
    CudaKernel,
    Shape,
    is_never_written,
    is_programmatic,
    read_early,
    start_entries,
)
from aicf.backends.cuda.target import arch_named
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr
from aicf.dialects.kinds import PACKED_PRODUCTS

_VECTOR = 4
"""Elements of x that are loaded at once."""
_CODEC = RecordCodec(BlocksSchedule)
_FUSED_ENTRIES = ("products", "prologue_operands")
"""Entries of a record with others beside the product: which operands are whose."""


class MatmulBlocksKernel(CudaKernel[BlocksSchedule]):
    """Streams packed weights past the rows of x: codes become halves by a shift and a mask, tensor cores multiply.

    An element of x is two halves, scaled by a power of two that its part of 32 (16 for Q6_K) shares: it is rounded to a
    step of about 2^-22 of itself, or 2^-39 of the largest of its part. Products of codes and halves are exact; sums and
    factors are f32.
    """

    id = "cuda.matmul_blocks"
    version = 2
    kinds = frozenset({"matmul_blocks", PACKED_PRODUCTS})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: weights in one piece, which no program overwrites, and rows of x that vectors can read. What
        comes before and after the product is taken along by few rows."""
        reason = operand_reason(work) or has_tiles(read_text(work.attrs, "scheme"))
        if reason is None:
            reason = fused_reason(work) if work.kind == PACKED_PRODUCTS else _alone_reason(work)
        if reason is not None:
            return reason
        weights = (work.operands[number] for number in roles_of(work).weights)
        reason = next(filter(None, map(_weight_reason, weights)), None) or _x_reason(work.operands[0])
        return reason or self.schedule_reason(work, target, self.schedule(work, target))

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return cost_us(problem_of(work), self.schedule(work, target), arch_named(target.arch.data))

    def unfused_us(self, work: Workload, target: TargetAttr) -> float | None:
        """See `Kernel`: with many rows of x, a product with the widened weight may take less time. Few rows always take
        along what is before and after the product, and so do all where the batch may not show. Many rows never do: they
        may be multiplied with the widened weight."""
        problem, arch = problem_of(work), arch_named(target.arch.data)
        if work.kind != PACKED_PRODUCTS:
            return widened_us(work, problem, arch)
        if problem.m <= FEW_ROWS or work.batch_invariant:
            return None
        return apart_us(problem, arch) if problem.m <= MANY_ROWS else 0.0

    def schedule(self, work: Workload, target: TargetAttr) -> BlocksSchedule:
        return choose(problem_of(work), arch_named(target.arch.data), _early(work, target))

    def record_of(self, work: Workload, target: TargetAttr, schedule: BlocksSchedule) -> dict[str, Attribute]:
        problem, roles = problem_of(work), roles_of(work)
        threads = (schedule.threads(problem), 1, 1)
        shape = Shape(schedule.grid(problem), threads, shared_bytes=schedule.shared_bytes(problem))
        tiles = tiles_layout(problem.scheme, work.operands[1].shape)
        layouts = [tiles if number in roles.weights else UnitAttr() for number in range(len(work.operands))]
        return {
            **_CODEC.entries(schedule),
            **{key: work.attrs[key] for key in ("scheme", *_FUSED_ENTRIES) if key in work.attrs},
            **shape.entries(),
            "blocks_per_sm": integer(schedule.blocks_per_sm(problem)),
            "combination_order": StringAttr(schedule.order(problem)),
            "layouts": ArrayAttr(layouts),
            "rounding": StringAttr(work.rounding),
            **start_entries(arch_named(target.arch.data), _early(work, target)),
        }

    def variants(self, work: Workload, target: TargetAttr) -> list[dict[str, Attribute]]:
        problem, arch = problem_of(work), arch_named(target.arch.data)
        first, *others = candidates(problem, arch, _early(work, target))
        if work.batch_invariant:  # then all records have one order
            others = [each for each in others if each.order(problem) == first.order(problem)]
        return [self.record_of(work, target, each) for each in (first, *others)]

    def read(self, work: Workload, record: Record, target: TargetAttr) -> BlocksSchedule:
        return read_schedule(record)

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: BlocksSchedule) -> str | None:
        return schedule_reason(schedule, problem_of(work), arch_named(target.arch.data))

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: parts in order; which warp has which follows from K."""
        return self.schedule(work, target).order(problem_of(work))

    def prepare(self, work: Workload, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `Kernel`: the record of `cuda.pack_blocks`."""
        return pack_record(layout, work.operands[operand].shape, target)


def read_schedule(record: Record) -> BlocksSchedule:
    """The decisions of a record. Raises RecordError if one is missing or not legal."""
    return _CODEC.read(record, early=read_early(record) if is_programmatic(record) else ())


def problem_of(work: Workload) -> BlocksProblem:
    """The product that an instruction is."""
    x, result = work.operands[0], work.results[0]
    return read_problem(roles_of(work), work.attrs, x, result, has_rows=work.prologue is not None)


def roles_of(work: Workload) -> Roles:
    """Which operands of an instruction are whose."""
    return read_roles(work.kind, work.attrs, len(work.operands))


def _early(work: Workload, target: TargetAttr) -> tuple[int, ...]:
    """Where kernels start early: the weights, and what the row program reads beside x, if nothing writes them while the
    program runs."""
    if not arch_named(target.arch.data).has_programmatic_launch:
        return ()
    roles = roles_of(work)
    return tuple(
        number for number in (*roles.weights, *roles.rows) if is_never_written(work.operands[number])
    )


def _alone_reason(work: Workload) -> str | None:
    if len(work.operands) > 2:
        return "each row of x has a matrix of its own, which an index chooses"
    return None


def _weight_reason(weight: OperandInfo) -> str | None:
    if (reason := block_weight_reason(weight)) is not None:
        return reason
    return "the packed weight starts at an odd byte" if weight.offset % 2 else None


def _x_reason(x: OperandInfo) -> str | None:
    if x.shape[-1] == 0:
        return "nothing to multiply"
    if x.strides[-1] != 1 or any(step % _VECTOR for step in (*x.strides[:-1], x.offset)):
        return "the rows of x are not in one piece, or start at no multiple of 4 elements"
    return None


KERNELS = (MatmulBlocksKernel(),)
"""The kernel of this family."""
