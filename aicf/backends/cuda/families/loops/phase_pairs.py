"""What tells whether a phase's reduction and one of the next phase can be taken in one sweep: questions that
`exponential_sums.py` and `moments.py` ask of two phases. Imports no code generator.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import OpResult, SSAValue

from aicf.dialects.emit_kernels import KernelOp, PhaseOp, ReduceOp, StoreOp


def reductions_of(phase: PhaseOp) -> list[ReduceOp]:
    """Of one phase, in order."""
    return [op for op in phase.body.block.ops if isinstance(op, ReduceOp)]


def stores_cells(kernel: KernelOp, phase: PhaseOp) -> bool:
    """Whether the phase writes elements of the reduce space."""
    stores = (op for op in phase.body.block.ops if isinstance(op, StoreOp))
    return any(kernel.writes_reduce_space(op.output.value.data) for op in stores)


def yields(phase: PhaseOp, reduction: ReduceOp, value: SSAValue) -> bool:
    """Whether a value of a later phase is the result of a reduction of this one."""
    if not isinstance(value, OpResult) or value.op is not phase:
        return False
    return phase.terminator.operands[value.index] is reduction.result


def are_same(one: SSAValue, other: SSAValue) -> bool:
    """Whether two phases compute the same of the same."""
    if one is other:
        return True
    if not isinstance(one, OpResult) or not isinstance(other, OpResult):
        return False
    a, b = one.op, other.op
    if type(a) is not type(b) or isinstance(a, PhaseOp | ReduceOp) or a.properties != b.properties:
        return False
    return one.type == other.type and _all_same(a.operands, b.operands)


def _all_same(ones: Sequence[SSAValue], others: Sequence[SSAValue]) -> bool:
    return len(ones) == len(others) and all(are_same(a, b) for a, b in zip(ones, others, strict=True))
