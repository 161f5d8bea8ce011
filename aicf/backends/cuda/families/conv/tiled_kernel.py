"""The descriptor of a convolution that is made tile by tile, without windows in memory: what `cuda.conv_mma` and
`cuda.conv_simt` have in common.

What a family decides, and most of what it costs, is what its kernel of products decides of the same product. No code
generator is imported here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TypeVar

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.conv.pack.kernel import (
    WINDOW_WEIGHT,
    weight_layouts,
    weight_pack_record,
)
from aicf.backends.cuda.families.conv.problem import (
    WEIGHT,
    ConvProblem,
    conv_of_work,
    conv_reason,
    may_alias,
    windows_of,
)
from aicf.backends.cuda.families.conv.windows import TileLoads, k_order, padded_dims, reach_reason
from aicf.backends.cuda.families.gemm.problem import GemmProblem, early_b
from aicf.backends.cuda.families.gemm.tiled_kernel import TileSpec
from aicf.backends.cuda.families.records import CudaKernel, start_entries
from aicf.backends.cuda.target import GpuArch, arch_named
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr

_HELD_CHUNKS = 6
"""Chunks of a thread that may pass through registers in one stage."""
_ROW_ITEMS = 16
"""Pixels of a thread, or outputs, each with a place that it keeps."""
_MOST_GROUPS = 65535
"""Of a grid."""

Spec = TypeVar("Spec", bound=TileSpec)

# The problem


def as_product(problem: ConvProblem) -> GemmProblem:
    """The product, K with the empty elements of its chunks. A group of channels starts where the one before ends."""
    product = problem.product(k_order(problem).k)
    if problem.groups == 1:
        return product
    outputs = problem.outputs * problem.weight_strides[0]
    return replace(product, a_batch=(problem.channels * problem.x_strides[1],), b_batch=(outputs,))


def touched(problem: ConvProblem) -> float:
    """Elements of operand, weight and result, each once; the sums of integers count as four."""
    product = as_product(problem)
    elements = problem.batch * problem.groups * problem.channels * prod(problem.sizes)
    rows = product.m * (4 if problem.widens else 1)
    return float(elements + product.batches * (rows + product.k) * product.n)


def problem_of_work(work: Workload) -> ConvProblem:
    """The convolution, with its weight as it lies when the kernel runs."""
    return conv_of_work(work, WINDOW_WEIGHT if _packs(work) else None)


def _packs(work: Workload) -> bool:
    """Whether the weight is packed ahead: it is a parameter that stays, and has other elements between its channels."""
    weight = work.operands[WEIGHT]
    if weight.layout is not None:
        return True
    if not weight.is_weight or weight.shape[1] == 1 or weight.strides[1] == 1:
        return False
    return k_order(conv_of_work(work)).run.dim is None


# Loads


def load_reason(spec: TileSpec, loads: TileLoads | None) -> str | None:
    """Why the threads of a block cannot bring its tiles, None if they can."""
    tile = f"{spec.bm}x{spec.bn}x{spec.bk}"
    if loads is None:
        return f"tile {tile} does not divide over {spec.threads} threads that copy it"
    if loads.held > _HELD_CHUNKS or max(loads.x.row_items, loads.weight.row_items) > _ROW_ITEMS:
        return f"tile {tile} needs more registers than a thread has"
    return None


def load_registers(problem: ConvProblem, loads: TileLoads) -> int:
    """Of a thread, for places of pixels and for what passes through."""
    return loads.x.row_items * (2 + len(padded_dims(problem))) + 8 * loads.held


_CHUNK_CYCLES = {16: 3.0, 8: 5.0, 4: 9.0, 2: 12.0, 1: 24.0}
"""Of a multiprocessor for a chunk of each lane of a warp, by bytes of a copy."""
_LINE_BYTES = 128
_CYCLES_PER_US = 1700.0


def load_us(problem: ConvProblem, loads: TileLoads) -> float:
    """What it takes a multiprocessor to bring a K tile, beside what copies of rows take."""
    size, order = problem.element_bytes, k_order(problem)
    pixel = problem.strides[-1] * abs(problem.x_strides[-1])
    step = pixel if loads.x.down else order.chunk
    cycles = loads.x.rows * _CHUNK_CYCLES[loads.x.width] * _lines(loads.x.width, step * size)
    apart = order.chunk * abs(order.run.weight_step)
    cycles += loads.weight.rows * _CHUNK_CYCLES[loads.weight.width] * _lines(loads.weight.width, apart * size)
    return cycles * loads.x.chunks / 32 / _CYCLES_PER_US


def _lines(width: int, step: int) -> float:
    """How many times as long a load of a warp takes whose lanes read single elements `step` bytes apart."""
    return 1.0 if width > 4 else max(1.0, min(32.0, 32 * step / _LINE_BYTES) / 4)


# The kernels


class TiledConvKernel(CudaKernel[Spec]):
    """A kernel whose variants are specs."""

    kinds = frozenset({"conv"})
    widens = False
    """Whether it adds products of 8-bit integers in i32, with any integer around the operand."""

    # What a family adds

    @abstractmethod
    def dtype_reason(self, work: Workload) -> str | None:
        """Why operands of this type are not convolved as the work asks, None if they are."""

    @abstractmethod
    def ranked(self, problem: ConvProblem, arch: GpuArch, fixed: bool) -> Sequence[tuple[float, Spec]]:
        """All specs worth measuring with their predicted microseconds, the cheapest first; if `fixed` only those that
        sum in one order, whatever the number of pixels."""

    @abstractmethod
    def reason(self, spec: Spec, problem: ConvProblem, arch: GpuArch) -> str | None:
        """Why a spec cannot run a problem, None if it can."""

    @abstractmethod
    def smallest(self, problem: ConvProblem) -> Spec:
        """The spec that asks for least: its reason is given where there is none."""

    @abstractmethod
    def order(self, spec: Spec, problem: ConvProblem) -> str:
        """How the sums of one element are combined."""

    @abstractmethod
    def entries(self, spec: Spec, problem: ConvProblem, arch: GpuArch) -> dict[str, Attribute]:
        """What a record says about a spec: its numbers first, then the launches that follow from them."""

    # What follows

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        if (reason := self.dtype_reason(work) or conv_reason(work, self.widens)) is not None:
            return reason
        if len(work.results) != 1:
            return "it has one result"
        problem, arch = problem_of_work(work), arch_named(target.arch.data)
        if problem.channels == 1 and problem.groups > 1:
            return "it has one channel a group: tiles would hold next to nothing else"
        if problem.groups > _MOST_GROUPS:
            return f"{problem.groups} groups are more than a grid has room for"
        if (reason := reach_reason(problem)) is not None:
            return reason
        if not self.ranked(problem, arch, work.batch_invariant):
            return self.reason(self.smallest(problem), problem, arch) or "no tile fits"
        return None

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[dict[str, Attribute]]:
        """See `Kernel`: the records of all specs."""
        return [self.record_of(work, target, spec) for _, spec in self._ranked(work, target)]

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return self._ranked(work, target)[0][0]

    def schedule(self, work: Workload, target: TargetAttr) -> Spec:
        """See `Kernel`: the spec that the prior prefers."""
        return self._ranked(work, target)[0][1]

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: Spec) -> str | None:
        return self.reason(schedule, problem_of_work(work), arch_named(target.arch.data))

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: a warp or thread has all terms of its elements, and no tile changes that."""
        return self.order_text(self._ranked(work, target)[0][1], problem_of_work(work))

    def record_of(self, work: Workload, target: TargetAttr, schedule: Spec) -> dict[str, Attribute]:
        problem, arch = problem_of_work(work), arch_named(target.arch.data)
        entries = {
            **self.entries(schedule, problem, arch),
            "combination_order": StringAttr(self.order_text(schedule, problem)),
            **(work.attrs if self.widens else windows_of(work)),
            "rounding": StringAttr(work.rounding),
            "may_alias": may_alias(work, problem),
            **start_entries(arch, early_b(work)),
        }
        if _packs(work):
            entries["layouts"] = weight_layouts(work, WEIGHT, WINDOW_WEIGHT)
        return entries

    def prepare(self, work: Workload, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `Kernel`: the record of `cuda.pack_windows`."""
        return weight_pack_record(work.operands[operand], target)

    def _ranked(self, work: Workload, target: TargetAttr) -> Sequence[tuple[float, Spec]]:
        return self.ranked(problem_of_work(work), arch_named(target.arch.data), work.batch_invariant)

    def order_text(self, spec: Spec, problem: ConvProblem) -> str:
        """How the sums of one element are combined, for the record."""
        run = "channels" if k_order(problem).run.dim is None else "elements of a row"
        return f"{self.order(spec, problem)}, {run} innermost"
