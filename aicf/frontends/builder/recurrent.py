"""Recurrent layers of the builder."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.frontends.builder.core import GraphCore, Value


class RecurrentOps(GraphCore):
    """One method an op."""

    def lstm(
        self,
        x: Value,
        weight: Value,
        first: Value,
        *,
        reverse: bool = False,
        name: str | None = None,
    ) -> Value:
        """All states of an LSTM, ``[2, S, B, H]``: h, then c.

        x: what the gates i, o, f, g have of the input, ``[S, B, 4 * H]``; weight: ``[4 * H, H]``; first: h and c in
        front of the first step, ``[2, B, H]``.
        """
        operands = tuple(self._own(item) for item in (x, weight, first))
        return self._insert("lstm", name, lambda: logical.LstmOp(*operands, reverse=reverse))
