"""The kernel that packs weights of convolutions and products, and their layouts. No code generator is imported here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from xdsl.dialects.builtin import ArrayAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute

from aicf.backends.common.copy import copy_nest
from aicf.backends.common.loop_nest import LoopNest, Strided
from aicf.backends.common.record import Record, illegal, integer, read_integer
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.families.gemm.packing import PRODUCT_WEIGHT, k_innermost
from aicf.backends.cuda.families.gemm.problem import Strided as Operand
from aicf.backends.cuda.families.loops.choice import choose
from aicf.backends.cuda.families.loops.costs import cost_us
from aicf.backends.cuda.families.loops.kernel import read_spec, spec_record
from aicf.backends.cuda.families.loops.schedule import GeneratedSpec
from aicf.backends.cuda.families.records import CudaKernel, start_entries
from aicf.backends.cuda.target import ELEMENT_BYTES, GpuArch, arch_named
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr

WINDOW_WEIGHT = "window_weight"
"""Layout of a weight [M, C, K1..Kk]: ``[M][K1]..[Kk][C]``, channels innermost."""
DEPTHWISE_WEIGHT = "depthwise_weight"
"""Another: ``[K1]..[Kk][C][M]``, outputs innermost."""


def channels_innermost(shape: Sequence[int]) -> tuple[int, ...]:
    """Element strides of a weight in the first layout."""
    taps = shape[2:]
    return (prod(shape[1:]), 1, *(shape[1] * prod(taps[dim + 1 :]) for dim in range(len(taps))))


def outputs_innermost(shape: Sequence[int]) -> tuple[int, ...]:
    """Element strides of a weight in the second layout."""
    outputs, channels, *taps = shape
    return (1, outputs, *(outputs * channels * prod(taps[dim + 1 :]) for dim in range(len(taps))))


_STRIDES: Mapping[str, Callable[[Sequence[int]], tuple[int, ...]]] = {
    WINDOW_WEIGHT: channels_innermost,
    DEPTHWISE_WEIGHT: outputs_innermost,
    PRODUCT_WEIGHT: k_innermost,
}


def weight_layout(shape: Sequence[int], dtype: str, name: str = WINDOW_WEIGHT) -> LayoutAttr:
    """A layout of a weight of this shape."""
    elements = max(size * step for size, step in zip(shape, _STRIDES[name](shape), strict=True))
    return LayoutAttr(name, {"bytes": integer(elements * ELEMENT_BYTES[dtype])})


def packed(weight: Operand, name: str = WINDOW_WEIGHT) -> Operand:
    """The weight as it lies packed, at the start of a buffer."""
    return Operand(weight.shape, _STRIDES[name](weight.shape), weight.dtype, 16)


def weight_layouts(work: Workload, weight: int, name: str) -> ArrayAttr[Attribute]:
    """The entry `layouts` of a record whose kernel wants operand `weight` packed."""
    operand = work.operands[weight]
    layout = weight_layout(operand.shape, operand.dtype, name)
    return ArrayAttr([layout if index == weight else UnitAttr() for index in range(len(work.operands))])


class WindowPackKernel(CudaKernel[GeneratedSpec]):
    """Moves the channels or the outputs of a convolution's weight innermost, or K of a product's; only ever asked for
    through `Kernel.prepare`."""

    id = "cuda.pack_windows"
    kinds = frozenset({"pack"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: a layout of this kernel's, for the weight as it is."""
        layout, weight = work.results[0].layout, work.operands[0]
        if layout is None or layout.layout.data not in _STRIDES:
            return "weights are packed where a kernel asks for it, in @prepare"
        expected = weight_layout(weight.shape, weight.dtype, layout.layout.data)
        if layout == expected:
            return None
        stated, wanted = (read_integer(each.parameters_.data, "bytes") for each in (layout, expected))
        return f"its layout's {illegal('bytes', stated, wanted)}"

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: run once."""
        return cost_us(_nest_of(work), self.schedule(work, target), arch_named(target.arch.data))

    def schedule(self, work: Workload, target: TargetAttr) -> GeneratedSpec:
        """See `Kernel`: the loops of a copy."""
        return _schedule(_nest_of(work), work.operands[0], arch_named(target.arch.data))

    def record_of(self, work: Workload, target: TargetAttr, schedule: GeneratedSpec) -> dict[str, Attribute]:
        return _entries(_nest_of(work), schedule, arch_named(target.arch.data))

    def read(self, work: Workload, record: Record, target: TargetAttr) -> GeneratedSpec:
        return read_spec(record)


def pack_nest(source: Strided, name: str) -> LoopNest:
    """The loops that pack a weight into the layout `name`."""
    return copy_nest(source, packed_target(source, name))


def packed_target(source: Strided, name: str) -> Strided:
    """The weight `source` as it lies in the layout `name`."""
    return Strided(source.shape, _STRIDES[name](source.shape), source.dtype)


def _nest_of(work: Workload) -> LoopNest:
    layout = work.results[0].layout
    assert layout is not None, "the work has a layout if it is legal"
    return _nest(work.operands[0], layout.layout.data)


def _nest(weight: OperandInfo, name: str) -> LoopNest:
    return pack_nest(Strided(weight.shape, weight.strides, weight.dtype), name)


def _schedule(nest: LoopNest, weight: OperandInfo, arch: GpuArch) -> GeneratedSpec:
    return choose(nest, [weight.offset, 0], arch)


def _entries(nest: LoopNest, spec: GeneratedSpec, arch: GpuArch) -> dict[str, Attribute]:
    return {
        **spec_record(nest, spec),
        "rounding": StringAttr("fused"),
        **start_entries(arch),
    }


def weight_pack_record(weight: OperandInfo, target: TargetAttr, name: str = WINDOW_WEIGHT) -> KernelAttr:
    """The record of `cuda.pack_windows` for a weight and a layout."""
    arch, nest = arch_named(target.arch.data), _nest(weight, name)
    own = {
        "version": integer(WindowPackKernel.version),
        "determinism": StringAttr(WindowPackKernel.determinism),
    }
    return KernelAttr(WindowPackKernel.id, own | _entries(nest, _schedule(nest, weight, arch), arch))


KERNELS = (WindowPackKernel(),)
"""The kernel of this family."""
