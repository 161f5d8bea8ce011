"""Descriptors of the CPU kernels that compute a convolution as one instruction. No code generator is imported here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import get_args

from xdsl.dialects.builtin import AnyFloat, ArrayAttr, IntegerType, StringAttr, UnitAttr
from xdsl.ir import Attribute

from aicf.backends.common.loop_nest import index_ops, sums_type
from aicf.backends.common.record import Record, integer, read_integer, read_text
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.families.conv.candidates import ConvQuery, ranked
from aicf.backends.cpu.families.conv.checks import tiled, winograd_reason
from aicf.backends.cpu.families.conv.costs import EpilogueCycles, epilogue_cycles
from aicf.backends.cpu.families.conv.pack.kernel import QUADS_WEIGHT, quads_layout, quads_pack_record
from aicf.backends.cpu.families.conv.problem import ConvProblem, pixel_accesses, read_conv, result_sizes
from aicf.backends.cpu.families.conv.record import conv_record, read_conv_spec
from aicf.backends.cpu.families.conv.schedule import Algorithm, ConvSpec
from aicf.backends.cpu.families.conv.winograd.matrices import OUTPUT_TILES
from aicf.backends.cpu.families.conv.winograd.pack.kernel import (
    WINOGRAD_WEIGHT,
    winograd_layout,
    winograd_pack_record,
)
from aicf.backends.cpu.families.conv.winograd.schedule import least_memory_reason
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.families.gemm.pack.kernel import PACKED_B, pack_record
from aicf.backends.cpu.families.gemm.pack.schedule import packed_bytes
from aicf.backends.cpu.families.gemm.problem import contiguous
from aicf.backends.cpu.families.legality import (
    code_reason,
    level_reason,
    may_alias,
    strided,
    threads_of,
    threads_reason,
    variant_of,
)
from aicf.backends.cpu.families.loops.schedule import point_cycles
from aicf.backends.cpu.families.records import rounding_record
from aicf.backends.cpu.target import FLOATS, HALVES, SHORT_INTEGERS
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr


@dataclass(frozen=True)
class ConvKernel(CpuKernel[ConvSpec]):
    """Register tiles over pixels where they lie, with the pointwise ops after the convolution on the sums.

    Version 6 multiplies quads of 8-bit channels, and knows what lies around an input of short integers.
    """

    library = "native"
    algorithms = get_args(Algorithm)

    id: str
    level: str
    """The lowest level that has its instructions; the portable variant runs anywhere."""
    simplicity: int
    version: int = 6
    kinds: frozenset[str] = frozenset({"conv"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        return _conv_reason(work) or level_reason(target, self.level)

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return self._ranked(work, target)[0][0]

    def schedule(self, work: Workload, target: TargetAttr) -> ConvSpec:
        return self._ranked(work, target)[0][1]

    def read(self, work: Workload, record: Record, target: TargetAttr) -> ConvSpec:
        return read_conv_spec(record, _problem(work), variant_of(target, self.level))

    def schedule_reason(self, work: Workload, target: TargetAttr, schedule: ConvSpec) -> str | None:
        return threads_reason(schedule.threads, target)

    def record_of(self, work: Workload, target: TargetAttr, schedule: ConvSpec) -> dict[str, Attribute]:
        entries = {**conv_record(schedule), **work.attrs}
        if schedule.prepared:
            entries["layouts"] = _layouts(work, schedule)
        if work.code is not None:
            entries |= rounding_record(work.code, work.rounding)
            dtypes = [work.results[0].dtype, *(operand.dtype for operand in work.operands[2:])]
            entries["may_alias"] = may_alias(work.code, dtypes, [r.dtype for r in work.results], 1)
        return entries

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[dict[str, Attribute]]:
        """See `Kernel`: algorithms, tiles that are transformed and numbers of threads, as they are predicted."""
        return [self.record_of(work, target, spec) for _, spec in self._ranked(work, target)]

    def other_algorithms(
        self, work: Workload, record: Mapping[str, Attribute], target: TargetAttr
    ) -> dict[str, str]:
        """See `Kernel`: predicted times, and why tiles may not be transformed that could be."""
        found = self._ranked(work, target)
        taken = _algorithm(read_text(record, "algorithm"), read_integer(record, "output_tile"))
        times: dict[str, float] = {}
        for us, spec in found:
            times.setdefault(_algorithm(spec.algorithm, spec.output_tile), us)
        own = times.pop(taken)
        # A policy or a measurement may have taken what is not predicted to be fastest.
        notes = {name: f", not {own:.3g}" if us >= own else "" for name, us in times.items()}
        reasons = {name: f"predicted {us:.3g} us{notes[name]}" for name, us in times.items()}
        problem = _problem(work)
        if winograd_reason(problem) is not None:
            return reasons
        if (refused := _transforms_reason(work)) is not None:
            return {**reasons, "winograd": refused}
        level = variant_of(target, self.level)
        large = {
            _algorithm("winograd", tile): least_memory_reason(tiled(problem), level, tile)
            for tile in OUTPUT_TILES
        }
        return reasons | {name: reason for name, reason in large.items() if reason is not None}

    def prepare(self, work: Workload, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `Kernel`: the record of `cpu.pack`, `cpu.pack_quads` or `cpu.pack_winograd`."""
        level = variant_of(target, self.level)
        if layout.layout.data == QUADS_WEIGHT:
            return quads_pack_record(layout)
        if layout.layout.data == WINOGRAD_WEIGHT:
            return winograd_pack_record(layout, level)
        return pack_record(layout, level.lanes(work.operands[operand].dtype))

    def fixed_order(self, work: Workload, target: TargetAttr) -> str:
        """See `Kernel`: one sum for each element, whatever the batch."""
        return self._ranked(work, target)[0][1].combination_order

    def _ranked(self, work: Workload, target: TargetAttr) -> Sequence[tuple[float, ConvSpec]]:
        problem, weight = _problem(work), work.operands[1]
        level = variant_of(target, self.level)
        epilogue = _epilogue(work, level.lanes(problem.dtype))
        transforms = _transforms_reason(work) is None
        query = ConvQuery(problem, level, threads_of(target), weight.is_weight, epilogue, transforms)
        return ranked(query)


def _algorithm(name: str, tile: int) -> str:
    return f"{name} {tile}x{tile}" if tile else name


def _transforms_reason(work: Workload) -> str | None:
    """Why sums may not be those of transformed numbers."""
    if not work.operands[1].is_weight:
        return "its weight is no parameter that stays as it is: it would be transformed at each run"
    if work.rounding != "fused":
        return "the policy wants strict rounding, and sums of transformed numbers round otherwise"
    if work.batch_invariant:
        return "which tile is faster depends on the batch, and so would the bits of the result"
    return None


def _problem(work: Workload) -> ConvProblem:
    x, weight = (strided(operand) for operand in work.operands[:2])
    sizes = result_sizes(work.code, [strided(result) for result in work.results])
    assert sizes is not None, "the problem is asked of what reads every sum once"
    return read_conv(work.attrs, x, weight, sizes)


def _epilogue(work: Workload, lanes: int) -> EpilogueCycles:
    extras, outs = ([strided(one) for one in many] for many in (work.operands[2:], work.results))
    accesses = pixel_accesses(work.code, extras, outs)
    assert accesses is not None, "cost is asked of legal work"
    return epilogue_cycles(0.0 if work.code is None else point_cycles(work.code), accesses, lanes)


def _conv_reason(work: Workload) -> str | None:
    x, weight = work.operands[:2]
    if (reason := _types_reason(work)) is not None:
        return reason
    if len(x.shape) > 4:
        return "it convolves along one or two dimensions"
    if weight.strides != contiguous(weight.shape):
        return "its weight does not lie in one piece"
    if len(work.results) != 1:
        return "it has one result"
    if work.code is None:
        return "what follows the convolution has no generated code"
    if work.code.reduce_sizes or len(work.code.phases) != 1:
        return "a reduction follows the convolution"
    if index_ops(work.code) or any(
        not isinstance(type_, AnyFloat | IntegerType) for type_ in _arguments(work.code)
    ):
        return "what follows the convolution reads at computed indices"
    if (reason := code_reason(work.code)) is not None:
        return reason
    extras, outs = ([strided(one) for one in many] for many in (work.operands[2:], work.results))
    if result_sizes(work.code, outs) is None:
        return "what follows the convolution repeats its result, or reads a part of it"
    if x.dtype in HALVES and _problem(work).is_pointwise:
        return f"with windows of one element it is a product, whose kernels read {x.dtype} without a copy"
    if pixel_accesses(work.code, extras, outs) is None:
        return "the pixels of a channel of its result, or of what its epilogue reads, are not one run"
    return None


def _types_reason(work: Workload) -> str | None:
    """Why the kernel does not convolve elements of these types."""
    x = work.operands[0]
    if x.dtype in SHORT_INTEGERS:
        is_wide = sums_type(work.code, [work.results[0].dtype]) == "i32"
        return None if is_wide else "its short integers are to wrap around in their own type"
    if x.dtype not in FLOATS:
        return f"it convolves {', '.join(FLOATS)} and short integers into i32, not {x.dtype}"
    return None if work.results[0].dtype == x.dtype else "its result is not of the type of its operand"


def _arguments(code: KernelOp) -> Sequence[Attribute]:
    return [argument.type for argument in code.body.block.args]


def _layouts(work: Workload, spec: ConvSpec) -> Attribute:
    """The weight in panels: windows transformed, or a matrix of outputs by all products of an element."""
    if spec.winograd is not None:
        layout = winograd_layout(spec.winograd)
    else:
        layout = quads_layout(spec) if spec.problem.quads else _panels(spec)
    return ArrayAttr([layout if index == 1 else UnitAttr() for index in range(len(work.operands))])


def _panels(spec: ConvSpec) -> LayoutAttr:
    p = spec.problem
    entries: dict[str, Attribute] = {
        "bytes": integer(packed_bytes(p.dtype, p.steps, spec.weight_columns, spec.nr)),
        "k_dim": integer(1),
        "nr": integer(spec.nr),
    }
    if p.pairs:
        entries["pairs"] = integer(prod(p.taps))
        entries |= {} if p.weight_element == "i16" else {"element": StringAttr("i16")}
    elif p.widens:
        entries["element"] = StringAttr(p.dtype)
    return LayoutAttr(PACKED_B, entries)


KERNELS = (
    ConvKernel("cpu.conv_avx512", "x86-64-v4", 4),
    ConvKernel("cpu.conv_avx2", "x86-64-v3", 3),
    ConvKernel("cpu.conv_portable", "generic", 2),
)
"""A kernel for each level of the processor."""
