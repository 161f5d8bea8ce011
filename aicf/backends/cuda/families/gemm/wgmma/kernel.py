"""The descriptors of `cuda.gemm_wgmma`, `cuda.gemm_wgmma_tf32`, `cuda.gemm_wgmma_int8` and `cuda.gemm_wgmma_fp8`: which
products they run, by which variant, and the record of that choice. All are one kernel: a stage holds 128 bytes of K of
any type.

No code generator is imported here; `codegen.py` turns the record into a kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Operation

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.record import OneOf, Record, RecordCodec, integer, read_entry
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.families.conv.pack.kernel import weight_pack_record
from aicf.backends.cuda.families.gemm.byte_operands import (
    EXACT,
    FLOATS,
    INTEGERS,
    SHORT_SUMS,
    ByteOperands,
    along_k_reason,
    layout_entries,
    math_of_bytes,
    problem_of_bytes,
)
from aicf.backends.cuda.families.gemm.packing import PRODUCT_WEIGHT
from aicf.backends.cuda.families.gemm.problem import (
    KINDS,
    GemmOperands,
    GemmProblem,
    early_b,
    epilogue_accesses,
    operands_of,
    problem_of_launch,
    problem_of_work,
    product_reason,
    strided,
)
from aicf.backends.cuda.families.gemm.tf32 import math_entries, tf32_reason
from aicf.backends.cuda.families.gemm.wgmma.schedule import (
    Spec,
    Task,
    legal_specs,
    predicted_us,
    ranked_specs,
    spec_reason,
    tensor_reason,
)
from aicf.backends.cuda.families.records import (
    CudaKernel,
    Shape,
    integers,
    read_early,
    read_integers,
    read_shape,
    start_entries,
)
from aicf.backends.cuda.target import FLOAT8, GpuArch, arch_named
from aicf.dialects.emit_kernels import KernelOp, ReduceOp, SigmoidOp, StoreOp
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr
from aicf.dialects.kinds import SUMMED

SUMS = "gemm_sums"
"""The kind of products beside which an operand is summed."""
FACTORS = ("f16", "bf16")
VALUES = ("f32", "f16", "bf16", *FLOAT8)
"""Element types of what the epilogue reads and of the results."""
INTEGER_VALUES = (*VALUES, "i32", "i8", "u8")
"""The same, after sums of i32."""


def _roles(work: Workload) -> GemmOperands:
    return operands_of(work.kind, len(work.operands), len(work.results))


def functions_in(code: KernelOp | None) -> int:
    """Calls of libdevice in a scalar program: each is worth a score of simple operations, and so is each half of a
    division of a row's elements, which branches for those that it cannot approximate."""
    if code is None:
        return 0
    ops = [op for phase in code.phases for op in phase.body.block.ops]
    calls = sum(isinstance(op, SigmoidOp) or op.name.startswith("math.") for op in ops)
    return calls + 2 * sum(_divides(op, code) for op in ops)


def _divides(op: Operation, code: KernelOp) -> bool:
    """Whether a row program divides every element by something."""
    return bool(code.reduce_sizes) and isinstance(op, arith.DivfOp) and code.varies(op.result)


def row_totals(code: KernelOp | None) -> int:
    """Reductions of the rows by a scalar program."""
    if code is None:
        return 0
    return sum(isinstance(op, ReduceOp) for phase in code.phases for op in phase.body.block.ops)


def task_of_work(work: Workload, problem: GemmProblem | None = None) -> Task:
    """What `work` asks for, by a product that lies otherwise if `problem` says so. It has passed `product_reason`."""
    product, early = problem or problem_of_work(work), bool(early_b(work))
    return _task(product, _roles(work), work.operands, work.results, early, work.code)


def product_of(work: Workload) -> Workload:
    """The product of a work that sums an operand, too, as a work of its own."""
    product = next(result for result in work.results if len(result.shape) > 1)
    return replace(work, kind="gemm", results=(product,))


def product_of_launch(launch: Launch) -> tuple[Launch, BufferRef]:
    """The product of an instruction that sums an operand, too, as one of its own; and where the sums go."""
    product = next(ref for ref in launch.outs if len(ref.shape) > 1)
    (sums,) = (ref for ref in launch.outs if ref is not product)
    return replace(launch, kind="gemm", outs=(product,)), sums


def task_of_launch(launch: Launch) -> Task:
    """What an instruction computes, as its record says."""
    if launch.kind == SUMS:
        product, sums = product_of_launch(launch)
        summed = read_entry(launch.record, "summed", OneOf(SUMMED))
        return replace(task_of_launch(product), summed=(summed, sums.dtype))
    roles = operands_of(launch.kind, len(launch.ins), len(launch.outs))
    early = bool(read_early(launch.record))
    return _task(problem_of_launch(launch), roles, launch.ins, launch.outs, early, launch.code)


def _task(
    problem: GemmProblem,
    roles: GemmOperands,
    ins: Sequence[OperandInfo] | Sequence[BufferRef],
    outs: Sequence[OperandInfo] | Sequence[BufferRef],
    early: bool,
    code: KernelOp | None,
) -> Task:
    extras = [strided(ins[index]) for index in roles.extras[0]]
    outputs = [strided(outs[index]) for index in roles.outputs[0]]
    reads, writes = epilogue_accesses(code, problem.factors, extras, outputs)
    return Task(problem, reads, writes[0], early, functions_in(code), writes[1:], row_totals(code))


# Records


_CODEC = RecordCodec(Spec)
spec_of = _CODEC.read


def clusters_of(record: Record) -> int:
    """Clusters that a record launches: each does its units one after the other."""
    shape = read_shape(record)
    return shape.grid[0] // shape.cluster[0]


def combination_order(spec: Spec, step: int = 16) -> str:
    """How the products of one element are added, `step` of k at a time, for the record."""
    order = f"ascending k in steps of {step}"
    return order if spec.split_k == 1 else f"{order}; {spec.split_k} parts of k, added in ascending order"


def _may_alias(code: KernelOp | None, roles: GemmOperands, task: Task) -> Attribute:
    """Results that may lie on an operand of the epilogue: same element at every point, read before it is stored."""
    found: list[tuple[int, int]] = []
    if code is not None and task.problem.products == 1 and not (task.more or task.left):
        (store,) = (op for op in code.phases[-1].body.block.ops if isinstance(op, StoreOp))
        for index, access in enumerate(task.extras):
            map_ = code.in_maps[task.problem.factors + index]
            if access.dtype == task.output.dtype and map_ == code.out_maps[store.output.value.data]:
                found.append((0, roles.extras[0][index]))
    return ArrayAttr([integers(pair) for pair in found])


class WgmmaKernel(CudaKernel[Spec]):
    """Products of f16 or bf16 with any epilogue, by warpgroup products out of bulk tensor copies."""

    id = "cuda.gemm_wgmma"
    library = "wgmma"
    simplicity = 4
    row_bytes = 16
    kinds = KINDS
    codec = _CODEC
    widens = False
    """Whether it multiplies operands of 8 bits into wider sums."""
    values = VALUES
    """Element types of what the epilogue reads and of the results."""

    def dtype_reason(self, work: Workload) -> str | None:
        """Why operands of this type are not multiplied as the work asks, None if they are."""
        dtype = work.operands[0].dtype
        return None if dtype in FACTORS else f"warpgroup products take f16 and bf16 here, A is {dtype}"

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        arch = arch_named(target.arch.data)
        if (reason := arch_reason(arch) or self.dtype_reason(work)) is not None:
            return reason
        if (reason := product_reason(work, self.widens) or operands_reason(work, self.values)) is not None:
            return reason
        return self.memory_reason(work) or task_reason(self.task(work), arch)

    def memory_reason(self, work: Workload) -> str | None:
        """Why it does not read the operands of a product where they lie, None if it does."""
        task = self.task(work)
        return tensor_reason(task) or _lines_reason(task)

    def task(self, work: Workload) -> Task:
        """What `work` asks for. Only for legal work."""
        return task_of_work(work)

    def problem_entries(self, work: Workload) -> Mapping[str, Attribute]:
        """What the record says of the problem, so that a launch can be read."""
        return {name: work.attrs[name] for name in ("transpose_a", "transpose_b")}

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        task = self.task(work)
        return predicted_us(ranked(task, target.arch.data)[0], task, arch_named(target.arch.data))

    def schedule(self, work: Workload, target: TargetAttr) -> Spec:
        """See `Kernel`: the variant that the prior prefers."""
        return ranked(self.task(work), target.arch.data)[0]

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[Mapping[str, Attribute]]:
        """The records of all legal variants, by the prior the cheapest first."""
        return [self.record_of(work, target, spec) for spec in ranked(self.task(work), target.arch.data)]

    def record_of(self, work: Workload, target: TargetAttr, schedule: Spec) -> dict[str, Attribute]:
        spec, sizes = schedule, _CODEC.entries(schedule)
        task, arch = self.task(work), arch_named(target.arch.data)
        blocks = spec.clusters(task, arch) * spec.cluster
        shape = Shape((blocks, 1, 1), (spec.threads, 1, 1), (spec.cluster, 1, 1), spec.shared_bytes(task))
        return {
            **{key: sizes[key] for key in ("tile", "cluster_shape", "ring")},
            "split_k": integer(spec.split_k),
            **shape.entries(),
            "workspace_bytes": integer(0),
            "combination_order": StringAttr(
                EXACT if task.problem.is_exact else combination_order(spec, task.k_step // 4)
            ),
            **self.problem_entries(work),
            **start_entries(arch, early_b(work)),
            "may_alias": _may_alias(work.code, _roles(work), task),
            "rounding": StringAttr(work.rounding),
            **(math_of_bytes(task.problem) if self.widens else math_entries(task.problem.dtype)),
        }

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: Spec) -> str | None:
        return spec_reason(schedule, self.task(work), arch_named(target.arch.data))

    def tolerates(self, target: TargetAttr, key: str, record: Record, expected: Record) -> bool:
        """See `Kernel`. Fewer clusters than fit are slower, but legal where each does its units one after the other."""
        if key != "grid":
            return super().tolerates(target, key, record, expected)
        most, (cluster, _, _) = read_integers(expected, key)[0], read_integers(expected, "cluster", 3)
        fewer = range(cluster, most, cluster) if expected["split_k"] == integer(1) else ()
        return any(record[key] == integers((blocks, 1, 1)) for blocks in fewer)


class WgmmaSumsKernel(WgmmaKernel):
    """Products of f16 or bf16 beside which an operand is summed over K, as the gradient of a bias beside that of the
    weight: blocks of the first column (or row) of tiles add up what they have in shared memory."""

    id = "cuda.gemm_wgmma_sums"
    kinds = frozenset({SUMS})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if (reason := super().legal(product_of(work), target)) is not None:
            return reason
        (sums,) = (result for result in work.results if len(result.shape) == 1)
        if sums.dtype not in VALUES or sums.strides != (1,):
            return f"sums are written side by side as {', '.join(VALUES)} here"
        return _sums_reason(self.task(work))

    def task(self, work: Workload) -> Task:
        if work.kind != SUMS:
            return super().task(work)
        (sums,) = (result for result in work.results if len(result.shape) == 1)
        return replace(super().task(product_of(work)), summed=(_summed(work), sums.dtype))

    def problem_entries(self, work: Workload) -> Mapping[str, Attribute]:
        return {**super().problem_entries(work), "summed": work.attrs["summed"]}

    def record_of(self, work: Workload, target: TargetAttr, schedule: Spec) -> dict[str, Attribute]:
        order = f"{combination_order(schedule)}; sums: every 16th k by a thread, 4 threads by butterflies, 4 warps"
        return {**super().record_of(work, target, schedule), "combination_order": StringAttr(order)}


def _summed(work: Workload) -> str:
    summed = work.attrs["summed"]
    assert isinstance(summed, StringAttr)
    return summed.data


def _sums_reason(task: Task) -> str | None:
    """Why an operand is not summed beside the product, None if it is."""
    assert task.summed is not None
    tensor = task.a if task.summed[0] == "a" else task.b
    if tensor.along_k:
        return f"operand {task.summed[0].upper()} is summed here where its lines run across K"
    if task.store(False) != "packed":
        return "an operand is summed beside a product that is stored as lines of 16 bytes"
    return None


class WgmmaTf32Kernel(WgmmaKernel):
    """Products of f32 with any epilogue; the copies round operands to TF32."""

    id = "cuda.gemm_wgmma_tf32"

    def dtype_reason(self, work: Workload) -> str | None:
        return tf32_reason(work)


class WgmmaBytesKernel(WgmmaKernel):
    """Products of operands of 8 bits with any epilogue, with wider sums."""

    bytes_: ByteOperands
    """The types that it multiplies."""
    widens = True

    def dtype_reason(self, work: Workload) -> str | None:
        return self.bytes_.reason(work)

    def memory_reason(self, work: Workload) -> str | None:
        return along_k_reason(problem_of_bytes(work)) or tensor_reason(self.task(work))

    def task(self, work: Workload) -> Task:
        return task_of_work(work, problem_of_bytes(work))

    def problem_entries(self, work: Workload) -> Mapping[str, Attribute]:
        return {**super().problem_entries(work), **layout_entries(work)}

    def prepare(self, work: Workload, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `Kernel`: the record of `cuda.pack_windows`."""
        return weight_pack_record(work.operands[operand], target, PRODUCT_WEIGHT)


class WgmmaIntegerKernel(WgmmaBytesKernel):
    """Products of 8-bit integers, with sums of i32."""

    id = "cuda.gemm_wgmma_int8"
    bytes_ = INTEGERS
    values = INTEGER_VALUES


class WgmmaFloat8Kernel(WgmmaBytesKernel):
    """Products of floats of 8 bits, with sums of f32."""

    id = "cuda.gemm_wgmma_fp8"
    bytes_ = FLOATS

    def dtype_reason(self, work: Workload) -> str | None:
        return super().dtype_reason(work) or (SHORT_SUMS if work.rounding == "strict" else None)


def _lines_reason(task: Task) -> str | None:
    """Why warpgroup products cannot read the operands' lines, None if they can: only those of halves may run along M
    or N."""
    for name, tensor in (("A", task.a), ("B", task.b)):
        if task.problem.dtype == "f32" and not tensor.along_k:
            return f"warpgroup products of TF32 read lines along K, those of {name} run across"
    return None


def arch_reason(arch: GpuArch) -> str | None:
    """Why a GPU has no warpgroup products out of bulk tensor copies, None if it has."""
    if arch.has_tma and arch.has_wgmma:
        return None
    return f"warpgroup products and bulk tensor copies need sm_90a, the target is {arch.name}"


def task_reason(task: Task, arch: GpuArch) -> str | None:
    """Why no variant stores the results of a task or fits on a GPU, None if one does."""
    packed = (task.giving(output).store(False) == "packed" for output in range(len(task.outputs)))
    if task.more and not all(packed):
        return "several results of a product are written here as lines of whole 16 bytes of f16 or bf16"
    if next(legal_specs(task, arch), None) is None:
        return spec_reason(Spec(64, 64 * task.problem.factors, 2), task, arch) or "no tile fits"
    return None


def operands_reason(work: Workload, values: Sequence[str] = VALUES) -> str | None:
    """Why the epilogue's operands or results, which are of `values`, have no code here."""
    roles = _roles(work)
    others: list[OperandInfo] = [work.operands[index] for extras in roles.extras for index in extras]
    for operand in (*others, *work.results):
        if operand.dtype not in values:
            return f"the epilogue reads and writes {', '.join(values)} here, not {operand.dtype}"
    return None


@functools.lru_cache(maxsize=4096)
def ranked(task: Task, arch: str, fixed: bool = False) -> list[Spec]:
    """All legal variants by the prior, the cheapest first, with `fixed` those that combine rows in one order; kept, for
    many instructions ask the same."""
    return ranked_specs(task, arch_named(arch), fixed)


KERNELS = (WgmmaKernel(), WgmmaSumsKernel(), WgmmaTf32Kernel(), WgmmaIntegerKernel(), WgmmaFloat8Kernel())
"""The kernels of this family."""
