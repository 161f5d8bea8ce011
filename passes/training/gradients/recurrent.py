"""Gradients of recurrent layers."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.passes.training.gradients.base import BY_FORMULA, Gradients

GRADIENTS: Gradients = {
    logical.LstmOp: BY_FORMULA,
}
