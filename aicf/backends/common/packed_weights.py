"""Weights that are laid out ahead: why one is not, and what an instruction says whose weight lies otherwise."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

from aicf.backends.base import Launch
from aicf.backends.common.workload import OperandInfo
from aicf.errors import PlanError


def block_weight_reason(weight: OperandInfo) -> str | None:
    """Why a weight of packed blocks, u8[..., rows, bytes of a row], cannot be laid out ahead; None if it can: it lies
    in one piece, and no program overwrites it."""
    if not weight.is_weight and weight.layout is None:
        return "the packed weight is no parameter, so its blocks cannot be laid out ahead"
    in_one_piece = tuple(accumulate(weight.shape[:0:-1], mul, initial=1))[::-1]
    return None if weight.strides == in_one_piece else "the packed weight is not in one piece"


def unexpected_layout(launch: Launch, operand: int) -> PlanError:
    """What to raise where an operand does not lie as the kernel record of its instruction says."""
    return PlanError(
        f"instruction '{launch.name}': the layout of operand {operand} is not the one its kernel record asks for: run "
        "lower-to-emit again"
    )
