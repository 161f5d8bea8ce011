"""Recurrent layers become the ops of each step."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.passes.legalize.expansions.base import OpExpansion, register
from aicf.passes.logical.lowerings import FORMULAS

_INPUT, _WEIGHT, _FIRST = range(3)

register(
    OpExpansion(
        logical.LstmOp,
        ("lstm",),
        FORMULAS[logical.LstmOp],
        "step by step",
        copied=(_INPUT, _WEIGHT, _FIRST),
    )
)
