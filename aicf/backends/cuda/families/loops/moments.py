"""Which kernels take the mean of each column, and then the sum of the squares around it, as batch norm does.

Both can be taken in one sweep: a new element moves the mean, and adds to the squares the product of its distances from
the mean before and after (Welford, 1962). What threads, or parts of a column, have of both comes together in the same
way (Chan, Golub and LeVeque, 1983). Nothing cancels, so a mean that is large beside the deviation costs no digits.
Imports no code generator.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, f32
from xdsl.ir import SSAValue

from aicf.backends.cuda.families.loops.phase_pairs import are_same, reductions_of, yields
from aicf.dialects.emit_kernels import KernelOp, ReduceOp, StoreOp


@dataclass(frozen=True)
class Moments:
    """Sums, and sums of squares around the means that they give.

    Args:
        phase: The number of the phase of the sums; the next one has the squares, and does nothing else.
        squares: For each sum of the phase, in order, the place of its squares among the reductions of the next one.
    """

    phase: int
    squares: tuple[int, ...]


def moments_of(kernel: KernelOp) -> Moments | None:
    """The first phase of sums that is followed by their squares, in f32; None if none is."""
    for number, (phase, later) in enumerate(zip(kernel.phases, kernel.phases[1:], strict=False)):
        sums, squares = reductions_of(phase), reductions_of(later)
        stores = any(isinstance(op, StoreOp) for op in later.body.block.ops)
        if not sums or len(sums) != len(squares) or stores:
            continue
        found = [
            next((at for at, op in enumerate(squares) if _squares(kernel, number, op, total)), None)
            for total in sums
        ]
        places = tuple(at for at in found if at is not None)
        if len(set(places)) == len(sums):
            return Moments(number, places)
    return None


def _squares(kernel: KernelOp, number: int, squares: ReduceOp, total: ReduceOp) -> bool:
    """Whether `squares` is the sum of what the elements of `total`, in phase `number`, are from its mean, squared."""
    product = squares.value.owner
    if (total.combine.data, squares.combine.data) != ("sum", "sum") or not isinstance(product, arith.MulfOp):
        return False
    distance = product.lhs.owner
    if not isinstance(distance, arith.SubfOp) or not are_same(product.lhs, product.rhs):
        return False
    mean = distance.rhs.owner
    return (
        total.value.type == distance.result.type == f32
        and are_same(distance.lhs, total.value)
        and isinstance(mean, arith.DivfOp)
        and yields(kernel.phases[number], total, mean.lhs)
        and _is_count(kernel, mean.rhs)
    )


def _is_count(kernel: KernelOp, value: SSAValue) -> bool:
    """Whether a constant is the number of elements of a column."""
    op = value.owner
    return isinstance(op, arith.ConstantOp) and op.value == FloatAttr(float(prod(kernel.reduce_sizes)), f32)
