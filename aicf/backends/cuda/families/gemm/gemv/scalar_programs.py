"""Why a scalar program before or after a product of few rows has no code: what `prologue.py` and `epilogue.py` take."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.ir import Operation

from aicf.backends.common.loop_nest import uncoded_reason
from aicf.backends.common.workload import Workload
from aicf.dialects.emit_kernels import SCALAR_OPS, KernelOp, ReduceOp, StoreOp, YieldOp
from aicf.dialects.types import element_of

_REGISTER_FLOATS = ("f32", "f16", "bf16")


def epilogue_reason(
    work: Workload, code: KernelOp, size: int, operands: Sequence[Sequence[int]]
) -> str | None:
    """Why what follows the products cannot run on one sum of each.

    Args:
        work: The instruction, with `code` after its products.
        code: The scalar program.
        size: Elements of a result.
        operands: For each result, the numbers of what it reads beside the sums.
    """
    if code.reduce_sizes or len(code.phases) != 1 or len(code.out_maps) != 1:
        return "what follows the product is not one value for each element"
    if prod(code.parallel_sizes) != size:
        return "what follows the product has another shape"
    for index in range(len(operands[0])):
        strides = {work.operands[numbers[index]].strides for numbers in operands}
        if len(strides) > 1:
            return "operands of the products side by side lie differently"
    return _code_reason(code)


def prologue_reason(program: KernelOp) -> str | None:
    """Why a row program before products cannot run on registers that hold a row."""
    if (reason := _code_reason(program)) is not None:
        return f"row program before the product: {reason}"
    for phase in program.phases:
        is_last = phase is program.phases[-1]
        if not is_last and any(isinstance(op, StoreOp) for op in phase.body.block.ops):
            return "row program before the product: it stores before its last phase"
        if not all(_is_held(program, op) for op in phase.body.block.ops):
            return "row program before the product: it reduces or keeps what is no f32, f16 or bf16"
    return None


def _is_held(program: KernelOp, op: Operation) -> bool:
    """Whether what an op of a phase reduces or keeps is of types that registers hold."""
    kept = [value for value in op.operands if program.varies(value)] if isinstance(op, YieldOp) else []
    reduced = op.operands if isinstance(op, ReduceOp) else ()
    return all(element_of(value.type).name in _REGISTER_FLOATS for value in (*kept, *reduced))


def _code_reason(code: KernelOp) -> str | None:
    return uncoded_reason(code, "cuda", SCALAR_OPS, (YieldOp, StoreOp, ReduceOp))
