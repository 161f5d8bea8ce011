"""The kernel that packs weights of convolutions, and their layout. No code generator is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.copy import copy_nest
from aicf.backends.common.loop_nest import LoopNest, Strided
from aicf.backends.common.record import Record, illegal, integer, read_integer
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.families.gemm.problem import Strided as Operand
from aicf.backends.cuda.families.loops.costs import cost_us
from aicf.backends.cuda.families.loops.kernel import read_spec, spec_record
from aicf.backends.cuda.families.loops.schedule import GeneratedSpec, choose
from aicf.backends.cuda.families.records import CudaKernel, start_entries
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch, arch_named
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr

WINDOW_WEIGHT = "window_weight"
"""Layout of a weight [M, C, K1..Kk]: ``[M][K1]..[Kk][C]``, channels innermost."""


def channels_innermost(shape: Sequence[int]) -> tuple[int, ...]:
    """Element strides of a weight in this layout."""
    taps = shape[2:]
    return (prod(shape[1:]), 1, *(shape[1] * prod(taps[dim + 1 :]) for dim in range(len(taps))))


def window_layout(shape: Sequence[int], dtype: str) -> LayoutAttr:
    """The layout of a weight of this shape."""
    return LayoutAttr(WINDOW_WEIGHT, {"bytes": integer(prod(shape) * ELEMENT_BYTES[dtype])})


def packed(weight: Operand) -> Operand:
    """The weight as it lies packed, at the start of a buffer."""
    return Operand(weight.shape, channels_innermost(weight.shape), weight.dtype, 16)


class WindowPackKernel(CudaKernel[GeneratedSpec]):
    """Moves the channels of a weight innermost; only ever asked for through `Kernel.prepare`."""

    id = "cuda.pack_windows"
    kinds = frozenset({"pack"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: a layout of this kernel's, for the weight as it is."""
        layout, weight = work.results[0].layout, work.operands[0]
        if layout is None or layout.layout.data != WINDOW_WEIGHT:
            return "weights are packed where a convolution asks for it, in @prepare"
        expected = window_layout(weight.shape, weight.dtype)
        if layout == expected:
            return None
        stated, wanted = (read_integer(each.parameters_.data, "bytes") for each in (layout, expected))
        return f"its layout's {illegal('bytes', stated, wanted)}"

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: run once."""
        return cost_us(_nest(work.operands[0]), self.schedule(work, target), arch_named(target.arch.data))

    def schedule(self, work: Workload, target: TargetAttr) -> GeneratedSpec:
        """See `Kernel`: the loops of a copy."""
        return _schedule(work.operands[0], arch_named(target.arch.data))

    def record_of(self, work: Workload, target: TargetAttr, schedule: GeneratedSpec) -> dict[str, Attribute]:
        return _entries(work.operands[0], schedule, arch_named(target.arch.data))

    def read(self, work: Workload, record: Record, target: TargetAttr) -> GeneratedSpec:
        return read_spec(record)


def pack_nest(source: Strided) -> LoopNest:
    """The loops that pack a weight."""
    return copy_nest(source, Strided(source.shape, channels_innermost(source.shape), source.dtype))


def _nest(weight: OperandInfo) -> LoopNest:
    return pack_nest(Strided(weight.shape, weight.strides, weight.dtype))


def _schedule(weight: OperandInfo, arch: GpuArch) -> GeneratedSpec:
    return choose(_nest(weight), [weight.offset, 0], arch)


def _entries(weight: OperandInfo, spec: GeneratedSpec, arch: GpuArch) -> dict[str, Attribute]:
    return {
        **spec_record(_nest(weight), spec),
        "rounding": StringAttr("fused"),
        **start_entries(arch),
    }


def window_pack_record(weight: OperandInfo, target: TargetAttr) -> KernelAttr:
    """The record of `cuda.pack_windows` for a weight."""
    arch = arch_named(target.arch.data)
    own = {
        "version": integer(WindowPackKernel.version),
        "determinism": StringAttr(WindowPackKernel.determinism),
    }
    return KernelAttr(WindowPackKernel.id, own | _entries(weight, _schedule(weight, arch), arch))


KERNELS = (WindowPackKernel(),)
"""The kernel of this family."""
