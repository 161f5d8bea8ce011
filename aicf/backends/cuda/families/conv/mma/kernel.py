"""The descriptors of `cuda.conv_mma` and `cuda.conv_mma_tf32`: convolutions of any strides as products of tensor cores,
without windows in memory.

What they decide, and most of what it costs, is what `cuda.gemm_mma` decides of the product. No code generator is
imported here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from xdsl.dialects.builtin import ArrayAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute

from aicf.backends.base import Launch
from aicf.backends.common.record import integer
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.mma.windows import (
    SINGLE_BYTES,
    k_order,
    padded_dims,
    reach_reason,
    weight_loads,
    x_loads,
)
from aicf.backends.cuda.families.conv.pack.kernel import packed, window_layout, window_pack_record
from aicf.backends.cuda.families.conv.problem import (
    FIRST_EXTRA,
    WEIGHT,
    ConvProblem,
    conv_of_launch,
    conv_of_work,
    conv_reason,
    may_alias,
)
from aicf.backends.cuda.families.gemm.mma.kernel import (
    MmaSpec,
    blocks_per_sm,
    combination_order,
    legal_specs,
    predicted_us,
    spec_of,
    spec_reason,
    spec_record,
)
from aicf.backends.cuda.families.gemm.problem import GemmProblem, early_b, strided
from aicf.backends.cuda.families.gemm.tf32 import tf32_reason
from aicf.backends.cuda.families.records import CudaKernel, Record, start_entries
from aicf.backends.cuda.target import FLOATS, GpuArch, arch_named
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr

_HELD_CHUNKS = 6
"""Chunks of a thread that may pass through registers in one stage."""
_ROW_ITEMS = 16
"""Pixels of a thread, or outputs, each with a place that it keeps."""
_MOST_GROUPS = 65535


# The problem


def as_product(problem: ConvProblem) -> GemmProblem:
    """The product, K with the empty elements of its chunks. A group of channels starts where the one before ends."""
    product = problem.product(k_order(problem).k)
    if problem.groups == 1:
        return product
    outputs = problem.outputs * problem.weight_strides[0]
    return replace(product, a_batch=(problem.channels * problem.x_strides[1],), b_batch=(outputs,))


def problem_of_work(work: Workload) -> ConvProblem:
    """The convolution, with its weight as it lies when the kernel runs."""
    weight = strided(work.operands[WEIGHT])
    return conv_of_work(work, packed(weight) if _packs(work) else weight)


def problem_of_launch(launch: Launch) -> ConvProblem | None:
    """The convolution of an instruction; None if its operands are not those of its record."""
    weight = strided(launch.ins[WEIGHT])
    return conv_of_launch(launch, packed(weight) if launch.ins[WEIGHT].layout is not None else weight)


def _packs(work: Workload) -> bool:
    """Whether the weight is packed ahead: it is a parameter that stays, and has other elements between its channels."""
    weight = work.operands[WEIGHT]
    if weight.layout is not None:
        return True
    if not weight.is_weight or weight.shape[1] == 1 or weight.strides[1] == 1:
        return False
    return k_order(conv_of_work(work)).run.dim is None


# Specs


def load_reason(spec: MmaSpec, problem: ConvProblem) -> str | None:
    """Why the threads of a block cannot bring its tiles, None if they can."""
    pixels = x_loads(problem, spec.bm, spec.bk, spec.threads)
    weights = weight_loads(problem, spec.bn, spec.bk, spec.threads)
    if pixels is None or weights is None:
        return f"tile {spec.bm}x{spec.bn}x{spec.bk} does not divide over {spec.threads} threads that copy it"
    held = sum(loads.items for loads in (pixels, weights) if loads.is_held)
    if held > _HELD_CHUNKS or max(pixels.row_items, weights.row_items) > _ROW_ITEMS:
        return f"tile {spec.bm}x{spec.bn}x{spec.bk} needs more registers than a thread has"
    return None


def _registers(spec: MmaSpec, problem: ConvProblem) -> int:
    """Of a thread, for places of pixels and for what passes through."""
    pixels = x_loads(problem, spec.bm, spec.bk, spec.threads)
    weights = weight_loads(problem, spec.bn, spec.bk, spec.threads)
    assert pixels is not None and weights is not None, "registers are asked for of legal specs"
    held = sum(8 * loads.items for loads in (pixels, weights) if loads.is_held)
    return pixels.row_items * (2 + len(padded_dims(problem))) + held


def _spec_reason(spec: MmaSpec, problem: ConvProblem, arch: GpuArch) -> str | None:
    return spec_reason(spec, as_product(problem), arch) or load_reason(spec, problem)


def _legal_specs(problem: ConvProblem, arch: GpuArch, fixed: bool) -> Iterator[MmaSpec]:
    for spec in legal_specs(as_product(problem), arch, fixed):
        if load_reason(spec, problem) is None:
            yield spec


_CHUNK_CYCLES = {16: 3.0, 8: 5.0, 4: 9.0, SINGLE_BYTES: 12.0}
"""Of a multiprocessor for a chunk of each lane of a warp, by bytes of a copy."""
_LINE_BYTES = 128
_CYCLES_PER_US = 1700.0


def _load_us(spec: MmaSpec, problem: ConvProblem) -> float:
    """What it takes to bring a K tile, beside what copies of rows take."""
    pixels = x_loads(problem, spec.bm, spec.bk, spec.threads)
    weights = weight_loads(problem, spec.bn, spec.bk, spec.threads)
    assert pixels is not None and weights is not None, "costs are asked for of legal specs"
    size, order = problem.element_bytes, k_order(problem)
    pixel = problem.strides[-1] * abs(problem.x_strides[-1])
    step = pixel if pixels.down else order.chunk
    cycles = pixels.rows * _CHUNK_CYCLES[pixels.width] * _lines(pixels.width, step * size)
    apart = order.chunk * abs(order.run.weight_step)
    cycles += weights.rows * _CHUNK_CYCLES[weights.width] * _lines(weights.width, apart * size)
    return cycles * pixels.chunks / 32 / _CYCLES_PER_US


def _lines(width: int, step: int) -> float:
    """How many times as long a load of a warp takes whose lanes read single elements `step` bytes apart."""
    return 1.0 if width > 4 else max(1.0, min(32.0, 32 * step / _LINE_BYTES) / 4)


@functools.lru_cache(maxsize=4096)
def ranked_specs(problem: ConvProblem, arch: GpuArch, fixed: bool) -> tuple[tuple[float, MmaSpec], ...]:
    """All legal specs with their predicted microseconds, the cheapest first."""
    product = as_product(problem)
    elements = problem.batch * problem.groups * problem.channels * prod(problem.sizes)
    touched = elements + product.batches * (product.m + product.k) * product.n
    found = [
        (predicted_us(spec, product, arch, touched, _load_us(spec, problem)), spec)
        for spec in _legal_specs(problem, arch, fixed)
    ]
    return tuple(sorted(found, key=lambda entry: (entry[0], entry[1].shared_bytes(product))))


# The kernels


class ConvMmaKernel(CudaKernel[MmaSpec]):
    """Convolutions of f16 or bf16 of any strides with any epilogue, accumulated in f32 by tensor cores."""

    id = "cuda.conv_mma"
    library = "mma"
    simplicity = 3
    kinds = frozenset({"conv"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if (reason := self.dtype_reason(work) or conv_reason(work) or _results_reason(work)) is not None:
            return reason
        problem, arch = problem_of_work(work), arch_named(target.arch.data)
        if problem.groups > _MOST_GROUPS:
            return f"{problem.groups} groups are more than a grid has room for"
        if (reason := reach_reason(problem)) is not None:
            return reason
        if not ranked_specs(problem, arch, work.batch_invariant):
            return _spec_reason(MmaSpec(16, 32, 4 * k_order(problem).chunk, 1, 1, 2, 2), problem, arch)
        return None

    def dtype_reason(self, work: Workload) -> str | None:
        """Why operands of this type are not convolved, None if they are."""
        dtype = work.operands[0].dtype
        return (
            None if dtype in ("f16", "bf16") else f"tensor cores multiply f16 and bf16 here, it is of {dtype}"
        )

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[dict[str, Attribute]]:
        """See `Kernel`: the records of all specs."""
        return [self.record_of(work, target, spec) for _, spec in self._ranked(work, target)]

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return self._ranked(work, target)[0][0]

    def schedule(self, work: Workload, target: TargetAttr) -> MmaSpec:
        """See `Kernel`: the spec that the prior prefers."""
        return self._ranked(work, target)[0][1]

    def read(self, work: Workload, record: Record, target: TargetAttr) -> MmaSpec:
        return spec_of(record)

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: MmaSpec) -> str | None:
        return _spec_reason(schedule, problem_of_work(work), arch_named(target.arch.data))

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: a warp has all terms of its elements, and no tile changes that."""
        spec = self._ranked(work, target)[0][1]
        return _order_text(spec, problem_of_work(work))

    def _ranked(self, work: Workload, target: TargetAttr) -> Sequence[tuple[float, MmaSpec]]:
        return ranked_specs(problem_of_work(work), arch_named(target.arch.data), work.batch_invariant)

    def record_of(self, work: Workload, target: TargetAttr, schedule: MmaSpec) -> dict[str, Attribute]:
        problem, arch = problem_of_work(work), arch_named(target.arch.data)
        product = as_product(problem)
        blocks = blocks_per_sm(schedule, product, arch, _registers(schedule, problem))
        entries = {
            **spec_record(schedule, product, arch),
            "blocks_per_sm": integer(blocks),
            "combination_order": StringAttr(_order_text(schedule, problem)),
            **work.attrs,
            "rounding": StringAttr(work.rounding),
            "may_alias": may_alias(work, problem),
            **start_entries(arch, early_b(work)),
        }
        if _packs(work):
            weight = work.operands[WEIGHT]
            layouts: list[Attribute] = [UnitAttr() for _ in work.operands]
            layouts[WEIGHT] = window_layout(weight.shape, weight.dtype)
            entries["layouts"] = ArrayAttr(layouts)
        return entries

    def prepare(self, work: Workload, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `Kernel`: the record of `cuda.pack_windows`."""
        return window_pack_record(work.operands[operand], target)


class ConvMmaTf32Kernel(ConvMmaKernel):
    """Convolutions of f32 with any epilogue, of operands rounded to TF32 and accumulated in f32 by tensor cores."""

    id = "cuda.conv_mma_tf32"

    def dtype_reason(self, work: Workload) -> str | None:
        return tf32_reason(work)


def _results_reason(work: Workload) -> str | None:
    """Why results or what the epilogue reads have no code here."""
    if len(work.results) != 1:
        return "it has one result"
    others = [*work.operands[FIRST_EXTRA:], *work.results]
    if any(operand.dtype not in FLOATS for operand in others):
        return f"what follows reads and gives {', '.join(FLOATS)}"
    return None


def _order_text(spec: MmaSpec, problem: ConvProblem) -> str:
    """How the sums of one element are combined, for the record."""
    run = "channels" if k_order(problem).run.dim is None else "elements of a row"
    return f"{combination_order(spec, as_product(problem))}, {run} innermost"


KERNELS = (ConvMmaKernel(), ConvMmaTf32Kernel())
"""The kernels of this family."""
