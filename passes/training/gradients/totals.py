"""The sum of what several readers of a value pass back: an addition, unless they read parts of it side by side.

Slices next to each other pass back parts that do not meet. Joined, they are written once, each where it belongs; as a
sum they would be filled up with zeros and added.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import int_values
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.scalar_ops import splat_value
from aicf.passes.support.writing import static_size
from aicf.passes.training.gradients.base import Tape


def total(tape: Tape, op: Operation, first: SSAValue, second: SSAValue) -> SSAValue:
    """The sum of two derivatives by one operand of `op`."""
    joined = _joined(tape, op, first, second)
    return tape.write(logical.AddOp(first, second), "grad.total", op) if joined is None else joined


def _joined(tape: Tape, op: Operation, first: SSAValue, second: SSAValue) -> SSAValue | None:
    """Two values with zeros around them as one with zeros around, if they lie side by side; else None."""
    pads = [pad for value in (first, second) if (pad := _zeros_around(value)) is not None]
    if len(pads) < 2:
        return None
    one, other = sorted(pads, key=lambda pad: int_values(pad.low))
    axis = _axis_of_neighbours(one, other)
    if axis is None:
        return None
    parts = [*_parts(one.operand, axis), *_parts(other.operand, axis)]
    joined = tape.write(logical.ConcatOp(parts, axis), "grad.joined", op)
    low, high = int_values(one.low), int_values(other.high)
    if not any(low) and not any(high):
        return joined
    return tape.write(logical.PadOp(joined, one.value, low, high), "grad.pad", op)


def _zeros_around(value: SSAValue) -> logical.PadOp | None:
    """The op that puts zeros around the value's other elements."""
    pad = value.owner
    if not isinstance(pad, logical.PadOp):
        return None
    number = pad.value.owner
    return pad if isinstance(number, logical.ConstantOp) and splat_value(number) == 0 else None


def _axis_of_neighbours(one: logical.PadOp, other: logical.PadOp) -> int | None:
    """The axis along which `other` begins where `one` ends, if they are alike along all others; else None."""
    before, after = int_values(one.low), int_values(other.low)
    apart = [axis for axis, (low, begin) in enumerate(zip(before, after, strict=True)) if low != begin]
    if len(apart) != 1:
        return None
    (axis,) = apart
    sizes, others = (list(tensor_info(pad.operand.type).sizes) for pad in (one, other))
    end = before[axis] + static_size(one, sizes[axis])
    sizes[axis] = others[axis] = 1
    return axis if sizes == others and end == after[axis] else None


def _parts(value: SSAValue, axis: int) -> Sequence[SSAValue]:
    """What an earlier sum joined along the axis, else the value."""
    joined = value.owner
    return (
        joined.parts if isinstance(joined, logical.ConcatOp) and joined.axis.value.data == axis else [value]
    )
