"""Poolings become reductions of windows; the gradients of their maxima sums of slices."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.passes.legalize.expansions.base import OpExpansion, register
from aicf.passes.logical.lowerings import FORMULAS

_KINDS = {
    logical.MaxPoolOp: ("pool", "as a reduction of windows"),
    logical.AvgPoolOp: ("pool", "as a reduction of windows"),
    logical.MaxPoolTapsOp: ("pool_taps", "as a reduction of windows"),
    logical.MaxPoolGradOp: ("max_pool_grad", "as sums of slices"),
}
"""The kind of instruction that an op may be, and what the ledger calls it otherwise."""

register(*(OpExpansion(op, (kind,), FORMULAS[op], choice) for op, (kind, choice) in _KINDS.items()))
