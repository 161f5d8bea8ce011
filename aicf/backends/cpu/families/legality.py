"""What all descriptors of the CPU kernels ask of a piece of work. Imports no code generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Block

from aicf.backends.common.loop_nest import Strided, overwritable, uncoded_reason
from aicf.backends.common.record import OneOf, Record, illegal, read_entry
from aicf.backends.common.workload import OperandInfo
from aicf.backends.cpu.families.loops.scalar_costs import SCALAR_CYCLES
from aicf.backends.cpu.families.records import pairs
from aicf.backends.cpu.target import LEVELS, CpuLevel, level_named
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.logical import PadOp, WindowOp


def strided(operand: OperandInfo) -> Strided:
    """Where an operand lies."""
    return Strided(operand.shape, operand.strides, operand.dtype)


def code_reason(code: KernelOp) -> str | None:
    """Why the scalar program has no code here."""
    return uncoded_reason(code, "cpu", SCALAR_CYCLES)


def windows_in_pads(body: Block) -> bool:
    """Whether a body reads windows of what it pads itself."""
    windows = (op for op in body.ops if isinstance(op, WindowOp))
    return any(isinstance(op.operand.owner, PadOp) for op in windows)


def threads_of(target: TargetAttr) -> int:
    """Threads that the target gives a program."""
    value = target.facts.data.get("threads")
    return value.value.data if isinstance(value, IntegerAttr) else 1


def legal_threads(target: TargetAttr) -> OneOf:
    """The numbers of threads that may share an instruction: one, or all that run the program."""
    return OneOf(tuple(sorted({1, threads_of(target)})))


def threads_reason(threads: int, target: TargetAttr) -> str | None:
    """Why so many threads do not share an instruction; None if they may."""
    legal = legal_threads(target)
    return None if legal.holds(threads) else f"its {illegal('threads', threads, legal)}"


def read_threads(record: Record, target: TargetAttr) -> int:
    """The threads of a record. Raises PlanError if so many do not share an instruction."""
    return read_entry(record, "threads", legal_threads(target))


def lanes_reason(lanes: int, level: CpuLevel) -> str | None:
    """Why vectors of so many elements of 4 bytes are not those of a level; None if they are. Its instructions by name
    are for its own vectors alone."""
    legal = level.lanes("f32")
    return None if lanes == legal else f"its {illegal('lanes', lanes, legal)}"


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
    """Outputs that may lie on an input of their type.

    The first `sums` operands of the code are those of products: in the instruction's operands A and a B for each stand
    in their place.
    """
    shift = 1 if sums else 0
    return pairs(
        [
            (output, operand + shift)
            for output, operand in overwritable(code)
            if operand >= sums and dtypes_in[operand] == dtypes_out[output]
        ]
    )
