"""Weights that are laid out ahead: why one is not, and what an instruction says whose weight lies otherwise."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

from aicf.backends.base import Launch
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.dialects.types import element_of
from aicf.errors import PlanError


def block_weight_reason(weight: OperandInfo) -> str | None:
    """Why a weight of packed blocks, u8[..., rows, bytes of a row], cannot be laid out ahead; None if it can: it lies
    in one piece, and no program overwrites it."""
    if not weight.is_weight and weight.layout is None:
        return "the packed weight is no parameter, so its blocks cannot be laid out ahead"
    in_one_piece = tuple(accumulate(weight.shape[:0:-1], mul, initial=1))[::-1]
    return None if weight.strides == in_one_piece else "the packed weight is not in one piece"


def narrow_reason(work: Workload) -> str | None:
    """Why a product with packed weights is none of f32; None if it is. What a row program makes has the type of the
    sums, which the epilogue starts from."""
    code = work.code
    dtype = work.operands[0].dtype if code is None else element_of(code.body.block.args[0].type).name
    return None if dtype == "f32" else f"it multiplies {dtype} with packed weights, and here only f32 is"


def unexpected_layout(launch: Launch, operand: int) -> PlanError:
    """What to raise where an operand does not lie as the kernel record of its instruction says."""
    return PlanError(
        f"instruction '{launch.name}': the layout of operand {operand} is not the one its kernel record asks for: run "
        "lower-to-emit again"
    )
