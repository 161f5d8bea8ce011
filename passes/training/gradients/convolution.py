"""What convolutions pass back: their formulas are differentiated."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.passes.training.gradients.base import BY_FORMULA, Gradients

GRADIENTS: Gradients = {
    logical.ConvOp: BY_FORMULA,
    logical.ConvTransposeOp: BY_FORMULA,
}
