"""What all descriptors of the CPU kernels ask of a piece of work. Imports no code generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Operation

from aicf.backends.base import OperandInfo, Work
from aicf.backends.cpu.records import pairs
from aicf.backends.cpu.target import ELEMENT_BYTES, LEVELS, CpuLevel, level_named
from aicf.backends.nests import Strided, is_linear, value_types
from aicf.dialects.emit_kernels import (
    CastOp,
    DivIntOp,
    IndexOp,
    KernelOp,
    LoadOp,
    ReduceOp,
    SigmoidOp,
    StoreOp,
    YieldOp,
)
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr
from aicf.errors import PlanError

VERSION = 1
DETERMINISM = "bitwise"

SCALAR_OPS: frozenset[type[Operation]] = frozenset(
    {
        arith.AddfOp, arith.SubfOp, arith.MulfOp, arith.DivfOp, arith.NegfOp, arith.MaximumfOp, arith.MinimumfOp,
        arith.AddiOp, arith.SubiOp, arith.MuliOp, arith.AndIOp, arith.OrIOp, arith.XOrIOp,
        arith.MaxSIOp, arith.MinSIOp, arith.MaxUIOp, arith.MinUIOp, arith.CmpfOp, arith.CmpiOp, arith.SelectOp,
        arith.ConstantOp, arith.ExtFOp, arith.TruncFOp, arith.SIToFPOp, arith.ExtSIOp, arith.TruncIOp,
        math.ExpOp, math.LogOp, math.SqrtOp, math.RsqrtOp, math.TanhOp, math.ErfOp, SigmoidOp, DivIntOp, CastOp,
    }
)  # fmt: skip
"""Scalar ops with code on this backend; a test compares them with the code generator's table."""

_STRUCTURE = (YieldOp, StoreOp, ReduceOp, IndexOp, LoadOp)


def strided(operand: OperandInfo) -> Strided:
    """Where an operand lies."""
    return Strided(operand.shape, operand.strides, operand.dtype)


def unsupported_dtype(work: Work) -> str | None:
    """Why an operand or result has an element type that no kernel of the backend takes."""
    for operand in (*work.operands, *work.results):
        if operand.dtype not in ELEMENT_BYTES:
            return dtype_reason(operand.dtype)
    return None


def dtype_reason(dtype: str) -> str:
    """The reason against an element type, with the way out."""
    return f"element type {dtype} is not supported on cpu, only {', '.join(ELEMENT_BYTES)}: cast to f32 first"


def code_reason(code: KernelOp) -> str | None:
    """Why the scalar program has no code here."""
    if not all(is_linear(m) for m in (*code.in_maps, *code.out_maps)):
        return "an operand is not indexed by sums of the loop dims"
    for phase in code.phases:
        for op in phase.body.block.ops:
            if type(op) not in SCALAR_OPS and not isinstance(op, _STRUCTURE):
                return f"scalar op {op.name} has no code on cpu"
    unknown = value_types(code) - set(ELEMENT_BYTES)
    return dtype_reason(sorted(unknown)[0]) if unknown else None


def threads_of(target: TargetAttr) -> int:
    """Threads that the target gives a program."""
    value = target.facts.data.get("threads")
    return value.value.data if isinstance(value, IntegerAttr) else 1


def level_of(target: TargetAttr) -> CpuLevel:
    """The instruction-set level of a target."""
    return level_named(target.arch.data)


def level_reason(target: TargetAttr, level: str) -> str | None:
    """Why code for `level` does not run on the target's."""
    own, given = LEVELS[level], level_of(target)
    if own.vector_bytes > given.vector_bytes or (own.has_fma and not given.has_fma):
        return f"needs cpu level {level} ({8 * own.vector_bytes}-bit vectors), the target is {given.name}"
    return None


def variant_of(target: TargetAttr, level: str) -> CpuLevel:
    """The target's level with vectors and registers no wider than those of `level`; FMA is the target's."""
    given, own = level_of(target), LEVELS[level]
    if given.vector_bytes <= own.vector_bytes:
        return given
    return replace(given, vector_bytes=own.vector_bytes, registers=own.registers)


def may_alias(
    code: KernelOp, dtypes_in: Sequence[str], dtypes_out: Sequence[str], sums: int = 0
) -> Attribute:
    """Outputs that may lie on an input: same element at every point, stored in the last phase (nothing reads later).

    An input that is read at computed indices is never one.

    The first `sums` operands of the code are those of products: in the instruction's operands A and a B for each stand
    in their place.
    """
    last = code.phases[-1]
    shift = 1 if sums else 0
    found: list[tuple[int, int]] = []
    for op in last.body.block.ops:
        if not isinstance(op, StoreOp):
            continue
        output = op.output.value.data
        for place, map_ in enumerate(code.in_maps):
            same_type = dtypes_in[place] == dtypes_out[output]
            at_point = place >= sums and place not in code.indexed
            if same_type and map_ == code.out_maps[output] and at_point:
                found.append((output, place + shift))
    return pairs(sorted(found))


class PlainOperands:
    """A kernel that asks for no prepared layout."""

    id: str

    def prepare(self, work: Work, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """See `KernelDescriptor`; never reached by a record of this kernel."""
        raise PlanError(f"kernel '{self.id}' reads plain memory: its record must not ask for a layout")
