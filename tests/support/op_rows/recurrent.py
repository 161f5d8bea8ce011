"""Recurrent layers: every sample on its own, a gate at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from aicf.dialects import logical
from tests.support.op_rows.row import Array, Draw, OperandsAndAttrs, Row, values

HIDDEN = (1, 2, 3, 5, 8, 9, 17, 33)


def _lstm_operands(draw: Draw, dtype: str) -> OperandsAndAttrs:
    steps, batch, hidden = draw(st.integers(1, 5)), draw(st.integers(1, 6)), draw(st.sampled_from(HIDDEN))
    x = values(draw, dtype, (steps, batch, 4 * hidden))
    weight = values(draw, dtype, (4 * hidden, hidden), special=False)
    first = values(draw, dtype, (2, batch, hidden), special=False)
    return [x, weight, first], {"reverse": draw(st.booleans())}


def _sigmoid(x: Array) -> Array:
    return 0.5 * (1 + np.tanh(0.5 * x))


def _lstm(x: Array, weight: Array, first: Array, reverse: bool) -> Array:
    steps, batch, hidden = x.shape[0], x.shape[1], weight.shape[1]
    result = np.zeros((2, steps, batch, hidden))
    for sample in range(batch):
        h, c = first[:, sample]
        for step in reversed(range(steps)) if reverse else range(steps):
            gates = [
                x[step, sample, at : at + hidden] + weight[at : at + hidden] @ h
                for at in range(0, 4 * hidden, hidden)
            ]
            c = _sigmoid(gates[2]) * c + _sigmoid(gates[0]) * np.tanh(gates[3])
            h = _sigmoid(gates[1]) * np.tanh(c)
            result[:, step, sample] = h, c
    return result


ROWS = (Row(logical.LstmOp, _lstm_operands, _lstm, ("f64", "f32")),)
