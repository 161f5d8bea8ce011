"""Prefix sums in a sweep: the prefix within a vector, and what is carried from one vector to the next.

Where the lanes of a vector are points of their own, the carry is a running result for each; where they are neighbours
along the scanned dim, the prefix of the lanes is built by shifting (Hillis and Steele, 1986), and the carry, one value
in every lane, is combined with it as the left operand.
"""

from __future__ import annotations

from llvmlite import ir

from aicf.backends.cpu.codegen.ir_builder import I32, Value
from aicf.backends.cpu.codegen.scalar.ops import Scalars, dtype_of
from aicf.dialects.emit_kernels import ScanOp


def scan_step(
    scalars: Scalars, op: ScanOp, carry: Value, value: Value, *, along: bool
) -> tuple[Value, Value]:
    """The result of a scan for one vector of values, and the carry after it.

    Args:
        carry: What the vectors before gave; the identity for the first one.
        value: The operand; lanes past the end of the dim hold the identity.
        along: Whether the lanes lie along the scanned dim.
    """
    how, dtype = op.combine.data, dtype_of(op.value)
    if not along:
        following = scalars.combine(how, dtype, carry, value)
        return (carry if op.is_exclusive else following), following
    prefix = _prefix(scalars, op, value)
    last = 0 if op.is_reverse else scalars.lanes - 1
    total = scalars.em.splat(scalars.em.b.extract_element(prefix, ir.Constant(I32, last)), scalars.lanes)
    own = _shifted(scalars, op, prefix, 1) if op.is_exclusive else prefix
    return scalars.combine(how, dtype, carry, own), scalars.combine(how, dtype, carry, total)


def _prefix(scalars: Scalars, op: ScanOp, value: Value) -> Value:
    """Every lane combined with all lanes before it: log2(lanes) steps."""
    how, dtype = op.combine.data, dtype_of(op.value)
    step = 1
    while step < scalars.lanes:
        value = scalars.combine(how, dtype, _shifted(scalars, op, value, step), value)
        step *= 2
    return value


def _shifted(scalars: Scalars, op: ScanOp, value: Value, by: int) -> Value:
    """The value of the lane `by` before each lane on the way of the scan, the identity where there is none."""
    lanes = scalars.lanes
    sources = [lane + by if op.is_reverse else lane - by for lane in range(lanes)]
    order = [source if 0 <= source < lanes else lanes for source in sources]
    identity = scalars.identity(op.combine.data, dtype_of(op.value))
    return scalars.em.b.shuffle_vector(value, identity, ir.Constant(ir.VectorType(I32, lanes), order))
