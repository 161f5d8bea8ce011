"""Meanings of recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from aicf.dialects import logical
from aicf.semantics.base import Array, Meaning
from aicf.semantics.contraction import transposed
from aicf.semantics.elementwise import sigmoid


def _lstm(op: logical.LstmOp, operands: Sequence[Array]) -> Array:
    x, weight, (h, c) = operands
    steps = range(len(x))
    columns = transposed(weight)
    states = np.empty((2, *x.shape[:2], weight.shape[1]), x.dtype)
    for step in steps if op.reverse is None else reversed(steps):
        gates = np.split(x[step] + np.matmul(h, columns), logical.LSTM_GATES, axis=1)
        enter, leave, keep = (sigmoid(gate) for gate in gates[:3])
        c = keep * c + enter * np.tanh(gates[3])
        h = leave * np.tanh(c)
        states[:, step] = h, c
    return states


MEANINGS: Mapping[type[Operation], Meaning] = {
    logical.LstmOp: _lstm,
}
