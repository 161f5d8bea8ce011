"""Descriptors of the CPU kernels that run a product and the row program after it as one instruction.

One thread multiplies into workspace and then works on the rows there: the same loops as two instructions, so nothing is
saved, and a group is formed where a policy asks for it. No code generator is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from xdsl.dialects.builtin import DictionaryAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.loop_nest import LoopNest, nest_of
from aicf.backends.common.record import OneOf, Record, illegal, integer, read_part
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.gemm.kernel import GemmKernel, GemmSchedule, ranked
from aicf.backends.cpu.families.gemm.problem import contiguous, read_work
from aicf.backends.cpu.families.gemm.schedule import SPLITS, GemmSpec
from aicf.backends.cpu.families.legality import (
    code_reason,
    threads_of,
    variant_of,
)
from aicf.backends.cpu.families.loops.schedule import LoopSpec, choose, cost_us
from aicf.backends.cpu.families.records import GEMM_VERSION, gemm_record, gemm_spec, loop_record, loop_spec
from aicf.backends.cpu.target import ACCUMULATORS, ELEMENT_BYTES
from aicf.dialects.emit_types import TargetAttr

_NO_GAIN = 1.01
"""The parts are preferred where the times are equal."""

_LINE = 64
"""Bytes of a cache line: what else needs workspace starts at one."""


@dataclass(frozen=True)
class GemmNormKernel(CpuKernel[GemmSchedule]):
    """The packed microkernel into workspace, then the loops of the row program."""

    library = "native"

    id: str
    level: str
    """The lowest level that has its instructions; the portable variant runs anywhere."""
    simplicity: int
    version: int = GEMM_VERSION
    kinds: frozenset[str] = frozenset({"gemm_norm"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if work.code is None:
            return "what follows the product has no generated code"
        if (reason := code_reason(work.code)) is not None:
            return reason
        product = GemmKernel(self.id, self.level, self.simplicity)
        return product.legal(_product(work), target)

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        product, rows = self._decide(work, target)
        return _NO_GAIN * (product[0] + cost_us(_nest(work), rows))

    def unfused_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: the product, its weight packed or as here, then the rows, in as many threads as pay."""
        product = GemmKernel(self.id, self.level, self.simplicity)
        own = self._decide(work, target)[0][0]
        nest = _nest(work)
        rows = choose(nest, variant_of(target, self.level), threads_of(target))
        return min(own, product.product_us(_product(work), target)) + cost_us(nest, rows)

    def schedule(self, work: Workload, target: TargetAttr) -> GemmSchedule:
        (_, product), rows = self._decide(work, target)
        return GemmSchedule(product, rows)

    def record_of(self, work: Workload, target: TargetAttr, schedule: GemmSchedule) -> dict[str, Attribute]:
        product, rows, nest = schedule.product, schedule.rows, _nest(work)
        assert rows is not None
        order = f"{product.combination_order}; then rows: {rows.combination_order(nest)}"
        return {
            "product": DictionaryAttr(
                {
                    **gemm_record(product),
                    "transpose_a": work.attrs["transpose_a"],
                    "transpose_b": work.attrs["transpose_b"],
                    "batch_in_rows": integer(read_work(_product(work)).batch_in_rows),
                }
            ),
            "rows": DictionaryAttr(loop_record(rows, nest)),
            "threads": integer(1),
            "sums_bytes": integer(_sums_bytes(work)),
            "workspace_bytes": integer(_sums_bytes(work) + product.workspace_bytes),
            "combination_order": StringAttr(order),
        }

    def read(self, work: Workload, record: Record, target: TargetAttr) -> GemmSchedule:
        problem = read_work(_product(work)).problem
        product = gemm_spec(read_part(record, "product"), problem, variant_of(target, self.level).has_fma)
        return GemmSchedule(product, loop_spec(read_part(record, "rows"), _nest(work)))

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: GemmSchedule) -> str | None:
        """See `Kernel`: one thread does all, with B where it lies or in panels of its own."""
        assert schedule.rows is not None
        alone, unpacked = OneOf((1,)), OneOf(("direct", "workspace"))
        found = (
            ("product", "threads", schedule.product.threads, alone),
            ("product", "b_source", schedule.product.b_source, unpacked),
            ("rows", "threads", schedule.rows.threads, alone),
        )
        reasons = (
            f"in its '{part}', its {illegal(key, value, legal)}"
            for part, key, value, legal in found
            if not legal.holds(value)
        )
        return next(reasons, None)

    def _decide(self, work: Workload, target: TargetAttr) -> tuple[tuple[float, GemmSpec], LoopSpec]:
        level = variant_of(target, self.level)
        problem = read_work(_product(work)).problem
        rows = choose(_nest(work), level, 1, rounding=work.rounding)
        return ranked(problem, level, False, 1, 0.0, 0.0, SPLITS)[0], rows


def _sums(work: Workload) -> OperandInfo:
    """The product, in workspace."""
    shape = work.results[0].shape
    return OperandInfo("temp", shape, ACCUMULATORS[work.operands[0].dtype], contiguous(shape))


def _sums_bytes(work: Workload) -> int:
    size = prod(work.results[0].shape) * ELEMENT_BYTES[_sums(work).dtype]
    return -(-size // _LINE) * _LINE


def _product(work: Workload) -> Workload:
    """The product as an instruction of its own."""
    return replace(work, kind="gemm", operands=work.operands[:2], results=(_sums(work),), code=None)


def _nest(work: Workload) -> LoopNest:
    """The loops after the product."""
    assert work.code is not None
    operands = (_sums(work), *work.operands[2:], *work.results)
    return nest_of(work.code, [o.strides for o in operands], [o.dtype for o in operands])


KERNELS = (
    GemmNormKernel("cpu.gemm_norm_avx512", "x86-64-v4", 4),
    GemmNormKernel("cpu.gemm_norm_avx2", "x86-64-v3", 3),
    GemmNormKernel("cpu.gemm_norm_portable", "generic", 2),
)
"""A kernel for each level of the processor."""
