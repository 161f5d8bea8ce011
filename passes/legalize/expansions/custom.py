"""Ops of users become their formulas, and ops that were kept whole what they are in primitive ops."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.passes.legalize.expansions.base import OpExpansion, register
from aicf.passes.logical.lowerings.custom import expanded, has_formula, pointwise

register(
    OpExpansion(
        logical.CustomOp,
        ("custom",),
        expanded,
        "its formula",
        has_formula=has_formula,
        kept=pointwise,
        copied=None,
    )
)
