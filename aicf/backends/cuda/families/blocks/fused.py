"""What may come before and after products with packed weights in one instruction. Imports no code generator."""

from __future__ import annotations

from math import prod

from aicf.backends.common.loop_nest import access_of
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.blocks.problem import read_roles
from aicf.backends.cuda.families.gemm.gemv.scalar_programs import epilogue_reason, prologue_reason
from aicf.dialects.emit_kernels import KernelOp

_MOST_PRODUCTS = 2
_TYPES = ("f32", "f16", "bf16")


def fused_reason(work: Workload) -> str | None:
    """Why an instruction of kind `matmul_blocks_fused` cannot run as one kernel; None if nothing is against it but its
    weights, or rows of x that no vectors can read."""
    if len(work.results) != 1:
        return "products with packed weights have one result here"
    if work.code is None:
        return "what follows the product has no generated code"
    x, result = work.operands[0], work.results[0]
    rows = prod(x.shape[:-1])
    roles = read_roles(work.kind, work.attrs, len(work.operands))
    if len(roles.weights) > _MOST_PRODUCTS:
        return f"{len(roles.weights)} weights meet in a result; a block reads at most {_MOST_PRODUCTS}"
    if len({work.operands[number].shape for number in roles.weights}) > 1:
        return "the weights differ in shape"
    others = [work.operands[number] for number in (0, *roles.rows, *roles.extras)]
    if (
        wrong := next((each.dtype for each in (*others, result) if each.dtype not in _TYPES), None)
    ) is not None:
        return f"operands beside the weights are f32, f16 or bf16, one is {wrong}"
    reason = epilogue_reason(work, work.code, rows * result.shape[-1], [roles.extras])
    if reason is None and work.prologue is not None:
        reason = prologue_reason(work.prologue) or _own_rows_reason(work, work.prologue, roles.rows)
    return reason


def _own_rows_reason(work: Workload, program: KernelOp, operands: tuple[int, ...]) -> str | None:
    """Why the row program needs more than one set of operands for all rows; of one row as of many, so that the batch
    does not decide."""
    for index, number in enumerate(operands, 1):
        operand = work.operands[number]
        if any(access_of(program.in_maps[index], operand.strides, operand.dtype).strides[:-1]):
            return "the row program reads other operands in each row"
    return None
