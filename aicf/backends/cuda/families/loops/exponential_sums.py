"""Which kernels take a maximum of each row, and then the sum of exponentials of what is below it, as a softmax does.

Both can be taken in one sweep: when the maximum grows, what was summed so far shrinks by an exponential of the
difference (Milakov and Gimelshein, 2018). Imports no code generator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, f32
from xdsl.ir import SSAValue

from aicf.backends.cuda.families.loops.phase_pairs import are_same, reductions_of, stores_cells, yields
from aicf.dialects.emit_kernels import KernelOp, ReduceOp


@dataclass(frozen=True)
class ExponentialSum:
    """A maximum and the sum below it.

    Args:
        phase: The number of the phase of the maximum; the next one has the sum, and visits cells for nothing else.
        index: Of the maximum among the reductions of its phase.
        maximum, total: Both reductions.
        is_guarded: Whether below a maximum of -inf the sum is 0, as a finite number is subtracted there; else it is
            NaN.
    """

    phase: int
    index: int
    maximum: ReduceOp
    total: ReduceOp
    is_guarded: bool


def exponential_sum_of(kernel: KernelOp) -> ExponentialSum | None:
    """The first maximum of a kernel that is followed by such a sum, in f32; None if none is."""
    varying = kernel.varying_values()
    for number, (phase, later) in enumerate(zip(kernel.phases, kernel.phases[1:], strict=False)):
        reductions = reductions_of(later)
        if len(reductions) != 1 or reductions[0].combine.data != "sum" or stores_cells(kernel, later):
            continue
        shifted = _exponent(reductions[0].value)
        if shifted is None or shifted.rhs in varying or shifted.result.type != f32:
            continue
        subtracted = _unguarded(shifted.rhs)
        for index, maximum in enumerate(reductions_of(phase)):
            is_subtracted = maximum.combine.data == "max" and yields(phase, maximum, subtracted)
            if is_subtracted and are_same(maximum.value, shifted.lhs):
                is_guarded = subtracted is not shifted.rhs
                return ExponentialSum(number, index, maximum, reductions[0], is_guarded)
    return None


def _unguarded(value: SSAValue) -> SSAValue:
    """A number that the lowest finite one takes the place of if it is -inf."""
    if not isinstance(value.owner, arith.MaximumfOp):
        return value
    least = value.owner.rhs.owner
    lowest = float(np.finfo(np.float32).min)
    is_lowest = isinstance(least, arith.ConstantOp) and least.value == FloatAttr(lowest, f32)
    return value.owner.lhs if is_lowest else value


def _exponent(value: SSAValue) -> arith.SubfOp | None:
    """The difference that a value is the exponential of."""
    if not isinstance(value.owner, math.ExpOp):
        return None
    shifted = value.owner.operand.owner
    return shifted if isinstance(shifted, arith.SubfOp) else None
