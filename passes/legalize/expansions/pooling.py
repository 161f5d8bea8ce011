"""Poolings become reductions of windows."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.passes.legalize.expansions.base import OpExpansion, register
from aicf.passes.logical.lowerings import FORMULAS

register(
    *(
        OpExpansion(op, ("pool",), FORMULAS[op], "as a reduction of windows")
        for op in (logical.MaxPoolOp, logical.AvgPoolOp)
    )
)
