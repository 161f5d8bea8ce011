"""The descriptor of `cuda.gemm_norm`: products whose epilogue is a row program (a norm), in one kernel.

The kernel is that of `cuda.gemm_wgmma` with the columns of a row spread over the blocks of a cluster, which exchange
the row's totals. Whether it pays is a question of sizes: a product alone may take any tile and split K. So the parts
are priced as well, and a group is formed where it takes no longer. The code generator of wgmma products
turns the record into a kernel; none is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, SSAValue

from aicf.backends.common.kernel import AnyKernel
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.families.gemm.mma.kernel import MmaKernel
from aicf.backends.cuda.families.gemm.problem import product_reason
from aicf.backends.cuda.families.gemm.wgmma.kernel import (
    FACTORS,
    VALUES,
    WgmmaKernel,
    combination_order,
    ranked,
    task_of_work,
)
from aicf.backends.cuda.families.gemm.wgmma.schedule import (
    Spec,
    Task,
    predicted_us,
    spec_reason,
    tensor_reason,
)
from aicf.backends.cuda.families.loops.kernel import GeneratedKernel, code_reason
from aicf.backends.cuda.families.records import CudaKernel
from aicf.backends.cuda.target import arch_named
from aicf.dialects.emit_kernels import KernelOp, ReduceOp
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.types import element_of

_HANDOVER_US = 1.3
"""From the product to the kernel that norms its rows, beyond what each is predicted to take. Fitted on an H100 to
layer_norms of 768 columns whose weights are not in L2: 1024 rows take 9.1 us apart and 8.6 us in one kernel for
k = 768, 15.7 us both ways for 3072, and 128 rows 4.6 and 8.2. BERT of 8 x 128 tokens takes 587 us with its norms
fused after products, and 603 us without."""

_PRODUCTS: tuple[AnyKernel, ...] = (WgmmaKernel(), MmaKernel())
"""What would run the product by itself."""


class GemmNormKernel(CudaKernel[Spec]):
    """Products of f16 or bf16, then a row program on the rows in registers of a cluster."""

    id = "cuda.gemm_norm"
    library = "wgmma"
    simplicity = 5
    kinds = frozenset({"gemm_norm"})
    codec = WgmmaKernel.codec

    @property
    def code_generator(self) -> str:
        """See `Kernel`: that of the product."""
        return WgmmaKernel().code_generator

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        arch = arch_named(target.arch.data)
        if not (arch.has_tma and arch.has_wgmma and arch.has_clusters):
            return f"warpgroup products and clusters need sm_90a, the target is {arch.name}"
        if work.operands[0].dtype not in FACTORS:
            return f"warpgroup products take f16 and bf16 here, A is {work.operands[0].dtype}"
        if (reason := product_reason(work)) is not None:
            return reason
        if work.code is None:
            return "what follows the product has no generated code"
        if (reason := code_reason(work.code) or _values_reason(work, work.code)) is not None:
            return reason
        task = task_of_work(work)
        if (
            reason := tensor_reason(task) or (_lines_reason(task) if work.batch_invariant else None)
        ) is not None:
            return reason
        if not _ranked(work, target):
            return f"a row of {task.problem.n} columns does not fit in the registers of a cluster of 8 blocks"
        return None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        task = task_of_work(work)
        return predicted_us(_ranked(work, target)[0], task, arch_named(target.arch.data))

    def unfused_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: the product by the kernel that takes least, then the row program on what it wrote."""
        assert work.code is not None
        shape = work.results[0].shape
        dtype = element_of(work.code.body.block.args[0].type).name
        strides = tuple(prod(shape[dim + 1 :]) for dim in range(len(shape)))
        between = OperandInfo("temp", shape, dtype, strides)
        product = replace(work, kind="gemm", operands=work.operands[:2], results=(between,), code=None)
        rows = replace(work, kind="generated", attrs={}, operands=(between, *work.operands[2:]))
        products = (kernel for kernel in _PRODUCTS if kernel.legal(product, target) is None)
        alone = min(kernel.cost_us(product, target) for kernel in products)
        return alone + _HANDOVER_US + GeneratedKernel().cost_us(rows, target)

    def schedule(self, work: Workload, target: TargetAttr) -> Spec:
        """See `Kernel`: the variant that the prior prefers."""
        return _ranked(work, target)[0]

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: K is never split, and the width of a tile says how a row is combined."""
        spec = _ranked(work, target)[0]
        return f"by warpgroups, {_order(spec)}, {spec.tile_n} columns each"

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[Mapping[str, Attribute]]:
        """The records of all legal variants, by the prior the cheapest first."""
        return [self.record_of(work, target, spec) for spec in _ranked(work, target)]

    def record_of(self, work: Workload, target: TargetAttr, schedule: Spec) -> dict[str, Attribute]:
        entries = WgmmaKernel().record_of(work, target, schedule)
        return {**entries, "combination_order": StringAttr(_order(schedule))}

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: Spec) -> str | None:
        return spec_reason(schedule, task_of_work(work), arch_named(target.arch.data))


def _ranked(work: Workload, target: TargetAttr) -> Sequence[Spec]:
    return ranked(task_of_work(work), target.arch.data, work.batch_invariant)


def _lines_reason(task: Task) -> str | None:
    """Why bulk tensor copies could not read A if it had other numbers of rows and matrices, whatever they are now."""
    row, along = task.problem.a_strides
    if along != 1 or row % 8:
        return f"the rows of A, {row} elements apart with {along} between neighbours, are no lines for every batch"
    return None


def _order(spec: Spec) -> str:
    steps = ["columns of a thread by parity, ascending", "the two parities", "4 threads by butterfly"]
    steps += [f"{spec.cluster_n} blocks ascending"] if spec.cluster_n > 1 else []
    return f"{combination_order(spec)}; totals of a row: {', '.join(steps)}"


def _values_reason(work: Workload, code: KernelOp) -> str | None:
    """Why operands, results or what the row program keeps of an element have no place here."""
    for operand in (*work.operands[2:], *work.results):
        if operand.dtype not in VALUES:
            return f"the epilogue reads and writes {', '.join(VALUES)} here, not {operand.dtype}"
    if not all(code.writes_reduce_space(output) for output in range(len(work.results))):
        return "a result has no columns"
    dtypes = (element_of(value.type).name for value in _held(code))
    unknown = next((dtype for dtype in dtypes if dtype not in VALUES), None)
    return None if unknown is None else f"the rows are reduced and kept in {', '.join(VALUES)}, not {unknown}"


def _held(code: KernelOp) -> list[SSAValue]:
    """Values of elements that are reduced, or kept from phase to phase."""
    held: list[SSAValue] = []
    for phase in code.phases:
        held += [op.value for op in phase.body.block.ops if isinstance(op, ReduceOp)]
        held += [value for value in phase.terminator.operands if code.varies(value)]
    return held


KERNELS = (GemmNormKernel(),)
"""The kernel of this family."""
