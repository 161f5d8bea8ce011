"""Recurrent layers, step by step."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.logical.lowerings.base import Formulas, Lowering
from aicf.passes.support.writing import static_size


def _lstm(lower: Lowering, op: logical.LstmOp) -> SSAValue:
    """A product, its sum with the input, the gates and the two new states, for each step."""
    _, steps, batch, hidden = (static_size(op, size) for size in op.info.sizes)

    def matrix(value: SSAValue, index: int, suffix: str) -> SSAValue:
        sizes = tensor_info(value.type).shape[1:]
        own = lower.add(logical.SliceOp(value, (index, 0, 0), (1, *sizes)), suffix)
        return lower.add(logical.ReshapeOp(own, sizes), suffix)

    h, c = (matrix(op.first, index, "first") for index in range(2))
    states: dict[int, tuple[SSAValue, SSAValue]] = {}
    for step in range(steps) if op.reverse is None else reversed(range(steps)):
        product = lower.add(logical.MatmulOp(h, op.weight, transpose_b=True), "product")
        gates = lower.apply(logical.AddOp, matrix(op.operand, step, "input"), product, name="gates")
        enter, leave, keep, new = (
            lower.add(logical.SliceOp(gates, (0, number * hidden), (batch, hidden)), "gate")
            for number in range(logical.LSTM_GATES)
        )
        enter, leave, keep = (lower.apply(logical.SigmoidOp, gate) for gate in (enter, leave, keep))
        kept = lower.apply(logical.MulOp, keep, c)
        c = lower.apply(
            logical.AddOp, kept, lower.apply(logical.MulOp, enter, lower.apply(logical.TanhOp, new))
        )
        h = lower.apply(logical.MulOp, leave, lower.apply(logical.TanhOp, c))
        states[step] = h, c
    rows = [
        lower.add(logical.ReshapeOp(states[step][index], (1, 1, batch, hidden)), "row")
        for index in range(2)
        for step in range(steps)
    ]
    joined = lower.add(logical.ConcatOp(rows, 0), "states")
    return lower.add(logical.ReshapeOp(joined, (2, steps, batch, hidden)), "all")


FORMULAS: Formulas = {
    logical.LstmOp: _lstm,
}
