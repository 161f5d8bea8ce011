"""Descriptors of the CPU kernels that compute a convolution as one instruction. No code generator is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import AnyFloat, ArrayAttr, DictionaryAttr, IntegerType, StringAttr, UnitAttr
from xdsl.ir import Attribute

from aicf.backends.base import Work
from aicf.backends.cpu.conv_spec import ConvProblem, ConvSpec, choose, conv_record
from aicf.backends.cpu.conv_work import pixel_accesses, read_conv
from aicf.backends.cpu.gemm_kernels import PACKED_B, PackKernel
from aicf.backends.cpu.gemm_work import contiguous
from aicf.backends.cpu.legality import (
    DETERMINISM,
    VERSION,
    code_reason,
    level_reason,
    may_alias,
    strided,
    threads_of,
    variant_of,
)
from aicf.backends.cpu.loop_spec import point_cycles
from aicf.backends.cpu.pack_spec import packed_bytes
from aicf.backends.cpu.records import gemm_record, integer, rounding_record
from aicf.backends.nests import index_ops
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr


@dataclass(frozen=True)
class ConvKernel:
    """Register tiles over pixels where they lie, with the pointwise ops behind the convolution on the sums."""

    id: str
    level: str
    """The lowest level that has its instructions; the portable variant runs anywhere."""
    simplicity: int
    version: int = VERSION
    determinism: str = DETERMINISM
    kinds: frozenset[str] = frozenset({"conv"})

    def legal(self, work: Work, target: TargetAttr) -> str | None:
        """See `KernelDescriptor`."""
        return _conv_reason(work) or level_reason(target, self.level)

    def cost_us(self, work: Work, target: TargetAttr) -> float:
        """See `KernelDescriptor`."""
        return self._choose(work, target)[0]

    def record(self, work: Work, target: TargetAttr) -> dict[str, Attribute]:
        """See `KernelDescriptor`."""
        spec = self._choose(work, target)[1]
        entries = {**conv_record(spec), **work.attrs}
        if spec.product is not None:
            entries["product"] = DictionaryAttr(gemm_record(spec.product))
        if spec.prepared:
            entries["layouts"] = _layouts(work, spec)
        if work.code is not None:
            entries |= rounding_record(work.code, work.rounding)
            dtypes = [work.results[0].dtype, *(operand.dtype for operand in work.operands[2:])]
            entries["may_alias"] = may_alias(work.code, dtypes, [r.dtype for r in work.results], 1)
        return entries

    def prepare(self, work: Work, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `KernelDescriptor`: the record of `cpu.pack`."""
        level = variant_of(target, self.level)
        return KernelAttr(
            PackKernel.id,
            {
                "version": integer(PackKernel.version),
                "determinism": StringAttr(DETERMINISM),
                "lanes": integer(level.lanes(work.operands[operand].dtype)),
                "threads": integer(1),
                "nr": layout.parameters_.data["nr"],
                "k_dim": layout.parameters_.data["k_dim"],
            },
        )

    def fixed_order(self, work: Work, target: TargetAttr) -> str:
        """See `BatchInvariantKernel`: one sum for each element, whatever the batch."""
        return self._choose(work, target)[1].combination_order

    def _choose(self, work: Work, target: TargetAttr) -> tuple[float, ConvSpec]:
        problem, weight = _problem(work), work.operands[1]
        epilogue = 0.0 if work.code is None else point_cycles(work.code)
        is_param = weight.role == "param" and not weight.updated
        return choose(problem, variant_of(target, self.level), threads_of(target), is_param, epilogue)


def _problem(work: Work) -> ConvProblem:
    x, weight = (strided(operand) for operand in work.operands[:2])
    return read_conv(work.attrs, x, weight, strided(work.results[0]))


def _conv_reason(work: Work) -> str | None:
    x, weight, result = *work.operands[:2], work.results[0]
    if x.dtype not in ("f32", "f64"):
        return f"it convolves f32 and f64, not {x.dtype}"
    if len(x.shape) > 4:
        return "it convolves along one or two dimensions"
    if weight.strides != contiguous(weight.shape):
        return "its weight does not lie in one piece"
    if result.dtype != x.dtype or len(work.results) != 1:
        return "it has one result, of the type of its operand"
    if work.code is None:
        return "what follows the convolution has no generated code"
    if work.code.reduce_sizes or len(work.code.phases) != 1:
        return "a reduction follows the convolution"
    if index_ops(work.code) or any(
        not isinstance(type_, AnyFloat | IntegerType) for type_ in _arguments(work.code)
    ):
        return "what follows the convolution reads at computed places"
    if (reason := code_reason(work.code)) is not None:
        return reason
    extras, outs = ([strided(one) for one in many] for many in (work.operands[2:], work.results))
    if pixel_accesses(work.code, extras, outs) is None:
        return "the pixels of a channel of its result, or of what its epilogue reads, are not one run"
    return None


def _arguments(code: KernelOp) -> Sequence[Attribute]:
    return [argument.type for argument in code.body.block.args]


def _layouts(work: Work, spec: ConvSpec) -> Attribute:
    """The weight as a matrix of outputs by all products of an element, in panels."""
    entries: dict[str, Attribute] = {
        "bytes": integer(packed_bytes(spec.problem.dtype, spec.problem.inner, spec.problem.outputs, spec.nr)),
        "k_dim": integer(1),
        "nr": integer(spec.nr),
    }
    layout = LayoutAttr(PACKED_B, entries)
    return ArrayAttr([layout if place == 1 else UnitAttr() for place in range(len(work.operands))])
